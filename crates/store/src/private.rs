//! Files that only their owner may read.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
#[cfg(unix)]
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::rand;

/// Creates a directory and its parents, unless they exist.
pub fn directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    builder.mode(0o700);
    builder.recursive(true).create(path)
}

/// Whether anyone but this user and root may read, change or replace a file: because of its mode, its
/// owner, or the directory that contains it.
#[cfg(unix)]
pub fn is_open_to_others(path: &Path) -> io::Result<bool> {
    let file = fs::metadata(path)?;
    if file.mode() & 0o066 != 0 || !own_users().contains(&file.uid()) {
        return Ok(true);
    }
    is_replaceable(path)
}

/// Whether anyone but this user and root may replace a file, because of the directory that contains it.
#[cfg(unix)]
pub fn is_replaceable(path: &Path) -> io::Result<bool> {
    const STICKY: u32 = 0o1000;
    let directory = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => fs::metadata(".")?,
        Some(parent) => fs::metadata(parent)?,
        None => return Ok(false),
    };
    // In a sticky directory, users can replace only their own files.
    let is_shared = directory.mode() & 0o022 != 0 && directory.mode() & STICKY == 0;
    Ok(is_shared || !own_users().contains(&directory.uid()))
}

/// Root, and the user of this process.
#[cfg(unix)]
fn own_users() -> [u32; 2] {
    [0, rustix::process::geteuid().as_raw()]
}

/// Whether anyone but this user may read or change a file; unknown on this system.
#[cfg(not(unix))]
pub fn is_open_to_others(_path: &Path) -> io::Result<bool> {
    Ok(false)
}

/// Whether anyone but this user may replace a file; unknown on this system.
#[cfg(not(unix))]
pub fn is_replaceable(_path: &Path) -> io::Result<bool> {
    Ok(false)
}

/// How a private file is opened for writing.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    options.mode(0o600);
    options.write(true);
    options
}

/// Creates a file with all of its contents or not at all. An error of kind `AlreadyExists` says that
/// another process was first.
pub fn write_new(path: &Path, contents: &[u8]) -> io::Result<()> {
    let draft = draft(path)?;
    // A hard link, unlike a rename, replaces nothing.
    let written = write_draft(&draft, contents).and_then(|()| fs::hard_link(&draft, path));
    fs::remove_file(&draft)?;
    written?;
    sync_directory(path)
}

/// Replaces a file, if it exists. A reader sees the old or the new contents, even after a power failure.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let draft = draft(path)?;
    if let Err(error) = write_draft(&draft, contents).and_then(|()| fs::rename(&draft, path)) {
        // It may not exist.
        fs::remove_file(&draft).ok();
        return Err(error);
    }
    sync_directory(path)
}

fn draft(path: &Path) -> io::Result<PathBuf> {
    let mut random = [0; 8];
    rand::fill(&mut random).map_err(|_| io::Error::other("no random bytes"))?;
    let draft = format!("draft-{:016x}", u64::from_be_bytes(random));
    Ok(path.with_extension(draft))
}

fn write_draft(draft: &Path, contents: &[u8]) -> io::Result<()> {
    let mut file = options().create_new(true).open(draft)?;
    file.write_all(contents)?;
    file.sync_all()
}

/// Syncs the directory, so that the name of a new file is on the disk.
pub fn sync_directory(of: &Path) -> io::Result<()> {
    if cfg!(unix)
        && let Some(directory) = of.parent()
    {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}
