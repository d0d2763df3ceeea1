//! What a running gateway does about a changed configuration file, and how it logs that.

use std::path::{Path, PathBuf};

use crate::running::Running;

const GOOD: &str =
    "admin = \"off\"\nstore.kind = \"memory\"\n[servers.a]\nurl = \"http://127.0.0.1:9/mcp\"\n";

fn write(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("bowline.toml");
    // In one step, so that half a file is never seen.
    let new = folder.join("new.toml");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, &path).unwrap();
    path
}

fn start(path: &Path, options: &[&str]) -> Running {
    let mut all = vec!["--config", path.to_str().unwrap()];
    all.extend(options);
    let gateway = Running::start(&all);
    gateway.stdout.read_until("/mcp/a");
    gateway
}

#[test]
fn a_changed_file_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), GOOD);
    let mut gateway = start(&path, &[]);

    write(folder.path(), &GOOD.replace("http:", "htp:"));
    let said = gateway.stderr.read_until("= help: ");
    assert!(said.contains("the old one stays in use\n"), "{said}");
    assert!(said.contains("bowline.toml:4:7\n"), "{said}");
    assert!(
        said.contains("4 | url = \"htp://127.0.0.1:9****\"\n"),
        "{said}"
    );

    write(folder.path(), &format!("{GOOD}call_timeout = \"1m\"\n"));
    gateway.stderr.read_until("configuration reloaded");

    gateway.signal("TERM");
    assert_eq!(gateway.exit_code(), Some(0));
}

#[test]
fn a_signal_reads_it_again_and_flags_still_win() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), GOOD);
    let mut gateway = start(&path, &["--log-format", "json"]);
    gateway.signal("HUP");
    let said = gateway.stderr.read_until("configuration reloaded");
    let event: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(event["level"], "INFO");
    assert_eq!(event["message"], "configuration reloaded");

    // `--listen` was given, so the file's `listen` means nothing; `admin` cannot change.
    let text = GOOD.replace("\"off\"", "\"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"");
    write(folder.path(), &text);
    let said = gateway.stderr.read_until("the old one stays");
    let event: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(event["level"], "ERROR");
    let message = event["message"].as_str().unwrap();
    assert!(message.contains("`admin` cannot change while"), "{message}");
    assert!(!message.contains("listen"), "{message}");

    gateway.signal("INT");
    assert_eq!(gateway.exit_code(), Some(0));
}

#[test]
fn the_demo_stays_when_told_to_read_again() {
    let mut gateway = Running::start(&["--admin", "off"]);
    gateway.stdout.read_until("Ctrl-C stops it.");
    gateway.signal("HUP");
    gateway.stderr.read_until("configuration reloaded");
    gateway.signal("TERM");
    assert_eq!(gateway.exit_code(), Some(0));
}
