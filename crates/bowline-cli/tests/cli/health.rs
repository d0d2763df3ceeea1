//! `bowline health`: what a container's health check runs.

use snapbox::{assert_data_eq, str};

use crate::running::{Running, bowline, run, sh, word_ending_in};

/// A gateway, and the address of its admin listener.
fn gateway() -> (Running, String) {
    let gateway = Running::start(&["--admin", "127.0.0.1:0"]);
    let printed = gateway.stdout.read_until("Ctrl-C stops it.");
    let url = word_ending_in(&printed, "/health");
    let address = url.trim_start_matches("http://");
    let address = address.trim_end_matches("/health").to_owned();
    (gateway, address)
}

#[test]
fn a_gateway_that_runs_is_well_and_one_that_ended_is_not() {
    let (mut gateway, address) = gateway();
    let (code, stdout, stderr) = run(bowline().args(["health", &address]));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains(r#""status":"ok""#), "{stdout}");
    let (code, stdout, _) = run(bowline().args(["health", "--ready", &address]));
    assert_eq!(
        (code, stdout.as_str()),
        (Some(0), "{\"status\":\"ready\"}\n")
    );

    gateway.signal("TERM");
    assert_eq!(gateway.exit_code(), Some(0));
    let (code, stdout, stderr) = run(bowline().args(["health", &address]));
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert_data_eq!(
        stderr.replace(&address, "[ADDRESS]"),
        str![[r#"
error: the gateway at [ADDRESS] is not well: Connection refused (os error 111)

"#]]
    );
}

#[test]
fn the_file_says_where_to_ask() {
    let (_gateway, address) = gateway();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bowline.toml");
    let write = |admin: &str| {
        let server = "[servers.a]\nurl = \"http://127.0.0.1:1/mcp\"\n";
        std::fs::write(&file, format!("admin = \"{admin}\"\n{server}")).unwrap();
    };
    // A listener on every address is asked on this machine.
    write(&address.replace("127.0.0.1", "0.0.0.0"));
    let (code, _, stderr) = run(bowline().arg("health").arg("-c").arg(&file));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));

    write("off");
    let (code, _, stderr) = run(bowline().arg("health").arg("-c").arg(&file));
    assert_eq!(code, Some(2));
    assert!(stderr.contains("the admin listener is off"), "{stderr}");
}

#[test]
fn one_that_is_not_ready_says_why() {
    let options = [
        "--admin",
        "127.0.0.1:0",
        "--server",
        "a=http://127.0.0.1:1/mcp",
    ];
    let gateway = Running::start(&options);
    let printed = gateway.stdout.read_until("/health");
    let url = word_ending_in(&printed, "/health");
    let address = url
        .trim_start_matches("http://")
        .trim_end_matches("/health");
    // It finds out about the server when somebody wants a session there.
    let server = word_ending_in(&printed, "/mcp/a");
    let message = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}"#;
    sh(&format!(
        "curl -s -m 60 {server} -H 'Accept: application/json, text/event-stream' \
         -H 'Content-Type: application/json' -d '{message}'"
    ));
    let (code, stdout, stderr) = run(bowline().args(["health", "--ready", address]));
    assert_eq!((code, stderr.as_str()), (Some(1), ""));
    assert!(stdout.contains(r#""reason":"#), "{stdout}");
}

#[test]
fn who_never_answers_is_not_waited_for() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let (code, _, stderr) = run(bowline().args(["health", "--timeout", "200ms", &address]));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("no answer within 200ms"), "{stderr}");
}

#[test]
fn whoever_answers_cannot_steer_the_terminal() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let stranger = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = stranger.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        let (mut asked, _) = stranger.accept().unwrap();
        let head = BufReader::new(&asked).lines();
        head.map_while(Result::ok).find(String::is_empty);
        let body = "{\"a\":\"\u{1b}[2J\u{9b}2J\r\u{202e}b\",\n\"c\":1}";
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        asked.write_all(format!("{head}{body}").as_bytes()).unwrap();
    });
    let (code, stdout, stderr) = run(bowline().args(["health", &address]));
    answering.join().unwrap();
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let printed = "{\"a\":\"\\u001b[2J\\u009b2J\\u000d\\u202eb\",\n\"c\":1}\n";
    assert_eq!(stdout, printed);
}
