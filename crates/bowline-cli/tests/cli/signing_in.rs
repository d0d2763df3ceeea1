//! `login`, `logout` and `auth`, as far as no person is needed. With a real authorization server and a
//! browser: `interop/oauth/login.py`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::thread;

use snapbox::{assert_data_eq, str};
use tempfile::TempDir;

use crate::running::{bowline, run};

/// A machine of its own: a state directory, and no display.
fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn at(home: &Path) -> Command {
    let mut command = bowline();
    for variable in ["DISPLAY", "WAYLAND_DISPLAY"] {
        command.env_remove(variable);
    }
    command.env("XDG_STATE_HOME", home.join("state"));
    command.current_dir(home);
    command
}

fn write_file(home: &Path, text: &str) {
    std::fs::write(home.join("bowline.toml"), text).unwrap();
}

/// What a call with a mistake says; its code is 2.
fn mistake(home: &Path, words: &[&str]) -> String {
    let (code, stdout, stderr) = run(at(home).args(words));
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
    stderr
}

/// A server that answers each path as it is told, with its own address in place of `ORIGIN`.
fn server(answer: fn(&str) -> (&'static str, &'static str)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let url = origin.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = BufReader::new(stream.try_clone().unwrap()).lines();
            let first = head.next().unwrap().unwrap();
            let path = first.split(' ').nth(1).unwrap();
            while head.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let (status, body) = answer(path);
            let body = body.replace("ORIGIN", &origin);
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )
            .unwrap();
        }
    });
    url
}

#[test]
fn help_of_login() {
    let (code, stdout, stderr) = run(bowline().args(["login", "--help"]));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_data_eq!(
        stdout,
        str![[r#"
Sign in at a server

Opens the browser, prints the link, and waits for the sign-in. Gateways with the same store use the new token at once, without a restart.

Usage: bowline login [OPTIONS] <NAME|URL>

Arguments:
  <NAME|URL>
          The server, by its name in the configuration file or by its URL

Options:
  -c, --config <FILE>
          Read the configuration from this file
          
          [default for a NAME: bowline/bowline.toml in $XDG_CONFIG_HOME or ~/.config]

  -h, --help
          Print help (see a summary with '-h')

Examples:
  bowline login files --config bowline.toml
  bowline login https://mcp.example.com/mcp

"#]]
    );
}

#[test]
fn a_name_that_is_not_there_is_answered_with_those_that_are() {
    let home = home();
    let text = "[servers.files]\nurl = \"http://127.0.0.1:9/mcp\"\noauth = {}\n\n\
                [servers.web]\nurl = \"http://127.0.0.1:9/web\"\n";
    write_file(home.path(), text);
    for command in ["login", "logout"] {
        assert_data_eq!(
            mistake(home.path(), &[command, "fles", "-c", "bowline.toml"]),
            str![[r#"
error: bowline.toml has no server `fles`
  help: it has `files`, `web`

"#]]
        );
    }
    assert_data_eq!(
        mistake(home.path(), &["login", "files"]),
        str![[r#"
error: `files` is not a URL, and there is no configuration file [..]/bowline/bowline.toml
  help: give the server's full URL, or another file with `-c`

"#]]
    );
    // A grant that no gateway would use.
    assert_data_eq!(
        mistake(home.path(), &["login", "web", "-c", "bowline.toml"]),
        str![[r#"
error: sign-in is not configured for web
  help: add `[servers.web.oauth]` to the file

"#]]
    );
    assert!(!home.path().join("state").exists());
}

#[test]
fn a_bad_url_is_not_shown() {
    let home = home();
    let stderr = mistake(home.path(), &["login", "http://me:hunter2@127.0.0.1/mcp"]);
    assert!(stderr.contains("user name or password"), "{stderr}");
    assert!(!stderr.contains("hunter2"), "{stderr}");
}

#[test]
fn where_no_gateway_would_find_it_nobody_signs_in() {
    let home = home();
    let server = "[servers.files]\nurl = \"http://127.0.0.1:9/mcp\"\noauth = {}\n";
    write_file(
        home.path(),
        &format!("{server}[store]\nkind = \"memory\"\n"),
    );
    for words in [
        &["login", "files", "-c", "bowline.toml"][..],
        &["auth", "-c", "bowline.toml"],
    ] {
        assert_data_eq!(
            mistake(home.path(), words),
            str![[r#"
error: grants are only in the memory of the gateway, because `[store]` is of kind `memory`
  help: sign in with the link that the gateway sends, or set `kind = "file"`

"#]]
        );
    }
    write_file(
        home.path(),
        &format!("{server}[callers.ann]\nkey = \"0123456789abcdef0123456789abcdef\"\n"),
    );
    assert_data_eq!(
        mistake(home.path(), &["login", "files", "-c", "bowline.toml"]),
        str![[r#"
error: the gateway has [callers], and callers do not sign in on the command line
  help: sign in with the link that the gateway sends to the caller

"#]]
    );
    assert_data_eq!(
        mistake(home.path(), &["logout", "files", "-c", "bowline.toml"]),
        str![[r#"
error: the gateway has [callers], and none of them was named
  help: add `--caller NAME`: there are `ann`

"#]]
    );
    for caller in ["ann", "somebody-who-left"] {
        let words = ["logout", "files", "--caller", caller, "-c", "bowline.toml"];
        let (code, stdout, stderr) = run(at(home.path()).args(words));
        assert_eq!(
            (code, &*stdout, &*stderr),
            (Some(0), "Nobody was signed in at files.\n", "")
        );
    }
    let mut homeless = at(home.path());
    homeless.env_remove("XDG_STATE_HOME").env_remove("HOME");
    let (code, _, stderr) = run(homeless.args(["auth"]));
    assert_eq!(code, Some(2));
    assert_data_eq!(
        stderr,
        str![[r#"
error: there is no directory to store tokens in: neither XDG_STATE_HOME nor HOME is set
  help: set one of them, or name a directory with `path` in `[store]`

"#]]
    );
}

#[test]
fn a_server_that_needs_no_sign_in() {
    let home = home();
    let url = server(|_| ("404 Not Found", "")) + "/mcp";
    let stderr = mistake(home.path(), &["login", &url]);
    assert_data_eq!(
        stderr.replace(&url, "URL"),
        str![[r#"
error: URL needs no sign-in: the server is open to everybody and publishes no OAuth metadata
  help: use it as it is

"#]]
    );
}

#[test]
fn an_authorization_server_that_registers_no_clients() {
    let home = home();
    let url = server(|path| match path {
        "/mcp" => ("401 Unauthorized", ""),
        "/.well-known/oauth-authorization-server" => (
            "200 OK",
            r#"{"issuer": "ORIGIN", "authorization_endpoint": "ORIGIN/authorize",
                "token_endpoint": "ORIGIN/token", "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"]}"#,
        ),
        _ => ("404 Not Found", ""),
    }) + "/mcp";
    assert_data_eq!(
        mistake(home.path(), &["login", &url]),
        str![[r#"
error: the authorization server registers no clients
  help: register Bowline there by hand, with the redirect URI `http://127.0.0.1/callback`, and write the `client_id` that you get into `[servers.NAME.oauth]`

"#]]
    );
}

#[test]
fn a_server_that_is_not_there() {
    let home = home();
    let (code, stdout, stderr) = run(at(home.path()).args(["login", "http://127.0.0.1:9/mcp"]));
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(
        stderr.starts_with("error: the server is unavailable: "),
        "{stderr}"
    );
}

#[test]
fn a_secret_in_a_servers_url_is_not_listed() {
    let home = home();
    let text = "[servers.files]\nurl = \"http://127.0.0.1:9/mcp?key=s3cret\"\noauth = {}\n";
    write_file(home.path(), text);
    for options in [&["auth", "--json"][..], &["auth"], &["logout", "files"]] {
        let (code, stdout, stderr) =
            run(at(home.path()).args(options).args(["-c", "bowline.toml"]));
        assert_eq!(code, Some(0), "{stderr}");
        assert!(!format!("{stdout}{stderr}").contains("s3cret"), "{stdout}");
        let is_listed = stdout.contains("http://127.0.0.1:9/mcp");
        assert_eq!(is_listed, options.contains(&"--json"), "{stdout}");
    }
}

#[test]
fn nobody_is_signed_in_yet() {
    let home = home();
    let (code, stdout, stderr) = run(at(home.path()).arg("auth"));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_data_eq!(
        stdout,
        str![[r#"
Nobody is signed in anywhere.

Stored in [..]/bowline/grants.sealed, sealed with the key file [..]/bowline/grants.key.

"#]]
    );
    let text = "[servers.files]\nurl = \"http://127.0.0.1:9/mcp\"\noauth = {}\n\n\
                [servers.web]\nurl = \"http://127.0.0.1:9/web\"\n";
    write_file(home.path(), text);
    let (code, stdout, _) = run(at(home.path()).args(["auth", "-c", "bowline.toml"]));
    assert_eq!(code, Some(0));
    assert_data_eq!(
        stdout,
        str![[r#"
SERVER  SIGNED IN
files   no
web     not needed

Stored in [..].

"#]]
    );
    let (code, stdout, _) = run(at(home.path()).args(["auth", "--json", "-c", "bowline.toml"]));
    assert_eq!(code, Some(0));
    assert!(stdout.contains(r#""signed_in": false"#), "{stdout}");
    let (code, stdout, _) = run(at(home.path()).args(["logout", "files", "-c", "bowline.toml"]));
    assert_eq!(
        (code, &*stdout),
        (Some(0), "Nobody was signed in at files.\n")
    );
}
