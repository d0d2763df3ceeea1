//! What it says, at its start, of a store that it cannot use; and that it says where sessions are.

use std::fs;
use std::path::Path;

use bowline_testbed::redis::Redis;
use redb::{Builder, TableDefinition};
use snapbox::{assert_data_eq, str};
use tempfile::TempDir;

use crate::running::{Running, bowline, run};

/// A configuration whose `[store]` has these lines, in a folder of its own.
fn configured(lines: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let server = "[servers.a]\nurl = \"http://127.0.0.1:9/mcp\"\n";
    let text = format!("admin = \"off\"\n{server}[store]\n{lines}\n");
    fs::write(folder.path().join("bowline.toml"), text).unwrap();
    folder
}

fn config_of(folder: &TempDir) -> String {
    let path = folder.path().join("bowline.toml");
    path.to_str().unwrap().to_owned()
}

/// A configuration with a file in `state` beside it, and that directory.
fn filed() -> (TempDir, std::path::PathBuf) {
    let folder = configured("");
    let state = folder.path().join("state");
    let text = fs::read_to_string(folder.path().join("bowline.toml")).unwrap();
    let text = format!("{text}path = '{}'\n", state.display());
    fs::write(folder.path().join("bowline.toml"), text).unwrap();
    (folder, state)
}

/// Starts and stops one, so that there are files.
fn used(folder: &TempDir) {
    let mut gateway = Running::start(&["--config", &config_of(folder)]);
    gateway.stdout.read_until("sessions  in ");
    gateway.signal("TERM");
    assert_eq!(gateway.exit_code(), Some(0));
}

/// What a start says that fails, behind its log; paths under `folder` begin with `[FOLDER]`.
fn refusal(folder: &TempDir) -> String {
    let mut command = bowline();
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    command.args(["--config", &config_of(folder)]);
    let key = bowline::SealKeys::generate().unwrap();
    let redis = fs::read_to_string(config_of(folder))
        .unwrap()
        .contains("redis");
    if redis {
        command.env("BOWLINE_SEAL_KEYS", key);
    }
    let (code, stdout, stderr) = run(&mut command);
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    let error = stderr.find("error: cannot").unwrap();
    stderr[error..].replace(folder.path().to_str().unwrap(), "[FOLDER]")
}

#[test]
fn it_says_where_sessions_are() {
    let folder = configured("");
    let mut command = bowline();
    command.env("XDG_STATE_HOME", folder.path());
    let config = config_of(&folder);
    let options = ["--config", config.as_str()];
    let mut gateway = Running::start_in(&mut command, "127.0.0.1:0", &options);
    let printed = gateway.stdout.read_until("sessions  in ");
    let place = folder.path().join("bowline");
    assert!(
        printed.ends_with(&format!("sessions  in {}\n", place.display())),
        "{printed}"
    );
    assert!(place.join("sessions.redb").exists());
    gateway.signal("TERM");
    assert_eq!(gateway.exit_code(), Some(0));
}

#[test]
fn without_a_home_it_says_that_they_are_in_memory() {
    let folder = configured("");
    let mut command = bowline();
    command.env_remove("XDG_STATE_HOME").env_remove("HOME");
    let config = config_of(&folder);
    let options = ["--config", config.as_str()];
    let mut gateway = Running::start_in(&mut command, "127.0.0.1:0", &options);
    gateway.stderr.read_until(
        "sessions are kept in memory only, because neither XDG_STATE_HOME nor HOME is set",
    );
    gateway.stdout.read_until("sessions  in memory");
    gateway.signal("TERM");
    assert_eq!(gateway.exit_code(), Some(0));
}

#[test]
fn a_file_in_use() {
    let (folder, _) = filed();
    let gateway = Running::start(&["--config", &config_of(&folder)]);
    gateway.stdout.read_until("sessions  in ");
    assert_data_eq!(
        refusal(&folder),
        str![[r#"
error: cannot store sessions in [FOLDER]/state: [FOLDER]/state/sessions.redb is in use by another gateway
  help: stop the other gateway, or give each its own `path` in `[store]`; only a store of kind `redis` can be shared

"#]]
    );
}

#[test]
fn a_damaged_file_stays_as_it_is() {
    let (folder, state) = filed();
    used(&folder);
    let file = state.join("sessions.redb");
    fs::write(&file, "not a database").unwrap();
    let said = refusal(&folder);
    let (error, help) = said.split_once('\n').unwrap();
    let prefix = "error: cannot store sessions in [FOLDER]/state: [FOLDER]/state/sessions.redb cannot be read: ";
    assert!(error.starts_with(prefix), "{said}");
    assert_data_eq!(
        help.to_owned(),
        str![[r#"
  help: the file was not changed: make it readable or restore a backup; or move it away, to start without sessions

"#]]
    );
    assert_eq!(fs::read(&file).unwrap(), b"not a database");
    // What it advises works.
    fs::rename(&file, folder.path().join("aside")).unwrap();
    used(&folder);
}

#[test]
fn a_newer_file() {
    let (folder, state) = filed();
    used(&folder);
    newer(&state.join("sessions.redb"));
    assert_data_eq!(
        refusal(&folder),
        str![[r#"
error: cannot store sessions in [FOLDER]/state: [FOLDER]/state/sessions.redb was written by a newer Bowline (layout 9, and this one knows 1)
  help: the file was not changed: run the newer Bowline; or move it away, to start without sessions

"#]]
    );
}

fn newer(file: &Path) {
    let database = Builder::new().open(file).unwrap();
    let write = database.begin_write().unwrap();
    let meta = TableDefinition::<&str, u64>::new("meta");
    write.open_table(meta).unwrap().insert("layout", 9).unwrap();
    write.commit().unwrap();
}

#[test]
fn a_lost_key() {
    let (folder, state) = filed();
    used(&folder);
    fs::remove_file(state.join("seal.key")).unwrap();
    assert_data_eq!(
        refusal(&folder),
        str![[r#"
error: cannot store sessions in [FOLDER]/state: [FOLDER]/state/seal.key is missing, and [FOLDER]/state/sessions.redb cannot be read without it
  help: restore the key file; or move `sessions.redb` away, to start without sessions

"#]]
    );
    fs::write(state.join("seal.key"), "something else\n").unwrap();
    assert_data_eq!(
        refusal(&folder),
        str![[r#"
error: cannot store sessions in [FOLDER]/state: in the key file [FOLDER]/state/seal.key: seal key number 1 is not 32 bytes in base64
  help: it must contain what `bowline keygen` prints, and be readable by the user that runs Bowline

"#]]
    );
}

#[test]
fn redis_without_a_key() {
    let folder = configured("kind = \"redis\"\nurl = \"redis://127.0.0.1:9\"");
    let mut command = bowline();
    command.args(["serve", "--config", &config_of(&folder)]);
    let (code, _, stderr) = run(&mut command);
    assert_eq!(code, Some(2));
    assert!(
        stderr.contains("make one with `bowline keygen`"),
        "{stderr}"
    );
}

#[test]
fn a_redis_that_is_not_there() {
    let folder = configured(
        "kind = \"redis\"\nurl = \"redis://127.0.0.1:9\"\non_unreachable_start = \"exit\"",
    );
    assert_data_eq!(
        refusal(&folder),
        str![[r#"
error: cannot store sessions in redis://127.0.0.1:9/: the store cannot be reached: Connection refused (os error 111)
  help: start it, or correct `[store]`; with `on_unreachable_start = "wait"` Bowline waits for it

"#]]
    );
}

#[tokio::test]
async fn a_redis_that_wants_another_password() {
    let redis = Redis::start_with(&["--requirepass", "right"])
        .await
        .unwrap();
    let url = redis.url();
    let folder = configured(&format!(
        "kind = \"redis\"\nurl = \"{url}\"\npassword = \"s3cret\"\non_unreachable_start = \"exit\""
    ));
    let said = refusal(&folder).replace(&url, "redis://[REDIS]");
    assert!(!said.contains("s3cret"), "{said}");
    assert_data_eq!(
        said,
        str![[r#"
error: cannot store sessions in redis://[REDIS]/: the store refused: [..]
  help: correct `user` and `password` in `[store]`

"#]]
    );
}
