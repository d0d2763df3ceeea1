//! Streamable HTTP towards clients: revisions 2025-03-26 to 2025-11-25.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bowline_wire::batch::is_batch;
use bowline_wire::message::{Kind, Message};
use bowline_wire::{header as mcp, media};
use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, CONTENT_TYPE, EXPECT};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::time::Instant;

use super::arrival::Arrival;
use super::batch;
use super::bodies::Unread;
use super::cross_origin::Page;
use super::embedder;
use super::exchange::{failed, stream_place};
use super::oauth;
use super::opening::initialize;
use super::reply::{self, ReplyBody, StreamBody, refuse};
use super::sign_out;
use crate::body::{ReadError, read_limited};
use crate::config::ServerName;
use crate::fault::Fault;
use crate::gateway::Shared;
use crate::leg::{self, Rescue};
use crate::listener::Visit;
use crate::session::{Born, LiveStream, MAX_OPENING, Session, Source};

/// How long a request's body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// How much of a body that is not wanted is read on and thrown away, and for how long. Clients that
/// write all of it before they read would otherwise see the connection reset instead of the answer.
const MAX_DISCARDED: u64 = 64 * 1024 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// Bodies up to this are copied rather than held where they were read to.
const SMALL_BODY: usize = 4 * 1024;

/// A fault, and the id (JSON text) of the request that met it.
type Refused = (Fault, Option<Box<str>>);

/// Serves one request of a client at this address. `stranger`: its connection, if none was let in on
/// it so far.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    address: IpAddr,
    stranger: Option<Arc<Visit>>,
) -> Response<ReplyBody> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path();
    if oauth::is_page(path) {
        return Box::pin(oauth::serve(&shared, &head, address)).await;
    }
    let page = match shared.guard.check(&head.uri, &head.headers) {
        Ok(origin) => origin.and_then(Page::of),
        Err(fault) => return refused(&shared, None, &no_id(fault)),
    };
    if let Some(preflight) = page.as_ref().and_then(|page| page.preflight(&head)) {
        return preflight;
    }
    // One function, because each that is awaited within another copies the request once more.
    let mut response = 'answered: {
        if path.starts_with("/api/") {
            break 'answered Box::pin(api(&shared, &head, body, address)).await;
        }
        let (method, started) = (head.method.clone(), Instant::now());
        let arrival = match Arrival::admit(Arc::clone(&shared), &mut head) {
            Ok(arrival) => arrival,
            Err(fault) => break 'answered refused(&shared, None, &no_id(fault)),
        };
        if let Some(visit) = stranger
            && let Err(crowded) = visit.welcome(&arrival.caller)
        {
            let why = no_id(crowded.fault());
            let mut response = refused(&shared, Some(&arrival.upstream.name), &why);
            // Else it would be held all the same.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
            break 'answered response;
        }
        let upstream = Arc::clone(&arrival.upstream);
        let served = match method {
            Method::POST => post(arrival, body).await,
            // Boxed, so that every connection's task is not as large as its rarest request.
            Method::GET => Box::pin(get(arrival)).await.map_err(no_id),
            Method::DELETE => Box::pin(delete(arrival)).await.map_err(no_id),
            _ => {
                let allow = "GET, POST, DELETE";
                Err(no_id(Fault::Method { allow }))
            }
        };
        let response = served.unwrap_or_else(|why| refused(&shared, Some(&upstream.name), &why));
        let status = response.status();
        shared
            .metrics
            .answered(&upstream, &method, status, started.elapsed());
        response
    };
    if let Some(page) = page {
        page.may_read(&mut response);
    }
    response
}

/// Serves what is for hosts.
async fn api(
    shared: &Arc<Shared>,
    head: &Parts,
    body: Incoming,
    address: IpAddr,
) -> Response<ReplyBody> {
    let path = head.uri.path();
    let answered = match embedder::route(path) {
        _ if path == sign_out::PATH => sign_out::serve(shared, head, address).await,
        Some(session) => embedder::answer(shared, head, address, (session, body)).await,
        None if oauth::is_route(path) => return oauth::serve(shared, head, address).await,
        None => Err(Fault::NoSuchPath),
    };
    answered.unwrap_or_else(|fault| refused(shared, None, &no_id(fault)))
}

/// A refusal, told to the client and to the operator.
fn refused(shared: &Shared, server: Option<&ServerName>, why: &Refused) -> Response<ReplyBody> {
    let (fault, id) = why;
    let (telling, server) = (fault.telling(), server.map(tracing::field::display));
    shared.metrics.refused(telling.reason);
    tracing::info!(
        reason = telling.reason,
        status = telling.status_for(id.as_deref()).as_u16(),
        server,
        "refused"
    );
    refuse(fault, id.as_deref())
}

fn no_id(fault: Fault) -> Refused {
    (fault, None)
}

// === POST ===

async fn post(arrival: Arrival, body: Incoming) -> Result<Response<ReplyBody>, Refused> {
    let body = read_body(&arrival, body).await.map_err(no_id)?;
    if is_batch(&body) {
        return Box::pin(batch::serve(arrival, body)).await.map_err(no_id);
    }
    let message = Message::parse(body).map_err(|malformed| no_id(malformed.into()))?;
    let echo: Option<Box<str>> = match message.kind() {
        Kind::Request => message.id().map(Into::into),
        Kind::Notification | Kind::Response => None,
    };
    let answered = if message.kind() == Kind::Request && message.method() == Some("initialize") {
        Box::pin(initialize(arrival, message)).await
    } else {
        match arrival.find().await {
            Ok(found) => arrival.into_exchange(found).serve(message).await,
            Err(fault) => Err(fault),
        }
    };
    answered.map_err(|fault| (fault, echo))
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
    let limit = arrival.shared.limits.body_bytes;
    match longest.is_none_or(|longest| longest > limit.min(MAX_OPENING) as u64) {
        // Boxed, so that every connection's task is not as large as its rarest request.
        true => Box::pin(read_long_body(arrival, body)).await,
        false => whole_body(body, limit).await,
    }
}

/// A body that may be long: only in a session is more of it read than an `initialize` may have, so the
/// session is looked for first.
async fn read_long_body(arrival: &Arrival, mut body: Incoming) -> Result<Bytes, Fault> {
    let mut limit = arrival.shared.limits.body_bytes;
    let mut stranger = None;
    if limit > MAX_OPENING {
        stranger = arrival.find().await.err();
    }
    if stranger.is_some() {
        limit = MAX_OPENING;
    }
    let too_large = |limit| match stranger {
        Some(Fault::SessionRequired) => Fault::InitializeTooLarge { limit },
        Some(fault) => fault,
        None => Fault::BodyTooLarge { limit },
    };
    // Its client holds it back until it is told to go on, which reading would do.
    if body.size_hint().lower() > limit as u64 && arrival.headers.contains_key(EXPECT) {
        return Err(too_large(limit));
    }
    let bodies = &arrival.shared.bodies;
    let reading = bodies.read(&arrival.caller, &mut body, limit);
    let read = tokio::time::timeout(BODY_TIMEOUT, reading).await;
    let fault = match read.map_err(|_| Fault::BodyTimeout)? {
        Ok(body) => return Ok(body),
        Err(Unread::Broken) => return Err(Fault::BodyBroken),
        Err(Unread::TooLarge) => too_large(limit),
        Err(Unread::NoRoom) => Fault::TooManyBodies,
    };
    discard(body).await;
    Err(fault)
}

/// A body of at most `limit` bytes, if it comes in time.
pub(super) async fn whole_body(mut body: Incoming, limit: usize) -> Result<Bytes, Fault> {
    let read = tokio::time::timeout(BODY_TIMEOUT, read_limited(&mut body, limit)).await;
    let body = match read.map_err(|_| Fault::BodyTimeout)? {
        Ok(body) => body,
        Err(ReadError::TooLarge(limit)) => {
            Box::pin(discard(body)).await;
            return Err(Fault::BodyTooLarge { limit });
        }
        Err(ReadError::Broken(_)) => return Err(Fault::BodyBroken),
    };
    Ok(match body.len() {
        // It is a part of the connection's read buffer, whose 8 KiB it would keep for as long as
        // the answer takes.
        0..=SMALL_BODY => Bytes::copy_from_slice(&body),
        _ => body,
    })
}

/// Reads what is left of a body, up to a bound and for a time, and throws it away.
async fn discard(mut body: Incoming) {
    let discarding = async {
        let mut discarded = 0;
        while discarded <= MAX_DISCARDED
            && let Some(Ok(frame)) = body.frame().await
        {
            discarded += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
    };
    drop(tokio::time::timeout(DISCARD_TIMEOUT, discarding).await);
}

// === GET ===

async fn get(arrival: Arrival) -> Result<Response<ReplyBody>, Fault> {
    if !media::accepts(arrival.headers.get_all(ACCEPT), media::EVENT_STREAM) {
        return Err(Fault::AcceptForGet);
    }
    let (id, in_use) = arrival.find().await?;
    let shared = &arrival.shared;
    if shared.drain.has_begun() {
        return Err(Fault::Stopping);
    }
    let session = in_use.session();
    let permit = stream_place(&session.upstream, &session.share)?;
    let mark = arrival
        .headers
        .get(mcp::LAST_EVENT_ID)
        .filter(|id| !id.is_empty());
    let (born, source) = match mark.map(|mark| resumed(session, mark)) {
        None => {
            let opening = leg::listen(
                Arc::clone(session),
                Born::Standalone,
                None,
                arrival.carried.clone(),
            );
            (Born::Standalone, Source::opening(opening))
        }
        Some(None) => return Err(Fault::LastEventId),
        Some(Some(Resumed::At(born, last))) => {
            let opening = leg::listen(
                Arc::clone(session),
                born.clone(),
                last,
                arrival.carried.clone(),
            );
            (born, Source::opening(opening))
        }
        Some(Some(Resumed::Lost(id))) => {
            let told = leg::lost(&session.leg(), &id);
            (Born::Request(id), told)
        }
    };
    let rescue =
        (born == Born::Standalone).then(|| Box::new(Rescue::standalone(session, arrival.carried)));
    // The older stream is closed before the newer is asked for, so that the server sees one.
    let stream = Arc::new(LiveStream::new(source, rescue));
    let is_attached = match born {
        Born::Standalone => session.attach_listener(&stream).await,
        Born::Request(_) => session.attach(born, Arc::clone(&stream)),
    };
    if !is_attached {
        return Err(Fault::UnknownSession);
    }
    let abandoned = shared.abandoned(session);
    let body =
        StreamBody::new(Arc::clone(&stream), in_use, abandoned, Some(permit)).with_heartbeat();
    // Long enough to tell the client of a lost session by a status, short enough for servers that
    // answer with their first event.
    let grace = leg::moment(&body.session().upstream.server());
    if let Ok(Err(error)) = tokio::time::timeout(grace, stream.opened()).await {
        return Err(failed(shared, &id, body.session(), error));
    }
    let content_type = HeaderValue::from_static(media::EVENT_STREAM);
    Ok(reply::stream(StatusCode::OK, Some(content_type), body))
}

/// What a client's `Last-Event-ID` leads to.
enum Resumed {
    /// A stream, after one of the server's own event ids.
    At(Born, Option<HeaderValue>),
    /// The answer to this request (JSON text) went with the generation that it was asked of.
    Lost(Box<str>),
}

fn resumed(session: &Session, mark: &HeaderValue) -> Option<Resumed> {
    let mark = session.seal.open_event(mark.as_bytes())?;
    if mark.leg == session.leg().at {
        let last = HeaderValue::from_bytes(&mark.id).ok()?;
        return Some(Resumed::At(mark.born, Some(last)));
    }
    Some(match mark.born {
        Born::Standalone => Resumed::At(Born::Standalone, None),
        Born::Request(id) => Resumed::Lost(id),
    })
}

// === DELETE ===

async fn delete(arrival: Arrival) -> Result<Response<ReplyBody>, Fault> {
    let (id, in_use) = arrival.find().await?;
    #[cfg(feature = "planted")]
    if crate::planted::has(crate::planted::Bug::DeletedLivesOn) {
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    }
    let ended = arrival
        .shared
        .delete_session(&id, in_use.session(), &arrival.carried)
        .await;
    if !ended.map_err(|unsure| Fault::unsure(&unsure))? {
        return Err(Fault::UnknownSession);
    }
    Ok(reply::empty(StatusCode::NO_CONTENT))
}
