//! `bowline serve` on a Unix socket.

use std::path::{Path, PathBuf};

use snapbox::{assert_data_eq, str};
use tempfile::TempDir;

use crate::running::{self, Running, bowline, run};

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bowline.sock");
    (directory, path)
}

fn start(path: &Path) -> Running {
    let listen = format!("unix:{}", path.display());
    Running::start_in(&mut bowline(), &listen, &["--admin", "off"])
}

fn shown(text: &str, path: &Path) -> String {
    let text = text.replace(env!("CARGO_PKG_VERSION"), "[VERSION]");
    text.replace(path.to_str().unwrap(), "[SOCKET]")
}

#[test]
fn the_demo_does_what_it_prints() {
    let (directory, path) = place();
    let mut gateway = start(&path);
    let printed = gateway.stdout.read_until("Ctrl-C stops it.");
    let greeting: Vec<&str> = printed.lines().take(3).collect();
    assert_data_eq!(
        shown(&greeting.join("\n"), &path),
        str![[r#"
Bowline [VERSION] is listening on unix:[SOCKET]
    demo  http://localhost/mcp/demo
sessions  in memory: they are lost when this process ends
"#]]
    );
    let [opening, counting] = &running::blocks(&printed)[..] else {
        panic!("{printed}");
    };
    let opened = running::sh(opening);
    assert!(opened.starts_with("HTTP/1.1 200 OK\r\n"), "{opened}");
    let counted = running::sh(counting);
    assert!(counted.contains(r#""text":"2""#), "{counted}");
    gateway.signal("TERM");
    assert_eq!(gateway.exit_code(), Some(0));
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_killed_gateway_is_replaced_and_a_live_one_is_not() {
    let (_directory, path) = place();
    let mut killed = start(&path);
    killed.stdout.read_until("Ctrl-C stops it.");
    killed.signal("KILL");
    killed.exit_code();
    assert!(path.exists());

    let mut gateway = start(&path);
    gateway.stdout.read_until("Ctrl-C stops it.");
    let listen = format!("unix:{}", path.display());
    let mut second = bowline();
    let (code, stdout, stderr) = run(second.args(["serve", "--admin", "off", "--listen", &listen]));
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert_data_eq!(
        shown(&stderr, &path),
        str![[r#"
error: cannot listen on unix:[SOCKET] (listen): another process listens there
  help: another gateway serves there; stop it, or choose another path with `--listen`

"#]]
    );
    gateway.signal("TERM");
    assert_eq!(gateway.exit_code(), Some(0));
}

#[test]
fn what_cannot_be_a_socket_is_explained() {
    let (directory, path) = place();
    std::fs::write(&path, "precious").unwrap();
    let missing = directory.path().join("missing/bowline.sock");
    for (path, expected) in [
        (
            &path,
            str![[r#"
error: cannot listen on unix:[SOCKET] (listen): there is a file that is not a socket
  help: the file was left as it is; move it away, or choose another path with `--listen`

"#]],
        ),
        (
            &missing,
            str![[r#"
error: cannot listen on unix:[SOCKET] (listen): No such file or directory (os error 2)
  help: its directory has to exist, and the user that runs Bowline has to be able to write to it

"#]],
        ),
    ] {
        let listen = format!("unix:{}", path.display());
        let mut command = bowline();
        let (code, _, stderr) = run(command.args(["serve", "--admin", "off", "--listen", &listen]));
        assert_eq!(code, Some(1), "{stderr}");
        assert_data_eq!(shown(&stderr, path), expected);
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn check_knows_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bowline.toml");
    let mut text = String::from(
        "listen = \"unix:///run/bowline.sock\"\nadmin = \"unix:/run/admin.sock\"\n\
         store.kind = \"memory\"\n[servers.a]\nurl = \"http://127.0.0.1:9/\"\n",
    );
    std::fs::write(&file, &text).unwrap();
    let (code, stdout, stderr) = run(bowline().args(["check", "-c"]).arg(&file));
    assert_eq!(code, Some(0), "{stderr}");
    let lines: Vec<&str> = stdout.lines().take(2).collect();
    assert_eq!(
        lines,
        [
            r#"listen = "unix:/run/bowline.sock""#,
            r#"admin = "unix:/run/admin.sock""#
        ]
    );

    text = text.replace("unix:///run/bowline.sock", "unix:bowline.sock");
    std::fs::write(&file, &text).unwrap();
    let mut command = bowline();
    command.args(["check", "-c", "bowline.toml"]);
    let (code, _, stderr) = run(command.current_dir(folder.path()));
    assert_eq!(code, Some(2));
    assert_data_eq!(
        stderr,
        str![[r#"
error: `listen` is a Unix socket without an absolute path
 --> bowline.toml:1:10
  |
1 | listen = "unix:bowline.sock"
  |          ^^^^^^^^^^^^^^^^^^^
  |
  = help: write an IP address and a port, such as `127.0.0.1:6270`, or a Unix socket, such as `unix:/run/bowline.sock`

"#]]
    );

    let same = ["--listen", "unix:/run/a", "--admin", "unix:/run/a"];
    let (code, _, stderr) = run(bowline().arg("check").args(same));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("cannot share an address"), "{stderr}");
}
