//! A client's batch (revision 2025-03-26 only): every member is an exchange of its own, and the
//! answers are joined again.
//!
//! Requests run side by side, as JSON-RPC allows. What nobody answers is sent before what follows
//! it, because a server may rely on that (`notifications/initialized`). The answers make one JSON
//! array, or, as soon as one of them streams or they are large, one stream of events. A few bytes can
//! ask for a lot, so only some requests run at once, and only one large answer is read at a time.

pub(crate) mod joined;
mod member;

use std::sync::Arc;

use bowline_wire::batch::{self, BadBatch};
use bowline_wire::message::{Kind, Malformed, Message};
use bowline_wire::version;
use bytes::Bytes;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc};

use self::joined::Joined;
use crate::exchange::Exchange;
use crate::exchange::reply::Reply;
use crate::fault::Fault;

/// The most messages of one batch.
const MAX_MEMBERS: usize = 100;

/// The most requests of one batch that are under way at the same time.
const MAX_AT_ONCE: usize = 8;

/// The most bytes of answers that wait for the others. What is more turns the reply into a stream, in
/// which each waits only for the client to read it.
const MAX_HELD: usize = 1024 * 1024;

/// What comes of the members, in the order in which it comes.
#[derive(Debug)]
pub(crate) enum Part {
    /// A message for the client.
    Message(Bytes),
    /// A member streams, so the client gets a stream.
    Streams,
    /// A member failed that has no id to answer to.
    Failed(Fault),
}

/// Where parts go. It is closed when the client has left.
pub(crate) type Parts = mpsc::Sender<Part>;

impl Exchange {
    /// Handles an array.
    pub(crate) async fn handle_batch(self, array: &Bytes) -> Result<Reply, Fault> {
        if !version::has_batches(self.in_use.session().leg().version()) {
            return Err(Malformed::Batch.into());
        }
        let members = read(array)?;
        let tracker = self.registry.tracker.clone();
        // One at a time: a client that does not read holds the servers back, not memory.
        let (parts, mut answers) = mpsc::channel(1);
        tracker.spawn(send(self, members, parts));
        let (mut held, mut bytes, mut failed) = (Vec::new(), 0, None);
        while let Some(part) = answers.recv().await {
            match part {
                Part::Message(message) => {
                    bytes += message.len();
                    held.push(message);
                    if bytes > MAX_HELD {
                        return Ok(Reply::Batch(Box::new(Joined::new(held, answers))));
                    }
                }
                Part::Streams => return Ok(Reply::Batch(Box::new(Joined::new(held, answers)))),
                Part::Failed(fault) => {
                    failed.get_or_insert(fault);
                }
            }
        }
        #[cfg(feature = "planted")]
        if crate::planted::has(crate::planted::Bug::BatchDropsOne) {
            held.truncate(1);
        }
        match failed {
            _ if !held.is_empty() => {
                let array = [&b"["[..], &held.join(&b","[..]), b"]"].concat();
                Ok(Reply::own(array))
            }
            // Nothing in it had an answer to come, so the status is the only way to say so.
            Some(fault) => Err(fault),
            None => Ok(Reply::Accepted),
        }
    }
}

type Member = Result<Message, Malformed>;

/// The members, if the batch as a whole may be sent.
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

/// What the members of a batch share.
#[derive(Debug, Clone)]
pub(crate) struct Together {
    /// Held by the member whose answer is read.
    pub(crate) reading: Arc<Mutex<()>>,
    at_once: Arc<Semaphore>,
}

impl Together {
    fn new() -> Self {
        Self {
            reading: Arc::default(),
            at_once: Arc::new(Semaphore::new(MAX_AT_ONCE)),
        }
    }

    /// Waits until one more may run. `None`: the client left.
    async fn turn(&self, parts: &Parts) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            turn = Arc::clone(&self.at_once).acquire_owned() => turn.ok(),
            () = parts.closed() => None,
        }
    }
}

/// Sends the members in their order, until the client leaves.
async fn send(exchange: Exchange, members: Vec<Member>, parts: Parts) {
    let together = Together::new();
    for member in members {
        if parts.is_closed() {
            return;
        }
        let exchange = exchange.clone();
        match member {
            Ok(message) if message.kind() == Kind::Request => {
                let Some(turn) = together.turn(&parts).await else {
                    return;
                };
                let tracker = exchange.registry.tracker.clone();
                let asking = member::ask(exchange, message, parts.clone(), together.clone());
                tracker.spawn(async move {
                    asking.await;
                    drop(turn);
                });
            }
            Ok(message) => tell(exchange, message, &parts).await,
            Err(malformed) => {
                let body = Fault::Malformed(malformed).body(Some("null"));
                // A client that left needs no answer.
                drop(parts.send(Part::Message(body.into())).await);
            }
        }
    }
}

/// Sends what nobody answers.
async fn tell(exchange: Exchange, message: Message, parts: &Parts) {
    let registry = Arc::clone(&exchange.registry);
    let session = Arc::clone(exchange.in_use.session());
    let told = tokio::select! {
        told = exchange.handle(message) => told,
        () = parts.closed() => return,
    };
    let fault = match told {
        Ok(Reply::Message { sent_as, .. }) if !sent_as.is_good() => {
            Fault::on(&session.leg(), sent_as.not_mcp())
        }
        Ok(_) => return,
        Err(fault) => fault,
    };
    registry.metrics.refused(fault.row().name);
    drop(parts.send(Part::Failed(fault)).await);
}
