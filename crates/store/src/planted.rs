//! A bug that breaks a promise on purpose, so that a test can show that it would notice. Built only with
//! the feature `planted`.

use std::sync::atomic::{AtomicBool, Ordering};

static KEEPS_DISK_ERRORS: AtomicBool = AtomicBool::new(false);

/// From now on, in this process, a file store that met an error does not recover from it.
pub fn keep_disk_errors() {
    KEEPS_DISK_ERRORS.store(true, Ordering::Relaxed);
}

pub(crate) fn keeps_disk_errors() -> bool {
    KEEPS_DISK_ERRORS.load(Ordering::Relaxed)
}
