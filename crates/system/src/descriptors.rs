//! The reserve of file descriptors: the last ones are for the operator's listener and for files, and
//! connections of clients and to servers do not get them.
//!
//! The limit belongs to the process, so the reserve does too. The system always gives out the lowest
//! free number, so the number alone shows whether a descriptor belongs to the reserve.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;

/// The first number that belongs to the reserve.
static RESERVED_FROM: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Makes this number, and all above it, the reserve.
pub fn reserve_from(number: usize) {
    RESERVED_FROM.store(number, Ordering::Relaxed);
}

/// Whether a descriptor belongs to the reserve.
pub fn is_of_reserve(descriptor: &impl AsFd) -> bool {
    let number = usize::try_from(descriptor.as_fd().as_raw_fd());
    number.is_ok_and(|number| number >= RESERVED_FROM.load(Ordering::Relaxed))
}

/// Refuses a descriptor of the reserve.
///
/// # Errors
///
/// The error that the system gives when it has no descriptor left.
pub fn leave_reserve(descriptor: &impl AsFd) -> io::Result<()> {
    match is_of_reserve(descriptor) {
        true => Err(Errno::MFILE.into()),
        false => Ok(()),
    }
}
