//! Streamable HTTP towards clients: revisions 2025-03-26 to 2025-11-25.

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::id::SessionId;
use bowline_wire::message::{Kind, Message};
use bowline_wire::{header as mcp, media, version};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;

use super::reply::{self, ReplyBody, StreamBody, refuse};
use crate::body::{ReadError, Sent, read_limited};
use crate::detach::see_through;
use crate::fault::Fault;
use crate::gateway::{Ending, Shared};
use crate::leg::{self, First, LegRef, Relay, Reply};
use crate::session::{Born, InUse, LiveStream, Seal, Session, Source, StreamKey, Vacancy};
use crate::upstream::{Upstream, UpstreamError};

/// How long a request's body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a server may take to answer `initialize`: longer than any sane start, and bounded
/// because a place among the sessions is held meanwhile.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a GET waits for the upstream before its own headers go out: long enough to tell the
/// client of a lost session by a status, short enough for servers that answer with their first
/// event.
const LISTEN_GRACE: Duration = Duration::from_secs(1);

/// A fault, and the id (JSON text) of the request that met it.
type Refused = (Fault, Option<Box<str>>);

/// Serves one request of a client.
pub(crate) async fn serve(shared: Arc<Shared>, request: Request<Incoming>) -> Response<ReplyBody> {
    let (head, body) = request.into_parts();
    let served = match route(&shared, &head) {
        Err(fault) => Err((fault, None)),
        Ok(upstream) => match head.method {
            Method::POST => post(&shared, upstream, &head.headers, body).await,
            Method::GET => get(&shared, &upstream, &head.headers).await.map_err(no_id),
            Method::DELETE => delete(&shared, &upstream, &head.headers).map_err(no_id),
            _ => {
                let allow = "GET, POST, DELETE";
                Err((Fault::Method { allow }, None))
            }
        },
    };
    served.unwrap_or_else(|(fault, id)| refuse(&fault, id.as_deref()))
}

fn no_id(fault: Fault) -> Refused {
    (fault, None)
}

fn route(shared: &Shared, head: &Parts) -> Result<Arc<Upstream>, Fault> {
    shared.guard.check(&head.uri, &head.headers)?;
    shared.routes.by_path(head.uri.path())
}

// === POST ===

async fn post(
    shared: &Arc<Shared>,
    upstream: Arc<Upstream>,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Response<ReplyBody>, Refused> {
    let message = read_message(shared, headers, body).await.map_err(no_id)?;
    let echo: Option<Box<str>> = match message.kind() {
        Kind::Request => message.id().map(Into::into),
        Kind::Notification | Kind::Response => None,
    };
    let answered = if message.kind() == Kind::Request && message.method() == Some("initialize") {
        initialize(shared, upstream, message).await
    } else {
        exchange(shared, &upstream, headers, message).await
    };
    answered.map_err(|fault| (fault, echo))
}

async fn read_message(
    shared: &Shared,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Message, Fault> {
    if !media::is(headers.get(CONTENT_TYPE), media::JSON) {
        return Err(Fault::ContentType);
    }
    let accepts = |media| media::accepts(headers.get_all(ACCEPT), media);
    if !accepts(media::JSON) || !accepts(media::EVENT_STREAM) {
        return Err(Fault::AcceptForPost);
    }
    let limit = shared.limits.body_bytes;
    let read = tokio::time::timeout(BODY_TIMEOUT, read_limited(body, limit)).await;
    let bytes = read
        .map_err(|_| Fault::BodyTimeout)?
        .map_err(|error| match error {
            ReadError::TooLarge(limit) => Fault::BodyTooLarge { limit },
            ReadError::Broken(_) => Fault::BodyBroken,
        })?;
    Ok(Message::parse(bytes)?)
}

/// Opens the leg, then the session, then answers: a client never hears of a session that is not.
async fn initialize(
    shared: &Arc<Shared>,
    upstream: Arc<Upstream>,
    message: Message,
) -> Result<Response<ReplyBody>, Fault> {
    if shared.drain.has_begun() {
        return Err(Fault::Stopping);
    }
    if upstream.is_retired() {
        return Err(Fault::NoSuchServer);
    }
    let vacancy = shared.table.reserve().ok_or(Fault::TooManySessions)?;
    let permit = stream_permit(shared)?;
    let (key, sent) = (stream_key(&message), Sent::default());
    let opening = open(
        Arc::clone(shared),
        Arc::clone(&upstream),
        message,
        vacancy,
        sent.clone(),
    );
    match see_through(opening, sent, shared.abandoned()).await? {
        Opening::Declined(reply) => Ok(declined(reply)),
        Opening::Opened(newborn, reply) => {
            let mut response = respond(shared, &newborn.session, key, reply, permit);
            tracing::info!(server = %upstream.name, version = newborn.session.leg.version(), "session opened");
            response
                .headers_mut()
                .insert(mcp::SESSION_ID, newborn.announce());
            Ok(response)
        }
    }
}

/// What came of opening a session.
enum Opening {
    Opened(Newborn, Reply),
    Declined(Reply),
}

async fn open(
    shared: Arc<Shared>,
    upstream: Arc<Upstream>,
    message: Message,
    vacancy: Vacancy,
    sent: Sent,
) -> Result<Opening, Fault> {
    let seal = Seal::generate().map_err(|_| Fault::Random)?;
    let opening = leg::open(Arc::clone(&upstream), message, &seal, sent);
    let opened = tokio::time::timeout(INITIALIZE_TIMEOUT, opening).await;
    let opened = opened.unwrap_or(Err(UpstreamError::InitializeTimeout(INITIALIZE_TIMEOUT)));
    let First { leg, reply } = opened.map_err(|error| fault_of(&upstream, LegRef::FIRST, error))?;
    let Some(leg) = leg else {
        return Ok(Opening::Declined(reply));
    };
    let (id, session) = vacancy
        .fill(Session::new(seal, leg))
        .map_err(|_| Fault::Random)?;
    let newborn = Newborn {
        shared,
        id,
        session,
        announced: false,
    };
    Ok(Opening::Opened(newborn, reply))
}

/// A session whose client has not heard of it yet. If the client left meanwhile nobody knows the
/// id, so dropping this ends the session.
struct Newborn {
    shared: Arc<Shared>,
    id: SessionId,
    session: Arc<Session>,
    announced: bool,
}

impl Newborn {
    fn announce(mut self) -> HeaderValue {
        self.announced = true;
        self.id.to_header()
    }
}

impl Drop for Newborn {
    fn drop(&mut self) {
        if !self.announced {
            self.shared.end_session(&self.id, Ending::Unclaimed);
        }
    }
}

async fn exchange(
    shared: &Arc<Shared>,
    upstream: &Arc<Upstream>,
    headers: &HeaderMap,
    message: Message,
) -> Result<Response<ReplyBody>, Fault> {
    let (id, in_use) = find(shared, upstream, headers)?;
    let sent = Sent::default();
    let conversing = converse(Arc::clone(shared), id, in_use, message, sent.clone());
    see_through(conversing, sent, shared.abandoned()).await
}

/// Sends one message and makes a response of what comes back. Dropping that response, as happens
/// when the client left meanwhile, is the same as the client's leaving later.
async fn converse(
    shared: Arc<Shared>,
    id: SessionId,
    in_use: InUse,
    message: Message,
    sent: Sent,
) -> Result<Response<ReplyBody>, Fault> {
    let session = in_use.session();
    let key = stream_key(&message);
    let mut permit = None;
    let reply = match message.kind() {
        Kind::Request => {
            permit = stream_permit(&shared)?;
            leg::request(Arc::clone(session), message, sent).await
        }
        Kind::Notification => leg::notify(Arc::clone(session), message.raw().clone(), sent).await,
        Kind::Response => match restore(session, &message)? {
            Some(answer) => leg::notify(Arc::clone(session), answer, sent).await,
            None => return Ok(reply::empty(StatusCode::ACCEPTED)),
        },
    };
    let reply = reply.map_err(|error| failed(&shared, &id, session, error))?;
    Ok(respond(&shared, session, key, reply, permit))
}

/// A client's answer with the server's own id again; `None` if it came too late to matter.
fn restore(session: &Session, answer: &Message) -> Result<Option<Bytes>, Fault> {
    let span = answer.id_span().ok_or(Fault::StrayAnswer)?;
    let (at, id) = session
        .seal
        .open_request(answer.text(span))
        .ok_or(Fault::StrayAnswer)?;
    Ok((at == session.leg.at).then(|| answer.splice(span, &id)))
}

// === GET ===

async fn get(
    shared: &Arc<Shared>,
    upstream: &Arc<Upstream>,
    headers: &HeaderMap,
) -> Result<Response<ReplyBody>, Fault> {
    if !media::accepts(headers.get_all(ACCEPT), media::EVENT_STREAM) {
        return Err(Fault::AcceptForGet);
    }
    let (id, in_use) = find(shared, upstream, headers)?;
    if shared.drain.has_begun() {
        return Err(Fault::Stopping);
    }
    let session = in_use.session();
    let permit = stream_permit(shared)?;
    let (born, last) = match headers.get(mcp::LAST_EVENT_ID).filter(|id| !id.is_empty()) {
        Some(mark) => resumed(session, mark).ok_or(Fault::LastEventId)?,
        None => (Born::Standalone, None),
    };
    // The older stream is closed before the newer is asked for, so that the server sees one.
    let opening = leg::listen(Arc::clone(session), born.clone(), last);
    let stream = Arc::new(LiveStream::new(Source::Opening(Box::pin(opening))));
    if !session.attach(born, Arc::clone(&stream)) {
        return Err(Fault::UnknownSession);
    }
    let body =
        StreamBody::new(Arc::clone(&stream), in_use, shared.abandoned(), permit).with_heartbeat();
    if let Ok(Err(error)) = tokio::time::timeout(LISTEN_GRACE, stream.opened()).await {
        return Err(failed(shared, &id, body.session(), error));
    }
    let content_type = HeaderValue::from_static(media::EVENT_STREAM);
    Ok(reply::stream(StatusCode::OK, Some(content_type), body))
}

/// Which stream a client wants to go on with, and after which of the server's own event ids.
fn resumed(session: &Session, mark: &HeaderValue) -> Option<(Born, Option<HeaderValue>)> {
    let mark = session.seal.open_event(mark.as_bytes())?;
    if mark.leg != session.leg.at {
        return None;
    }
    Some((mark.born, Some(HeaderValue::from_bytes(&mark.id).ok()?)))
}

// === DELETE ===

fn delete(
    shared: &Arc<Shared>,
    upstream: &Arc<Upstream>,
    headers: &HeaderMap,
) -> Result<Response<ReplyBody>, Fault> {
    let (id, _) = find(shared, upstream, headers)?;
    if !shared.end_session(&id, Ending::Deleted) {
        return Err(Fault::UnknownSession);
    }
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

// === shared ===

/// The session that a request names, on the path of the server that it belongs to.
fn find(
    shared: &Shared,
    upstream: &Arc<Upstream>,
    headers: &HeaderMap,
) -> Result<(SessionId, InUse), Fault> {
    let value = headers.get(mcp::SESSION_ID).ok_or(Fault::SessionRequired)?;
    let found = SessionId::from_header(value).and_then(|id| Some((id, shared.table.find(&id)?)));
    let (id, in_use) = found.ok_or(Fault::UnknownSession)?;
    let session = in_use.session();
    if !Arc::ptr_eq(&session.leg.upstream, upstream) {
        return Err(Fault::UnknownSession);
    }
    match headers
        .get(mcp::PROTOCOL_VERSION)
        .map(|version| version.to_str())
    {
        None => {}
        Some(Ok(named)) if version::is_supported(named) || named == session.leg.version() => {}
        Some(_) => return Err(Fault::ProtocolVersion),
    }
    Ok((id, in_use))
}

fn stream_permit(shared: &Shared) -> Result<Option<OwnedSemaphorePermit>, Fault> {
    let permit = Arc::clone(&shared.streams).try_acquire_owned();
    permit.map(Some).map_err(|_| Fault::TooManyStreams)
}

fn stream_key(message: &Message) -> StreamKey {
    Born::Request(message.id().unwrap_or_default().into())
}

fn fault_of(upstream: &Upstream, leg: LegRef, error: UpstreamError) -> Fault {
    Fault::Upstream {
        server: upstream.name.clone(),
        generation: leg.generation,
        error,
    }
}

/// What a failure within a session means for the client, and for the session.
fn failed(shared: &Shared, id: &SessionId, session: &Session, error: UpstreamError) -> Fault {
    if matches!(error, UpstreamError::SessionLost) {
        shared.end_session(id, Ending::Lost);
    }
    fault_of(&session.leg.upstream, session.leg.at, error)
}

/// The server's refusal of `initialize`: there is no session that a stream could belong to.
fn declined(reply: Reply) -> Response<ReplyBody> {
    match reply {
        Reply::Whole {
            status,
            content_type,
            body,
        } => reply::whole(status, content_type, body),
        Reply::Accepted | Reply::Stream { .. } => reply::empty(StatusCode::ACCEPTED),
    }
}

/// A reply as a response.
fn respond(
    shared: &Shared,
    session: &Arc<Session>,
    key: StreamKey,
    reply: Reply,
    permit: Option<OwnedSemaphorePermit>,
) -> Response<ReplyBody> {
    match reply {
        Reply::Accepted => reply::empty(StatusCode::ACCEPTED),
        Reply::Whole {
            status,
            content_type,
            body,
        } => reply::whole(status, content_type, body),
        Reply::Stream {
            status,
            content_type,
            relay,
        } => {
            let is_events = matches!(*relay, Relay::Events(_));
            let stream = Arc::new(LiveStream::new(Source::Relay(relay)));
            // If the session ended meanwhile the answer is still the answer: the request ran.
            session.attach(key, Arc::clone(&stream));
            let mut body = StreamBody::new(stream, session.begin_use(), shared.abandoned(), permit);
            if is_events {
                body = body.with_heartbeat();
            }
            reply::stream(status, content_type, body)
        }
    }
}
