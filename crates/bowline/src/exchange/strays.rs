//! Sessions that are unknown to whoever gets their next message, a moment after they were opened: so it is behind a load
//! balancer that is not sticky. The first opening of a session and its recoveries count them alike, over every transport.

/// After this many no more are opened: it could go on for ever, and each leaves a session behind.
const MAX: u32 = 3;

/// How many there were.
#[derive(Debug, Default)]
pub(super) struct Strays(u32);

impl Strays {
    /// Counts one more, and says whether another session may be opened.
    pub(super) fn may_go_on(&mut self) -> bool {
        self.0 += 1;
        self.0 < MAX
    }
}
