//! What it does between its start and its end.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use snapbox::{IntoData as _, assert_data_eq, str};

use crate::running::{self, Lines, Running};

#[test]
fn the_demo_does_what_it_prints() {
    let mut gateway = Running::start(&["--admin", "127.0.0.1:0"]);
    let printed = gateway.stdout.read_until("Ctrl-C stops it.");
    let endpoint = running::word_ending_in(&printed, "/mcp/demo");
    let health = running::word_ending_in(&printed, "/health");
    let listen = endpoint.strip_suffix("/mcp/demo").unwrap();
    assert_data_eq!(
        printed
            .replace(env!("CARGO_PKG_VERSION"), "[VERSION]")
            .replace(listen, "http://[LISTEN]")
            .replace(&health, "http://[ADMIN]/health"),
        str![[r#"
Bowline [VERSION] is listening on http://[LISTEN]
    demo  http://[LISTEN]/mcp/demo
  health  http://[ADMIN]/health
sessions  in memory: they are lost when this process ends

No server was given, so this is the built-in demo server, in two replicas. Its tools keep state in
the session. Put your own server behind Bowline with `--server NAME=URL`.

Open a session; its Mcp-Session-Id is in the response headers:

  curl -i 'http://[LISTEN]/mcp/demo' \
    -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
    -d '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}'

Or let the shell keep the session, and call the tool `count` twice in it:

  mcp() { curl -s 'http://[LISTEN]/mcp/demo' -H 'Content-Type: application/json' \
    -H 'Accept: application/json, text/event-stream' "$@"; echo; }
  session=$(mcp -D - -o /dev/null \
    -d '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}' |
    tr -d '\r' | awk 'tolower($1) == "mcp-session-id:" { print $2 }')
  mcp -H "Mcp-Session-Id: $session" -d '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"count"}}'
  mcp -H "Mcp-Session-Id: $session" -d '{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"count"}}'

Or add it to an editor's MCP configuration:

  {"mcpServers": {"demo": {"type": "http", "url": "http://[LISTEN]/mcp/demo"}}}

Ctrl-C stops it.

"#]]
        // Without this, a `\` would be taken for a Windows path's.
        .raw()
    );

    let [opening, counting, configuration] = &running::blocks(&printed)[..] else {
        panic!("{printed}");
    };
    let opened = running::sh(opening);
    assert!(opened.starts_with("HTTP/1.1 200 OK\r\n"), "{opened}");
    assert!(opened.contains("\r\nmcp-session-id: "), "{opened}");
    assert!(opened.contains(r#""name":"bowline-demo""#), "{opened}");

    let counted = running::sh(counting);
    let texts: Vec<&str> = counted
        .lines()
        .filter_map(|line| line.split(r#""text":""#).nth(1)?.split('"').next())
        .collect();
    assert_eq!(texts, ["1", "2"], "{counted}");

    let configuration: serde_json::Value = serde_json::from_str(configuration).unwrap();
    assert_eq!(configuration["mcpServers"]["demo"]["url"], endpoint);

    let healthy = running::sh(&format!("curl -si '{health}'"));
    assert!(healthy.starts_with("HTTP/1.1 200 OK\r\n"), "{healthy}");
    assert!(
        healthy.contains("\r\ncontent-type: application/json\r\n"),
        "{healthy}"
    );
    assert!(healthy.contains(r#""status":"ok""#), "{healthy}");

    gateway.signal("TERM");
    assert_eq!(gateway.exit_code(), Some(0));
}

#[test]
fn interrupting_stops_it() {
    let mut gateway = Running::start(&["--admin", "off", "--server", "a=http://127.0.0.1:9/mcp"]);
    let printed = gateway.stdout.read_until("sessions  in memory");
    assert!(!printed.contains("health"), "{printed}");
    gateway.signal("INT");
    assert_eq!(gateway.exit_code(), Some(0));
    // Only the demo has something to try.
    assert_eq!(gateway.stdout.read_rest(), "");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut gateway = Running::start(&["--admin", "off"]);
    let endpoint = running::word_ending_in(&gateway.stdout.read_until("/mcp/demo"), "/mcp/demo");
    let authority = endpoint.split('/').nth(2).unwrap();
    // A request whose body the gateway has begun to wait for, and which never comes.
    let mut client = TcpStream::connect(authority).unwrap();
    write!(
        client,
        "POST /mcp/demo HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: 9\r\n\
         Expect: 100-continue\r\n\r\n"
    )
    .unwrap();
    let mut told = [0; 12];
    client.read_exact(&mut told).unwrap();
    assert_eq!(&told, b"HTTP/1.1 100");

    gateway.signal("INT");
    gateway.stderr.read_until("a second signal stops at once");
    gateway.signal("INT");
    assert_eq!(gateway.exit_code(), Some(1));
}

#[test]
fn nobody_has_to_read_what_it_prints() {
    let mut gateway = Running::start_unread(&["--admin", "off"]);
    gateway.stderr.read_until("cannot write the greeting");
    // Its next line of log meets a closed pipe as well.
    gateway.stderr = Lines::none();
    gateway.signal("TERM");
    assert_eq!(gateway.exit_code(), Some(0));
}

#[cfg(unix)]
#[test]
fn a_file_with_the_api_token_that_others_can_read_is_warned_of() {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    fs::write(&path, "let-me-in\n").unwrap();
    for (mode, is_warned_of) in [(0o600, false), (0o640, true), (0o602, true), (0o400, false)] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let mut command = running::bowline();
        command.env("BOWLINE_API_TOKEN_FILE", &path);
        let mut gateway = Running::start_in(&mut command, "127.0.0.1:0", &["--admin", "off"]);
        gateway.stdout.read_until("Ctrl-C stops it.");
        gateway.signal("TERM");
        assert_eq!(gateway.exit_code(), Some(0));
        let said = gateway.stderr.read_rest();
        let warned = said.lines().find(|line| line.contains("chmod 600"));
        assert_eq!(warned.is_some(), is_warned_of, "{mode:o}: {said}");
        assert!(warned.is_none_or(|line| line.contains(path.to_str().unwrap())));
        assert!(!said.contains("let-me-in"), "{said}");
    }
}

/// Many calls that no server answers, and more connections than files may be open.
#[test]
fn the_operator_is_answered_when_file_descriptors_run_out() {
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("s=http://{}/mcp", hanging.local_addr().unwrap());
    let mut command = Command::new("sh");
    let script = "ulimit -n 200 && exec \"$0\" \"$@\"";
    command.args(["-c", script, env!("CARGO_BIN_EXE_bowline")]);
    command.env_remove("RUST_LOG").stdin(Stdio::null());
    let options = ["--admin", "127.0.0.1:0", "--server", &server];
    let gateway = Running::start_in(&mut command, "127.0.0.1:0", &options);
    let printed = gateway.stdout.read_until("/health");
    let said = gateway.stderr.read_until("limit of open files is too low");
    for number in ["200", "streams = 20000", "connections = 40000", "60160"] {
        assert!(said.contains(number), "{number}: {said}");
    }
    let address = |end: &str| {
        let url = running::word_ending_in(&printed, end);
        let rest = url.strip_prefix("http://").unwrap();
        rest.split('/').next().unwrap().to_owned()
    };
    let (listen, admin) = (address("/mcp/s"), address("/health"));
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    let request = format!(
        "POST /mcp/s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stuck = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(&listen).unwrap();
        // A connection that was turned away may be closed by now.
        _ = stream.write_all(request.as_bytes());
        stuck.push(stream);
        if stuck.len() % 50 == 0 {
            assert_eq!(status_of(&admin, "/health"), "HTTP/1.1 200 OK");
            assert_eq!(status_of(&admin, "/metrics"), "HTTP/1.1 200 OK");
        }
    }
    drop(stuck);
    assert_eq!(status_of(&admin, "/health"), "HTTP/1.1 200 OK");
}

fn status_of(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said.lines().next().unwrap_or_default().to_owned()
}
