//! Handles what other gateways announce about attachments.

use std::sync::Arc;

use super::{Attached, Unions};
use crate::exchange::leaving::Leaving;
use crate::session_store::announcement::Announcement;
use crate::upstream::Carried;

impl Unions {
    /// Handles one announcement of another gateway. `false`: it is not about an attachment of this one.
    pub(crate) async fn hear(self: &Arc<Self>, announcement: &Announcement) -> bool {
        let (Announcement::Ended(id)
        | Announcement::Changed(id)
        | Announcement::Listens(id, _)
        | Announcement::Cancelled(id, _)
        | Announcement::Settled(id, _)) = announcement;
        let Some(in_use) = self.attachments.cached(id) else {
            return false;
        };
        let attachment = in_use.attachment();
        let Some(stored) = &attachment.stored else {
            return false;
        };
        match announcement {
            Announcement::Ended(id) => {
                stored.session_store.remember_end(id);
                self.attachments.remove(id);
            }
            Announcement::Changed(id) => match stored.refresh(attachment).await {
                Ok(true) => {}
                Ok(false) => drop(self.attachments.remove(id)),
                Err(error) => {
                    tracing::debug!(%error, "attachment changed at another gateway; refresh failed");
                }
            },
            Announcement::Listens(_, number) => attachment.listening.listens_elsewhere(*number),
            Announcement::Cancelled(_, request) => {
                let caller = &attachment.caller;
                let (in_use, carried) = (in_use.clone(), Carried::default());
                let attached = Attached::new(self, in_use, caller, carried, Leaving::GoesOn);
                let Ok(attached) = attached else {
                    return true;
                };
                let request = request.clone();
                let tracker = self.registry.tracker.clone();
                tracker.spawn(async move { attached.cancelled_elsewhere(request.as_id()).await });
            }
            Announcement::Settled(..) => {}
        }
        true
    }
}
