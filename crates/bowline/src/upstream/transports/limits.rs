//! How large what a server says may be where it is held in memory.

/// The largest number of messages in a server's batch.
pub(crate) const MAX_BATCH: usize = 10_000;

/// The largest answer that is buffered whole where it must be inspected.
pub(crate) const MAX_HELD_ANSWER: usize = 8 * 1024 * 1024;

/// JSON answers up to this size are buffered whole before any byte is passed on.
pub(crate) const SMALL_ANSWER: usize = 64 * 1024;
