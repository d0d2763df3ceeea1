//! Connections to one endpoint, reused while they are certainly open.
//!
//! An idle connection is dropped after [`MAX_IDLE`], or before the time that the server announced
//! in `Keep-Alive`, the one that was used last is used next, and the system is asked before each use,
//! so that a server that closes an idle connection just as a request leaves (which is an unknown
//! outcome) is rare rather than daily.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bowline_wire::http1::{Framing, Head};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Response};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::dial::{Origin, Tls};
use super::wire::Wire;
use super::{EgressError, Request, WireError};

/// Below every common server's own idle limit (Node's is 5 s).
const MAX_IDLE: Duration = Duration::from_secs(4);

/// How long before the announced end an idle connection is no longer trusted.
const MARGIN: Duration = Duration::from_secs(1);

/// Sends requests to one endpoint.
#[derive(Debug, Clone)]
pub struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    origin: Origin,
    tls: Tls,
    /// Oldest first; `None` once no connection is to be kept.
    idle: Mutex<Option<VecDeque<Idle>>>,
}

#[derive(Debug)]
struct Idle {
    wire: Box<Wire>,
    until: Instant,
}

/// An answer's body; when it ends, its connection goes back to the pool.
#[derive(Debug)]
pub struct UpstreamBody {
    framing: Framing,
    peer: Option<IpAddr>,
    checkout: Option<Checkout>,
    /// The connection is kept only if somebody says so.
    is_on_trial: bool,
}

/// A connection in use.
#[derive(Debug)]
struct Checkout {
    wire: Box<Wire>,
    pool: Pool,
    /// How long it may be idle afterwards; `None` if it is to be closed.
    max_idle: Option<Duration>,
}

// === impl Pool ===

impl Pool {
    /// A pool of connections to one origin; none is open yet.
    pub fn new(origin: Origin, tls: Tls) -> Self {
        Self(Arc::new(Inner {
            origin,
            tls,
            idle: Mutex::new(Some(VecDeque::new())),
        }))
    }

    /// Sends one request and waits for the head of its answer.
    ///
    /// A request of which no byte was written, because the server had just closed the idle
    /// connection, is sent on another; nothing else is retried here.
    pub async fn send(
        &self,
        request: &Request,
        connect_timeout: Duration,
    ) -> Result<Response<UpstreamBody>, EgressError> {
        self.send_home(request, connect_timeout, None).await
    }

    /// The same to a server that was reached at this address before: there again, if its name still has the address
    /// and it accepts connections.
    pub async fn send_home(
        &self,
        request: &Request,
        connect_timeout: Duration,
        home: Option<IpAddr>,
    ) -> Result<Response<UpstreamBody>, EgressError> {
        if let Some(answered) = self.send_on_kept_to(request, home).await {
            return answered;
        }
        // Boxed, because it is rare and large.
        Box::pin(self.send_on_new(request, connect_timeout, home, false)).await
    }

    /// The same on a new connection, which is kept only after [`UpstreamBody::keep`].
    pub async fn send_on_trial(
        &self,
        request: &Request,
        connect_timeout: Duration,
    ) -> Result<Response<UpstreamBody>, EgressError> {
        Box::pin(self.send_on_new(request, connect_timeout, None, true)).await
    }

    async fn send_on_new(
        &self,
        request: &Request,
        connect_timeout: Duration,
        home: Option<IpAddr>,
        is_on_trial: bool,
    ) -> Result<Response<UpstreamBody>, EgressError> {
        let Inner { origin, tls, .. } = &*self.0;
        let dialled = origin.dial_home(tls, connect_timeout, home).await?;
        let mut wire = Box::new(Wire::new(dialled));
        match wire.send(request).await {
            Ok(head) => Ok(self.check_out(wire, head, is_on_trial)),
            Err(failed) if failed.was_sent => Err(EgressError::Broken(failed.error)),
            Err(failed) => Err(EgressError::NotSent(failed.error)),
        }
    }

    /// The same on a connection that is open already. `None`: there is none, and nothing was written.
    pub async fn send_on_kept(
        &self,
        request: &Request,
    ) -> Option<Result<Response<UpstreamBody>, EgressError>> {
        self.send_on_kept_to(request, None).await
    }

    async fn send_on_kept_to(
        &self,
        request: &Request,
        home: Option<IpAddr>,
    ) -> Option<Result<Response<UpstreamBody>, EgressError>> {
        while let Some(mut wire) = self.reuse(home) {
            match wire.send(request).await {
                Ok(head) => return Some(Ok(self.check_out(wire, head, false))),
                Err(failed) if failed.was_sent => {
                    return Some(Err(EgressError::Broken(failed.error)));
                }
                Err(_) => {}
            }
        }
        None
    }

    /// Closes connections that were idle for too long.
    pub fn drop_stale(&self) {
        let now = Instant::now();
        if let Some(idle) = &mut *self.0.idle.lock() {
            idle.retain(|idle| idle.until > now);
        }
    }

    /// Closes idle connections, and keeps none from now on.
    pub fn close_idle(&self) {
        drop(self.0.idle.lock().take());
    }

    /// The connection that was used last, if it is still good; to this address, if there is one.
    fn reuse(&self, home: Option<IpAddr>) -> Option<Box<Wire>> {
        let is_at = |idle: &Idle| home.is_none() || idle.wire.peer == home;
        loop {
            let mut idle = {
                let mut all = self.0.idle.lock();
                let all = all.as_mut()?;
                match all.back().is_some_and(is_at) {
                    true => all.pop_back()?,
                    false => all.remove(all.iter().rposition(is_at)?)?,
                }
            };
            if idle.until > Instant::now() && idle.wire.check_idle() {
                return Some(idle.wire);
            }
        }
    }

    fn check_out(&self, wire: Box<Wire>, head: Head, is_on_trial: bool) -> Response<UpstreamBody> {
        let max_idle = head.keeps_alive.then(|| max_idle(&head.headers));
        let mut body = UpstreamBody {
            framing: head.body,
            peer: wire.peer,
            checkout: Some(Checkout {
                wire,
                pool: self.clone(),
                max_idle,
            }),
            is_on_trial,
        };
        if body.framing.has_ended() {
            body.give_back();
        }
        let mut response = Response::new(body);
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        response
    }
}

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// How long a connection may be idle after this answer.
fn max_idle(headers: &HeaderMap) -> Duration {
    let announced = headers
        .get(KEEP_ALIVE)
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
    /// The address that the answer comes from.
    pub fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// Whether only the end of the connection marks the end of the body.
    pub fn ends_with_connection(&self) -> bool {
        self.framing == Framing::UntilClosed
    }

    /// Keeps the connection for another request, if all of the body was read or is yet.
    pub fn keep(&mut self) {
        self.is_on_trial = false;
        if self.framing.has_ended() {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        if self.is_on_trial {
            return;
        }
        let Some(checkout) = self.checkout.take() else {
            return;
        };
        let Some(max_idle) = checkout.max_idle.filter(|rest| !rest.is_zero()) else {
            return;
        };
        if let Some(idle) = &mut *checkout.pool.0.idle.lock() {
            idle.push_back(Idle {
                wire: checkout.wire,
                until: Instant::now() + max_idle,
            });
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = WireError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, WireError>>> {
        let this = &mut *self;
        let Some(checkout) = &mut this.checkout else {
            return Poll::Ready(None);
        };
        let data = ready!(checkout.wire.poll_body(cx, &mut this.framing));
        match &data {
            Some(Err(_)) => this.checkout = None,
            _ if this.framing.has_ended() => this.give_back(),
            _ => {}
        }
        Poll::Ready(data.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.framing.has_ended()
    }

    fn size_hint(&self) -> SizeHint {
        self.framing
            .left()
            .map_or_else(SizeHint::default, SizeHint::with_exact)
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
            max_idle(&HeaderMap::from_iter([(KEEP_ALIVE, value)]))
        };
        assert_eq!(rest("timeout=5"), Duration::from_secs(4));
        assert_eq!(rest("max=100, timeout=2"), Duration::from_secs(1));
        assert_eq!(rest("timeout=1"), Duration::ZERO);
        assert_eq!(rest("timeout=3600"), MAX_IDLE);
        assert_eq!(rest("nonsense"), MAX_IDLE);
        assert_eq!(max_idle(&HeaderMap::new()), MAX_IDLE);
    }
}
