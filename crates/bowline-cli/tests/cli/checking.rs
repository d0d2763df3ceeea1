//! `bowline check` and `bowline schema`.

use std::path::Path;

use snapbox::{assert_data_eq, str};

use crate::running::{bowline, run};

fn check(folder: &Path, options: &[&str]) -> (Option<i32>, String, String) {
    let mut command = bowline();
    command.arg("check").args(options);
    command
        .env("TOKEN", "s3cret")
        .env("XDG_STATE_HOME", "/home/ada/state");
    run(command.current_dir(folder))
}

#[test]
fn a_file_as_it_is_understood() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
        stop_timeout = "90s"
        [servers.files]
        endpoints = ["http://10.0.0.1:8000/mcp", "http://10.0.0.2:8000/s3cret?key=s3cret"]
        headers = { Authorization = "Bearer ${TOKEN}", X-Team = "s3cret" }
        forward_headers = ["X-Tenant"]
        call_timeout = "60s"
        health = { every = "2s", get = "/healthz" }
        recovery_budget = "90s"
        on_session_loss = "tell"
        replay = ["search", "read"]
        drain_timeout = "1h"
        tools = { allow = ["get_*"] }
        [[servers.files.session_lost]]
        status = 400
        [[servers.files.session_lost]]
        status = 200
        code = -32000
        text = 'no session'
        [callers.alice]
        key = "s3cret-s3cret-s3cret"
        servers = ["files", "v1.0"]
    "#;
    std::fs::write(folder.path().join("bowline.toml"), text).unwrap();
    let options = [
        "-c",
        "bowline.toml",
        "--server",
        "v1.0=https://mcp.example.com/s3cret",
    ];
    let (code, stdout, stderr) = check(folder.path(), &options);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_data_eq!(
        stdout,
        str![[r#"
listen = "127.0.0.1:6270"
admin = "127.0.0.1:6271"
stop_timeout = "1m 30s"

[store]
kind = "file"
path = "/home/ada/state/bowline"
timeout = "2s"
cache = 10000
grace = "30s"
# encrypted with a generated key, stored beside the sessions

[limits]
sessions = 100000
streams = 20000
connections = 40000
children = 200
connections_per_address = 500
proxies = []
body_bytes = 8388608
session_idle = "30m"
# no session_max_age: sessions in use never expire

[servers.files]
endpoints = [
    "http://10.0.0.1:8000/mcp",
    "http://10.0.0.2:8000/****?****",
]
headers = { authorization = "****", x-team = "****" }
forward_headers = ["x-tenant"]
connect_timeout = "10s"
call_timeout = "1m"
health = { every = "2s", get = "/healthz" }
keep_alive = "4m"
recovery_budget = "1m 30s"
on_session_loss = "tell"
replay = ["search", "read"]
drain_timeout = "1h"
prefix = "files"
required = false
list_timeout = "10s"
tools = { allow = ["get_*"], deny = [] }

[[servers.files.session_lost]]
status = 400

[[servers.files.session_lost]]
status = 200
code = -32000
text = "no session"

[servers."v1.0"]
url = "https://mcp.example.com/****"
connect_timeout = "10s"
# no call_timeout: calls never time out
health = { every = "5s" }
keep_alive = "4m"
recovery_budget = "30s"
on_session_loss = "recover"
replay = "safe"
drain_timeout = "10m"
prefix = "v1.0"
required = false
list_timeout = "10s"

# /mcp
[union]
servers = ["files", "v1.0"]
names = "prefixed"
separator = "__"

[callers.alice]
key = "****"
servers = ["files", "v1.0"]

ok

"#]]
    );
}

#[test]
fn a_store_that_is_shared() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
        [store]
        kind = "redis"
        url = "rediss://redis.example.com:6379"
        user = "bowline"
        password = "${TOKEN}"
        [servers.web]
        url = "http://h/"
    "#;
    std::fs::write(folder.path().join("bowline.toml"), text).unwrap();
    let with_keys = |keys: &str| {
        let mut command = bowline();
        command.args(["check", "-c", "bowline.toml"]);
        command
            .env("TOKEN", "s3cret")
            .env("BOWLINE_SEAL_KEYS", keys);
        run(command.current_dir(folder.path()))
    };
    let (code, _, stderr) = with_keys("");
    assert_eq!(code, Some(2));
    assert_data_eq!(
        stderr,
        str![[r#"
error: sessions in Redis are encrypted, and no seal key is configured
  help: make one with `bowline keygen` and give it to every gateway, in BOWLINE_SEAL_KEYS or in the file that `seal_keys_file` names

"#]]
    );
    let (code, key, _) = run(bowline().arg("keygen"));
    assert_eq!(
        (code, key.len()),
        (Some(0), 45),
        "32 bytes in base64, and a line end"
    );
    let (_, other, _) = run(bowline().arg("keygen"));
    assert_ne!(key, other);
    let (code, _, stderr) = with_keys(&format!("{},s3cret", key.trim()));
    assert_eq!(code, Some(2));
    assert!(
        stderr
            .starts_with("error: BOWLINE_SEAL_KEYS: seal key number 2 is not 32 bytes in base64\n"),
        "{stderr}"
    );
    let (code, stdout, stderr) = with_keys(&format!("{key},{other}"));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let (_, store) = stdout.split_once("[store]\n").unwrap();
    let (store, _) = store.split_once("\n\n").unwrap();
    assert_data_eq!(
        store,
        str![[r#"
kind = "redis"
url = "rediss://redis.example.com:6379/"
user = "bowline"
password = "****"
prefix = "bowline"
on_unreachable_start = "wait"
timeout = "2s"
cache = 10000
grace = "30s"
# encrypted with the keys in BOWLINE_SEAL_KEYS
"#]]
    );
}

#[test]
fn how_people_sign_in() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
        listen = "0.0.0.0:6270"
        store.kind = "memory"
        [oauth]
        public_url = "https://gw.example.com/bowline"
        meta_prefix = "docker-agent"
        [servers.files]
        url = "https://mcp.example.com/mcp"
        [servers.files.oauth]
        flow = "managed"
        client_id = "bowline"
        client_secret = "${TOKEN}"
        scopes = ["a", "b"]
        issuer = "https://login.example.com"
        endpoints_elsewhere = ["https://token.example.com"]
        [servers.web]
        url = "https://mcp.example.com/web"
        oauth = { client_metadata_url = "https://gw.example.com/c.json", allow_private = true }
        [callers.ada]
        key = "0123456789abcdef"
    "#;
    std::fs::write(folder.path().join("bowline.toml"), text).unwrap();
    let uri = ["--mcp-oauth-redirect-uri", "MyApp://cb?x=y"];
    let options = [&["-c", "bowline.toml"], &uri[..]].concat();
    let (code, stdout, stderr) = check(folder.path(), &options);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(!stdout.contains("s3cret"), "{stdout}");
    let section = |name: &str| {
        let (_, from) = stdout.split_once(name).unwrap();
        from.split_once("\n\n").unwrap().0.trim().to_owned()
    };
    assert_data_eq!(
        section("[oauth]"),
        str![[r#"
public_url = "https://gw.example.com/bowline"
# public_url has a path: give the gateway a host name of its own. Browsers tell origins apart, not paths, so
# everything else at this one could finish a sign-in in somebody's browser that it planted there.
redirect_uri = "MyApp://cb?x=y"
deadline = "10m"
hold = "45s"
meta_prefix = "docker-agent"
"#]]
    );
    assert_data_eq!(
        section("[servers.files.oauth]"),
        str![[r#"
flow = "managed"
client_id = "bowline"
client_secret = "****"
scopes = ["a", "b"]
issuer = "https://login.example.com"
endpoints_elsewhere = ["https://token.example.com"]
allow_private = false
several_origins = false
unlisted_pkce = false
"#]]
    );
    assert_data_eq!(
        section("[servers.web.oauth]"),
        str![[r#"
flow = "drive"
redirect_uri = "MyApp://cb?x=y"
client_metadata_url = "https://gw.example.com/c.json"
# no scopes: those that the server asks for are requested
# no issuer: the server's metadata names it
endpoints_elsewhere = []
allow_private = true
several_origins = false
unlisted_pkce = false
"#]]
    );
    // Apart from the key it can be read again, without the flag.
    let again = stdout.trim_end().trim_end_matches("ok").replace(
        "[callers.ada]\nkey = \"****\"",
        "[callers.ada]\nkey = \"0123456789abcdef\"",
    );
    std::fs::write(folder.path().join("bowline.toml"), again).unwrap();
    let (_, second, stderr) = check(folder.path(), &["-c", "bowline.toml"]);
    assert_eq!((second.as_str(), stderr.as_str()), (stdout.as_str(), ""));
}

#[test]
fn signing_in_on_an_open_listener_needs_callers() {
    let folder = tempfile::tempdir().unwrap();
    let options = [
        "--listen",
        "0.0.0.0:6270",
        "--server",
        "a=https://mcp.example.com/mcp",
        "--mcp-oauth-redirect-uri",
        "https://app.example/cb",
    ];
    let (code, stdout, stderr) = check(folder.path(), &options);
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert_data_eq!(
        stderr,
        str![[r#"
error: server a: others can reach the gateway without a key, so anybody could use the tokens of others
  help: give everybody a key of their own in `[callers.NAME]`, or listen on 127.0.0.1

"#]]
    );
}

/// Apart from the masks, what is printed can be read again; and it cannot steer a terminal.
#[test]
fn strings_are_written_as_toml() {
    let folder = tempfile::tempdir().unwrap();
    let lines = [
        r#"replay = ["say \"hi\"", "\u001b[31m\u009b"]"#,
        r#"text = "a\\b\u000ac é""#,
    ];
    let text = format!(
        "[servers.a]\nurl = \"http://h/\"\n{}\n[[servers.a.session_lost]]\nstatus = 400\n{}\n",
        lines[0], lines[1]
    );
    std::fs::write(folder.path().join("bowline.toml"), text).unwrap();
    let (code, first, _) = check(folder.path(), &["-c", "bowline.toml"]);
    assert_eq!(code, Some(0));
    for line in lines {
        assert!(first.lines().any(|printed| printed == line), "{first}");
    }
    let again = first.trim_end().trim_end_matches("ok");
    std::fs::write(folder.path().join("bowline.toml"), again).unwrap();
    let (_, second, stderr) = check(folder.path(), &["-c", "bowline.toml"]);
    assert_eq!((second, stderr.as_str()), (first, ""));
}

#[test]
fn nothing_given_means_the_demo() {
    let folder = tempfile::tempdir().unwrap();
    let (code, stdout, _) = check(folder.path(), &[]);
    assert_eq!(code, Some(0));
    assert!(
        stdout.contains("\n[store]\nkind = \"memory\"\n\n"),
        "{stdout}"
    );
    assert!(
        stdout.ends_with(
            "\n# no servers: `bowline serve` runs its built-in demo server\n\
             \n# no callers: no key is required\n\nok\n"
        ),
        "{stdout}"
    );
}

#[test]
fn an_editor_s_file() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"{"mcpServers": {
  "web": {"type": "http", "url": "https://mcp.example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
  "old": {"command": "npx", "args": ["-y", "old"]},
  "new": {"command": "npx", "args": ["-y", "s3cret"], "env": {"KEY": "s3cret"}},
  "ws": {"type": "ws", "url": "https://mcp.example.com/ws"}
}}"#;
    std::fs::write(folder.path().join("mcp.json"), text).unwrap();
    let (code, stdout, stderr) = check(folder.path(), &["-c", "mcp.json"]);
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert_data_eq!(
        stderr,
        str![[r#"
error: unknown `type` of server
 --> mcp.json:5:18
  |
5 |   "ws": {"type": "ws", "url": "**************************"}
  |                  ^^^^
  |
  = help: write `"type": "http"`, `"type": "sse"` or `"type": "stdio"`, or leave it out

"#]]
    );
    let text = text
        .replacen("npx\"", "npx\", \"disabled\": true", 1)
        .replace("\"ws\", \"url", "\"sse\", \"url");
    std::fs::write(folder.path().join("mcp.json"), text).unwrap();
    let (code, stdout, stderr) = check(folder.path(), &["-c", "mcp.json"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains("[servers.web]"), "{stdout}");
    assert!(!stdout.contains("servers.old"), "{stdout}");
    let command =
        "[servers.new]\ncommand = [\"npx\", \"****\", \"****\"]\nenv = { \"KEY\" = \"****\" }\n";
    assert!(stdout.contains(command), "{stdout}");
    assert!(!stdout.contains("s3cret"), "{stdout}");
}

#[test]
fn a_variable_that_is_not_set() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[servers.web]\nurl = \"https://${NO_SUCH_HOST}/${TOKEN}\"\n";
    std::fs::write(folder.path().join("bowline.toml"), text).unwrap();
    let (code, _, stderr) = check(folder.path(), &["-c", "bowline.toml"]);
    assert_eq!(code, Some(2));
    assert_data_eq!(
        stderr,
        str![[r#"
error: the variable `NO_SUCH_HOST`, used in `servers.web.url`, is not set
 --> bowline.toml:2:16
  |
2 | url = "https://${NO_SUCH_HOST}*${TOKEN}"
  |                ^^^^^^^^^^^^^^^
  |
  = help: set it where Bowline starts, or give a default: `${NO_SUCH_HOST:-default}`

"#]]
    );
}

#[test]
fn the_schema() {
    let (code, stdout, stderr) = run(bowline().arg("schema"));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let schema: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["properties"]["admin"]["default"], "127.0.0.1:6271");
    assert!(stdout.ends_with("}\n"));
}

#[test]
fn with_tls_the_gateway_is_at_https() {
    let folder = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ])
        .args(["-nodes", "-days", "9", "-subj", "/CN=gw"])
        .args(["-keyout", "tls.key", "-out", "tls.crt"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(made.status.success());
    let hash = "AB:".repeat(32);
    let text = format!(
        "[tls]\ncert = 'tls.crt'\nkey = 'tls.key'\n[servers.a]\nurl = 'http://127.0.0.1:9/mcp'\noauth = {{}}\n\
         [callers.ann]\ncertificate_sha256 = '{}'\n",
        hash.trim_end_matches(':')
    );
    std::fs::write(folder.path().join("bowline.toml"), text).unwrap();
    let (code, stdout, stderr) = check(folder.path(), &["-c", "bowline.toml"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let shown = "[tls]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n# valid from ";
    assert!(stdout.contains(shown), "{stdout}");
    assert!(
        stdout.contains("# no public_url: it is https://127.0.0.1:6270\n"),
        "{stdout}"
    );
    let hash = "ab".repeat(32);
    let caller = format!("[callers.ann]\ncertificate_sha256 = [\"{hash}\"]\n");
    assert!(stdout.contains(&caller), "{stdout}");

    // A key of another certificate, and where it is named.
    std::fs::write(folder.path().join("tls.key"), "nothing").unwrap();
    let (code, _, stderr) = check(folder.path(), &["-c", "bowline.toml"]);
    assert_eq!(code, Some(2));
    assert!(
        stderr.contains("`key` has no private key (PEM) in it"),
        "{stderr}"
    );
    assert!(stderr.contains("3 | key = 'tls.key'"), "{stderr}");
}
