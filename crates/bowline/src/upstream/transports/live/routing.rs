//! Whose a message is. Over streamable HTTP the connection tells; here one channel carries everything.
//!
//! An answer goes to the call with its id, and progress to the call with its token, or to the stream of the client's
//! GET if nobody waits for that call. That of a call that was given up before its answer is for nobody. A request of the server, or any other notification, belongs to nobody in particular: it goes to the stream of the client's GET, else
//! to the newest call, else it waits. A request that waits goes to the next call as well, because the server
//! waits for its answer; a notification only to the stream of a GET.

use std::collections::VecDeque;
use std::sync::Arc;

use bowline_wire::compose;
use bowline_wire::message::{Kind, Message, RawId, RawIdBuf};
use parking_lot::Mutex;

use super::inbox::{Delivery, Inbox, Over};
use super::unread::{Unread, UnreadOverall};
use crate::upstream::transports::error::{End, LiveError};

/// How many messages, and how many bytes of them, wait for a stream.
const MOST_HELD: usize = 64;
const MOST_HELD_BYTES: usize = 1 << 20;

/// How many ids of cancelled calls are remembered, whose answers may still come, and how many tokens of calls that were
/// given up.
const MOST_CANCELLED: usize = 32;

/// The readers of one channel.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Routing {
    readers: Mutex<Readers>,
    tools: Mutex<ToolsWatch>,
    /// What waits for them.
    pub(super) unread: Unread,
}

/// Who is told when the server's tools change.
#[derive(Default)]
struct ToolsWatch {
    /// They have changed.
    changed: bool,
    watcher: Option<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Debug, Default)]
struct Readers {
    /// The newest last.
    calls: Vec<Call>,
    listener: Option<Arc<Inbox>>,
    held: Held,
    cancelled: VecDeque<RawIdBuf>,
    /// The tokens of calls that were given up before they were answered.
    given_up: VecDeque<RawIdBuf>,
    /// How many messages came.
    heard: u64,
    /// How many calls were answered.
    answers: u64,
    /// How many messages were sent that have no answer, and how many of them the server is done with.
    told: u64,
    settled: u64,
    /// The channel has ended.
    end: Option<Arc<End>>,
}

#[derive(Debug)]
struct Call {
    /// The id of its request.
    id: RawIdBuf,
    /// The token of its progress, if it asked for progress.
    token: Option<RawIdBuf>,
    /// It is a client's, which can be shown what belongs to nobody.
    is_clients: bool,
    /// How many messages without an answer were sent before it.
    told: u64,
    inbox: Arc<Inbox>,
}

#[derive(Debug, Default)]
struct Held {
    messages: VecDeque<Message>,
    bytes: usize,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Routed {
    Done,
    /// An answer to a request that nobody made, or that has its answer.
    Stray,
    /// Another message was dropped for it, or it was: nobody reads them.
    Dropped,
}

/// Whose an answer is that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum Whose {
    /// Nobody waits for an answer, or it is known who: that call has failed.
    Told,
    /// Several wait, and it may be any of theirs.
    Anybodys,
}

/// Where a message goes.
enum Destination {
    Answers(Arc<Inbox>),
    /// It has no id, and is the answer to the only call that waits.
    AnswersOnly(Call),
    /// It has no id, and may be the answer to any call.
    AnswersAny,
    To(Arc<Inbox>),
    Over(Routed),
}

// === impl Routing ===

impl Routing {
    pub(in crate::upstream) fn new(overall: &UnreadOverall) -> Arc<Self> {
        Arc::new(Self {
            unread: Unread::among(overall),
            ..Self::default()
        })
    }

    /// Whether the channel is not read because the client does not read, which says nothing about the server.
    pub(in crate::upstream) fn is_held_up(&self) -> bool {
        self.unread.is_held_up()
    }

    /// Has this told whenever the server says that its tools have changed; at once if it said so before.
    pub(in crate::upstream) fn watch_tools(&self, watcher: Box<dyn Fn() + Send + Sync>) {
        let mut tools = self.tools.lock();
        if tools.changed {
            watcher();
        }
        tools.watcher = Some(watcher);
    }

    pub(super) fn tools_changed(&self) {
        let mut tools = self.tools.lock();
        tools.changed = true;
        if let Some(watcher) = &tools.watcher {
            watcher();
        }
    }

    /// A call that was not sent yet.
    pub(super) fn call(
        &self,
        request: &Message,
        is_clients: bool,
    ) -> Result<Arc<Inbox>, LiveError> {
        let mut readers = self.readers.lock();
        if let Some(end) = &readers.end {
            return Err(LiveError::not_sent(Arc::clone(end)));
        }
        let is_taken = readers.is_taken(request.id().unwrap_or_default());
        #[cfg(feature = "planted")]
        let is_taken = is_taken && !crate::planted::has(crate::planted::Bug::EqualIdsMeet);
        if is_taken {
            return Err(LiveError::IdTaken);
        }
        let inbox = Arc::<Inbox>::default();
        let token = token_of(request).filter(|_| is_clients);
        // A client may use a token again.
        readers.given_up.retain(|old| token.as_ref() != Some(old));
        let told = readers.told;
        readers.calls.push(Call {
            id: request.id().unwrap_or_default().to_buf(),
            token,
            is_clients,
            told,
            inbox: Arc::clone(&inbox),
        });
        Ok(inbox)
    }

    /// A message that has no answer is sent now. Some servers answer it all the same, with an error without an id.
    pub(in crate::upstream) fn tell(&self) {
        self.readers.lock().told += 1;
    }

    /// The questions that wait, for a call that can show them.
    pub(super) fn unasked(&self) -> Vec<Message> {
        let mut readers = self.readers.lock();
        match readers.listener {
            None => readers.held.take_requests(),
            Some(_) => Vec::new(),
        }
    }

    /// The stream of a GET, in place of any other, and what waits for it.
    pub(super) fn listen(&self) -> Result<(Arc<Inbox>, Vec<Message>), LiveError> {
        let mut readers = self.readers.lock();
        if let Some(end) = &readers.end {
            return Err(LiveError::not_sent(Arc::clone(end)));
        }
        let inbox = Arc::<Inbox>::default();
        let older = readers.listener.replace(Arc::clone(&inbox));
        let held = readers.held.take();
        drop(readers);
        if let Some(older) = older {
            self.leave(&older);
        }
        Ok((inbox, held))
    }

    /// Nobody reads this any more. What the server waits for is held for another reader.
    pub(super) fn leave(&self, inbox: &Arc<Inbox>) {
        self.forget(inbox);
        let unread = inbox.close().into_iter();
        let requests = unread
            .filter_map(|raw| Message::from_server(raw).ok())
            .filter(|message| message.kind() == Kind::Request);
        let mut readers = self.readers.lock();
        for request in requests {
            readers.held.add(request);
        }
    }

    fn forget(&self, inbox: &Arc<Inbox>) {
        let mut readers = self.readers.lock();
        let is_its = |call: &mut Call| Arc::ptr_eq(&call.inbox, inbox);
        let left: Vec<_> = readers.calls.extract_if(.., is_its).collect();
        left.iter().for_each(|call| readers.give_up(call));
        readers
            .listener
            .take_if(|listener| Arc::ptr_eq(listener, inbox));
    }

    /// The server was told that nobody waits for this request: it may never answer it.
    pub(in crate::upstream) fn cancel(&self, id: RawId<'_>) {
        let mut readers = self.readers.lock();
        let cancelled = readers.calls.extract_if(.., |call| call.id.as_id() == id);
        let cancelled: Vec<_> = cancelled.collect();
        for call in &cancelled {
            readers.give_up(call);
            readers.cancelled.push_back(call.id.clone());
            if readers.cancelled.len() > MOST_CANCELLED {
                readers.cancelled.pop_front();
            }
        }
        drop(readers);
        for call in cancelled {
            call.inbox.finish(Over::Cancelled);
        }
    }

    /// Brings a message to its reader.
    pub(super) async fn deliver(&self, message: &Message) -> Routed {
        loop {
            let inbox = match self.destination(message) {
                Destination::Over(routed) => return routed,
                Destination::Answers(inbox) => {
                    inbox.answer(message);
                    return Routed::Done;
                }
                Destination::AnswersOnly(call) => {
                    call.inbox.answer(&under(message, call.id.as_id()));
                    return Routed::Done;
                }
                Destination::AnswersAny => {
                    self.lose_calls();
                    return Routed::Done;
                }
                Destination::To(inbox) => inbox,
            };
            match inbox.put(message).await {
                Delivery::Done => return Routed::Done,
                Delivery::Displaced => return Routed::Dropped,
                // It left just now: somebody else may be there, or it waits.
                Delivery::Nobody => self.forget(&inbox),
            }
        }
    }

    /// An answer came that cannot be read, with this id if that much is known. Its call waits no longer.
    pub(super) fn unreadable(&self, id: Option<RawId<'_>>) -> Whose {
        self.failed(id, Over::Unreadable)
    }

    /// The same for one that is too large. If it may be anybody's, all calls end: nobody knows what became of them.
    pub(super) fn too_large(&self, id: Option<RawId<'_>>) {
        if let Whose::Anybodys = self.failed(id, Over::TooLarge) {
            self.lose_calls();
        }
    }

    /// Something came that may be the answer to any call: what became of them is not known.
    fn lose_calls(&self) {
        let mut readers = self.readers.lock();
        let calls = std::mem::take(&mut readers.calls);
        calls.iter().for_each(|call| readers.give_up(call));
        drop(readers);
        for call in calls {
            call.inbox.finish(Over::Unreadable);
        }
    }

    fn failed(&self, id: Option<RawId<'_>>, over: Over) -> Whose {
        let mut readers = self.readers.lock();
        let at = match (id, readers.calls.len()) {
            (Some(id), _) => answered_by(id, readers.calls.iter().map(|call| call.id.as_id())),
            (None, 0) => None,
            (None, 1) => Some(0),
            (None, _) => return Whose::Anybodys,
        };
        let call = at.map(|at| readers.calls.remove(at));
        call.iter().for_each(|call| readers.give_up(call));
        drop(readers);
        if let Some(call) = call {
            call.inbox.finish(over);
        }
        Whose::Told
    }

    /// How many messages the server has written.
    pub(in crate::upstream) fn heard(&self) -> u64 {
        self.readers.lock().heard
    }

    /// How many calls the server has answered.
    pub(in crate::upstream) fn answers(&self) -> u64 {
        self.readers.lock().answers
    }

    /// The channel has ended, and so has every call. `false`: that was known.
    pub(in crate::upstream) fn end(&self, end: &Arc<End>) -> bool {
        let mut readers = self.readers.lock();
        if readers.end.is_some() {
            return false;
        }
        readers.end = Some(Arc::clone(end));
        let calls = std::mem::take(&mut readers.calls).into_iter();
        let inboxes: Vec<_> = calls
            .map(|call| call.inbox)
            .chain(readers.listener.take())
            .collect();
        drop(readers);
        for inbox in inboxes {
            inbox.finish(Over::Ended(Arc::clone(end)));
        }
        true
    }

    /// How the channel ended, if it has.
    pub(in crate::upstream) fn ended(&self) -> Option<Arc<End>> {
        self.readers.lock().end.clone()
    }

    fn destination(&self, message: &Message) -> Destination {
        let mut readers = self.readers.lock();
        readers.heard += 1;
        match message.kind() {
            Kind::Response => match message.id().unwrap_or(RawId::NULL) {
                id if id == RawId::NULL && message.error().is_some() => readers.failed(),
                id => readers.answered(id),
            },
            Kind::Notification if readers.is_given_up(message) => Destination::Over(Routed::Done),
            Kind::Request | Kind::Notification => match readers.reader_of(message) {
                Some(inbox) => Destination::To(inbox),
                None => Destination::Over(readers.held.add(message.clone())),
            },
        }
    }
}

/// Which of these requests is answered under this id: the one with exactly this id, else one for which it counts
/// (`"1"` for `1`). Both may be under way at once.
fn answered_by<'a>(id: RawId<'_>, asked: impl Iterator<Item = RawId<'a>> + Clone) -> Option<usize> {
    let (mut exact, mut other) = (asked.clone(), asked);
    exact
        .position(|one| one == id)
        .or_else(|| other.position(|one| id.answers(one)))
}

// === impl Readers ===

impl Readers {
    /// Whether an answer under this id may be another call's.
    fn is_taken(&self, id: RawId<'_>) -> bool {
        let calls = self.calls.iter().map(|call| &call.id);
        let mut taken = calls.chain(&self.cancelled);
        taken.any(|other| other.as_id() == id)
    }

    fn answered(&mut self, id: RawId<'_>) -> Destination {
        if let Some(at) = answered_by(id, self.calls.iter().map(|call| call.id.as_id())) {
            self.answers += 1;
            let call = self.calls.remove(at);
            self.settled = self.settled.max(call.told);
            return Destination::Answers(call.inbox);
        }
        let was_cancelled = answered_by(id, self.cancelled.iter().map(RawIdBuf::as_id));
        Destination::Over(
            match was_cancelled.and_then(|at| self.cancelled.remove(at)) {
                Some(_) => Routed::Done,
                None => Routed::Stray,
            },
        )
    }

    /// The server could not read a request, or not its id: nobody knows whose it was. If it may be about a message that
    /// has no answer, no call ends for it.
    fn failed(&mut self) -> Destination {
        if self.settled < self.told {
            self.settled += 1;
            return Destination::Over(Routed::Stray);
        }
        match self.calls.len() {
            0 => Destination::Over(Routed::Stray),
            1 => Destination::AnswersOnly(self.calls.remove(0)),
            _ => Destination::AnswersAny,
        }
    }

    /// A call ends before its answer.
    fn give_up(&mut self, call: &Call) {
        if let Some(token) = &call.token {
            self.given_up.push_back(token.clone());
            if self.given_up.len() > MOST_CANCELLED {
                self.given_up.pop_front();
            }
        }
    }

    /// Whether a message is the progress of a call that was given up before it was answered. If it was repeated, the
    /// repeat tells the same, under a token of its own. After its answer, a call may go on as a task.
    fn is_given_up(&self, message: &Message) -> bool {
        let is_its = |token: RawId<'_>| self.given_up.iter().any(|own| own.as_id() == token);
        progress_of(message).is_some_and(is_its)
    }

    fn reader_of(&self, message: &Message) -> Option<Arc<Inbox>> {
        let mut newest_first = self.calls.iter().rev();
        if let Some(token) = progress_of(message) {
            let is_its = |call: &&Call| call.token.as_ref().is_some_and(|own| own.as_id() == token);
            let its = newest_first.find(is_its).map(|call| &call.inbox);
            // If nobody waits for its call any more, it is not for another call's stream.
            return its.or(self.listener.as_ref()).cloned();
        }
        let newest = newest_first.find(|call| call.is_clients);
        let newest = newest.map(|call| &call.inbox);
        self.listener.as_ref().or(newest).cloned()
    }
}

// === impl Held ===

impl Held {
    /// Keeps a message for a reader. The oldest give way, notifications first.
    fn add(&mut self, message: Message) -> Routed {
        self.bytes += message.raw().len();
        self.messages.push_back(message);
        let mut routed = Routed::Done;
        while self.messages.len() > MOST_HELD || self.bytes > MOST_HELD_BYTES {
            let is_notification = |message: &Message| message.kind() == Kind::Notification;
            let at = self.messages.iter().position(is_notification);
            let Some(dropped) = self.messages.remove(at.unwrap_or(0)) else {
                break;
            };
            self.bytes -= dropped.raw().len();
            routed = Routed::Dropped;
        }
        routed
    }

    fn take(&mut self) -> Vec<Message> {
        self.bytes = 0;
        std::mem::take(&mut self.messages).into()
    }

    fn take_requests(&mut self) -> Vec<Message> {
        let (requests, rest): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.messages)
            .into_iter()
            .partition(|message| message.kind() == Kind::Request);
        self.bytes = rest.iter().map(|message| message.raw().len()).sum();
        self.messages = rest;
        requests.into()
    }
}

/// A server's error under this id.
fn under(error: &Message, id: RawId<'_>) -> Message {
    let text = compose::error(id, error.error().unwrap_or("{}"));
    Message::from_server(text.into()).unwrap_or_else(|_| error.clone())
}

/// The token under which a request asks for progress.
fn token_of(request: &Message) -> Option<RawIdBuf> {
    let span = request.progress_token()?;
    Some(RawIdBuf::new(request.text(span)))
}

/// The token of a message that tells progress.
fn progress_of(message: &Message) -> Option<RawId<'_>> {
    if message.method() != Some("notifications/progress") {
        return None;
    }
    let span = message.param("progressToken")?;
    Some(RawId::new(message.text(span)))
}

impl std::fmt::Debug for ToolsWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolsWatch").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
