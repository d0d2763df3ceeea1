//! Whose descendant each process is.
//!
//! The supervisor is a subreaper, so every descendant of a child is below the supervisor in the tree of
//! processes, and no other process is. What stands directly below it is a child, or has lost its parent: then
//! its group or its tag names the child. What stands further down belongs to the same child as its parent.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid};

use super::processes::{Process, processes, signal, tags};
use super::{Census, Root};
use crate::protocol::ChildId;

/// Whose a process is that stands directly below the supervisor.
#[derive(Clone, Copy)]
enum Owner {
    Child(ChildId),
    /// A child that was ended.
    Stray,
    /// One of several children that run: it cannot be known which.
    Unknown,
}

/// Finds all descendants of this process, which has to be a subreaper, and whose they are.
pub(crate) fn take_census(roots: &[Root<'_>]) -> io::Result<Census> {
    let mut below: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in processes()? {
        below.entry(process.parent).or_default().push(process);
    }
    let mut census = Census::default();
    let top = below.remove(&number(getpid())).unwrap_or_default();
    for process in top {
        let family = with_descendants(process, &mut below);
        match owner(&process, roots, || tags(process.pid)) {
            Owner::Child(id) => census.members.entry(id).or_default().extend(family),
            Owner::Stray => census.strays.extend(family),
            Owner::Unknown => census.has_unknown = true,
        }
    }
    Ok(census)
}

fn with_descendants(first: Process, below: &mut HashMap<i32, Vec<Process>>) -> Vec<Process> {
    let mut family = vec![first];
    let mut next = 0;
    while let Some(process) = family.get(next) {
        family.extend(below.remove(&number(process.pid)).unwrap_or_default());
        next += 1;
    }
    family
}

fn owner(process: &Process, roots: &[Root<'_>], tags: impl FnOnce() -> Vec<String>) -> Owner {
    let is_root = |root: &&Root<'_>| !root.exited && root.pid == process.pid;
    if let Some(root) = roots.iter().find(is_root) {
        return Owner::Child(root.id);
    }
    let tags = tags();
    let has_tag = |root: &&Root<'_>| tags.iter().any(|tag| tag == root.tag);
    // While a process is in a group, the number of the group is no other's. A child that runs has its own.
    let has_group = |root: &&Root<'_>| number(root.pid) == process.group;
    let running_group = |root: &&Root<'_>| !root.exited && has_group(root);
    let found = roots.iter().find(has_tag);
    let found = found.or_else(|| roots.iter().find(running_group));
    let found = found.or_else(|| roots.iter().find(has_group));
    if let Some(root) = found {
        return Owner::Child(root.id);
    }
    // What is older than every child that runs was started by one that was ended.
    let is_possible = |root: &Root<'_>| !root.ending && root.start <= process.start;
    match roots.iter().any(is_possible) {
        true => Owner::Unknown,
        false => Owner::Stray,
    }
}

/// Kills all processes with a tag that begins like this, and their descendants, until none is left.
///
/// For the gateway, when its supervisor died: the tree of processes does not show any more whose they are.
pub(crate) async fn kill_left_behind(tag: &str, _groups: Vec<i32>) {
    // One that cannot be killed waits for a device. There is nothing to do about it.
    const PASSES: u32 = 100;
    for _ in 0..PASSES {
        let prefix = format!("{tag}-");
        let killed = tokio::task::spawn_blocking(move || kill_once(&prefix)).await;
        match killed {
            Ok(Ok(0)) => return,
            Ok(Ok(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
            Ok(Err(error)) => return tracing::warn!(%error, "cannot list processes"),
            Err(error) => return tracing::warn!(%error, "cannot kill processes"),
        }
    }
    tracing::warn!("a child process cannot be killed");
}

fn kill_once(prefix: &str) -> io::Result<usize> {
    let mut below: HashMap<i32, Vec<Process>> = HashMap::new();
    let mut tagged = Vec::new();
    for process in processes()? {
        below.entry(process.parent).or_default().push(process);
        if tags(process.pid).iter().any(|tag| tag.starts_with(prefix)) {
            tagged.push(process);
        }
    }
    let mut killed = 0;
    for process in tagged {
        for process in with_descendants(process, &mut below) {
            signal(&process, Signal::KILL);
            killed += 1;
        }
    }
    Ok(killed)
}

fn number(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    fn root(id: ChildId, number: i32, start: u64, tag: &'static str) -> Root<'static> {
        let (exited, ending) = (false, false);
        Root {
            id,
            pid: pid(number),
            start,
            tag,
            exited,
            ending,
        }
    }

    fn owner_of(process: i32, group: i32, start: u64, tag: &str, roots: &[Root<'_>]) -> String {
        let process = Process {
            pid: pid(process),
            parent: 1,
            group,
            start,
        };
        let tags = tag.split(' ').map(str::to_owned).collect();
        match owner(&process, roots, || tags) {
            Owner::Child(id) => id.to_string(),
            Owner::Stray => "stray".to_owned(),
            Owner::Unknown => "unknown".to_owned(),
        }
    }

    #[test]
    fn a_process_belongs_to_a_child_by_id_tag_or_group() {
        let roots = [root(1, 10, 100, "t-1"), root(2, 20, 200, "t-2")];
        assert_eq!(owner_of(20, 20, 200, "", &roots), "2");
        assert_eq!(owner_of(30, 30, 300, "t-1", &roots), "1");
        assert_eq!(owner_of(30, 30, 300, "outer-9 t-2", &roots), "2");
        assert_eq!(owner_of(30, 10, 300, "", &roots), "1");
        // t-1 is not the start of t-12.
        assert_eq!(owner_of(30, 30, 300, "t-12", &roots), "unknown");
    }

    #[test]
    fn what_is_older_than_all_that_run_is_a_stray() {
        let mut roots = [root(1, 10, 100, "t-1"), root(2, 20, 200, "t-2")];
        assert_eq!(owner_of(30, 30, 99, "", &roots), "stray");
        assert_eq!(owner_of(30, 30, 150, "", &roots), "unknown");
        roots[0].ending = true;
        assert_eq!(owner_of(30, 30, 150, "", &roots), "stray");
        assert_eq!(owner_of(30, 30, 250, "", &roots), "unknown");
        assert_eq!(owner_of(30, 30, 250, "", &[]), "stray");
    }

    #[test]
    fn a_number_that_is_used_again_is_the_new_childs() {
        let mut old = root(1, 10, 100, "t-1");
        (old.exited, old.ending) = (true, true);
        let roots = [old, root(2, 10, 200, "t-2")];
        assert_eq!(owner_of(10, 10, 200, "", &roots), "2");
        assert_eq!(owner_of(11, 10, 201, "", &roots), "2");
    }
}
