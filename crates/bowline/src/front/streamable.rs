//! Streamable HTTP towards clients: revisions 2025-03-26 to 2025-11-25.

use bowline_wire::batch::is_batch;
use bowline_wire::message::{Kind, Malformed, Message};
use bowline_wire::{header as mcp, media};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use hyper::body::{Body as _, Incoming};

use super::arrival::Arrival;
use super::body::{long_body, whole_body};
use super::embedder;
use super::refusal::Refusal;
use super::response::{self, ReplyBody};
use crate::exchange::leaving::Leaving;
use crate::fault::Fault;
use crate::session::MAX_OPENING;
use crate::union::dialog::Admitted;

// === POST ===

/// A message, or a batch of them.
pub(super) async fn post(arrival: Arrival, body: Incoming) -> Result<Response<ReplyBody>, Refusal> {
    let body = read_body(&arrival, body).await?;
    if is_batch(&body) {
        return Ok(Box::pin(post_batch(arrival, body)).await?);
    }
    let message = Message::parse(body).map_err(Fault::from)?;
    let request = (message.kind() == Kind::Request).then(|| message.clone());
    let answered = if message.kind() == Kind::Request && message.method() == Some("initialize") {
        Box::pin(initialize(arrival, message)).await
    } else {
        match arrival.find().await {
            Ok(found) => match arrival.equip(found) {
                Admitted::Session(exchange) => {
                    exchange.handle(message).await.map(response::respond)
                }
                Admitted::Attachment(attached) => {
                    let handled = Box::pin(attached.handle(message)).await;
                    handled.map(response::respond)
                }
            },
            Err(fault) => Err(fault),
        }
    };
    answered.map_err(|fault| Refusal::of(fault, request.as_ref()))
}

async fn post_batch(arrival: Arrival, array: Bytes) -> Result<Response<ReplyBody>, Fault> {
    if !arrival.headers.contains_key(mcp::SESSION_ID) {
        // Not even an `initialize` in it could be served.
        return Err(Malformed::Batch.into());
    }
    let found = arrival.find().await?;
    let reply = arrival.equip(found).handle_batch(&array).await?;
    Ok(response::respond(reply))
}

/// `initialize`: opens what the client talks to from then on. The response carries its id.
async fn initialize(mut arrival: Arrival, message: Message) -> Result<Response<ReplyBody>, Fault> {
    arrival.refuse_new()?;
    let hub = &arrival.hub;
    arrival.carried.via = hub.pseudonym.after(&arrival.headers);
    let wants_hash = embedder::wants_hash(&arrival.headers);
    let (to, caller) = (&arrival.to, arrival.caller);
    let opening = hub
        .unions
        .open(to, caller, arrival.carried, message, Leaving::GoesOn);
    let (reply, dialog) = opening.await?;
    let mut response = response::respond(reply);
    if let Some(dialog) = dialog {
        let headers = response.headers_mut();
        if wants_hash {
            headers.extend(embedder::hash_header(dialog.hash()));
        }
        headers.insert(mcp::SESSION_ID, dialog.id().to_header());
    }
    Ok(response)
}

async fn read_body(arrival: &Arrival, body: Incoming) -> Result<Bytes, Fault> {
    let headers = &arrival.headers;
    if !media::is(headers.get(CONTENT_TYPE), media::JSON) {
        return Err(Fault::ContentType);
    }
    if !media::accepts_both(&headers.get_all(ACCEPT)) {
        return Err(Fault::AcceptForPost);
    }
    let longest = body.size_hint().upper();
    let limit = arrival.hub.limits.body_bytes;
    match longest.is_none_or(|longest| longest > limit.min(MAX_OPENING) as u64) {
        // Boxed, so that every connection's task is not as large as its rarest request.
        true => Box::pin(read_long_body(arrival, body)).await,
        false => whole_body(body, limit).await,
    }
}

/// A body that may be long: only in a session is more of it read than an `initialize` may have, so the
/// session is looked for first.
async fn read_long_body(arrival: &Arrival, body: Incoming) -> Result<Bytes, Fault> {
    let mut limit = arrival.hub.limits.body_bytes;
    let mut unknown = None;
    if limit > MAX_OPENING {
        unknown = arrival.find().await.err();
    }
    if unknown.is_some() {
        limit = MAX_OPENING;
    }
    let too_large = |limit| match unknown {
        Some(Fault::SessionRequired) => Fault::InitializeTooLarge { limit },
        Some(fault) => fault,
        None => Fault::BodyTooLarge { limit },
    };
    let Arrival {
        hub,
        caller,
        headers,
        ..
    } = arrival;
    let read = long_body(hub, caller, headers, body, limit).await;
    read.map_err(|fault| match fault {
        Fault::BodyTooLarge { limit } => too_large(limit),
        fault => fault,
    })
}

// === GET ===

/// The stream of what the server says outside of responses.
pub(super) async fn get(arrival: Arrival) -> Result<Response<ReplyBody>, Refusal> {
    if !media::accepts(arrival.headers.get_all(ACCEPT), media::EVENT_STREAM) {
        return Err(Fault::AcceptForGet.into());
    }
    let found = arrival.find().await?;
    if arrival.hub.drain.has_begun() {
        return Err(Fault::Stopping.into());
    }
    let mark = arrival.headers.get(mcp::LAST_EVENT_ID).cloned();
    let mark = mark.filter(|id| !id.is_empty());
    let admitted = arrival.equip(found);
    let outlet = admitted
        .listen(mark.as_ref().map(HeaderValue::as_bytes))
        .await?;
    Ok(response::stream(outlet))
}

// === DELETE ===

/// The end of what the client has open.
pub(super) async fn delete(arrival: Arrival) -> Result<Response<ReplyBody>, Refusal> {
    let found = arrival.find().await?;
    let admitted = arrival.equip(found);
    #[cfg(feature = "planted")]
    if crate::planted::has(crate::planted::Bug::DeletedLivesOn) {
        return Ok(response::empty(StatusCode::NO_CONTENT));
    }
    match admitted.delete().await? {
        true => Ok(response::empty(StatusCode::NO_CONTENT)),
        false => Err(Fault::UnknownSession.into()),
    }
}
