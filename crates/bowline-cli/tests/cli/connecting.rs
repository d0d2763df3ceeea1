//! `bowline connect` as an editor runs it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, Stdio};

use crate::running::{Running, bowline, run, word_ending_in};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"cli","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const COUNT: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"count"}}"#;

const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;

/// A gateway with the demo server, and the URL of that.
fn demo() -> (Running, String) {
    let gateway = Running::start(&["--admin", "off"]);
    let printed = gateway.stdout.read_until("Ctrl-C stops it.");
    let url = word_ending_in(&printed, "/mcp/demo");
    (gateway, url)
}

fn connect(options: &[&str]) -> (Child, ChildStdin) {
    let mut child = bowline()
        .arg("connect")
        .args(options)
        .env("XDG_STATE_HOME", tempfile::tempdir().unwrap().path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    (child, input)
}

#[test]
fn lines_that_are_piped_in_are_all_answered() {
    let (_gateway, url) = demo();
    let (child, mut input) = connect(&[&url]);
    write!(input, "{INITIALIZE}\n{INITIALIZED}\n{COUNT}\n").unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let lines: Vec<serde_json::Value> = output
        .stdout
        .lines()
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    let answers: Vec<_> = lines
        .iter()
        .filter_map(|line| line["id"].as_u64())
        .collect();
    assert_eq!(answers, [1, 2], "{lines:?}");
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(log.contains("session opened"), "{log}");
    assert!(log.contains("session ended"), "{log}");
}

#[test]
fn a_signal_ends_it_and_logs_go_to_the_file() {
    let (_gateway, url) = demo();
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("connect.log");
    let (mut child, mut input) = connect(&[&url, "--log", log.to_str().unwrap()]);
    writeln!(input, "{INITIALIZE}").unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert!(line.contains(r#""name":"bowline-demo""#), "{line}");
    crate::running::kill(child.id(), "TERM");
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert!(
        ended.stderr.is_empty(),
        "{:?}",
        String::from_utf8(ended.stderr)
    );
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("session ended"), "{log}");
}

#[test]
fn a_name_is_one_of_the_file() {
    let (_gateway, url) = demo();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bowline.toml");
    std::fs::write(&file, format!("[servers.here]\nurl = \"{url}\"\n")).unwrap();
    let file = file.to_str().unwrap();
    let (child, mut input) = connect(&["here", "-c", file]);
    writeln!(input, "{INITIALIZE}").unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("bowline-demo"));
    let (code, stdout, stderr) = run(bowline().args(["connect", "there", "-c", file]));
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert!(stderr.contains("has no server `there`"), "{stderr}");
}

/// All servers of a file as one: each under its prefix, and one that is away is said.
#[test]
fn without_a_name_all_servers_of_the_file_are_one() {
    let (_gateway, url) = demo();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bowline.toml");
    let servers = format!(
        "[servers.here]\nurl = \"{url}\"\n[servers.there]\nurl = \"{url}\"\n\
         [servers.gone]\nurl = \"http://127.0.0.1:9/\"\n[unions.two]\nservers = [\"here\", \"there\"]\n"
    );
    std::fs::write(&file, servers).unwrap();
    let file = file.to_str().unwrap();
    let listed = |options: &[&str]| {
        let (child, mut input) = connect(options);
        writeln!(input, "{INITIALIZE}").unwrap();
        let list = r#"{"jsonrpc":"2.0","id":"list","method":"tools/list"}"#;
        writeln!(input, "{list}").unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let all = listed(&["-c", file]);
    assert!(
        all.contains("here__count") && all.contains("there__count"),
        "{all}"
    );
    assert!(
        all.contains(r#""gone":{"#) && all.contains("upstream_unreachable"),
        "{all}"
    );
    let two = listed(&["two", "-c", file]);
    assert!(
        two.contains("there__count") && !two.contains("gone"),
        "{two}"
    );
    let empty = directory.path().join("empty.toml");
    std::fs::write(&empty, "").unwrap();
    for (options, said) in [
        (&["-c", empty.to_str().unwrap()][..], "has no servers"),
        (
            &["-c", file, "--header", "X: y"],
            "--header is for one server",
        ),
        (&[], "there is no configuration file"),
    ] {
        let mut command = bowline();
        let command = command.env("XDG_CONFIG_HOME", directory.path());
        let (code, stdout, stderr) = run(command.arg("connect").args(options));
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
        assert!(stderr.contains(said), "{stderr}");
    }
}

#[test]
fn a_header_is_sent_and_its_value_is_never_shown() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", server.local_addr().unwrap());
    let mut command = bowline();
    command
        .args(["connect", &url, "--header", "X-Key: ${SECRET}"])
        .env("SECRET", "s3cret")
        .env("RUST_LOG", "trace")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "{INITIALIZE}").unwrap();
    let (stream, _) = server.accept().unwrap();
    let mut head = BufReader::new(stream).lines().map_while(Result::ok);
    assert!(head.any(|line| line.eq_ignore_ascii_case("x-key: s3cret")));
    crate::running::kill(child.id(), "TERM");
    let ended = child.wait_with_output().unwrap();
    let log = String::from_utf8_lossy(&ended.stderr);
    assert!(!log.contains("s3cret"), "{log}");

    for (header, said) in [
        ("s3cret", "no colon"),
        ("X-Key: s3cret${MISSING_HERE}", "`MISSING_HERE`"),
    ] {
        let (code, stdout, stderr) = run(bowline().args(["connect", &url, "--header", header]));
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
        assert!(
            stderr.contains(said) && !stderr.contains("s3cret"),
            "{stderr}"
        );
    }
}

#[test]
fn a_name_without_a_file_is_one_of_the_default_file() {
    let (_gateway, url) = demo();
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join(".config/bowline");
    std::fs::create_dir_all(&directory).unwrap();
    let here = || {
        let mut command = bowline();
        command
            .args(["connect", "here"])
            .env("HOME", home.path())
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_STATE_HOME");
        command
    };
    let (code, stdout, stderr) = run(&mut here());
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert!(stderr.contains(".config/bowline/bowline.toml"), "{stderr}");
    let text = format!("[servers.here]\nurl = \"{url}\"\n");
    std::fs::write(directory.join("bowline.toml"), text).unwrap();
    let mut child = here()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{INITIALIZE}").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("bowline-demo"));
}

/// The wrapped server is another `connect`. It gets the environment, its stderr is shown, and it is started again.
#[test]
fn a_command_is_wrapped() {
    let (_gateway, url) = demo();
    let script =
        r#"echo "process $$ has $GIVEN_TO_IT" >&2; exec "$0" connect "$1" --log /dev/null"#;
    let mut child = bowline()
        .args(["connect", "--", "sh", "-c", script])
        .args([env!("CARGO_BIN_EXE_bowline"), &url])
        .env("GIVEN_TO_IT", "a variable")
        .env("XDG_STATE_HOME", tempfile::tempdir().unwrap().path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut next_process = || -> u32 {
        let is_it =
            |line: &String| line.contains(" bowline::process: ") && line.contains("has a variable");
        let line = log.by_ref().map_while(Result::ok).find(is_it).unwrap();
        let (_, rest) = line.split_once("stderr=process ").unwrap();
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    let mut answer_to = |id: u64| -> String {
        let is_it = |line: &String| {
            line.contains(&format!("\"id\":{id},")) || line.contains(&format!("\"id\":{id}}}"))
        };
        output.by_ref().map_while(Result::ok).find(is_it).unwrap()
    };
    write!(input, "{INITIALIZE}\n{INITIALIZED}\n").unwrap();
    assert!(answer_to(1).contains("bowline-demo"));
    let first = next_process();
    crate::running::kill(first, "KILL");
    // What is written to a process that dies just now may have run, so it is something that may run twice.
    writeln!(input, "{LIST}").unwrap();
    assert!(answer_to(2).contains("result"));
    let second = next_process();
    assert_ne!(first, second);
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // A zombie that nobody has asked for yet has no command line.
    let command = std::fs::read(format!("/proc/{second}/cmdline")).unwrap_or_default();
    assert_eq!(command, b"");
}

#[test]
fn a_command_takes_no_url_and_no_header() {
    for options in [
        &["http://127.0.0.1:9/mcp", "--", "true"][..],
        &["--header", "X: y", "--", "true"],
    ] {
        let (code, stdout, stderr) = run(bowline().arg("connect").args(options));
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
        assert!(stderr.contains("Usage: bowline connect"), "{stderr}");
    }
}
