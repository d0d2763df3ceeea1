//! Handles what other gateways announce about sessions.

use crate::exchange::cancel::cancelled_elsewhere;
use crate::registry::Table;
use crate::session_store::SessionStore;
use crate::session_store::announcement::Announcement;

/// Handles one announcement of another gateway.
pub(crate) async fn hear(table: &Table, session_store: &SessionStore, announcement: Announcement) {
    match announcement {
        Announcement::Ended(id) => {
            session_store.remember_end(&id);
            table.end(&id);
        }
        Announcement::Changed(id) => {
            let Some(in_use) = table.cached(&id) else {
                return;
            };
            match in_use.session().refresh().await {
                Ok(true) => {}
                Ok(false) => drop(table.end(&id)),
                Err(error) => {
                    tracing::debug!(%error, "session changed at another gateway; refresh failed")
                }
            }
        }
        Announcement::Listens(id, number) => {
            if let Some(in_use) = table.cached(&id) {
                in_use.session().listens_elsewhere(number);
            }
        }
        Announcement::Settled(id, mark) => {
            if let Some(in_use) = table.cached(&id) {
                in_use.session().server_requests.settled(mark.as_id());
            }
        }
        Announcement::Cancelled(id, request) => {
            if let Some(in_use) = table.cached(&id) {
                cancelled_elsewhere(in_use.session(), request.as_id());
            }
        }
    }
}
