//! Accepting connections, and serving HTTP/1.1 on each until it closes or the gateway stops.
//!
//! The accept loop waits for no client: what a connection needs before HTTP is spoken on it, such as a TLS
//! handshake, is done in its own task, within the limits on connections of strangers.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bowline_system::descriptors::is_of_reserve;
use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use crate::drain::Drain;
use crate::net::Peer;

pub(crate) mod bodies;
mod connections;
mod doors;
mod evicting;
mod head_timeout;
mod own_peers;
mod refusal;
mod tls;

pub(crate) use connections::{Connection, ConnectionLimits, ConnectionRefusal};
pub(crate) use doors::{Door, Opened, SocketDoor};
use evicting::EvictingTasks;
use head_timeout::{HeadTimeout, IDLE_TIMEOUT};
pub(crate) use own_peers::{Addresses, OwnPeers};
use refusal::Refusals;
pub(crate) use tls::{ListenerTls, TlsDoor};

/// The maximum size of a request's head, and of the part of a body that is read ahead.
const BUFFER: usize = 64 * 1024;

/// How long accepting pauses after an error: at first, and at most.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Accepts until the gateway stops, and serves every request with `serve`. A connection over the limits gets
/// the response that `refuse` returns.
pub(crate) async fn accept<D, F, R, B>(
    door: D,
    drain: Drain,
    limits: Arc<ConnectionLimits>,
    refuse: impl Fn(ConnectionRefusal) -> String + Send + 'static,
    serve: F,
) where
    D: Door,
    F: Fn(Request<Incoming>, &Arc<Connection>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    let mut refusals = Refusals::default();
    let mut operators = limits
        .is_operators
        .then(|| EvictingTasks::new(limits.limit));
    while let Some((stream, peer)) = next_stream(&door, &drain).await {
        if let Some(operators) = &mut operators {
            operators.make_room(|| door.own_peers()).await;
        }
        let is_of_reserve = !limits.is_operators && is_of_reserve(&stream);
        let admitted = match is_of_reserve {
            true => Err(ConnectionRefusal::Gateway),
            false => limits.admit(peer),
        };
        match admitted {
            Ok(connection) => {
                let (drain, serve) = (drain.clone(), serve.clone());
                let tracker = drain.connections().clone();
                let opening = door.open(stream);
                let task = tracker.spawn(serve_connection::<D, _, _, _>(
                    opening, connection, drain, serve,
                ));
                if let Some(operators) = &mut operators {
                    operators.add(peer, task);
                }
            }
            Err(why) => {
                let response = refuse(why);
                let response = D::REFUSAL.unwrap_or(response.as_bytes());
                match is_of_reserve {
                    true => refusal::answer_at_once(&stream, response),
                    false => {
                        let tracker = drain.connections();
                        refusals.answer(stream, peer, response, tracker).await;
                    }
                }
            }
        }
    }
}

/// The next connection; `None` when the gateway stops.
async fn next_stream<D: Door>(door: &D, drain: &Drain) -> Option<(D::Stream, Peer)> {
    let mut pause = ACCEPT_PAUSE;
    loop {
        let accepted = tokio::select! {
            () = drain.begun() => return None,
            accepted = door.next() => accepted,
        };
        match accepted {
            Ok(accepted) => return Some(accepted),
            Err(error) if is_about_the_peer(&error) => {}
            Err(error) => {
                if pause == ACCEPT_PAUSE {
                    tracing::warn!(%error, "cannot accept connections");
                }
                tokio::time::sleep(pause).await;
                pause = LONGEST_PAUSE.min(pause * 2);
            }
        }
    }
}

async fn serve_connection<D, F, R, B>(
    opening: impl Future<Output = Opened<D::Open>> + Send,
    connection: Arc<Connection>,
    drain: Drain,
    serve: F,
) where
    D: Door,
    F: Fn(Request<Incoming>, &Arc<Connection>) -> R + Send + Sync,
    R: Future<Output = Response<B>> + Send,
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    let opened = tokio::select! {
        biased;
        opened = opening => opened,
        () = connection.evicted() => return,
        () = drain.closed() => return,
    };
    let (stream, certificate) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            tracing::debug!(%error, "client connection was not opened");
            return;
        }
    };
    let timeout = HeadTimeout::new(Arc::clone(&connection));
    let (serve, stopping, connection, certificate) = (&serve, &drain, &connection, &certificate);
    let service = service_fn(move |mut request: Request<Incoming>| async move {
        connection.is_busy(true);
        if let Some(certificate) = certificate {
            request.extensions_mut().insert(Arc::clone(certificate));
        }
        let mut response = serve(request, connection).await;
        connection.is_busy(false);
        if stopping.has_begun() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        Ok::<_, Infallible>(response)
    });
    let serving = http1::Builder::new()
        .timer(timeout.clone())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(timeout.with(stream)), service);
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        // In this order, because what arrives on the connection decides how long the timeout is.
        biased;
        ended = serving.as_mut() => ended,
        () = timeout.elapsed() => return,
        () = connection.evicted() => return,
        () = drain.closed() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "client connection failed");
    }
}

/// Errors that concern one client, not this process.
fn is_about_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::NotConnected
    )
}
