//! Where a live thing is that another gateway has.

use bowline_wire::id::SessionId;

use super::unread::Unread;
use crate::caller::Caller;
use crate::owners::Owner;

/// A leg that lives in another gateway, as a record describes it.
#[derive(Debug, Clone)]
pub(crate) struct Remote {
    pub(crate) owner: Owner,
    pub(crate) session: SessionId,
    pub(crate) generation: u32,
    pub(crate) caller: Caller,
    /// What it said that waits here for its client.
    pub(crate) unread: Unread,
}
