use std::future::Future;

use super::*;

/// Longer than any wait for quiet, so that only a test that would hang meets it.
const TIMEOUT: Duration = Duration::from_secs(20);

async fn in_time(changed: impl Future<Output = ()>) {
    timeout(TIMEOUT, changed).await.unwrap();
}

async fn stays(watch: &mut Watch) {
    assert!(timeout(QUIET * 3, watch.changed()).await.is_err());
}

#[tokio::test]
async fn a_file_written_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bowline.toml");
    fs::write(&path, "a").unwrap();
    let mut watch = Watch::new(&[&path]).unwrap();
    fs::write(&path, "b").unwrap();
    in_time(watch.changed()).await;
    stays(&mut watch).await;
    fs::write(&path, "c").unwrap();
    in_time(watch.changed()).await;
}

#[tokio::test]
async fn a_file_replaced_or_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bowline.toml");
    fs::write(&path, "a").unwrap();
    let mut watch = Watch::new(&[&path]).unwrap();
    let other = folder.path().join(".bowline.toml.swp");
    fs::write(&other, "b").unwrap();
    fs::rename(&other, &path).unwrap();
    in_time(watch.changed()).await;
    fs::remove_file(&path).unwrap();
    in_time(watch.changed()).await;
    fs::write(&path, "b").unwrap();
    in_time(watch.changed()).await;
}

#[tokio::test]
async fn the_same_contents_and_other_files_are_no_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bowline.toml");
    fs::write(&path, "a").unwrap();
    let mut watch = Watch::new(&[&path]).unwrap();
    fs::write(&path, "a").unwrap();
    fs::write(folder.path().join("other.toml"), "x").unwrap();
    stays(&mut watch).await;
    fs::write(&path, "b").unwrap();
    in_time(watch.changed()).await;
}

/// How Kubernetes mounts a ConfigMap: `bowline.toml` -> `..data/bowline.toml`, `..data` -> a
/// folder with the time in its name; an update swaps `..data` and removes the old folder.
#[cfg(unix)]
#[tokio::test]
async fn a_swapped_link() {
    use std::os::unix::fs::symlink;

    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (version, text) in [("..1", "a"), ("..2", "b"), ("..3", "b")] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("bowline.toml"), text).unwrap();
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/bowline.toml", at("bowline.toml")).unwrap();
    let mut watch = Watch::new(&[&at("bowline.toml")]).unwrap();

    let swap = |version: &str, old: &str| {
        symlink(version, at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
        fs::remove_dir_all(at(old)).unwrap();
    };
    swap("..2", "..1");
    in_time(watch.changed()).await;
    swap("..3", "..2");
    stays(&mut watch).await;
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn what_makes_no_event_is_seen_later() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for version in ["one", "two"] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("tls.crt"), version).unwrap();
        fs::write(at(version).join("tls.key"), "the same").unwrap();
    }
    // A link above the folder that is watched.
    std::os::unix::fs::symlink("one", at("current")).unwrap();
    let (cert, key) = (at("current/tls.crt"), at("current/tls.key"));
    let mut watch = Watch::new(&[&cert, &key]).unwrap();
    std::os::unix::fs::symlink("two", at("next")).unwrap();
    fs::rename(at("next"), at("current")).unwrap();
    timeout(EVERY * 2, watch.changed()).await.unwrap();
}

/// A pipe without a writer, and a device without an end.
#[tokio::test]
async fn what_is_no_file_is_missing_and_holds_nothing_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tls.crt");
    fs::write(&path, "a").unwrap();
    let mut watch = Watch::new(&[&path]).unwrap();
    for odd in ["pipe", "device"] {
        fs::remove_file(&path).unwrap();
        match odd {
            "pipe" => {
                let made = std::process::Command::new("mkfifo").arg(&path).status();
                assert!(made.unwrap().success());
            }
            _ => std::os::unix::fs::symlink("/dev/zero", &path).unwrap(),
        }
        in_time(watch.changed()).await;
        let other = folder.path().join("other");
        fs::write(&other, odd).unwrap();
        fs::rename(&other, &path).unwrap();
        in_time(watch.changed()).await;
    }
}
