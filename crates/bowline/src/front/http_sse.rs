//! HTTP+SSE towards clients: revision 2024-11-05. A GET opens a stream, which is the session; the client's
//! messages are POSTed to the URL of its first event, and everything for the client comes on the stream.
//!
//! A POST is answered as soon as its message is accepted (202), or not accepted (an error status). What happens to
//! the message after that, the client learns on its stream. What one message means, and what answers it, is in
//! `front/client.rs`. The end of the stream ends the session, after what was sent has run.

mod endpoint;

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::batch::is_batch;
use bowline_wire::media;
use bowline_wire::message::{Kind, Message};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use hyper::body::{Body as _, Incoming as IncomingBody};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::arrival::Arrival;
use super::body::{long_body, whole_body};
use super::client::notices::Notices;
use super::client::{AfterEnd, Client, Incoming, Outgoing};
use super::delivery::{Delivery, is_initialize, put};
use super::refusal::Refusal;
use super::response::messages::MessagesBody;
use super::response::{self, ReplyBody};
use crate::callers::Callers;
use crate::fault::Fault;
use crate::listener::Connection;
use crate::mailboxes::{Content, Letter, OpenMailbox, StreamAt};
use crate::route::Route;
use crate::session::MAX_OPENING;
use crate::upstream::{Carried, Whose};

/// How long a client may take to send `initialize`.
const FIRST_MESSAGE: Duration = Duration::from_secs(30);
/// How long a client may take nothing from its stream while much waits for it.
const UNREAD: Duration = Duration::from_secs(60);
/// How long requests may take to be refused after their session has ended.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// How long a stop waits for what the client said last, after its requests are answered or out of time.
const LAST_DELIVERIES: Duration = Duration::from_millis(500);
/// How often the end of a session looks whether a call still runs whose client has left.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Serves a request on the path of a stream, or of its messages.
pub(super) async fn serve(
    arrival: Arrival,
    head: &Parts,
    body: IncomingBody,
    connection: Arc<Connection>,
) -> Result<Response<ReplyBody>, Refusal> {
    let token = Route::of(head.uri.path()).and_then(|route| route.token);
    match (token, &head.method) {
        (None, &Method::GET) => Ok(open(arrival, head, connection)?),
        (None, _) => Err(Fault::Method { allow: "GET" }.into()),
        (Some(token), &Method::POST) => post(arrival, token, body).await,
        (Some(_), _) => Err(Fault::Method { allow: "POST" }.into()),
    }
}

// === GET ===

/// Opens a stream, whose first event is the URL for the client's messages.
fn open(
    arrival: Arrival,
    head: &Parts,
    connection: Arc<Connection>,
) -> Result<Response<ReplyBody>, Fault> {
    if !media::accepts(arrival.headers.get_all(ACCEPT), media::EVENT_STREAM) {
        return Err(Fault::AcceptForGet);
    }
    arrival.refuse_new()?;
    let hub = Arc::clone(&arrival.hub);
    let prefix = endpoint::prefix(&arrival, &head.uri, connection.is_proxied());
    let Arrival { to, caller, .. } = arrival;
    let permitted = to.permit(&hub.callers, &caller);
    let permitted = permitted.ok_or(Fault::NoSuchServer)?;
    let share = to.streams().of_caller(&caller);
    let place = share.take();
    let place = place.ok_or_else(|| Fault::TooManyStreams(to.streams().exhausted()))?;
    let query = head.uri.query().filter(|query| !query.is_empty());
    let query = query.map(Into::into);
    let opened = hub.mailboxes.open(&permitted, query, &hub.limits);
    let (mailbox, token, letters) = opened.map_err(|_| Fault::Random)?;
    let path = endpoint::path(head.uri.path(), to.name());
    let left = CancellationToken::new();
    let (outgoing, messages) = Outgoing::channel();
    let body = MessagesBody::new(
        &format!("{prefix}{path}/{token}"),
        messages,
        place,
        left.clone().drop_guard(),
    );
    let tracker = hub.tracker.clone();
    let client = Client::new(hub, to, caller, AfterEnd::Over, outgoing, left);
    tracker.spawn(run(client, connection, mailbox, letters));
    Ok(response::messages(body))
}

/// Serves a stream until its client leaves or has to.
async fn run(
    client: Arc<Client>,
    connection: Arc<Connection>,
    mailbox: OpenMailbox,
    mut letters: mpsc::Receiver<Letter>,
) {
    let patience = {
        let mut notices = Notices::start(&client);
        let reading = async {
            while let Some(letter) = letters.recv().await {
                take(&client, letter, &mut notices).await;
            }
        };
        tokio::select! {
            biased;
            () = client.left.cancelled() => Duration::ZERO,
            () = unpermitted(&client) => Duration::ZERO,
            () = client.over.cancelled() => LAST_ANSWERS,
            () = never_begun(&client) => Duration::ZERO,
            () = unread(&client) => {
                connection.cut();
                client.left.cancel();
                Duration::ZERO
            }
            () = drained(&client) => LAST_DELIVERIES,
            () = reading => Duration::ZERO,
        }
    };
    drop((mailbox, letters));
    if !client.left.is_cancelled() {
        drop(tokio::time::timeout(patience, client.settled()).await);
        client.outgoing.finish().await;
        // The stream's body notices when the client has got it all.
        drop(tokio::time::timeout(LAST_ANSWERS, client.left.cancelled()).await);
        client.left.cancel();
    }
    end(&client).await;
}

/// Waits until a reload takes from the caller what it talks to.
async fn unpermitted(client: &Client) {
    let Client {
        hub, to, caller, ..
    } = client;
    let may_speak = |callers: &Callers| to.permit(callers, caller).is_some();
    hub.callers.until_not(may_speak).await;
}

/// Waits until the client has had its time to send `initialize` and has not.
async fn never_begun(client: &Client) {
    match tokio::time::timeout(FIRST_MESSAGE, client.conversation.begun()).await {
        Ok(()) => std::future::pending().await,
        Err(_) => tracing::info!(
            server = %client.to.name(),
            "a client opened a stream and did not send `initialize`"
        ),
    }
}

/// Waits until the client has taken nothing for too long, although much waits for it.
async fn unread(client: &Client) {
    client.outgoing.unread_for(UNREAD).await;
    let (server, bytes) = (client.to.name(), client.outgoing.waiting());
    tracing::warn!(%server, bytes, within = ?UNREAD, "a client does not read its stream, which is closed");
}

/// Waits until the gateway stops and every request is answered. The client's own answers still come in.
async fn drained(client: &Client) {
    client.hub.drain.begun().await;
    client.running.close();
    drop(tokio::time::timeout(client.hub.drain.timeout, client.running.wait()).await);
}

async fn take(client: &Arc<Client>, letter: Letter, notices: &mut Notices) {
    let Letter {
        content,
        carried,
        place,
    } = letter;
    match content {
        Content::Message(message) => {
            let incoming = Incoming {
                message,
                carried,
                place,
            };
            client.take(incoming, notices).await;
        }
        Content::Batch(array) => client.take_batch(array, carried, place, notices),
    }
}

/// Ends the session of a client that has left, after what was sent has run: a server may give up the calls of a
/// session that is deleted.
async fn end(client: &Client) {
    client.settled().await;
    let Some(dialog) = client.conversation.close() else {
        return;
    };
    while dialog.is_shared() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    client.end_session(Some(dialog));
}

// === POST ===

/// Accepts a message for the stream that the token names, here or at the gateway that has it.
async fn post(
    arrival: Arrival,
    token: &str,
    body: IncomingBody,
) -> Result<Response<ReplyBody>, Refusal> {
    let at = locate(&arrival, token).await?;
    let body = read_body(&arrival, body).await?;
    let message = match is_batch(&body) {
        true => None,
        false => Some(Message::parse(body.clone()).map_err(Fault::from)?),
    };
    let request = message.filter(|message| message.kind() == Kind::Request);
    let accepted = async {
        if request.as_ref().is_some_and(is_initialize) {
            arrival.refuse_new()?;
        }
        let carried = carried(&arrival);
        match at {
            StreamAt::Here(mailbox) => {
                let via = arrival.hub.pseudonym.after(&arrival.headers);
                put(&arrival.hub, &mailbox, body, carried, via)
            }
            StreamAt::Elsewhere(gateway) => {
                let whose = Whose::new(arrival.to.name(), &arrival.caller);
                let delivery = Delivery::new(token, whose, carried);
                let limit = arrival.to.call_timeout();
                Box::pin(delivery.forward(&arrival.hub, &gateway, &body, limit)).await
            }
            StreamAt::Gone => Err(Fault::UnknownSession),
        }
    };
    match accepted.await {
        Ok(()) => Ok(response::empty(StatusCode::ACCEPTED)),
        Err(fault) => Err(Refusal::of(fault, request.as_ref())),
    }
}

/// Where the stream is that the token names, if there is one and it can be reached from here.
async fn locate(arrival: &Arrival, token: &str) -> Result<StreamAt, Fault> {
    let Arrival {
        hub, to, caller, ..
    } = arrival;
    let permitted = to.permit(&hub.callers, caller);
    let permitted = permitted.ok_or(Fault::NoSuchServer)?;
    let owners = &hub.channels.owners;
    let located = hub.mailboxes.locate(token, &permitted, owners);
    match located.await {
        StreamAt::Gone => Err(Fault::UnknownSession),
        StreamAt::Elsewhere(gateway) if hub.peers.is_none() => {
            tracing::debug!(%gateway, server = %to.name(), "the stream is at another gateway");
            Err(Fault::StreamElsewhere)
        }
        at => Ok(at),
    }
}

/// What goes along with a message besides the query of its stream: the listed headers of this request. A copy,
/// because the message outlives its request.
fn carried(arrival: &Arrival) -> Carried {
    let carried = arrival.to.carried(None, &arrival.headers);
    carried.to_keep().map(|kept| *kept).unwrap_or_default()
}

async fn read_body(arrival: &Arrival, body: IncomingBody) -> Result<Bytes, Fault> {
    if !media::is(arrival.headers.get(CONTENT_TYPE), media::JSON) {
        return Err(Fault::ContentType);
    }
    let Arrival {
        hub,
        caller,
        headers,
        ..
    } = arrival;
    let (longest, limit) = (body.size_hint().upper(), hub.limits.body_bytes);
    match longest.is_none_or(|longest| longest > limit.min(MAX_OPENING) as u64) {
        true => long_body(hub, caller, headers, body, limit).await,
        false => whole_body(body, limit).await,
    }
}
