//! Deliberate bugs that break a promise, so that a test can show that it would notice. Built only with
//! the feature `planted`.

use std::sync::atomic::{AtomicBool, Ordering};

static KEEPS_DISK_ERRORS: AtomicBool = AtomicBool::new(false);
static PRESENCE_TAKES_ROOM: AtomicBool = AtomicBool::new(false);

/// Makes file stores in this process stay broken after their first error.
pub fn keep_disk_errors() {
    KEEPS_DISK_ERRORS.store(true, Ordering::Relaxed);
}

pub(crate) fn keeps_disk_errors() -> bool {
    KEEPS_DISK_ERRORS.load(Ordering::Relaxed)
}

/// Has gateways of this process renew their presence in a way that a full Redis refuses.
pub fn make_presence_take_room() {
    PRESENCE_TAKES_ROOM.store(true, Ordering::Relaxed);
}

pub(crate) fn presence_takes_room() -> bool {
    PRESENCE_TAKES_ROOM.load(Ordering::Relaxed)
}
