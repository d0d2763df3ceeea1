//! A client's batch (revision 2025-03-26 only): every member is an exchange of its own, and the answers are
//! joined.
//!
//! Requests run concurrently, as JSON-RPC allows. Notifications and responses are sent before the members
//! that follow them, because a server may rely on that order (`notifications/initialized`). The reply is one
//! JSON array or, as soon as an answer is a stream or the answers are large, one event stream. A small batch
//! can cause much work, so only some requests run at once, and only one large answer is read at a time.

mod member;

use std::sync::Arc;

use bowline_wire::batch::{self, BadBatch};
use bowline_wire::message::{Kind, Malformed, Message, RawId};
use bowline_wire::sse::Event;
use bowline_wire::version::{self, Agreed};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::exchange::answer::LargeAnswers;
use crate::exchange::outlet::Outlet;
use crate::exchange::{Exchange, Reply};
use crate::fault::Fault;
use crate::registry::Registry;
use crate::upstream::{MAX_HELD_ANSWER, UpstreamError};

/// The maximum number of messages in a batch.
const MAX_MEMBERS: usize = 100;

/// The maximum number of requests of a batch that run at the same time.
const MAX_AT_ONCE: usize = 8;

/// The maximum size of the answers that are held for the array. Beyond it the reply becomes a stream, which
/// holds only what the client has not read yet.
const MAX_HELD: usize = 1024 * 1024;

/// What a member says of itself.
#[derive(Debug)]
pub(crate) enum Note {
    /// Its answer is a stream, so the batch's reply is one, too.
    Streams,
    /// It failed and has no id, so there is no response to it.
    Failed(Fault),
}

/// Where members send what the client gets, and what they say of themselves.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    /// Closed when the client has left.
    events: mpsc::Sender<Event>,
    notes: mpsc::Sender<Note>,
}

/// What takes the messages of a batch one by one: a session, or an attachment.
pub(crate) trait TakesMessages: Clone + Send + Sync + 'static {
    /// Handles one message.
    fn take(self, message: Message) -> impl Future<Output = Result<Reply, Fault>> + Send;

    /// The revision that the client speaks.
    fn version(&self) -> Agreed;

    fn registry(&self) -> &Arc<Registry>;

    /// The fault for a reply that is not what MCP says.
    fn failed(&self, error: UpstreamError) -> Fault;
}

impl TakesMessages for Exchange {
    fn take(self, message: Message) -> impl Future<Output = Result<Reply, Fault>> + Send {
        self.handle(message)
    }

    fn version(&self) -> Agreed {
        self.in_use.session().leg().version.clone()
    }

    fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    fn failed(&self, error: UpstreamError) -> Fault {
        Fault::on(&self.in_use.session().leg(), error)
    }
}

/// Handles a JSON array of messages.
pub(crate) async fn handle<T: TakesMessages>(taker: T, array: &Bytes) -> Result<Reply, Fault> {
    if !version::has_batches(taker.version().as_str()) {
        return Err(Malformed::Batch.into());
    }
    let members = read(array)?;
    let tracker = taker.registry().tracker.clone();
    // Capacity 1: a client that reads slowly slows the servers down and does not use memory.
    let (events, mut answers) = mpsc::channel(1);
    let (notes, mut noted) = mpsc::channel(MAX_MEMBERS);
    tracker.spawn(send(taker, members, Parts { events, notes }));
    let (mut held, mut bytes, mut failed) = (Vec::new(), 0, None);
    loop {
        let is_stream = tokio::select! {
            biased;
            Some(note) = noted.recv() => match note {
                Note::Streams => true,
                Note::Failed(fault) => {
                    failed.get_or_insert(fault);
                    false
                }
            },
            answer = answers.recv() => match answer {
                Some(answer) => {
                    bytes += answer.size();
                    held.push(answer);
                    bytes > MAX_HELD
                }
                None if noted.is_empty() => break,
                None => false,
            },
        };
        if is_stream {
            return Ok(Reply::Stream(Outlet::joined(held, answers, None)));
        }
    }
    #[cfg(feature = "planted")]
    if crate::planted::has(crate::planted::Bug::BatchDropsOne) {
        held.truncate(1);
    }
    match failed {
        _ if !held.is_empty() => {
            let held: Vec<_> = held.iter().filter_map(Event::data).collect();
            let array = [&b"["[..], &held.join(&b","[..]), b"]"].concat();
            Ok(Reply::own(array))
        }
        // No member has a response, so the fault becomes the reply's status.
        Some(fault) => Err(fault),
        None => Ok(Reply::Accepted),
    }
}

type Member = Result<Message, Malformed>;

/// The members, if the batch as a whole is valid.
fn read(array: &Bytes) -> Result<Vec<Member>, Fault> {
    let members = batch::split(array, MAX_MEMBERS).map_err(|bad| match bad {
        BadBatch::NotJson(why) => Fault::Malformed(Malformed::NotJson(why)),
        BadBatch::TooMany { max } => Fault::BatchTooLarge { limit: max },
    })?;
    if members.is_empty() {
        return Err(Fault::EmptyBatch);
    }
    let members: Vec<Member> = members.into_iter().map(Message::parse).collect();
    let opens = |member: &Member| {
        let method = member.as_ref().ok().and_then(Message::method);
        method == Some("initialize")
    };
    if members.iter().any(opens) {
        return Err(Fault::InitializeInBatch);
    }
    Ok(members)
}

/// Waits until one more request may run. `None`: the client left.
async fn turn(at_once: &Arc<Semaphore>, parts: &Parts) -> Option<OwnedSemaphorePermit> {
    tokio::select! {
        turn = Arc::clone(at_once).acquire_owned() => turn.ok(),
        () = parts.left() => None,
    }
}

/// Sends the members in order, until the client leaves.
async fn send<T: TakesMessages>(taker: T, members: Vec<Member>, parts: Parts) {
    let at_once = Arc::new(Semaphore::new(MAX_AT_ONCE));
    let large = LargeAnswers::up_to(MAX_HELD_ANSWER);
    for member in members {
        if parts.events.is_closed() {
            return;
        }
        let taker = taker.clone();
        match member {
            Ok(message) if message.kind() == Kind::Request => {
                let Some(turn) = turn(&at_once, &parts).await else {
                    return;
                };
                let tracker = taker.registry().tracker.clone();
                let request = member::ask(taker, message, parts.clone(), large.clone());
                tracker.spawn(async move {
                    request.await;
                    drop(turn);
                });
            }
            Ok(message) => notify(taker, message, &parts).await,
            Err(malformed) => {
                let body = Fault::Malformed(malformed).body(Some(RawId::NULL));
                parts.say(body).await;
            }
        }
    }
}

/// Sends a notification or a response.
async fn notify<T: TakesMessages>(taker: T, message: Message, parts: &Parts) {
    let result = tokio::select! {
        result = taker.clone().take(message) => result,
        () = parts.left() => return,
    };
    let fault = match result {
        Ok(Reply::Message { sent_as, .. }) if !sent_as.is_good() => taker.failed(sent_as.not_mcp()),
        Ok(_) => return,
        Err(fault) => fault,
    };
    taker.registry().metrics.refused(fault.row().name);
    parts.note(Note::Failed(fault));
}

// === impl Parts ===

impl Parts {
    /// Sends a message to the client. If that has left, it is dropped.
    async fn say(&self, message: impl Into<Bytes>) {
        drop(self.events.send(Event::of_message(message)).await);
    }

    /// Each member says one thing of itself at most, so there is room.
    fn note(&self, note: Note) {
        drop(self.notes.try_send(note));
    }

    /// Waits until the client has left.
    async fn left(&self) {
        self.events.closed().await;
    }
}
