//! Who was asked for which sign-in: once in each session, whatever number of requests wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::flow::{Flow, FlowId};
use super::sign_ins::SignIns;
use crate::clock;
use crate::telemetry::SessionHash;

/// The questions of one gateway, each until its flow is over.
#[derive(Debug, Default)]
pub(super) struct Asked(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    session: SessionHash,
    flow: FlowId,
    ends: i64,
    is_answered: Arc<AtomicBool>,
    /// Whether the client was promised to hear when the sign-in is done.
    is_promised: bool,
}

/// A question that a request carries to its client. If the request goes before anybody has answered,
/// the next one asks again.
#[derive(Debug)]
pub(crate) struct Asking {
    sign_ins: Arc<SignIns>,
    is_answered: Arc<AtomicBool>,
    stays: bool,
}

// === impl SignIns ===

impl SignIns {
    /// The question of a flow, for whoever in a session wants to ask it first; `None` for all others.
    pub(crate) fn ask(self: &Arc<Self>, session: SessionHash, flow: &Flow) -> Option<Asking> {
        let first =
            |entry: &mut Entry, is_new: bool| is_new.then(|| Arc::clone(&entry.is_answered));
        Some(Asking {
            is_answered: self.asked.with(session, flow, first)?,
            sign_ins: Arc::clone(self),
            stays: false,
        })
    }

    /// The client has answered. One whose answer was of no use is asked again.
    pub(crate) fn answered(&self, session: SessionHash, flow: &FlowId, is_of_use: bool) {
        let mut entries = self.asked.0.lock();
        let its = entries.iter().filter(|it| it.is(session, flow));
        its.for_each(|it| it.is_answered.store(true, Ordering::Relaxed));
        if !is_of_use {
            entries.retain(|it| !it.is(session, flow));
        }
    }

    /// Whether a client is to be told when a flow is done, and was not promised that before.
    pub(crate) fn promises_first(&self, session: SessionHash, flow: &Flow) -> bool {
        let promise = |entry: &mut Entry, _| !std::mem::replace(&mut entry.is_promised, true);
        self.asked.with(session, flow, promise)
    }
}

// === impl Asked ===

impl Asked {
    /// Does this with the entry of a session and a flow, and whether it is a new one.
    fn with<T>(
        &self,
        session: SessionHash,
        flow: &Flow,
        then: impl FnOnce(&mut Entry, bool) -> T,
    ) -> T {
        let now = clock::unix_seconds();
        let mut entries = self.0.lock();
        entries.retain(|it| now < it.ends);
        if let Some(known) = entries.iter_mut().find(|it| it.is(session, &flow.id)) {
            return then(known, false);
        }
        let mut entry = Entry {
            session,
            flow: flow.id.clone(),
            ends: flow.ends,
            is_answered: Arc::default(),
            is_promised: false,
        };
        let done = then(&mut entry, true);
        entries.push(entry);
        done
    }
}

// === impl Entry ===

impl Entry {
    fn is(&self, session: SessionHash, flow: &FlowId) -> bool {
        (self.session, &self.flow) == (session, flow)
    }
}

// === impl Asking ===

impl Asking {
    /// Whether the client has not answered yet.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_answered.load(Ordering::Relaxed)
    }

    /// The request goes, and its question stays.
    pub(crate) fn stays(mut self) {
        self.stays = true;
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.stays && self.is_open() {
            let mut entries = self.sign_ins.asked.0.lock();
            entries.retain(|it| !Arc::ptr_eq(&it.is_answered, &self.is_answered));
        }
    }
}
