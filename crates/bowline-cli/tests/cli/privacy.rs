//! What a server that runs as the gateway's user finds out about the gateway, its supervisor, and other sessions.

#![cfg(target_os = "linux")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use bowline_testbed::client::Client;
use rustix::process::getuid;
use serde_json::json;

use crate::running::{Running, word_ending_in};

/// Nobody's ids.
const NOBODY: &str = "65534";

/// Answers `initialize`, and waits until it is asked to look. Then it tells what it could open of every process that it
/// sees: `gateway` and `supervisor`, itself as `own`, and the server of another session as `other`. Whoever can write
/// into the stdout of that one answers its client.
const SPY: &str = r#"
read -r line
printf '%s\n' '{"jsonrpc":"2.0","id":"open","result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}'
while read -r line; do
  case "$line" in *look*) break ;; esac
done
case "$line" in *look*) ;; *) exit ;; esac
for directory in /proc/[0-9]*; do
  case "$(tr '\0' ' ' <"$directory/cmdline")" in
    *"bowline supervise "*) who=supervisor ;;
    *"bowline serve "*) who=gateway ;;
    "/bin/sh "*" SPY ") who=other ;;
    *) continue ;;
  esac
  if [ "$directory" = "/proc/$$" ]; then who=own; fi
  for file in environ maps mem; do
    if true <"$directory/$file"; then echo "$who $file"; fi
  done
  if [ -n "$(ls "$directory/fd")" ]; then echo "$who fd"; fi
  if true >>"$directory/fd/1"; then echo "$who stdout"; fi
done >"$FOUND" 2>/dev/null
printf '%s\n' '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'
exec cat >/dev/null
"#;

/// A command that has no rights of root's.
fn as_nobody(program: &Path) -> Command {
    if !getuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    command.arg(program);
    command
}

/// What a second session's server found, next to a first one: each wrapped in these words.
async fn found(wrapped: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    // As nobody, who can reach this and nothing else of the test's.
    let open = |path: &Path, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, permissions).unwrap();
    };
    open(folder.path(), 0o777);
    let program = folder.path().join("bowline");
    std::fs::copy(env!("CARGO_BIN_EXE_bowline"), &program).unwrap();
    // As packages install it.
    open(&program, 0o711);
    let at = |name: &str| folder.path().join(name);
    let spy = at("spy");
    std::fs::write(&spy, SPY).unwrap();
    let found = at("found");
    let words: Vec<String> = wrapped
        .iter()
        .map(|word| word.replace("FOLDER", folder.path().to_str().unwrap()))
        .chain(["/bin/sh", spy.to_str().unwrap(), "SPY"].map(str::to_owned))
        .collect();
    let config = format!(
        "admin = \"off\"\n[store]\nkind = \"memory\"\n[servers.s]\ncommand = {words:?}\n\
         env = {{ FOUND = {found:?} }}\n"
    );
    std::fs::write(at("bowline.toml"), config).unwrap();
    let mut command = as_nobody(&program);
    command.stdin(Stdio::null());
    let config = at("bowline.toml");
    let options = ["--config", config.to_str().unwrap()];
    let mut gateway = Running::start_in(&mut command, "127.0.0.1:0", &options);
    let url = word_ending_in(&gateway.stdout.read_until("/mcp/s"), "/mcp/s");
    let mut clients = [Client::new(&url).unwrap(), Client::new(&url).unwrap()];
    for client in &mut clients {
        assert_eq!(client.open().await.unwrap().status, 200);
    }
    let [_, second] = &mut clients;
    let looked = second.call(1, "look", &json!({})).await.unwrap();
    assert_eq!(looked.status, 200, "{looked:?}");
    gateway.signal("TERM");
    assert_eq!(gateway.exit_code(), Some(0));
    let text = std::fs::read_to_string(found).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_server_reads_nothing_of_the_gateway_and_its_supervisor() {
    let found = found(&[]).await;
    for what in ["environ", "maps", "mem", "fd", "stdout"] {
        // Or the test shows nothing.
        assert!(found.contains(&format!("own {what}")), "{found:?}");
    }
    let is_of_ours = |line: &&String| line.starts_with("gateway") || line.starts_with("supervisor");
    assert_eq!(found.iter().find(is_of_ours), None, "{found:?}");
    // Two servers that run as the same user are not kept apart by it.
    assert!(found.contains(&"other stdout".to_owned()), "{found:?}");
}

/// The words of the sandbox that the security page shows, before the server's own.
fn sandbox() -> Vec<&'static str> {
    let page = include_str!("../../../../docs/security.md");
    let (_, rest) = page.split_once("command = [").unwrap();
    let (words, _) = rest.split_once("\"my-server\"").unwrap();
    words.split('"').skip(1).step_by(2).collect()
}

#[tokio::test]
async fn a_sandbox_keeps_the_server_of_one_session_from_that_of_another() {
    let mut words = sandbox();
    let mut tried = as_nobody(Path::new(words[0]));
    tried.args(&words[1..]).arg("true");
    if !tried.output().is_ok_and(|output| output.status.success()) {
        bowline_testbed::skip(
            "bubblewrap, or namespaces of users: a sandbox per session is NOT tried",
        );
        return;
    }
    words.extend(["--bind", "FOLDER", "FOLDER"]);
    let found = found(&words).await;
    assert!(found.contains(&"own stdout".to_owned()), "{found:?}");
    assert!(
        found.iter().all(|line| line.starts_with("own ")),
        "{found:?}"
    );
}
