//! Prompts: each session is asked once for a sign-in, however many requests wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_system::clock;
use parking_lot::Mutex;

use super::flow::{Flow, FlowId};
use super::flows::Flows;
use crate::telemetry::SessionHash;

/// The prompts of one gateway, each until its flow has ended.
#[derive(Debug, Default)]
pub(super) struct Prompts(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    session: SessionHash,
    flow: FlowId,
    ends: i64,
    is_answered: Arc<AtomicBool>,
    /// Whether the client was promised a notification when the sign-in is complete.
    is_promised: bool,
}

/// A prompt that a request carries to its client. If the request ends before the client has answered, the
/// next request prompts again.
#[derive(Debug)]
pub(crate) struct Prompt {
    flows: Arc<Flows>,
    is_answered: Arc<AtomicBool>,
    is_kept: bool,
}

// === impl Flows ===

impl Flows {
    /// Opens the prompt of a flow, for the first request in a session; `None` for all others.
    pub(crate) fn open_prompt(
        self: &Arc<Self>,
        session: SessionHash,
        flow: &Flow,
    ) -> Option<Prompt> {
        let first =
            |entry: &mut Entry, is_new: bool| is_new.then(|| Arc::clone(&entry.is_answered));
        Some(Prompt {
            is_answered: self.prompts.with(session, flow, first)?,
            flows: Arc::clone(self),
            is_kept: false,
        })
    }

    /// Notes that the client has answered. After an unusable answer it is asked again.
    pub(crate) fn prompt_answered(&self, session: SessionHash, flow: &FlowId, is_of_use: bool) {
        let mut entries = self.prompts.0.lock();
        let its = entries.iter().filter(|it| it.is(session, flow));
        its.for_each(|it| it.is_answered.store(true, Ordering::Relaxed));
        if !is_of_use {
            entries.retain(|it| !it.is(session, flow));
        }
    }

    /// Promises the client a notification when the flow is complete; `false` if it was promised before.
    pub(crate) fn promise_completion(&self, session: SessionHash, flow: &Flow) -> bool {
        let promise = |entry: &mut Entry, _| !std::mem::replace(&mut entry.is_promised, true);
        self.prompts.with(session, flow, promise)
    }
}

// === impl Prompts ===

impl Prompts {
    /// Runs `then` with the entry of a session and a flow, and with whether the entry is new.
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

// === impl Prompt ===

impl Prompt {
    /// Whether the client has not answered yet.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_answered.load(Ordering::Relaxed)
    }

    /// Keeps the prompt open although the request ends.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        if !self.is_kept && self.is_open() {
            let mut entries = self.flows.prompts.0.lock();
            entries.retain(|it| !Arc::ptr_eq(&it.is_answered, &self.is_answered));
        }
    }
}
