//! The side of other gateways: what they forward is checked again, and done here or refused.
//!
//! Nothing is forwarded from here: an operation is done on what lives in this gateway, or not at all. So a forward
//! takes one hop, whatever the records say.

mod body;
mod leg;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::mpsc;

pub(crate) use self::body::ForwardBody;
use self::body::Out;
use super::delivery;
use super::embedder::elicitation;
use crate::caller::Caller;
use crate::hub::Hub;
use crate::listener::Connection;
use crate::listener::bodies::{BodyReadError, Held};
use crate::net::Peer;
use crate::peers::{Ending, Forward, ForwardKind, Intruder, PATH, Received, Record};

/// How long the body of a forward may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest body on a connection before a forward was taken on it. A peer greets first, and is brief.
const GREETING: usize = 4 * 1024;
/// What a forward has besides a client's message.
const OVERHEAD: usize = 256 * 1024;
/// How many records wait for a peer that reads slowly.
const QUEUE: usize = 4;

/// Serves a request at the listener for peers.
pub(crate) async fn serve(
    hub: Arc<Hub>,
    request: Request<Incoming>,
    connection: Arc<Connection>,
) -> Response<ForwardBody> {
    let (head, mut body) = request.into_parts();
    if head.method != Method::POST || head.uri.path() != PATH {
        return refused(StatusCode::NOT_FOUND);
    }
    let Some(peers) = hub.peers.clone() else {
        return refused(StatusCode::NOT_FOUND);
    };
    let limit = match connection.is_anonymous() {
        true => GREETING,
        false => hub.limits.body_bytes + OVERHEAD,
    };
    let reading = hub.forwarded.read(&Caller::Local, &mut body, limit);
    let read = tokio::time::timeout(BODY_TIMEOUT, reading).await;
    let Held { bytes, room } = match read {
        Ok(Ok(held)) => held,
        Ok(Err(BodyReadError::TooLarge)) => return refused(StatusCode::PAYLOAD_TOO_LARGE),
        Ok(Err(BodyReadError::NoRoom)) => return refused(StatusCode::SERVICE_UNAVAILABLE),
        Ok(Err(BodyReadError::Broken)) | Err(_) => return refused(StatusCode::BAD_REQUEST),
    };
    match peers.receive(bytes) {
        Ok(mut received) => {
            connection.identify();
            received.forward.body = room.until_gone(received.forward.body);
            let (records, answer) = mpsc::channel(QUEUE);
            let Received {
                forward,
                from,
                sealer,
            } = received;
            let forwards = hub.forwards.clone();
            forwards.spawn(run(hub, forward, from, Out::new(records)));
            let mut response = Response::new(ForwardBody::records(sealer, answer));
            let media = http::HeaderValue::from_static(crate::peers::MEDIA);
            response
                .headers_mut()
                .insert(http::header::CONTENT_TYPE, media);
            response
        }
        Err(intruder) => {
            tell(&hub, intruder, connection.peer);
            refused(match intruder {
                Intruder::Malformed => StatusCode::BAD_REQUEST,
                Intruder::Misdirected => StatusCode::MISDIRECTED_REQUEST,
                Intruder::Unauthenticated => StatusCode::UNAUTHORIZED,
                Intruder::Replayed => StatusCode::CONFLICT,
            })
        }
    }
}

fn refused(status: StatusCode) -> Response<ForwardBody> {
    let mut response = Response::new(ForwardBody::empty());
    *response.status_mut() = status;
    response
}

/// Counts what is no forward, and says so, but not as often as somebody may send it.
fn tell(hub: &Hub, intruder: Intruder, peer: Peer) {
    hub.metrics.forward_received(intruder.name());
    if !hub.peers.as_ref().is_some_and(|peers| peers.may_warn()) {
        return;
    }
    let why = intruder.name();
    match intruder {
        Intruder::Misdirected => tracing::warn!(
            ?peer,
            why,
            "a forward for another gateway arrived here: is `advertise` in its [peers] right?"
        ),
        Intruder::Malformed | Intruder::Unauthenticated | Intruder::Replayed => tracing::warn!(
            ?peer,
            why,
            "a forward was refused: all gateways on the store need the same secret in [peers], and nobody else may reach this listener"
        ),
    }
}

/// Does what was forwarded, for as long as the other gateway reads.
async fn run(hub: Arc<Hub>, forward: Forward, from: Box<str>, out: Out) {
    let doing = async {
        let peers = hub.peers.as_deref();
        let is_mine = peers.is_some_and(|peers| *from == *peers.me());
        if forward.hops != 1 || is_mine {
            tracing::warn!(gateway = %from, "a forward was refused: it came in a loop");
            return Ending::Refused("it was forwarded before".into());
        }
        match forward.kind {
            ForwardKind::Greeting => {
                out.put(Record::Accepted).await;
                Ending::Done
            }
            ForwardKind::Leg => leg::serve(&hub, &forward, &from, &out).await,
            ForwardKind::Delivery => {
                let ending = delivery::take(&hub, &forward, &from).await;
                if ending == Ending::Done {
                    out.put(Record::Accepted).await;
                    hub.metrics.forward_received("accepted");
                }
                ending
            }
            ForwardKind::Elicitation => elicited(&hub, &forward, &out).await,
        }
    };
    let ending = tokio::select! {
        ending = doing => ending,
        () = out.left() => return,
    };
    if !out.has_begun() || ending != Ending::Done {
        hub.metrics.forward_received(name(&ending));
    }
    out.put(Record::End(ending)).await;
}

fn name(ending: &Ending) -> &'static str {
    match ending {
        Ending::Done => "done",
        Ending::NotMine(_) => "not_mine",
        Ending::Unsure(_) => "unsure",
        Ending::Refused(_) => "refused",
        Ending::Failed(_) => "failed",
    }
}

/// The answer to an elicitation of a session that this gateway has in its memory.
async fn elicited(hub: &Hub, forward: &Forward, out: &Out) -> Ending {
    let Some(hash) = forward.head::<String>() else {
        return Ending::Refused("it names no session".into());
    };
    let sessions = elicitation::sessions(hub, &hash);
    if sessions.is_empty() {
        return Ending::NotMine("no session has this hash".into());
    }
    out.put(Record::Accepted).await;
    match elicitation::take(&sessions, &forward.body).await {
        Ok(result) => {
            out.put_whole(Bytes::from(result)).await;
            Ending::Done
        }
        Err(fault) => Ending::Refused(fault.row().name.into()),
    }
}
