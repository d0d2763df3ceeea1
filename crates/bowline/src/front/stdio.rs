//! MCP over a pair of byte streams, such as stdin and stdout: one client, one session, one message per line.
//!
//! Every request runs in a task of its own. Notifications and responses are delivered in the order in which
//! they came, and no request overtakes `notifications/initialized`. Everything for the client goes through
//! one writer. A client of this front cannot be asked to retry later, so the front waits and retries itself
//! wherever nothing was sent. The client leaves by closing its output: what it asked for is then finished
//! within a short time, and the session ends.

mod conversation;
mod lines;
mod listening;
mod notices;
mod requests;
mod room;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::batch::is_batch;
use bowline_wire::message::{Kind, Message, RawId};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::conversation::Conversation;
use self::lines::{Line, Lines};
use self::notices::Notices;
use self::requests::Requests;
use self::room::Room;
use self::writer::Writer;
use crate::exchange::answer::LargeAnswers;
use crate::fault::{Fault, LogContext};
use crate::hub::Hub;
use crate::upstream::Upstream;

/// How long requests may take after the client has closed its output.
const LAST_REQUESTS: Duration = Duration::from_secs(5);
/// The same after a signal: programs that send one kill after about two seconds.
const LAST_REQUESTS_AFTER_STOP: Duration = Duration::from_secs(1);

/// The largest JSON answer. It is held in memory, because a line cannot be taken back if the answer breaks.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// What all tasks of one client share.
#[derive(Debug)]
struct Client {
    hub: Arc<Hub>,
    upstream: Arc<Upstream>,
    conversation: Conversation,
    requests: Requests,
    writer: Writer,
    large: LargeAnswers,
    tasks: TaskTracker,
    /// The client does not read any more, or its time is over.
    left: CancellationToken,
}

/// Serves a client until it closes its output, cannot be written to, or `stop` is cancelled. Then its
/// session is ended.
pub(crate) async fn serve(
    hub: Arc<Hub>,
    upstream: Arc<Upstream>,
    input: impl AsyncRead + Unpin + Send,
    output: impl AsyncWrite + Unpin + Send + 'static,
    stop: CancellationToken,
) {
    let left = CancellationToken::new();
    let (writer, writing) = Writer::start(output, left.clone());
    let writing = hub.tracker.spawn(writing);
    let client = Arc::new(Client {
        conversation: Conversation::default(),
        requests: Requests::default(),
        large: LargeAnswers::up_to(MAX_ANSWER),
        tasks: TaskTracker::new(),
        writer,
        left,
        upstream,
        hub,
    });
    let mut lines = Lines::new(input, client.hub.limits.body_bytes);
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = client.left.cancelled() => {}
        () = read(&client, &mut lines) => {}
    }
    let patience = match stop.is_cancelled() {
        true => LAST_REQUESTS_AFTER_STOP,
        false => LAST_REQUESTS,
    };
    client.finish(patience, &stop).await;
    client.writer.finish().await;
    // One that the client does not read stays stuck.
    drop(tokio::time::timeout(LAST_REQUESTS_AFTER_STOP, writing).await);
}

/// Reads lines until the client closes its output.
async fn read(client: &Arc<Client>, lines: &mut Lines<impl AsyncRead + Unpin>) {
    let room = Room::new(&client.hub.limits);
    let mut notices = Notices::start(client);
    loop {
        match lines.next().await {
            Ok(Some(Line::Text(text))) if is_batch(&text) => {
                client.batch(text, &room, &notices).await;
            }
            Ok(Some(Line::Text(text))) => match Message::parse(text) {
                Ok(message) => client.take(message, &room, &mut notices).await,
                Err(malformed) => client.refuse(&malformed.into(), None).await,
            },
            Ok(Some(Line::TooLong { limit })) => {
                client.refuse(&Fault::BodyTooLarge { limit }, None).await;
            }
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "cannot read from the client");
                return;
            }
        }
    }
}

// === impl Client ===

impl Client {
    /// Takes one message of the client.
    async fn take(self: &Arc<Self>, message: Message, room: &Room, notices: &mut Notices) {
        self.conversation.notice_sleep(&self.upstream);
        match message.kind() {
            Kind::Request => {
                let place = match room.take(message.raw().len()) {
                    Ok(place) => place,
                    Err(fault) => return self.refuse(&fault, message.id()).await,
                };
                let client = Arc::clone(self);
                if message.method() == Some("initialize") {
                    // Before the next line is read, so that what follows waits for the session.
                    let old = self.conversation.begin_opening(&message);
                    self.tasks.spawn(async move {
                        client.initialize(message, old).await;
                        drop(place);
                    });
                    return;
                }
                let (turn, cancelled) = (notices.turn(), self.requests.begin(&message));
                self.tasks.spawn(async move {
                    turn.wait().await;
                    client.request(message, cancelled).await;
                    drop(place);
                });
            }
            Kind::Notification | Kind::Response => {
                if let Some(span) = message.cancelled_request() {
                    self.requests.cancel(RawId::new(message.text(span)));
                }
                notices.add(message).await;
            }
        }
    }

    /// Takes a JSON array of messages, which only sessions of revision 2025-03-26 have.
    async fn batch(self: &Arc<Self>, array: Bytes, room: &Room, notices: &Notices) {
        let place = match room.take(array.len()) {
            Ok(place) => place,
            Err(fault) => return self.refuse(&fault, None).await,
        };
        let (client, turn) = (Arc::clone(self), notices.turn());
        self.tasks.spawn(async move {
            turn.wait().await;
            client.answer_batch(&array).await;
            drop(place);
        });
    }

    /// Sends a fault to the client as the answer to a request with this id.
    async fn refuse(&self, fault: &Fault, id: Option<RawId<'_>>) {
        self.log(fault);
        let declined = fault.declined().and_then(|declined| declined.body.clone());
        let said = declined.filter(|body| {
            let said = Message::from_server(body.clone());
            said.is_ok_and(|said| id.is_some_and(|id| said.answers(id)))
        });
        let body = said.unwrap_or_else(|| fault.body(Some(id.unwrap_or(RawId::NULL))).into());
        self.writer.send(body).await;
    }

    /// Counts a fault and logs it.
    fn log(&self, fault: &Fault) {
        self.hub.metrics.refused(fault.row().name);
        fault.log(&LogContext {
            server: Some(&self.upstream.name),
            session: self.conversation.hash(),
            status: None,
        });
    }

    /// Lets requests finish, and ends the session.
    async fn finish(&self, patience: Duration, stop: &CancellationToken) {
        self.tasks.close();
        let finished = tokio::time::timeout(patience, self.tasks.wait());
        let stopped = async {
            // Whoever closed the streams and then sends a signal does not wait any longer.
            match patience {
                LAST_REQUESTS => stop.cancelled().await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            finished = finished => if finished.is_err() {
                let requests = self.tasks.len();
                tracing::warn!(requests, "the client left before its requests were answered");
            },
            () = self.left.cancelled() => {}
            () = stopped => {}
        }
        self.left.cancel();
        self.end_session(self.conversation.close());
    }
}
