//! What it says to those who call it wrongly, and with which code it ends.

use std::net::TcpListener;
use std::path::Path;

use snapbox::{assert_data_eq, str};

use crate::running::{bowline, run};

fn write_file(folder: &Path, text: &str) {
    std::fs::write(folder.join("bowline.toml"), text).unwrap();
}

#[test]
fn all_errors_of_a_file_are_shown_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"lisen = "127.0.0.1:6270"

[limits]
sessions = 0

[servers.files]
url = "mcp.example.com"
"#;
    write_file(folder.path(), text);
    let mut command = bowline();
    command.args(["serve", "-c", "bowline.toml"]);
    let (code, stdout, stderr) = run(command.current_dir(folder.path()));
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert_data_eq!(
        stderr,
        str![[r#"
error: unknown key `lisen`
 --> bowline.toml:1:1
  |
1 | lisen = "127.0.0.1:6270"
  | ^^^^^
  |
  = help: did you mean `listen`?

error: `sessions` must be at least 1
 --> bowline.toml:4:12
  |
4 | sessions = 0
  |            ^
  |
  = help: leave it out for the default, 100000

error: the URL has no scheme
 --> bowline.toml:7:7
  |
7 | url = "***************"
  |       ^^^^^^^^^^^^^^^^^
  |
  = help: write it in full, such as `https://mcp.example.com/mcp`

"#]]
    );
}

#[test]
fn a_missing_file() {
    let (code, _, stderr) = run(bowline().args(["serve", "-c", "nowhere/bowline.toml"]));
    assert_eq!(code, Some(2));
    assert_data_eq!(
        stderr,
        str![[r#"
error: cannot read the configuration file nowhere/bowline.toml: No such file or directory (os error 2)
  help: correct the path; it is relative to the working directory

"#]]
    );
}

#[test]
fn a_file_without_servers() {
    let folder = tempfile::tempdir().unwrap();
    write_file(folder.path(), "");
    let mut command = bowline();
    command.args(["serve", "-c", "bowline.toml"]);
    let (code, _, stderr) = run(command.current_dir(folder.path()));
    assert_eq!(code, Some(2));
    assert_data_eq!(
        stderr,
        str![[r#"
error: bowline.toml has no servers
  help: add one with `--server files=http://127.0.0.1:8000/mcp`, or to the file:

    [servers.files]
    url = "http://127.0.0.1:8000/mcp"

"#]]
    );
}

#[test]
fn an_unknown_flag() {
    let (code, _, stderr) = run(bowline().args(["serve", "--lisen", "127.0.0.1:0"]));
    assert_eq!(code, Some(2));
    assert_data_eq!(
        stderr,
        str![[r#"
error: unexpected argument '--lisen' found

  tip: a similar argument exists: '--listen'

Usage: bowline serve --listen <ADDR>

For more information, try '--help'.

"#]]
    );
}

#[test]
fn a_bad_address() {
    let (code, _, stderr) = run(bowline().args(["serve", "--listen", "localhost"]));
    assert_eq!(code, Some(2));
    assert_data_eq!(
        stderr,
        str![[r#"
error: invalid value 'localhost' for '--listen <ADDR>': not an IP address with a port, nor a Unix socket; write one such as `127.0.0.1:6270` or `unix:/run/bowline.sock`

For more information, try '--help'.

"#]]
    );
}

#[test]
fn bad_servers_are_shown_at_once() {
    let bad = [
        "http://127.0.0.1:8000/mcp",
        "a/b=http://127.0.0.1:8000/mcp",
        "files=127.0.0.1:8000/mcp",
        "web=http://127.0.0.1:8000/mcp",
        "web=http://127.0.0.1:8001/mcp",
    ];
    let flags = bad.iter().flat_map(|bad| ["--server", bad]);
    let (code, _, stderr) = run(bowline().arg("serve").args(flags));
    assert_eq!(code, Some(2));
    assert_data_eq!(
        stderr,
        str![[r#"
error: --server: the value has no name, it must be NAME=URL
  help: write it like `--server files=http://127.0.0.1:8000/mcp`
error: --server a/b: the server's name has a character that names cannot have
  help: use only ASCII letters, digits, `-`, `_` and `.`
error: --server files: the URL has no scheme
  help: write it in full, such as `https://mcp.example.com/mcp`
error: --server web: the name is given twice
  help: give each server its own name

"#]]
    );
}

#[test]
fn a_bad_log_level() {
    let (code, _, stderr) = run(bowline().arg("serve").env("RUST_LOG", "bowline=loud"));
    assert_eq!(code, Some(2));
    assert_data_eq!(
        stderr,
        str![[r#"
error: the environment variable RUST_LOG cannot be used: error parsing level filter: expected one of "off", "error", "warn", "info", "debug", "trace", or a number 0-5
  help: write it like `RUST_LOG=info,bowline=debug`

"#]]
    );
}

#[test]
fn a_port_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, stdout, stderr) = run(bowline().args(["serve", "--listen", &address]));
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert_data_eq!(
        stderr.replace(&address, "127.0.0.1:[PORT]"),
        str![[r#"
error: cannot listen on 127.0.0.1:[PORT] (listen): Address already in use (os error 98)
  help: another program listens there; stop it, or choose another address with `--listen` (port 0 means any free one)

"#]]
    );
}

#[test]
fn a_planted_bug_is_refused_where_none_was_built_in() {
    let mut command = bowline();
    command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "off"]);
    command.env("BOWLINE_PLANTED", "replay_everything");
    let (code, stdout, stderr) = run(&mut command);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert_data_eq!(
        stderr,
        str![[r#"
error: BOWLINE_PLANTED is `replay_everything`, but this was built without planted bugs

"#]]
    );
}

/// What a terminal obeys (C1), and what reverses the text around it.
#[test]
fn nothing_that_a_terminal_obeys_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let untrusted = "x\u{9b}31m\u{202e}y";
    write_file(
        folder.path(),
        &format!("[servers.\"{untrusted}\"]\nurl = 1\n"),
    );
    let calls: [&[&str]; 3] = [
        &["check", "-c", "bowline.toml"],
        &["connect", untrusted, "-c", "bowline.toml"],
        &["serve", &format!("--{untrusted}")],
    ];
    for call in calls {
        let mut command = bowline();
        command.args(call).current_dir(folder.path());
        let (code, stdout, stderr) = run(&mut command);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{call:?}");
        assert!(stderr.contains('\u{fffd}'), "{call:?}: {stderr:?}");
        let is_left = |it: char| it != '\n' && bowline_system::printable::is_unprintable(it);
        assert!(!stderr.contains(is_left), "{call:?}: {stderr:?}");
    }
}
