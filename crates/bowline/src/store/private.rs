//! Files that only their owner may read.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
#[cfg(unix)]
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::rand;

/// Makes a directory, and those that it is in, unless they are there.
pub(crate) fn directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    builder.mode(0o700);
    builder.recursive(true).create(path)
}

/// Whether anybody but its owner may read or change a file.
#[cfg(unix)]
pub fn is_open_to_others(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.permissions().mode() & 0o066 != 0)
}

/// Whether anybody but its owner may read or change a file, which is not known on this system.
#[cfg(not(unix))]
pub fn is_open_to_others(_path: &Path) -> io::Result<bool> {
    Ok(false)
}

/// How a private file is opened for writing.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    options.mode(0o600);
    options.write(true);
    options
}

/// Writes a file that was not there, all of it or nothing. An error of kind `AlreadyExists` says
/// that somebody else was faster.
pub(crate) fn write_new(path: &Path, contents: &[u8]) -> io::Result<()> {
    let draft = draft(path)?;
    // A link, unlike a rename, replaces nothing.
    let written = write_draft(&draft, contents).and_then(|()| fs::hard_link(&draft, path));
    fs::remove_file(&draft)?;
    written?;
    sync_directory(path)
}

/// Writes a file in place of the one that is there, if any: whoever reads finds one or the other,
/// and so does whoever starts after the power failed.
pub(crate) fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let draft = draft(path)?;
    if let Err(error) = write_draft(&draft, contents).and_then(|()| fs::rename(&draft, path)) {
        // It may not even be there.
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

/// Puts the name of a new file on the disk.
pub(crate) fn sync_directory(of: &Path) -> io::Result<()> {
    if cfg!(unix)
        && let Some(directory) = of.parent()
    {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}
