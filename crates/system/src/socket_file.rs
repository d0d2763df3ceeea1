//! A Unix socket in the file system that only its owner can connect to.
//!
//! Two things can go wrong with such a socket. Somebody connects while its mode is not set yet: so the
//! mode is set before anybody can connect. And the file of a process that was killed stays behind: so
//! a lock beside it says whether its owner lives, and the file of a dead one is replaced. The system
//! gives the lock back when its process ends, however it ends.
//!
//! Others may be able to write to the directory, and put a link, a pipe or a file of theirs in the lock's place.
//! Such a lock is refused, and nothing is written to it.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};

/// The longest path, in bytes. Linux has room for 107, other systems for 103.
pub const MAX_PATH: usize = 103;

/// Who may connect: the owner.
const MODE: u32 = 0o600;

/// How many connections may wait until they are accepted.
const BACKLOG: i32 = 1024;

/// How often the lock is tried again because its file was removed meanwhile.
const LOCK_TRIES: usize = 16;

/// A socket's file. It is removed when this is dropped.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Which file it is: device and inode.
    identity: (u64, u64),
    /// Held, and removed last.
    _lock: Lock,
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketFileError {
    /// A live process listens there.
    #[error("another process listens there")]
    InUse,
    /// The path is taken by something that is not a socket. It was left alone.
    #[error("there is a file that is not a socket")]
    NotASocket,
    /// The lock's path is taken by something else than a regular file of this user. It was left alone.
    #[error("its lock file {} is not a regular file of this user", .0.display())]
    NotALock(PathBuf),
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The lock of a socket's owner: a locked file beside the socket.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    _file: File,
}

/// Whether a process of this user may use what belongs to this process: its own user, and root.
pub fn is_own_user(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

// === impl SocketFile ===

impl SocketFile {
    /// Listens at a path. The file of a process that is gone is replaced.
    pub fn listen(path: &Path) -> Result<(UnixListener, Self), SocketFileError> {
        let lock = Lock::take(path)?;
        remove_stale(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        let socket = bind_private(socket, path)?;
        let file = fs::symlink_metadata(path)?;
        let this = Self {
            path: path.to_owned(),
            identity: (file.dev(), file.ino()),
            _lock: lock,
        };
        // Until now every connection was refused.
        socket.listen(BACKLOG)?;
        Ok((socket.into(), this))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let file = fs::symlink_metadata(&self.path);
        // Somebody may have put another file there.
        if file.is_ok_and(|file| (file.dev(), file.ino()) == self.identity) {
            // If it stays, the next process replaces it.
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Binds a socket to a path, with the right mode. Linux gives the file the mode of the socket, so no other
/// process ever sees another one.
#[cfg(target_os = "linux")]
fn bind_private(socket: Socket, path: &Path) -> io::Result<Socket> {
    let socket = File::from(std::os::fd::OwnedFd::from(socket));
    socket.set_permissions(Permissions::from_mode(MODE))?;
    let socket = Socket::from(std::os::fd::OwnedFd::from(socket));
    socket.bind(&SockAddr::unix(path)?)?;
    Ok(socket)
}

/// Binds a socket to a path, and sets the mode, before anybody can connect.
#[cfg(not(target_os = "linux"))]
fn bind_private(socket: Socket, path: &Path) -> io::Result<Socket> {
    socket.bind(&SockAddr::unix(path)?)?;
    fs::set_permissions(path, Permissions::from_mode(MODE))?;
    Ok(socket)
}

/// Removes the file of a process that is gone. The lock is held, so no other Bowline comes in between.
fn remove_stale(path: &Path) -> Result<(), SocketFileError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
        Ok(file) if !file.file_type().is_socket() => return Err(SocketFileError::NotASocket),
        Ok(_) => {}
    }
    // Other programs do not know of the lock. One that has no room for a connection would keep this waiting.
    let visitor = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    visitor.set_nonblocking(true)?;
    match visitor.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Ok(fs::remove_file(path)?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(()) => Err(SocketFileError::InUse),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(SocketFileError::InUse),
        Err(error) => Err(error.into()),
    }
}

// === impl Lock ===

impl Lock {
    fn take(socket: &Path) -> Result<Self, SocketFileError> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        for _ in 0..LOCK_TRIES {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(MODE);
            // No link is followed, and no pipe is waited for.
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
            options.custom_flags(flags.bits().cast_signed());
            let opened = options.open(&path);
            let there = fs::symlink_metadata(&path);
            if there.is_ok_and(|there| !is_own_file(&there)) {
                return Err(SocketFileError::NotALock(path));
            }
            let file = opened?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(SocketFileError::InUse),
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
            // Its owner may have removed it after it was opened here. Then others lock another file.
            let locked = file.metadata()?;
            if !is_own_file(&locked) {
                return Err(SocketFileError::NotALock(path));
            }
            let there = fs::symlink_metadata(&path);
            let is_same =
                |there: &fs::Metadata| (there.dev(), there.ino()) == (locked.dev(), locked.ino());
            if there.as_ref().is_ok_and(is_same) {
                return Ok(Self { path, _file: file });
            }
        }
        Err(SocketFileError::InUse)
    }
}

/// Whether this is a regular file of this user, or root's.
fn is_own_file(file: &fs::Metadata) -> bool {
    file.is_file() && is_own_user(file.uid())
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is locked: nobody else can have locked the file that is removed.
        fs::remove_file(&self.path).ok();
    }
}

#[cfg(test)]
mod tests;
