//! Replies as HTTP responses: whole bodies, and streams with a heartbeat.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_wire::{header as mcp, media};
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::joined::Joined;
use crate::detach::Abandoned;
use crate::fault::Fault;
use crate::leg::StreamError;
use crate::session::{InUse, LiveStream, Session};
use crate::share::Place;

/// How long a stream of events stays silent before a comment shows that it lives. Common
/// balancers cut connections that are silent for 30 s or more.
const HEARTBEAT: Duration = Duration::from_secs(15);
const HEARTBEAT_COMMENT: &[u8] = b": keep-alive\n\n";

/// The body of a response to a client.
#[derive(Debug)]
pub(crate) enum ReplyBody {
    Whole(Option<Bytes>),
    Stream(Box<StreamBody>),
    Joined(Box<Joined>),
}

/// A live stream as a body. Dropping it is the client's disconnect.
#[derive(Debug)]
pub(crate) struct StreamBody {
    stream: Arc<LiveStream>,
    in_use: InUse,
    abandoned: Abandoned,
    heartbeat: Option<Heartbeat>,
    /// How the stream broke off, until it is told.
    cut: Option<StreamError>,
    /// The place among the streams that this one takes, also while it is read out.
    permit: Option<Place>,
}

/// A stream whose client left, until it ends or gives way: then nothing of it is left.
struct ReadOut {
    stream: Arc<LiveStream>,
    in_use: InUse,
    _place: Option<Place>,
}

#[derive(Debug)]
pub(super) struct Heartbeat {
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

/// A fault as a response, echoing the id of the request (JSON text) if there is one.
pub(crate) fn refuse(fault: &Fault, id: Option<&str>) -> Response<ReplyBody> {
    let telling = fault.telling();
    let declined = fault.declined();
    let body = match declined.and_then(|declined| declined.body.clone()) {
        Some(said) => said,
        None => fault.body(id).into(),
    };
    let mut response = json(telling.status_for(id), body);
    let headers = response.headers_mut();
    if let Some(after) = declined.and_then(|declined| declined.retry_after.clone()) {
        headers.insert(RETRY_AFTER, after);
    }
    if let Some(seconds) = telling.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    match fault {
        Fault::Method { allow } => {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        Fault::Unauthorized | Fault::ApiToken => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        _ => {}
    }
    response
}

/// A response without a body.
pub(crate) fn empty(status: StatusCode) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::Whole(None));
    *response.status_mut() = status;
    response
}

/// A live stream as a response.
pub(crate) fn stream(
    status: StatusCode,
    content_type: Option<HeaderValue>,
    body: StreamBody,
) -> Response<ReplyBody> {
    let is_events = body.heartbeat.is_some();
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

/// Several answers as one stream.
pub(super) fn joined(body: Joined) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::Joined(Box::new(body)));
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

// === impl StreamBody ===

impl StreamBody {
    pub(crate) fn new(
        stream: Arc<LiveStream>,
        in_use: InUse,
        abandoned: Abandoned,
        permit: Option<Place>,
    ) -> Self {
        Self {
            stream,
            in_use,
            abandoned,
            heartbeat: None,
            cut: None,
            permit,
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.in_use.session()
    }

    /// Shows signs of life between events.
    pub(crate) fn with_heartbeat(mut self) -> Self {
        self.heartbeat = Some(Heartbeat::new());
        self
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        let session = Arc::clone(self.in_use.session());
        let stream = Arc::clone(&self.stream);
        stream.leave();
        if stream.must_be_read_out() {
            let reading = ReadOut {
                stream,
                in_use: session.begin_use(),
                _place: self.permit.take(),
            };
            self.abandoned.see_out(reading.finish());
        } else {
            stream.end();
            session.detach(&stream);
        }
    }
}

// === impl ReadOut ===

impl ReadOut {
    async fn finish(self) {
        let next = || std::future::poll_fn(|cx| self.stream.poll_next(cx));
        while let Some(Ok(_)) = next().await {}
    }
}

impl Drop for ReadOut {
    fn drop(&mut self) {
        self.stream.end();
        self.in_use.session().detach(&self.stream);
    }
}

// === impl Heartbeat ===

impl Heartbeat {
    pub(super) fn new() -> Self {
        let next = Instant::now() + HEARTBEAT;
        Self {
            timer: Box::pin(tokio::time::sleep_until(next)),
            next,
        }
    }

    /// Something was said.
    pub(super) fn put_off(&mut self) {
        self.next = Instant::now() + HEARTBEAT;
    }

    /// A comment, when it is time for one.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
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
            Self::Joined(body) => {
                return body.poll_next(cx).map(|next| Some(Ok(Frame::data(next?))));
            }
        };
        if let Some(cut) = body.cut.take() {
            return Poll::Ready(Some(Err(cut)));
        }
        match (body.stream.poll_next(cx), &mut body.heartbeat) {
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
                Poll::Ready(next.map(|bytes| bytes.map(Frame::data)))
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
            Self::Stream(_) | Self::Joined(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests;
