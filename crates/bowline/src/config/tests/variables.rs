//! Variables in values, in both formats.

use super::{good, parse, server, wrong};

fn header(value: &str) -> String {
    let config = good(&server(&format!("headers = {{ X = '{value}' }}")));
    let value = &config.servers["a"].headers["x"];
    String::from_utf8(value.as_bytes().to_vec()).unwrap()
}

#[test]
fn variables_are_put_in() {
    assert_eq!(header("Bearer ${TOKEN}"), "Bearer s3cret-of-16-chars");
    assert_eq!(header("${HOST}${HOST}"), "mcp.example.commcp.example.com");
    assert_eq!(header("a${EMPTY}b"), "ab");
    assert_eq!(header("${NONE:-x}y"), "xy");
    assert_eq!(header("${NONE:-}"), "");
    assert_eq!(header("${EMPTY:-x}"), "x");
    assert_eq!(header("${HOST:-x}"), "mcp.example.com");
    assert_eq!(header("${NONE:-a:-b}"), "a:-b");
}

#[test]
fn a_dollar_alone_is_a_dollar() {
    for plain in ["$", "$HOST", "a$", "$$", "{HOST}", "$ {HOST}", "$}"] {
        assert_eq!(header(plain), plain);
    }
    assert_eq!(header("$${HOST}"), "${HOST}");
    assert_eq!(header("$$${HOST}"), "$${HOST}");
    assert_eq!(header("a$${x"), "a${x");
    assert_eq!(header("$${${HOST}"), "${mcp.example.com");
}

#[test]
fn in_every_string() {
    let config = good(
        r#"
        listen = "${NONE:-127.0.0.1}:1"
        admin = "${NONE:-off}"
        [servers.a]
        endpoints = ["http://${HOST}/mcp", "http://b/"]
        forward_headers = ["${NONE:-x-tenant}"]
        "#,
    );
    assert_eq!(config.listen.to_string(), "127.0.0.1:1");
    assert_eq!(config.admin, None);
    let server = &config.servers["a"];
    assert_eq!(server.target.urls()[0].host(), Some("mcp.example.com"));
    assert_eq!(server.forward_headers, ["x-tenant"]);
    let json =
        r#"{"mcpServers": {"a": {"url": "https://${HOST}/", "headers": {"X": "${TOKEN}"}}}}"#;
    let server = &good(json).servers["a"];
    assert_eq!(
        server.target.urls()[0].to_string(),
        "https://mcp.example.com/"
    );
    assert_eq!(server.headers["x"], "s3cret-of-16-chars");
    // Names are not values.
    assert_eq!(wrong("'${HOST}' = 1").2, "unknown key `${HOST}`");
}

#[test]
fn a_variable_cannot_change_the_structure() {
    let (line, column, message) = wrong(&server("headers = { X = \"${QUOTE}\" }"));
    assert_eq!((line, column), (3, 13));
    assert!(message.starts_with("the value of the header `X`"));
    let errors = parse("admin = \"${QUOTE}\"").unwrap_err().to_string();
    assert!(!errors.contains("[limits]"), "{errors}");
}

#[test]
fn what_cannot_be_put_in() {
    for (value, message, columns) in [
        (
            "ab ${MISSING} ${HOST}",
            "the variable `MISSING`, used in `servers.a.headers.X`, is not set",
            20,
        ),
        (
            "${HOST",
            "a `${` in `servers.a.headers.X` is never closed",
            17,
        ),
        (
            "${}",
            "a `${` in `servers.a.headers.X` does not name a variable",
            17,
        ),
        (
            "${9}",
            "a `${` in `servers.a.headers.X` does not name a variable",
            17,
        ),
        (
            "${a-b}",
            "a `${` in `servers.a.headers.X` does not name a variable",
            17,
        ),
        (
            "${env:HOST}",
            "a `${` in `servers.a.headers.X` does not name a variable",
            17,
        ),
        (
            "${NONE:-${HOST}}",
            "a default in `servers.a.headers.X` has a variable in it",
            17,
        ),
    ] {
        let found = wrong(&server(&format!("headers = {{ X = '{value}' }}")));
        assert_eq!(found, (3, columns + 1, message.to_owned()));
    }
    // With escapes the place within the value is not known.
    let found = wrong(&server("headers = { X = \"\\u0061${MISSING}\" }"));
    assert_eq!((found.0, found.1), (3, 17));
    let found = wrong("[servers.a]\nendpoints = [\"http://h/\", \"${MISSING}\"]");
    assert_eq!(
        (found.1, found.2.as_str()),
        (
            28,
            "the variable `MISSING`, used in `servers.a.endpoints`, is not set"
        )
    );
    wrong("[servers.a]\nurl = \"${MISSING}\"");
    wrong("[servers.a]\nendpoints = [\"${MISSING}\"]");
    wrong("[callers.a]\nkey = \"${MISSING}\"");
}

#[test]
fn how_it_looks() {
    let text = r#"listen = "${HOST}:1"
[servers.a]
url = "https://${HOST}/${TOKEN}?x=hunter2"
headers = { Authorization = "Bearer ${TOKN}", X = "${A:-hunter2}\n", "X Y" = "a${B:-hunter2}b" }
"#;
    let errors = parse(text).unwrap_err().to_string();
    assert_eq!(
        errors.trim_end(),
        r#"
error: `listen` is not an IP address with a port, nor a Unix socket
 --> bowline.toml:1:10
  |
1 | listen = "${HOST}:1"
  |          ^^^^^^^^^^^
  |
  = help: write an IP address and a port, such as `127.0.0.1:6270`, or a Unix socket, such as `unix:/run/bowline.sock`

error: the variable `TOKN`, used in `servers.a.headers.Authorization`, is not set
 --> bowline.toml:4:37
  |
4 | headers = { Authorization = "*******${TOKN}", X = "***************", "X Y" = "*${B:-*******}*" }
  |                                     ^^^^^^^
  |
  = help: set it where Bowline starts, or give a default: `${TOKN:-default}`

error: the value of the header `X` has a character that headers cannot have
 --> bowline.toml:4:47
  |
4 | headers = { Authorization = "*******${TOKN}", X = "***************", "X Y" = "*${B:-*******}*" }
  |                                               ^
  |
  = help: remove line breaks and other control characters; one is easily copied along

error: `X Y` is not the name of a header
 --> bowline.toml:4:70
  |
4 | headers = { Authorization = "*******${TOKN}", X = "***************", "X Y" = "*${B:-*******}*" }
  |                                                                      ^^^^^
  |
  = help: use only ASCII letters, digits and `-`, such as `X-Api-Key`"#
            .trim_start(),
        "\n{errors}"
    );
}
