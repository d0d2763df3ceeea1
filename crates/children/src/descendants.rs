//! Which processes are descendants of a child, and how they are signalled.

#[cfg(target_os = "linux")]
mod census;
#[cfg(not(target_os = "linux"))]
mod groups;
#[cfg(target_os = "linux")]
mod processes;

use std::collections::HashMap;

use rustix::process::Pid;

use crate::protocol::ChildId;

#[cfg(target_os = "linux")]
pub(crate) use self::census::{kill_left_behind, take_census};
#[cfg(not(target_os = "linux"))]
pub(crate) use self::groups::{Process, kill_left_behind, signal, start_of, take_census};
#[cfg(target_os = "linux")]
pub(crate) use self::processes::{Process, signal, start_of};

/// A child as the supervisor knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root<'a> {
    pub(crate) id: ChildId,
    /// Also its process group.
    pub(crate) pid: Pid,
    /// When it started, in ticks of the system.
    pub(crate) start: u64,
    pub(crate) tag: &'a str,
    /// It was waited for: its process id may already be another's.
    pub(crate) exited: bool,
    /// It was asked to end.
    pub(crate) ending: bool,
}

/// The descendants of the supervisor that run.
#[derive(Debug, Default)]
pub(crate) struct Census {
    /// By child: the child itself and its descendants.
    pub(crate) members: HashMap<ChildId, Vec<Process>>,
    /// Descendants of children that were ended.
    pub(crate) strays: Vec<Process>,
    /// There is a process of which it is not known whose it is. One that executes another program just now has no
    /// environment for a moment, and so no tag.
    pub(crate) has_unknown: bool,
}
