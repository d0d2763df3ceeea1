//! What a process keeps from other processes of its user.

use std::io;

/// Keeps every process without special rights from reading this one's memory, environment and descriptors, and from
/// tracing it. It leaves no core dump. What it executes is readable again.
///
/// # Errors
///
/// If the system refuses it.
#[cfg(target_os = "linux")]
pub fn keep_private() -> io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Other systems ask for rights, or have no such switch.
///
/// # Errors
///
/// None.
#[cfg(not(target_os = "linux"))]
pub fn keep_private() -> io::Result<()> {
    Ok(())
}
