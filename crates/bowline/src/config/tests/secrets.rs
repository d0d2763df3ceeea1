//! No error, rendered or as `Debug`, shows a secret of the file.

use super::{good, parse, server};

const SECRETS: [&str; 3] = ["s3cret", "hunter2", "k3y"];

/// A file that is right and full of secrets, to be broken by the tests.
const FULL: &str = r#"listen = "127.0.0.1:6270"
[store]
kind = "redis"
url = "rediss://redis.example.com:6379"
user = "bowline"
password = "k3y-and-more"
[limits]
sessions = 5 # s3cret
[oauth]
redirect_uri = "https://app.example/cb?k3y"
[servers.a]
url = "https://mcp.example.com/mcp/hunter2?key=k3y"
headers = { Authorization = "Bearer s3cret", X-A = 'hunter2' } # k3y
connect_timeout = "10s"
replay = ["x"]
[[servers.a.session_lost]]
status = 400
text = "gone"
[servers.a-b.headers]
X-Key = """
k3y"""
[servers.a-b]
endpoints = ['http://h/mcp/hunter2', "http://h/${TOKEN}"]
health = { get = "/k3y" }
oauth = { client_id = "x", client_secret = "s3cret", issuer = "https://h" }
[callers.ada]
key = "hunter2hunter2hunter2"
"#;

/// The same as an editor has it.
const EDITOR: &str = r#"{"mcpServers": {
  "a": {"type": "http", "url": "https://mcp.example.com/mcp/hunter2?key=k3y",
    "headers": {"Authorization": "Bearer s3cret", "X-A": "${TOKEN}"}},
  "b": {"url": "http://h/", "description": "hunter2", "oauth": {"client_id": "x", "client_secret": "k3y", "issuer": "https://h"}}
}}"#;

#[track_caller]
fn hides(text: &str) {
    if let Err(errors) = parse(text) {
        for shown in [
            errors.render(false),
            errors.render(true),
            format!("{errors:?}"),
        ] {
            for secret in SECRETS {
                assert!(
                    !shown.contains(secret),
                    "{secret} in\n{text}\nshows as\n{shown}"
                );
            }
        }
    }
}

#[track_caller]
fn fails_and_hides(text: &str) {
    assert!(parse(text).is_err(), "{text}");
    hides(text);
}

#[test]
fn debug_hides_header_values() {
    let config = good(&server("headers = { Authorization = \"Bearer s3cret\" }"));
    assert!(config.servers["a"].headers["authorization"].is_sensitive());
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn values_of_headers() {
    for lines in [
        "headers = { Authorization = \"s3cret\\n\" }",
        "headers = { Authorization = \"\"\"s3cret\nhunter2\"\"\" }",
        "headers = { Cookie = \"s3cret\" }",
        "headers = { X = [\"s3cret\"], Y = { z = \"hunter2\" } }",
        "headers = { \"a b\" = \"s3cret\" }",
        "headers = { X = \"s3cret\", x = \"hunter2\" }",
        "headers = \"s3cret\"",
        "headers = [\"s3cret\", { X = \"hunter2\" }]",
        "header = { X = \"s3cret\" }",
        "token = \"s3cret\"",
        "connect_timeout = 5 # s3cret",
        "headers.X = \"s3cret",
        "headers.X = s3cret",
        "headers = { X: \"s3cret\" }",
        "headers = { kind = \"s3cret }",
        "headers = { X = \"\"\"\ns3cret=\nkind = hunter2\\q\n\"\"\" }",
        "connect_timeout = \"10s\", headers = { X = \"s3cret\" }",
    ] {
        fails_and_hides(&server(lines));
    }
    fails_and_hides("servers.a = { headers = { X = \"s3cret\" } }");
    fails_and_hides("server.a = { headers = { X = \"s3cret\" } }");
    fails_and_hides("servers = \"https://ada:hunter2@h/\"");
    fails_and_hides("servers.a = [\"https://ada:hunter2@h/\"]");
}

#[test]
fn keys_of_callers() {
    for lines in [
        "key = \"hunter2\"",
        "key = \"hunter2hunter2hunter2\\n\"",
        "key = [\"hunter2\"]",
        "key = hunter2",
        "key_sha256 = \"hunter2\"",
        "keys = \"hunter2\"",
        "key = \"hunter2${NONE}\"",
        "key = \"${NONE:-hunter2}\"",
        "key = \"${TOKEN} \"",
    ] {
        fails_and_hides(&format!("[callers.a]\n{lines}\n"));
    }
}

#[test]
fn secrets_of_clients() {
    for lines in [
        "client_secret = \"s3cret\"",
        "client_id = \"x\"\nclient_secret = \"s3cret\\n\"",
        "client_id = \"x\"\nclient_secret = \"s3cret\"",
        "issuer = \"https://ada:hunter2@h/\"",
        "issuer = \"https://h/?k3y\"",
        "endpoints_elsewhere = [\"https://h/hunter2\"]",
        "client_id = \"x\"\nclient_secret = [\"s3cret\"]",
        "client_secret = s3cret",
        "client_secrets = \"s3cret\"",
        "client_secret = \"${NONE:-s3cret}\"",
        "redirect_uri = \"https://ada:hunter2@h/\"",
        "redirect_uri = \"myapp://hunter2@h/k3y\"",
        "redirect_uri = \"http://h/?k3y\"",
        "client_metadata_url = \"https://hunter2@h/x\"",
        "client_metadata_url = \"http://h/hunter2\"",
    ] {
        fails_and_hides(&format!(
            "[servers.a]\nurl = \"http://h\"\n[servers.a.oauth]\n{lines}\n"
        ));
    }
    fails_and_hides("oauth.public_url = \"https://ada:hunter2@h/\"");
    fails_and_hides("oauth.public_url = \"http://h/k3y\"");
}

#[test]
fn parts_of_urls() {
    for url in [
        "https://ada:hunter2@h/mcp",
        "https://hunter2@h",
        "https://ada:a/hunter2@h/",
        "https://hunter2/k3y@h/#",
        "https:/ada:hunter2@h/",
        "ada:hunter2@h/",
        "ws://h/hunter2?key=k3y#s3cret",
        "https://h#s3cret",
        "hunter2",
        "hunter2 https://h",
        "${NONE:-hunter2@https://h}",
    ] {
        fails_and_hides(&format!("[servers.a]\nurl = \"{url}\""));
        fails_and_hides(&format!("[servers.a]\nurl = [\"{url}\"]"));
        fails_and_hides(&format!("servers.a = {{ url = '{url}', x = 1 }}"));
        fails_and_hides(&format!("[servers.a]\nendpoints = ['http://h', '{url}']"));
        fails_and_hides(&format!("[servers.a]\nurl = {url}"));
        fails_and_hides(&format!("[servers.a]\nurl = \"{url}"));
    }
    fails_and_hides("[servers.a]\nurl = \"https://hunter2\\u0040h/\"");
    fails_and_hides("[servers.a]\nurl = \"https://h\\u002fhunter2#\"");
}

/// Every edit of one character, at every place, with every character that means something in TOML.
#[test]
fn every_slip_of_the_pen() {
    for full in [FULL, EDITOR] {
        good(full);
        for (at, c) in full.char_indices() {
            let (before, after) = (&full[..at], &full[at + c.len_utf8()..]);
            hides(&format!("{before}{after}"));
            for new in "\"'={}[],.#\\\n: @/x\0é".chars() {
                hides(&format!("{before}{new}{after}"));
                hides(&format!("{before}{new}{c}{after}"));
            }
        }
    }
}
