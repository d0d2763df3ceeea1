//! Whatever the text, parsing ends with a configuration or with problems that can be shown.

use proptest::prelude::*;

use super::parse;

const VALID: &str = r#"listen = "127.0.0.1:6270"
admin = "off"
store = { kind = "redis", url = "redis://${HOST}:1/é", password = "é", prefix = "漢", cache = 1 }
oauth = { public_url = "https://${HOST}/é", redirect_uri = "é:/${HOST}", hold = "1s", meta_prefix = "a.b" }
[limits]
sessions = 5
session_idle = "30m"
[servers.a]
url = "https://mcp.example.com/mcp?x=é"
headers = { Authorization = "Bearer x", "X-漢" = '''y''' }
[servers."b.c"]
endpoints = ["http://h", "http://${HOST}/${NONE:-é}"]
connect_timeout = "10s"
health = { every = "5s", get = "/x" }
replay = ["é", "${HOST}"]
[[servers."b.c".session_lost]]
status = 200
code = -32000
text = "é"
[servers."b.c".oauth]
flow = "drive"
client_id = "é"
client_secret = "${TOKEN}"
scopes = ["a", "é b"]
redirect_uri = "http://[::1]:1/${HOST}"
client_metadata_url = "https://h/./é"
allow_private = true
[callers.x]
key = "$${é}${TOKEN}"
"#;

const EDITOR: &str = r#" {"mcpServers": {"a": {"type": "http", "url": "https://${HOST}/é",
  "headers": {"X": "漢${TOKEN}", "Y": "\"}}, "b": {"command": "npx", "disabled": true}}}"#;

fn parses_or_reports(text: &str) {
    let Err(errors) = parse(text) else {
        return;
    };
    assert!(!errors.is_empty());
    let rendered = errors.render(false);
    assert!(!errors.render(true).is_empty());
    for problem in errors.iter() {
        assert!(!problem.message().is_empty() && !problem.help().is_empty());
        let (line, column) = (problem.line(), problem.column());
        let written = text.split('\n').nth(line - 1).unwrap();
        assert!(column <= written.chars().count() + 1);
        assert!(
            rendered.contains(&format!("bowline.toml:{line}:{column}\n")),
            "{rendered}"
        );
    }
}

/// A valid file with some stretches replaced by other text.
fn mutated(valid: &'static str) -> impl Strategy<Value = String> {
    let new = prop_oneof![
        "[\"'=$:{}\\[\\],.#\\\\\n\r\t :@/0-9a-z\u{0}é漢-]{0,4}",
        prop::sample::select(vec![
            "\"\"\"",
            "'''",
            "[[",
            "]]",
            "99999999999999999999",
            "\u{feff}"
        ])
        .prop_map(str::to_owned),
    ];
    let edit = (any::<prop::sample::Index>(), 0..6_usize, new);
    prop::collection::vec(edit, 1..5).prop_map(|edits| {
        let mut chars: Vec<char> = valid.chars().collect();
        for (at, removed, new) in edits {
            let start = at.index(chars.len() + 1);
            let end = (start + removed).min(chars.len());
            chars.splice(start..end, new.chars());
        }
        chars.into_iter().collect()
    })
}

proptest! {
    #[test]
    fn arbitrary_text(text in any::<String>()) {
        parses_or_reports(&text);
    }

    #[test]
    fn text_that_looks_like_toml(text in "([a-z.\"]{1,6}( = |\\.|\\]\n|\n)[\\[{\"']?[0-9a-zé,]{0,4}[\\]}\"']?\n?){0,8}") {
        parses_or_reports(&text);
    }

    #[test]
    fn mutated_files(text in mutated(VALID)) {
        parses_or_reports(&text);
    }

    #[test]
    fn mutated_json(text in mutated(EDITOR)) {
        parses_or_reports(&text);
    }
}
