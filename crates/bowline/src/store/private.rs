//! Files that only their owner may read.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
#[cfg(unix)]
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use aws_lc_rs::rand;

/// Makes a directory, and those that it is in, unless they are there.
pub(super) fn directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    builder.mode(0o700);
    builder.recursive(true).create(path)
}

/// How a private file is opened for writing.
pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    options.mode(0o600);
    options.write(true);
    options
}

/// Writes a file that was not there, all of it or nothing. An error of kind `AlreadyExists` says
/// that somebody else was faster.
pub(super) fn write_new(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut random = [0; 8];
    rand::fill(&mut random).map_err(|_| io::Error::other("no random bytes"))?;
    let draft = format!("draft-{:016x}", u64::from_be_bytes(random));
    let draft = path.with_extension(draft);
    let mut file = options().create_new(true).open(&draft)?;
    let written = file
        .write_all(contents)
        .and_then(|()| file.sync_all())
        // A link, unlike a rename, replaces nothing.
        .and_then(|()| std::fs::hard_link(&draft, path));
    std::fs::remove_file(&draft)?;
    written?;
    sync_directory(path)
}

/// Puts the name of a new file on the disk.
pub(super) fn sync_directory(of: &Path) -> io::Result<()> {
    if cfg!(unix)
        && let Some(directory) = of.parent()
    {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}
