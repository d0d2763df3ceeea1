//! Streamable HTTP towards clients: revisions 2025-03-26 to 2025-11-25. Requests of other kinds are passed on
//! from here, after what holds for all of them.

use std::sync::Arc;

use bowline_wire::batch::is_batch;
use bowline_wire::message::{Kind, Malformed, Message, RawId, RawIdBuf};
use bowline_wire::{header as mcp, media};
use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use tokio::time::Instant;

use super::arrival::Arrival;
use super::body::{long_body, whole_body};
use super::cross_origin::AllowedOrigin;
use super::response::{self, ReplyBody};
use super::{embedder, http_sse, pages, sign_out};
use crate::config::ServerName;
use crate::exchange::leaving::Leaving;
use crate::exchange::open::Opening;
use crate::fault::Fault;
use crate::hub::Hub;
use crate::listener::{Connection, ConnectionRefusal};
use crate::net::Peer;
use crate::route::{Destination, Service};
use crate::session::MAX_OPENING;
use crate::union::attachments::Attaching;
use crate::union::dialog::Admitted;

/// The methods of MCP, as `Allow` lists them.
const METHODS: &str = "GET, POST, DELETE";

/// A fault, and the request that met it.
pub(super) struct Refused {
    pub(super) fault: Fault,
    /// The id of the request, if it is known and is to be echoed.
    pub(super) id: Option<RawIdBuf>,
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self { fault, id: None }
    }
}

/// Serves one request of a client.
pub(crate) async fn serve(
    hub: Arc<Hub>,
    request: Request<Incoming>,
    connection: Arc<Connection>,
) -> Response<ReplyBody> {
    let peer = connection.peer;
    let (mut head, body) = request.into_parts();
    let path = head.uri.path();
    if pages::is_page(path) {
        return Box::pin(pages::serve(&hub, &head, body, peer)).await;
    }
    let origin = match hub.guard.check(&head.uri, &head.headers) {
        Ok(origin) => origin.and_then(AllowedOrigin::of),
        Err(fault) => return refused(&hub, None, &fault.into()),
    };
    if let Some(preflight) = origin.as_ref().and_then(|it| it.preflight(&head)) {
        return preflight;
    }
    // One function, because each that is awaited within another copies the request once more.
    let mut response = 'answered: {
        if path.starts_with("/api/") {
            break 'answered Box::pin(api(&hub, &head, body, peer)).await;
        }
        let (method, started) = (head.method.clone(), Instant::now());
        let arrival = match Arrival::admit(Arc::clone(&hub), &mut head) {
            Ok(arrival) => arrival,
            Err(fault) => {
                let response = refused(&hub, None, &fault.into());
                // What follows an unread body cannot be read, so the connection is closed, and that is said.
                break 'answered match body.is_end_stream() {
                    true => response,
                    false => closing(response),
                };
            }
        };
        // None of its requests was let in so far.
        if connection.is_anonymous()
            && let Err(why) = connection.assign_to(&arrival.caller)
        {
            break 'answered over_limits(&hub, &arrival, why);
        }
        let to = arrival.to.clone();
        let served = match method {
            // Boxed, so that every connection's task is not as large as its rarest request.
            _ if arrival.service == Service::HttpSse => {
                Box::pin(http_sse::serve(arrival, &head, body, connection)).await
            }
            Method::POST => post(arrival, body).await,
            Method::GET => Box::pin(get(arrival)).await.map_err(Refused::from),
            Method::DELETE => Box::pin(delete(arrival)).await.map_err(Refused::from),
            _ => Err(Fault::Method { allow: METHODS }.into()),
        };
        let response = served.unwrap_or_else(|why| refused(&hub, Some(to.name()), &why));
        let (status, after) = (response.status(), started.elapsed());
        let metrics = &hub.metrics;
        metrics.answered(to.answered(), to.name(), &method, status, after);
        response
    };
    if let Some(origin) = origin {
        origin.allow_reading(&mut response);
    }
    response
}

/// Refuses a request whose caller has too many connections, and closes this one.
fn over_limits(hub: &Hub, arrival: &Arrival, why: ConnectionRefusal) -> Response<ReplyBody> {
    closing(refused(hub, Some(arrival.to.name()), &why.fault().into()))
}

/// The same as the last response on its connection.
fn closing(mut response: Response<ReplyBody>) -> Response<ReplyBody> {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}

/// Serves the API for programs that run their clients' dialogs.
async fn api(hub: &Arc<Hub>, head: &Parts, body: Incoming, peer: Peer) -> Response<ReplyBody> {
    let path = head.uri.path();
    let answered = match embedder::route(path) {
        _ if path == sign_out::PATH => sign_out::serve(hub, head, peer).await,
        Some(session) => embedder::answer(hub, head, body, peer, session).await,
        None if pages::is_route(path) => return pages::serve(hub, head, body, peer).await,
        None => Err(Fault::NoSuchPath),
    };
    answered.unwrap_or_else(|fault| refused(hub, None, &fault.into()))
}

/// A refusal, for the client and for the log.
fn refused(hub: &Hub, server: Option<&ServerName>, why: &Refused) -> Response<ReplyBody> {
    let id = why.id.as_ref().map(RawIdBuf::as_id);
    response::refuse_counted(&hub.metrics, server, &why.fault, id)
}

// === POST ===

async fn post(arrival: Arrival, body: Incoming) -> Result<Response<ReplyBody>, Refused> {
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
    answered.map_err(|fault| {
        let id = request.as_ref().and_then(Message::id).map(RawId::to_buf);
        Refused { fault, id }
    })
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

/// `initialize`: opens a session, whose id the response carries.
async fn initialize(mut arrival: Arrival, message: Message) -> Result<Response<ReplyBody>, Fault> {
    let hub = Arc::clone(&arrival.hub);
    arrival.refuse_new()?;
    arrival.carried.via = hub.pseudonym.after(&arrival.headers);
    let wants_hash = embedder::wants_hash(&arrival.headers);
    let upstream = match arrival.to {
        Destination::Server(upstream) => upstream,
        Destination::Union(union) => {
            let attaching = Attaching {
                unions: Arc::clone(&hub.unions),
                union,
                caller: arrival.caller,
                carried: arrival.carried,
                message,
                leaving: Leaving::GoesOn,
            };
            return attach(attaching, wants_hash).await;
        }
    };
    let opening = Opening {
        registry: Arc::clone(&hub.registry),
        upstream,
        caller: arrival.caller,
        carried: arrival.carried,
        message,
        leaving: Leaving::GoesOn,
        member: None,
    };
    let (reply, newborn) = opening.open().await?;
    let mut response = response::respond(reply);
    if let Some(newborn) = newborn {
        let headers = response.headers_mut();
        if wants_hash {
            headers.extend(embedder::hash_header(newborn.session.hash));
        }
        headers.insert(mcp::SESSION_ID, newborn.announce().to_header());
    }
    Ok(response)
}

/// The same for several servers: opens an attachment.
async fn attach(attaching: Attaching, wants_hash: bool) -> Result<Response<ReplyBody>, Fault> {
    let (reply, attached) = attaching.open().await?;
    let mut response = response::respond(reply);
    let (headers, attachment) = (response.headers_mut(), attached.attachment());
    if wants_hash {
        headers.extend(embedder::hash_header(attachment.hash));
    }
    headers.insert(mcp::SESSION_ID, attachment.id.to_header());
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

async fn get(arrival: Arrival) -> Result<Response<ReplyBody>, Fault> {
    if !media::accepts(arrival.headers.get_all(ACCEPT), media::EVENT_STREAM) {
        return Err(Fault::AcceptForGet);
    }
    let found = arrival.find().await?;
    if arrival.hub.drain.has_begun() {
        return Err(Fault::Stopping);
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

async fn delete(arrival: Arrival) -> Result<Response<ReplyBody>, Fault> {
    let found = arrival.find().await?;
    let admitted = arrival.equip(found);
    #[cfg(feature = "planted")]
    if crate::planted::has(crate::planted::Bug::DeletedLivesOn) {
        return Ok(response::empty(StatusCode::NO_CONTENT));
    }
    match admitted.delete().await? {
        true => Ok(response::empty(StatusCode::NO_CONTENT)),
        false => Err(Fault::UnknownSession),
    }
}
