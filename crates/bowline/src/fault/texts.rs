//! Parts of the texts of faults.

use crate::share::ShareOwner;
use bowline_store::Refusal;

/// Whose share of a limit is used up.
pub(super) fn of_share(owner: ShareOwner) -> &'static str {
    match owner {
        ShareOwner::Gateway => "",
        ShareOwner::Server => " of this server: its share is used up",
        ShareOwner::Caller => " of this caller: its share is used up",
    }
}

/// Why a store rejected something. What it said itself is in the log only.
pub(super) fn store_rejection(why: Refusal) -> String {
    match why {
        Refusal::Other => " (see the gateway's log)".to_owned(),
        why => format!(": {why}"),
    }
}
