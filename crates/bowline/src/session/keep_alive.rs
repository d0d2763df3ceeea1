//! What tells whether a session is worth a ping while it is idle, and when one is due.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use bowline_wire::message::Message;

use super::Session;

/// After this many requests other than lists a client is taken for one that comes back. Those that open a session for
/// each call send one.
const PROOF_OF_USE: u8 = 2;

/// Tenths of a second: small, and enough for years.
const TICK: Duration = Duration::from_millis(100);
/// Ticks in a second.
const TICKS: u32 = 10;

/// When the server was last sent something of a session, in ticks since that was opened.
#[derive(Debug, Default)]
pub(super) struct Contact(AtomicU32);

/// How many requests other than lists the client has sent, as far as that matters.
#[derive(Debug, Default)]
pub(super) struct Requests(AtomicU8);

// === impl Session ===

impl Session {
    /// Notes a request of the client. When its server was last in touch is noted at the end of each use.
    pub(crate) fn note_request(&self, message: &Message) {
        let is_list = message
            .method()
            .is_some_and(|method| method.ends_with("/list"));
        let sent = self.requests.0.load(Ordering::Relaxed);
        // A request that is missed because another comes at the same moment is made up for by the next.
        if !is_list && sent < PROOF_OF_USE {
            self.requests.0.store(sent + 1, Ordering::Relaxed);
        }
    }

    /// Notes that the server has just been sent something of this session.
    pub(crate) fn note_contact(&self) {
        self.contact.note(self.opened.elapsed());
    }

    /// How long the server has been sent nothing of this session by this gateway.
    pub(crate) fn since_contact(&self) -> Duration {
        let last = TICK * self.contact.0.load(Ordering::Relaxed);
        self.opened.elapsed().saturating_sub(last)
    }

    /// Whether its client seems to keep it: it listens, or it has come back.
    pub(crate) fn seems_kept(&self) -> bool {
        self.requests.0.load(Ordering::Relaxed) >= PROOF_OF_USE || self.listens()
    }

    /// Whether this gateway, and no other one on the store, is to keep the session at its server for this time. The
    /// copy here is then up to date.
    pub(crate) async fn keeps_alive(self: &Arc<Self>, time: Duration) -> bool {
        match &self.persistence {
            Some(persistence) if self.is_shared() => {
                persistence.claim_keep_alive(time).await
                    && matches!(persistence.refresh(self).await, Ok(true))
            }
            _ => true,
        }
    }
}

// === impl Contact ===

impl Contact {
    /// Notes a contact this long after the session was opened.
    pub(super) fn note(&self, after: Duration) {
        let seconds = u32::try_from(after.as_secs()).unwrap_or(u32::MAX);
        let ticks = after.subsec_nanos() / TICK.subsec_nanos();
        let ticks = seconds.saturating_mul(TICKS).saturating_add(ticks);
        self.0.store(ticks, Ordering::Relaxed);
    }
}
