//! Replies as HTTP responses: whole bodies, and streams with a heartbeat.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_wire::message::RawId;
use bowline_wire::sse::Event;
use bowline_wire::{header as mcp, media};
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::config::ServerName;
use crate::exchange::Reply;
use crate::exchange::outlet::Outlet;
use crate::fault::{Fault, LogContext};
use crate::front::http_sse::body::MessagesBody;
use crate::front::status;
use crate::telemetry::Metrics;
use crate::upstream::{SentAs, StreamError};

/// How long a stream of events stays silent before a comment shows that it lives. Common
/// balancers cut connections that are silent for 30 s or more.
const HEARTBEAT: Duration = Duration::from_secs(15);
const HEARTBEAT_COMMENT: &[u8] = b": keep-alive\n\n";

/// The body of a response to a client.
#[derive(Debug)]
pub(crate) enum ReplyBody {
    Whole(Option<Bytes>),
    Stream(Box<StreamBody>),
    Messages(Box<MessagesBody>),
}

/// A live stream as a body.
#[derive(Debug)]
pub(crate) struct StreamBody {
    outlet: Outlet,
    /// Shows signs of life between events.
    heartbeat: Option<Heartbeat>,
    /// How the stream broke off, until the client gets the error.
    cut: Option<StreamError>,
}

#[derive(Debug)]
pub(crate) struct Heartbeat {
    timer: Pin<Box<Sleep>>,
    /// Moved with every event; the timer is only moved when it fires, which is rarer.
    next: Instant,
}

/// A response with a whole body.
pub(crate) fn whole(
    status: StatusCode,
    content_type: Option<HeaderValue>,
    body: Bytes,
) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::Whole(Some(body)));
    *response.status_mut() = status;
    if let Some(content_type) = content_type {
        let is_events = content_type == media::EVENT_STREAM;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type);
        if is_events {
            hold_nothing_back(headers);
        }
    }
    response
}

/// A response with JSON of our own.
pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<ReplyBody> {
    whole(
        status,
        Some(HeaderValue::from_static(media::JSON)),
        body.into(),
    )
}

/// A fault as a response, echoing the id of the request if there is one.
pub(crate) fn refuse(fault: &Fault, id: Option<RawId<'_>>) -> Response<ReplyBody> {
    let (status, declined) = (status::of(fault, id), fault.declined());
    let said = match status {
        // The body is what answers the request.
        StatusCode::OK => fault.said(id),
        _ => declined.and_then(|declined| declined.body.clone()),
    };
    let body = said.unwrap_or_else(|| fault.body(id).into());
    let mut response = json(status, body);
    let headers = response.headers_mut();
    if let Some(after) = declined.and_then(|declined| declined.retry_after.clone()) {
        headers.insert(RETRY_AFTER, after);
    }
    if let Some(seconds) = fault.row().retry.seconds() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    match fault {
        Fault::Method { allow } => {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        Fault::Unauthorized
        | Fault::KeyOrCertificate
        | Fault::UnknownCertificate(_)
        | Fault::CertificateExpired
        | Fault::CertificateNotYetValid
        | Fault::TwoCallers
        | Fault::ApiToken => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        _ => {}
    }
    response
}

/// The same, counted and logged.
pub(crate) fn refuse_counted(
    metrics: &Metrics,
    server: Option<&ServerName>,
    fault: &Fault,
    id: Option<RawId<'_>>,
) -> Response<ReplyBody> {
    metrics.refused(fault.row().name);
    fault.log(&LogContext {
        server,
        status: Some(status::of(fault, id).as_u16()),
        ..LogContext::default()
    });
    refuse(fault, id)
}

/// A fault as a response on a connection that is closed with it, in the bytes of HTTP/1.1.
pub(crate) fn refuse_connection(fault: &Fault) -> String {
    let (status, body) = (status::of(fault, None), fault.body(None));
    let retry_after = fault.row().retry.seconds().unwrap_or_default();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nretry-after: {retry_after}\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len(),
    )
}

/// A response without a body.
pub(crate) fn empty(status: StatusCode) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::Whole(None));
    *response.status_mut() = status;
    response
}

/// A reply as a response.
pub(crate) fn respond(reply: Reply) -> Response<ReplyBody> {
    match reply {
        Reply::Accepted => empty(StatusCode::ACCEPTED),
        Reply::Message { body, sent_as } => {
            let mut response = whole(sent_as.status, sent_as.content_type, body);
            if let Some(after) = sent_as.retry_after {
                response.headers_mut().insert(RETRY_AFTER, *after);
            }
            response
        }
        Reply::Events(events) => {
            let content_type = HeaderValue::from_static(media::EVENT_STREAM);
            whole(StatusCode::OK, Some(content_type), text_of(&events))
        }
        Reply::Stream(outlet) => stream(outlet),
    }
}

/// These events as one body.
fn text_of(events: &[Event]) -> Bytes {
    match events {
        [event] => event.encoded(),
        events => {
            let events: Vec<_> = events.iter().map(Event::encoded).collect();
            events.concat().into()
        }
    }
}

/// A live stream as a response.
pub(crate) fn stream(outlet: Outlet) -> Response<ReplyBody> {
    let SentAs {
        status,
        content_type,
        retry_after: _,
    } = outlet.sent_as.clone();
    let is_events = outlet.is_events;
    let body = StreamBody {
        outlet,
        heartbeat: is_events.then(Heartbeat::new),
        cut: None,
    };
    let mut response = Response::new(ReplyBody::Stream(Box::new(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    if let Some(content_type) = content_type {
        headers.insert(CONTENT_TYPE, content_type);
    }
    if is_events {
        hold_nothing_back(headers);
    }
    response
}

/// The stream of a client that gets everything there.
pub(crate) fn messages(body: MessagesBody) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::Messages(Box::new(body)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media::EVENT_STREAM));
    hold_nothing_back(headers);
    response
}

/// Tells what stands between us and the client to pass events on as they come.
fn hold_nothing_back(headers: &mut HeaderMap) {
    let directives = HeaderValue::from_static("no-cache, no-transform");
    headers.insert(CACHE_CONTROL, directives);
    headers.insert(mcp::ACCEL_BUFFERING, HeaderValue::from_static("no"));
}

// === impl Heartbeat ===

impl Heartbeat {
    pub(crate) fn new() -> Self {
        let next = Instant::now() + HEARTBEAT;
        Self {
            timer: Box::pin(tokio::time::sleep_until(next)),
            next,
        }
    }

    /// Something was said.
    pub(crate) fn put_off(&mut self) {
        self.next = Instant::now() + HEARTBEAT;
    }

    /// A comment, when it is time for one.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let due = self.next <= Instant::now();
            if due {
                self.put_off();
            }
            self.timer.as_mut().reset(self.next);
            if due {
                return Poll::Ready(Bytes::from_static(HEARTBEAT_COMMENT));
            }
        }
        Poll::Pending
    }
}

// === impl ReplyBody ===

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = StreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        let body = match &mut *self {
            Self::Whole(bytes) => {
                return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))));
            }
            Self::Stream(body) => body,
            Self::Messages(body) => {
                return body.poll_next(cx).map(|next| Some(Ok(Frame::data(next?))));
            }
        };
        if let Some(cut) = body.cut.take() {
            return Poll::Ready(Some(Err(cut)));
        }
        match (body.outlet.poll_next(cx), &mut body.heartbeat) {
            (Poll::Ready(Some(Err(cut))), _) => {
                // An error ends the connection and what waits to be written with it, so what came
                // before the cut is let out first.
                body.cut = Some(cut);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            (Poll::Ready(next), heartbeat) => {
                if let Some(heartbeat) = heartbeat {
                    heartbeat.put_off();
                }
                Poll::Ready(next.map(|piece| piece.map(|piece| Frame::data(piece.into_bytes()))))
            }
            (Poll::Pending, Some(heartbeat)) => {
                let comment = heartbeat.poll(cx);
                comment.map(|comment| Some(Ok(Frame::data(comment))))
            }
            (Poll::Pending, None) => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Stream(_) | Self::Messages(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests;
