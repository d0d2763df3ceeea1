//! A small disk of its own for a file store, which can be filled up.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

/// How large it is for a run of a minute, and for each further minute: sessions that nobody ends stay.
const MIB: u64 = 24;
const MIB_PER_MINUTE: u64 = 8;
const BALLAST: usize = 64 * 1024;

/// A tmpfs. Unmounted when dropped.
#[derive(Debug)]
pub(super) struct Disk(TempDir);

impl Disk {
    /// Mounts one for a run of so many seconds, which takes root.
    pub(super) fn mount(seconds: u64) -> anyhow::Result<Self> {
        let disk = Self(tempfile::tempdir()?);
        let size = format!("size={}m", MIB + seconds / 60 * MIB_PER_MINUTE);
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &size, "tmpfs"]);
        let mounted = command.arg(disk.0.path()).output().context("no mount")?;
        let said = String::from_utf8_lossy(&mounted.stderr);
        ensure!(mounted.status.success(), "{}", said.trim());
        Ok(disk)
    }

    /// Where a store goes.
    pub(super) fn store(&self) -> PathBuf {
        self.0.path().join("store")
    }

    /// Writes until nothing more fits.
    pub(super) fn fill(&self) -> anyhow::Result<()> {
        let mut ballast = File::create(self.ballast())?;
        let mut piece = vec![1; BALLAST];
        // The last bytes count, so what does not fit is halved until nothing does.
        while !piece.is_empty() {
            if ballast.write_all(&piece).is_err() {
                piece.truncate(piece.len() / 2);
            }
        }
        Ok(())
    }

    /// Makes room again.
    pub(super) fn free(&self) -> anyhow::Result<()> {
        Ok(std::fs::remove_file(self.ballast())?)
    }

    fn ballast(&self) -> PathBuf {
        self.0.path().join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily, as a gateway that is being killed may still have its files open.
        _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}
