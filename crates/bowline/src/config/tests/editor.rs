//! The JSON of editors.

use super::{Problem, Target, good, parse, wrong};
use crate::config::Transport;

fn in_server(members: &str) -> String {
    format!("{{\"mcpServers\": {{\"a\": {{{members}}}}}}}")
}

#[test]
fn what_editors_write() {
    let config = good(
        "\u{feff} \n{
  \"mcpServers\": {
    \"files\": {\"type\": \"http\", \"url\": \"https://h/mcp\", \"headers\": {\"Authorization\": \"Bearer x\"}},
    \"b\": {\"url\": \"http://h\\/mcp\", \"disabled\": false, \"autoApprove\": [\"x\"], \"alwaysAllow\": [],
          \"timeout\": 60, \"env\": {}, \"description\": \"\"},
    \"c\": {\"type\": \"streamable-http\", \"url\": \"http://h\"},
    \"d\": {\"type\": \"streamableHttp\", \"url\": \"http://h\"},
    \"e\": {\"command\": \"npx\", \"args\": [\"-y\"], \"disabled\": true},
    \"f\": {\"type\": \"stdio\", \"command\": \"npx\", \"args\": [\"-y\", \"-y\"], \"env\": {\"A\": \"b\"}}
  }
}\n",
    );
    let names: Vec<_> = config.servers.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["b", "c", "d", "f", "files"]);
    let Target::Command(command) = &config.servers["f"].target else {
        panic!("not a command");
    };
    assert_eq!(
        (&*command.program, &command.args[..]),
        ("npx", &["-y", "-y"].map(str::to_owned)[..])
    );
    assert_eq!(command.env["A"], "b");
    let files = &config.servers["files"];
    assert_eq!(files.headers["authorization"], "Bearer x");
    assert!(matches!(&files.target, Target::Url(url) if url == "https://h/mcp"));
    assert_eq!(config.servers["b"].target.urls()[0].path(), "/mcp");
    assert!(good("{\"mcpServers\": {}}").servers.is_empty());
}

#[test]
fn what_is_not_supported_yet_is_said() {
    assert_eq!(
        wrong(&in_server(r#""type": "stdio""#)).2,
        "a server that speaks stdio needs a `command`"
    );
    assert_eq!(
        wrong(&in_server(r#""type": "http", "command": "npx""#)).2,
        "a server with a `command` speaks stdio"
    );
    assert_eq!(
        wrong(&in_server(r#""command": "npx", "headers": {"A": "b"}"#)).2,
        "`headers` means nothing for a server with a `command`"
    );
    assert_eq!(
        wrong(&in_server(r#""type": "sse", "command": "npx""#)).2,
        "a server with a `command` speaks stdio"
    );
    assert_eq!(
        wrong(&in_server(r#""type": "ws", "url": "http://h""#)).2,
        "unknown `type` of server"
    );
    for other in ["serverUrl", "httpUrl"] {
        let members = format!("\"{other}\": \"http://h\"");
        let found = wrong(&in_server(&members));
        assert_eq!(found.2, "the server's address must be called `url`");
    }
}

#[test]
fn a_type_is_a_transport() {
    for (kind, transport) in [
        (r#""type": "http", "#, Transport::Auto),
        ("", Transport::Auto),
        (r#""type": "streamable-http", "#, Transport::StreamableHttp),
        (r#""type": "streamableHttp", "#, Transport::StreamableHttp),
        (r#""type": "sse", "#, Transport::Sse),
    ] {
        let config = good(&in_server(&format!(r#"{kind}"url": "http://h/sse""#)));
        let server = config.servers.values().next().unwrap();
        assert_eq!(server.transport, transport, "{kind}");
    }
}

#[test]
fn keys_that_only_toml_has() {
    for (key, value) in [
        ("recovery_budget", "\"30s\""),
        ("on_session_loss", "\"tell\""),
        ("replay", "\"never\""),
        ("drain_timeout", "\"10m\""),
        ("session_lost", "[{\"status\": 400}]"),
    ] {
        let members = format!("\"url\": \"http://h\", \"{key}\": {value}");
        let message = format!("unknown key `{key}` in `mcpServers.a`");
        assert_eq!(wrong(&in_server(&members)).2, message);
    }
}

#[test]
fn signing_in() {
    let oauth = r#""url": "http://h", "oauth": {"client_id": "x", "scopes": ["a"]}"#;
    let config = good(&in_server(oauth));
    let oauth = config.servers["a"].oauth.as_ref().unwrap();
    assert_eq!(oauth.client.as_ref().unwrap().id, "x");
    assert_eq!(oauth.scopes, ["a"]);
    let other = r#""url": "http://h", "oauth": {"clientId": "x"}"#;
    let errors = parse(&in_server(other)).unwrap_err();
    let helps: Vec<_> = errors.iter().map(Problem::help).collect();
    assert_eq!(helps, ["did you mean `client_id`?"]);
}

#[test]
fn all_problems_at_once_with_their_places() {
    let text = r#"{
  "mcpServers": {
    "a b": {"url": "https://h/mcp"},
    "files": {"type": 1, "url": "https://ada:hunter2@h/mcp", "headers": {"Cookie": "s3cret", "X": ["k3y"]}},
    "web": {"uri": "https://h/hunter2", "headers": "s3cret"},
    "web": true
  },
  "inputs": []
}"#;
    let errors = parse(text).unwrap_err();
    let found: Vec<_> = errors
        .iter()
        .map(|problem| (problem.line(), problem.column(), problem.message()))
        .collect();
    assert_eq!(
        found,
        [
            (
                3,
                5,
                "the server's name has a character that names cannot have"
            ),
            (4, 15, "`type` must be a string, not an integer"),
            (4, 33, "the URL has a user name or password in it"),
            (
                4,
                74,
                "the header `Cookie` is set by Bowline: cookies are kept per session"
            ),
            (4, 94, "the header `X` must be a string, not an array"),
            (5, 5, "`mcpServers.web` has neither `url` nor `command`"),
            (5, 13, "unknown key `uri` in `mcpServers.web`"),
            (
                5,
                41,
                "`mcpServers.web.headers` must be a table, not a string"
            ),
            (6, 5, "the key `web` is given twice"),
            (6, 5, "`mcpServers.web` must be a table, not a boolean"),
            (8, 3, "unknown key `inputs`"),
        ]
    );
    let shown = errors.to_string();
    for secret in ["hunter2", "s3cret", "k3y"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn how_it_looks() {
    let text = "{\"mcpServers\": {\"a\": {\n  \"url\": \"https://h/hunter2\",\n  \"header\": {\"X\": \"${TOKEN}\"}}}}";
    assert_eq!(
        parse(text).unwrap_err().to_string(),
        r#"
error: unknown key `header` in `mcpServers.a`
 --> bowline.toml:3:3
  |
3 |   "header": {"X": "${TOKEN}"}}}}
  |   ^^^^^^^^
  |
  = help: did you mean `headers`?"#
            .trim_start()
    );
    let text = "{\"mcpServers\": {\"a\": {\n  \"url\": \"https://h/hunter2\"\n  \"headers\": {\"X\": \"s3cret\"}}}}";
    assert_eq!(
        parse(text).unwrap_err().to_string(),
        r#"
error: this is not valid JSON: expected `,` or `}`
 --> bowline.toml:3:3
  |
3 |   "headers": {"*": "******"}}}}
  |   ^
  |
  = help: correct the syntax, such as a missing comma or quote; JSON has no comments"#
            .trim_start()
    );
}

#[test]
fn what_is_not_json() {
    for text in [
        "{",
        "{]",
        "{\"mcpServers\": {}} x",
        "{\"a\": \"\\q\"}",
        "{'a': 1}",
        "{\n\n",
    ] {
        let (.., message) = wrong(text);
        assert!(message.starts_with("this is not valid JSON: "), "{message}");
    }
    let half = wrong("{\"mcpServers\": {\"a\": {\"url\": \"\\ud800\"}}}");
    assert_eq!(half.1, 30);
    assert!(half.2.starts_with("this is not valid JSON: "), "{}", half.2);
    assert_eq!(wrong("{}").2, "the file has no `mcpServers`");
    let deep = format!(
        "{{\"mcpServers\": {}1{}}}",
        "[".repeat(9000),
        "]".repeat(9000)
    );
    assert_eq!(wrong(&deep).2, "`mcpServers` must be a table, not an array");
}
