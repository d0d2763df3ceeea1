//! Accepting connections, and serving HTTP/1.1 on each until it closes or the gateway stops.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bowline_system::descriptors::is_of_reserve;
use bowline_system::socket;
use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use crate::drain::Drain;

pub(crate) mod bodies;
mod connections;
mod evicting;
mod head_timeout;
mod refusal;

use connections::counted_as;
pub(crate) use connections::{Connection, ConnectionLimits, ConnectionRefusal};
use evicting::EvictingTasks;
use head_timeout::{HeadTimeout, IDLE_TIMEOUT};
use refusal::Refusals;

/// The most of one request's head, and of one body that is read ahead.
const BUFFER: usize = 64 * 1024;

/// How long accepting pauses when it fails, first and at most.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Accepts until the gateway stops, and serves every request with `serve`. A connection over the limits gets
/// the response that `refuse` returns.
pub(crate) async fn accept<F, R, B>(
    listener: TcpListener,
    drain: Drain,
    limits: Arc<ConnectionLimits>,
    refuse: impl Fn(ConnectionRefusal) -> String + Send + 'static,
    serve: F,
) where
    F: Fn(Request<Incoming>, &Arc<Connection>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    let mut refusals = Refusals::default();
    let mut operators = limits
        .is_operators
        .then(|| EvictingTasks::new(limits.limit));
    while let Some((stream, peer)) = next_stream(&listener, &drain).await {
        if let Some(operators) = &mut operators {
            operators.make_room().await;
        }
        let is_of_reserve = !limits.is_operators && is_of_reserve(&stream);
        let admitted = match is_of_reserve {
            true => Err(ConnectionRefusal::Gateway),
            false => limits.admit(peer.ip()),
        };
        match admitted {
            Ok(connection) => {
                let address = connection.address;
                let serving = serve_connection(stream, connection, drain.clone(), serve.clone());
                let task = drain.connections().spawn(serving);
                if let Some(operators) = &mut operators {
                    operators.add(address, task);
                }
            }
            Err(why) if is_of_reserve => refusal::answer_at_once(&stream, &refuse(why)),
            Err(why) => {
                let (response, address) = (refuse(why), counted_as(peer.ip()));
                let tracker = drain.connections();
                refusals.answer(stream, address, &response, tracker).await;
            }
        }
    }
}

/// The next connection; `None` when the gateway stops.
async fn next_stream(listener: &TcpListener, drain: &Drain) -> Option<(TcpStream, SocketAddr)> {
    let mut pause = ACCEPT_PAUSE;
    loop {
        let accepted = tokio::select! {
            () = drain.begun() => return None,
            accepted = listener.accept() => accepted,
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

async fn serve_connection<F, R, B>(
    stream: TcpStream,
    connection: Arc<Connection>,
    drain: Drain,
    serve: F,
) where
    F: Fn(Request<Incoming>, &Arc<Connection>) -> R + Send + Sync,
    R: Future<Output = Response<B>> + Send,
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "the client left at once");
        return;
    }
    socket::keep_alive(&stream);
    let timeout = HeadTimeout::new(Arc::clone(&connection));
    let (serve, stopping, connection) = (&serve, &drain, &connection);
    let service = service_fn(move |request| async move {
        let mut response = serve(request, connection).await;
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
        // In this order: what comes over the connection decides how long the timeout is.
        biased;
        ended = serving.as_mut() => ended,
        () = timeout.elapsed() => return,
        () = drain.closed() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a client connection failed");
    }
}

/// Errors that say something about one client, not about this process.
fn is_about_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}
