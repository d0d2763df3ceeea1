//! Parts of the messages of faults.

use crate::share::ShareOwner;
use bowline_store::Refusal;

/// Whose share of a limit is used up.
pub(super) fn of_share(owner: ShareOwner) -> &'static str {
    match owner {
        ShareOwner::Gateway => "",
        ShareOwner::Server => " for this server: its share is used up",
        ShareOwner::Caller => " for this caller: its share is used up",
    }
}

/// Why the store rejected an operation. The store's own message is only in the log.
pub(super) fn store_rejection(why: Refusal) -> String {
    match why {
        Refusal::Other => " (see the gateway's log)".to_owned(),
        why => format!(": {why}"),
    }
}
