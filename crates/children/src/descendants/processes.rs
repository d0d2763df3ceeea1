//! What `/proc` says of processes, and how one is signalled.
//!
//! Process ids are reused. So a process is signalled by a descriptor (pidfd), after a second look that it is
//! still the one that was found.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use crate::spawn::TAG;

/// More than a process can have of environment and arguments.
const LARGEST_ENVIRONMENT: u64 = 8 << 20;

/// A process that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// When it started, in ticks since the system did.
    pub(crate) start: u64,
}

/// All processes that run on this machine, as far as this one may see them.
pub(super) fn processes() -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    let mut text = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            found.extend(read_into(pid, &mut text));
        }
    }
    Ok(found)
}

/// A process, if it runs: one that exited and waits for its parent does not.
fn read_process(pid: Pid) -> Option<Process> {
    read_into(pid, &mut Vec::new())
}

/// When a process started, in ticks since the system did.
pub(crate) fn start_of(pid: Pid) -> u64 {
    read_process(pid).map_or(0, |process| process.start)
}

fn read_into(pid: Pid, text: &mut Vec<u8>) -> Option<Process> {
    text.clear();
    let mut file = File::open(format!("/proc/{pid}/stat")).ok()?;
    file.read_to_end(text).ok()?;
    parse(pid, text)
}

/// `PID (NAME) STATE PARENT GROUP …`, where NAME may hold anything.
fn parse(pid: Pid, stat: &[u8]) -> Option<Process> {
    let after_name = memchr::memrchr(b')', stat)? + 1;
    let fields = std::str::from_utf8(&stat[after_name..]).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let threads: u32 = fields.nth(14)?.parse().ok()?;
    let start = fields.nth(1)?.parse().ok()?;
    // A process whose first thread has ended looks like one that exited.
    if matches!(state, "Z" | "X" | "x") && threads <= 1 {
        return None;
    }
    Some(Process {
        pid,
        parent,
        group,
        start,
    })
}

/// The tags in the environment that a process was started with, or none if it may not be read.
pub(super) fn tags(pid: Pid) -> Vec<String> {
    let Ok(file) = File::open(format!("/proc/{pid}/environ")) else {
        return Vec::new();
    };
    let mut environment = BufReader::new(file).take(LARGEST_ENVIRONMENT);
    let mut variable = Vec::new();
    while matches!(environment.read_until(0, &mut variable), Ok(1..)) {
        let value = variable.strip_prefix(TAG.as_bytes());
        if let Some(value) = value.and_then(|rest| rest.strip_prefix(b"=")) {
            let value = String::from_utf8_lossy(value.strip_suffix(b"\0").unwrap_or(value));
            return value.split(' ').map(str::to_owned).collect();
        }
        variable.clear();
    }
    Vec::new()
}

/// Signals a process, unless it exited meanwhile.
pub(crate) fn signal(process: &Process, signal: Signal) {
    let sent = match pidfd_open(process.pid, PidfdFlags::empty()) {
        Ok(descriptor) => {
            let now = read_process(process.pid);
            if now.is_none_or(|now| now.start != process.start) {
                return;
            }
            pidfd_send_signal(descriptor, signal)
        }
        Err(Errno::SRCH) => return,
        // No descriptor is left, or a sandbox forbids the call.
        Err(_) => kill_process(process.pid, signal),
    };
    if let Err(error) = sent
        && error != Errno::SRCH
    {
        tracing::warn!(%error, pid = process.pid.as_raw_nonzero().get(), "cannot signal a process");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let pid = Pid::from_raw(12).unwrap();
        let rest = "S 3 4 5 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 777 0 0";
        let process = parse(pid, format!("12 (a) S 1 (b)) {rest}").as_bytes());
        let expected = Process {
            pid,
            parent: 3,
            group: 4,
            start: 777,
        };
        assert_eq!(process, Some(expected));
        let zombie = rest.replace('S', "Z");
        assert_eq!(parse(pid, format!("12 (a) {zombie}").as_bytes()), None);
        let threads = zombie.replace(" 1 0 777", " 2 0 777");
        assert!(parse(pid, format!("12 (a) {threads}").as_bytes()).is_some());
    }

    #[test]
    fn this_process_is_found_by_its_parent() {
        let this = rustix::process::getpid();
        let process = read_process(this).unwrap();
        assert_eq!(Pid::from_raw(process.parent), rustix::process::getppid());
        assert!(processes().unwrap().contains(&process));
    }
}
