//! Connections to one endpoint, kept while they are surely alive.
//!
//! An idle connection is dropped after [`MAX_IDLE`], or before the time that the server announced
//! in `Keep-Alive`, so that a server that closes an idle connection just as a request leaves (which
//! would look like an unknown outcome) is rare rather than daily.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::EgressError;
use super::dial::{Dialled, Origin, Tls};
use super::wire::Wire;
use crate::body::Outgoing;

/// Below every common server's own idle limit (Node's is 5 s).
const MAX_IDLE: Duration = Duration::from_secs(4);

/// How long before the announced end an idle connection is no longer trusted.
const MARGIN: Duration = Duration::from_secs(1);

/// How long a connection may take to become ready again before another is used.
const MAX_UNREADY: Duration = Duration::from_millis(20);

/// Sends requests to one endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    origin: Origin,
    tls: Tls,
    /// Oldest first; `None` once no connection is to be kept.
    idle: Mutex<Option<VecDeque<Idle>>>,
}

#[derive(Debug)]
struct Idle {
    wire: Wire,
    until: Instant,
}

/// An answer's body; when it ends, its connection goes back to the pool.
#[derive(Debug)]
pub(crate) struct UpstreamBody {
    incoming: Incoming,
    lease: Option<Lease>,
}

/// A connection in use.
#[derive(Debug)]
struct Lease {
    wire: Wire,
    pool: Pool,
    max_idle: Duration,
}

// === impl Pool ===

impl Pool {
    pub(crate) fn new(origin: Origin, tls: Tls) -> Self {
        Self(Arc::new(Inner {
            origin,
            tls,
            idle: Mutex::new(Some(VecDeque::new())),
        }))
    }

    /// Sends one request and waits for the head of its answer.
    ///
    /// A request that provably was not written to an idle connection that had just closed is
    /// written to another; nothing else is tried twice here.
    pub(crate) async fn send(
        &self,
        mut request: Request<Outgoing>,
        connect_timeout: Duration,
    ) -> Result<Response<UpstreamBody>, EgressError> {
        while let Some(mut wire) = self.reuse().await {
            match wire.send(request).await {
                Ok(response) => return Ok(self.lease(wire, response)),
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(EgressError::Broken(failed.into_error())),
                },
            }
        }
        let mut wire = self.connect(connect_timeout).await?;
        match wire.send(request).await {
            Ok(response) => Ok(self.lease(wire, response)),
            Err(failed) if failed.message().is_some() => {
                Err(EgressError::NotSent(failed.into_error()))
            }
            Err(failed) => Err(EgressError::Broken(failed.into_error())),
        }
    }

    /// Closes connections that were idle for too long.
    pub(crate) fn drop_stale(&self) {
        let now = Instant::now();
        if let Some(idle) = &mut *self.0.idle.lock() {
            idle.retain(|idle| idle.until > now);
        }
    }

    /// Closes idle connections, and keeps none from now on.
    pub(crate) fn close_idle(&self) {
        drop(self.0.idle.lock().take());
    }

    /// The connection that was used last, if it is still good.
    async fn reuse(&self) -> Option<Wire> {
        loop {
            let mut idle = self.0.idle.lock().as_mut()?.pop_back()?;
            if idle.until <= Instant::now() {
                continue;
            }
            // Ready at once, unless the server answered before it had read the whole request.
            let ready = tokio::time::timeout(MAX_UNREADY, idle.wire.is_ready()).await;
            if ready == Ok(true) {
                return Some(idle.wire);
            }
        }
    }

    async fn connect(&self, limit: Duration) -> Result<Wire, EgressError> {
        let inner = &self.0;
        let wire = match inner.origin.dial(&inner.tls, limit).await? {
            Dialled::Plain(stream) => Wire::new(TokioIo::new(stream)).await,
            Dialled::Tls(stream) => Wire::new(TokioIo::new(stream)).await,
        };
        wire.map_err(EgressError::NotSent)
    }

    fn lease(&self, wire: Wire, response: Response<Incoming>) -> Response<UpstreamBody> {
        let max_idle = max_idle(response.headers());
        response.map(|incoming| {
            let mut body = UpstreamBody {
                lease: Some(Lease {
                    wire,
                    pool: self.clone(),
                    max_idle,
                }),
                incoming,
            };
            if body.incoming.is_end_stream() {
                body.give_back();
            }
            body
        })
    }
}

/// How long a connection may rest after this answer.
fn max_idle(headers: &HeaderMap) -> Duration {
    let announced = headers
        .get("keep-alive")
        .and_then(|value| value.to_str().ok())
        .and_then(|text| {
            text.split(',')
                .find_map(|part| part.trim().strip_prefix("timeout="))
        })
        .and_then(|seconds| seconds.trim().parse().ok());
    match announced {
        Some(seconds) => MAX_IDLE.min(Duration::from_secs(seconds).saturating_sub(MARGIN)),
        None => MAX_IDLE,
    }
}

// === impl UpstreamBody ===

impl UpstreamBody {
    fn give_back(&mut self) {
        let Some(lease) = self.lease.take() else {
            return;
        };
        if lease.max_idle.is_zero() || lease.wire.is_closed() {
            return;
        }
        if let Some(idle) = &mut *lease.pool.0.idle.lock() {
            idle.push_back(Idle {
                wire: lease.wire,
                until: Instant::now() + lease.max_idle,
            });
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let mut frame = Pin::new(&mut this.incoming).poll_frame(cx);
        if let (Poll::Pending, Some(lease)) = (&frame, &mut this.lease) {
            lease.wire.poll(cx);
            frame = Pin::new(&mut this.incoming).poll_frame(cx);
        }
        let frame = ready!(frame);
        if frame.is_none() || self.incoming.is_end_stream() {
            self.give_back();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_servers_own_keep_alive_shortens_the_rest() {
        let rest = |text| {
            let value = HeaderValue::from_static(text);
            max_idle(&HeaderMap::from_iter([(
                http::HeaderName::from_static("keep-alive"),
                value,
            )]))
        };
        assert_eq!(rest("timeout=5"), Duration::from_secs(4));
        assert_eq!(rest("max=100, timeout=2"), Duration::from_secs(1));
        assert_eq!(rest("timeout=1"), Duration::ZERO);
        assert_eq!(rest("timeout=3600"), MAX_IDLE);
        assert_eq!(rest("nonsense"), MAX_IDLE);
        assert_eq!(max_idle(&HeaderMap::new()), MAX_IDLE);
    }
}
