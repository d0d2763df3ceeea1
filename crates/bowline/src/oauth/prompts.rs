//! Prompts: each session is asked once for a sign-in, however many requests wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_system::clock;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::watch;

use super::flow::{Flow, FlowId};
use crate::telemetry::SessionHash;

/// The prompts of one gateway, each until its flow has ended.
#[derive(Debug, Default)]
pub(crate) struct Prompts(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    session: SessionHash,
    flow: FlowId,
    /// The id of the request that carries it.
    request: Box<str>,
    ends: i64,
    answer: Arc<Answer>,
    /// Whether the client was promised a notification when the sign-in is complete.
    is_promised: bool,
}

/// What the client has answered to a prompt.
#[derive(Debug, Default)]
struct Answer {
    is_there: AtomicBool,
    useless: watch::Sender<Option<Useless>>,
}

/// Why a client's answer to a prompt is of no use. Its flow continues, and the next request prompts again.
#[derive(Debug, Clone, Copy, Error)]
pub(crate) enum Useless {
    #[error("the client answered the sign-in prompt with an error")]
    Error,
    #[error("the client's answer to the sign-in prompt is malformed")]
    Malformed,
    #[error("the client answered the sign-in prompt with a wrong `state`")]
    WrongState,
}

/// A prompt, for one of the requests of its session that wait for the flow.
#[derive(Debug)]
pub(crate) struct Prompt {
    prompts: Arc<Prompts>,
    answer: Arc<Answer>,
    /// Whether this request carries it to the client. If that request ends before the client has answered, the
    /// next request prompts again.
    is_carried: bool,
}

// === impl Prompts ===

impl Prompts {
    /// The prompt of a flow in a session. The first request that asks for it carries it.
    pub(crate) fn open(
        self: &Arc<Self>,
        session: SessionHash,
        flow: &Flow,
        request: &str,
    ) -> Prompt {
        let open = |entry: &mut Entry, is_new: bool| {
            if is_new {
                entry.request = request.into();
            }
            (Arc::clone(&entry.answer), is_new)
        };
        let (answer, is_carried) = self.with(session, flow, open);
        Prompt {
            prompts: Arc::clone(self),
            answer,
            is_carried,
        }
    }

    /// Notes that the client has answered.
    pub(crate) fn note_answer(&self, session: SessionHash, flow: &FlowId) {
        let entries = self.0.lock();
        let its = entries.iter().filter(|it| it.is(session, flow));
        its.for_each(|it| it.answer.is_there.store(true, Ordering::Relaxed));
    }

    /// Has the next request of the session prompt again.
    pub(crate) fn repeat(&self, session: SessionHash, flow: &FlowId) {
        let mut entries = self.0.lock();
        entries.retain(|it| !it.is(session, flow));
    }

    /// The same after an answer of no use to the prompt that this request carried, or to any. The requests of the
    /// session that wait for the flow learn it: nobody may have been shown anything.
    pub(crate) fn fail(
        &self,
        session: SessionHash,
        flow: &FlowId,
        request: Option<&str>,
        why: Useless,
    ) {
        let mut entries = self.0.lock();
        // A request that ended took its prompt along, and its client may answer that late.
        let failed = |it: &mut Entry| {
            it.is(session, flow) && request.is_none_or(|request| *it.request == *request)
        };
        for failed in entries.extract_if(.., failed) {
            failed.answer.is_there.store(true, Ordering::Relaxed);
            failed.answer.useless.send_replace(Some(why));
        }
    }

    /// Promises the client a notification when the flow is complete; `false` if it was promised before.
    pub(crate) fn promise_completion(&self, session: SessionHash, flow: &Flow) -> bool {
        let promise = |entry: &mut Entry, _| !std::mem::replace(&mut entry.is_promised, true);
        self.with(session, flow, promise)
    }

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
            request: Box::default(),
            ends: flow.ends,
            answer: Arc::default(),
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
    /// Whether this request carries it to the client.
    pub(crate) fn is_carried(&self) -> bool {
        self.is_carried
    }

    /// Whether the client has not answered yet.
    pub(crate) fn is_open(&self) -> bool {
        !self.answer.is_there.load(Ordering::Relaxed)
    }

    /// Waits until the client gives an answer of no use.
    pub(crate) async fn useless(&self) -> Useless {
        let mut answer = self.answer.useless.subscribe();
        let why = answer.wait_for(Option::is_some).await;
        match why.ok().and_then(|why| *why) {
            Some(why) => why,
            None => std::future::pending().await,
        }
    }

    /// Keeps the prompt open although the request ends.
    pub(crate) fn keep(mut self) {
        self.is_carried = false;
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        if self.is_carried && self.is_open() {
            let mut entries = self.prompts.0.lock();
            entries.retain(|it| !Arc::ptr_eq(&it.answer, &self.answer));
        }
    }
}
