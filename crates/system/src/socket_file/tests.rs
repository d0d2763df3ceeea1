use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use super::*;

fn path(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("s.sock")
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn names(directory: &tempfile::TempDir) -> Vec<String> {
    let entries = fs::read_dir(directory.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn only_the_owner_may_connect_and_nothing_stays_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = path(&directory);
    let (listener, file) = SocketFile::listen(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    listener.set_nonblocking(false).unwrap();
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"x").unwrap();
    drop(client);
    let mut heard = String::new();
    let (mut accepted, _) = listener.accept().unwrap();
    accepted.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "x");
    drop(file);
    assert_eq!(names(&directory), [""; 0]);
}

#[test]
fn a_live_owner_keeps_its_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = path(&directory);
    let (_listener, _file) = SocketFile::listen(&path).unwrap();
    let second = SocketFile::listen(&path).unwrap_err();
    assert!(matches!(second, SocketFileError::InUse), "{second}");
    UnixStream::connect(&path).unwrap();
}

#[test]
fn a_program_that_knows_of_no_lock_keeps_its_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = path(&directory);
    let _other = UnixListener::bind(&path).unwrap();
    let second = SocketFile::listen(&path).unwrap_err();
    assert!(matches!(second, SocketFileError::InUse), "{second}");
    UnixStream::connect(&path).unwrap();
    assert_eq!(names(&directory), ["s.sock"]);
}

#[test]
fn the_socket_of_a_dead_owner_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = path(&directory);
    // What a killed process leaves behind: the file, and a lock that nobody holds.
    drop(UnixListener::bind(&path).unwrap());
    File::create(directory.path().join("s.sock.lock")).unwrap();
    let (_listener, _file) = SocketFile::listen(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    UnixStream::connect(&path).unwrap();
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = path(&directory);
    fs::write(&path, "precious").unwrap();
    let refused = SocketFile::listen(&path).unwrap_err();
    assert!(matches!(refused, SocketFileError::NotASocket), "{refused}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    // Nor is what somebody put in its place removed.
    fs::remove_file(&path).unwrap();
    let (_listener, file) = SocketFile::listen(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "precious").unwrap();
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

#[test]
fn of_many_that_start_at_once_one_gets_the_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = path(&directory);
    drop(UnixListener::bind(&path).unwrap());
    for _ in 0..50 {
        let all: Vec<_> = std::thread::scope(|scope| {
            let started: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| SocketFile::listen(&path)))
                .collect();
            started.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let listening = all.iter().filter(|it| it.is_ok()).count();
        assert_eq!(listening, 1);
        UnixStream::connect(&path).unwrap();
    }
}

#[test]
fn one_that_has_no_room_for_a_connection_lives() {
    let directory = tempfile::tempdir().unwrap();
    let path = path(&directory);
    let full = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    full.bind(&SockAddr::unix(&path).unwrap()).unwrap();
    full.listen(0).unwrap();
    let _first = UnixStream::connect(&path).unwrap();
    let refused = SocketFile::listen(&path).unwrap_err();
    assert!(matches!(refused, SocketFileError::InUse), "{refused}");
}

#[test]
fn a_path_that_is_too_long_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let long = directory.path().join("x".repeat(108));
    assert!(matches!(
        SocketFile::listen(&long),
        Err(SocketFileError::Io(_))
    ));
}

#[test]
fn a_lock_that_somebody_else_made_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let (path, lock) = (path(&directory), directory.path().join("s.sock.lock"));
    let target = directory.path().join("target");
    fs::write(&target, "theirs").unwrap();
    let is_refused = |what: &str| {
        let refused = SocketFile::listen(&path).unwrap_err();
        assert!(
            matches!(refused, SocketFileError::NotALock(_)),
            "{what}: {refused}"
        );
        assert!(fs::symlink_metadata(&lock).is_ok(), "{what} was removed");
        assert!(!path.exists());
    };
    std::os::unix::fs::symlink(&target, &lock).unwrap();
    is_refused("a link");
    fs::remove_file(&lock).unwrap();
    std::os::unix::fs::symlink("nowhere", &lock).unwrap();
    is_refused("a link to nothing");
    assert!(!directory.path().join("nowhere").exists());
    fs::remove_file(&lock).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&lock).status();
    assert!(made.unwrap().success());
    is_refused("a pipe that nobody reads");
    let options = || {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        options
    };
    let reader = options().open(&lock).unwrap();
    is_refused("a pipe that somebody reads");
    drop(reader);
    fs::remove_file(&lock).unwrap();
    fs::create_dir(&lock).unwrap();
    is_refused("a directory");
    fs::remove_dir(&lock).unwrap();
    fs::write(&lock, "").unwrap();
    // Only root may give a file away.
    if std::os::unix::fs::chown(&lock, Some(12345), None).is_ok() {
        is_refused("another's file");
        fs::remove_file(&lock).unwrap();
    }
    drop(SocketFile::listen(&path).unwrap());
    assert_eq!(fs::read_to_string(&target).unwrap(), "theirs");
    assert_eq!(names(&directory), ["target"]);
}
