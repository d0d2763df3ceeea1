//! Where there is no `/proc` and no subreaper: the process groups of children.

use std::io;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use super::{Census, Root};

/// A process group that is not empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(Pid);

/// Nothing needs the start of a process here.
pub(crate) fn start_of(_pid: Pid) -> u64 {
    0
}

/// Finds the groups that are not empty.
pub(crate) fn take_census(roots: &[Root<'_>]) -> io::Result<Census> {
    let mut census = Census::default();
    for root in roots
        .iter()
        .filter(|root| test_kill_process_group(root.pid).is_ok())
    {
        census.members.insert(root.id, vec![Process(root.pid)]);
    }
    Ok(census)
}

/// Signals a group.
pub(crate) fn signal(group: &Process, signal: Signal) {
    if let Err(error) = kill_process_group(group.0, signal) {
        tracing::debug!(%error, "cannot signal a process group");
    }
}

/// Kills these process groups.
pub(crate) async fn kill_left_behind(_tag: &str, groups: Vec<i32>) {
    for group in groups.into_iter().filter_map(Pid::from_raw) {
        signal(&Process(group), Signal::KILL);
    }
}
