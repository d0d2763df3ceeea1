//! MCP over a pair of byte streams, such as stdin and stdout: one client, one session, one message per line.
//!
//! What one message means, and what answers it, is in `front/client.rs`. Everything for the client goes through
//! one writer. The client leaves by closing its output: what it asked for is then finished
//! within a short time, and the session ends.

mod lines;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::batch::is_batch;
use bowline_wire::message::{Kind, Message, RawIdBuf};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use self::lines::{Line, Lines};
use super::client::notices::Notices;
use super::client::{AfterEnd, Client, Incoming, Outgoing};
use crate::caller::Caller;
use crate::fault::Fault;
use crate::hub::Hub;
use crate::mailboxes::room::Room;
use crate::route::Destination;
use crate::upstream::Carried;

/// How long requests may take after the client has closed its output.
const LAST_REQUESTS: Duration = Duration::from_secs(5);
/// The same after a signal: programs that send one kill after about two seconds.
const LAST_REQUESTS_AFTER_STOP: Duration = Duration::from_secs(1);

/// When the log says that a client does not read.
const UNREAD: Duration = Duration::from_secs(60);

/// Serves a client until it closes its output, cannot be written to, or `stop` is cancelled. Then its
/// session is ended.
pub(crate) async fn serve(
    hub: Arc<Hub>,
    to: Destination,
    input: impl AsyncRead + Unpin + Send,
    output: impl AsyncWrite + Unpin + Send + 'static,
    stop: CancellationToken,
) {
    let left = CancellationToken::new();
    let (outgoing, messages) = Outgoing::channel();
    let writing = writer::write_all(output, messages, left.clone());
    let writing = hub.tracker.spawn(writing);
    let client = Client::new(hub, to, Caller::Local, AfterEnd::Reopen, outgoing, left);
    let mut lines = Lines::new(input, client.hub.limits.body_bytes);
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = client.left.cancelled() => {}
        () = read(&client, &mut lines) => {}
        () = tell_unread(&client) => {}
    }
    let patience = match stop.is_cancelled() {
        true => LAST_REQUESTS_AFTER_STOP,
        false => LAST_REQUESTS,
    };
    finish(&client, patience, &stop).await;
    client.outgoing.finish().await;
    // One that the client does not read stays stuck.
    drop(tokio::time::timeout(LAST_REQUESTS_AFTER_STOP, writing).await);
}

/// Reads lines until the client closes its output.
async fn read(client: &Arc<Client>, lines: &mut Lines<impl AsyncRead + Unpin>) {
    let limits = &client.hub.limits;
    // A place of their own for notices: a request may end only after the client has answered something.
    let (room, of_notices) = (Room::new(limits), Room::new(limits));
    let mut notices = Notices::start(client);
    loop {
        match lines.next().await {
            Ok(Some(Line::Text(text))) if is_batch(&text) => match room.take(text.len()) {
                Ok(place) => client.take_batch(text, Carried::default(), place, &notices),
                Err(fault) => client.refuse(&fault, None).await,
            },
            Ok(Some(Line::Text(text))) => match Message::parse(text) {
                Ok(message) => {
                    let room = match message.kind() {
                        Kind::Request => &room,
                        Kind::Notification | Kind::Response => &of_notices,
                    };
                    take(client, message, room, &mut notices).await;
                }
                Err(malformed) => client.refuse(&malformed.into(), None).await,
            },
            Ok(Some(Line::TooLong { limit, id })) => {
                let id = id.as_ref().map(RawIdBuf::as_id);
                client.refuse(&Fault::BodyTooLarge { limit }, id).await;
            }
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "cannot read from the client");
                return;
            }
        }
    }
}

/// Says once that the client does not read. Its server waits until it does, or leaves.
async fn tell_unread(client: &Client) {
    client.outgoing.unread_for(UNREAD).await;
    let bytes = client.outgoing.waiting();
    tracing::warn!(bytes, within = ?UNREAD, "the client does not read; its server is not read any further");
    std::future::pending::<()>().await;
}

/// Takes one message, if there is room for it.
async fn take(client: &Arc<Client>, message: Message, room: &Room, notices: &mut Notices) {
    client.conversation.notice_sleep(client);
    let place = match room.take(message.raw().len()) {
        Ok(place) => place,
        Err(fault) => {
            // The id of a response is the server's.
            let id = message.id().filter(|_| message.kind() == Kind::Request);
            return client.refuse(&fault, id).await;
        }
    };
    let incoming = Incoming {
        message,
        carried: Carried::default(),
        place,
    };
    client.take(incoming, notices).await;
}

/// Lets requests finish, and ends the session.
async fn finish(client: &Client, patience: Duration, stop: &CancellationToken) {
    let finished = tokio::time::timeout(patience, client.settled());
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
            let requests = client.running.len();
            tracing::warn!(requests, "the client left before its requests were answered");
        },
        () = client.left.cancelled() => {}
        () = stopped => {}
    }
    client.left.cancel();
    client.end_session(client.conversation.close());
}
