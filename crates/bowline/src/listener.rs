//! Accepting connections, and serving HTTP/1.1 on each until it closes or the gateway stops.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use crate::drain::Drain;
use crate::front::ReplyBody;
use crate::net;

mod patience;

use patience::Patience;

/// How long a connection may rest between requests, or take to send a request's head. Longer than
/// clients keep idle connections, so that it is they who close them and never a request that
/// meets a closing one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);

/// The most of one request's head, and of one body that is read ahead.
const BUFFER: usize = 64 * 1024;

/// How long accepting pauses when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts until the gateway stops, serving every request with `serve`.
pub(crate) async fn accept<F, R>(listener: TcpListener, drain: Drain, serve: F)
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<ReplyBody>> + Send + 'static,
{
    loop {
        let accepted = tokio::select! {
            () = drain.begun() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let served = connection(stream, drain.clone(), serve.clone());
                drain.connections().spawn(served);
            }
            Err(error) if is_about_the_peer(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection<F, R>(stream: TcpStream, drain: Drain, serve: F)
where
    F: Fn(Request<Incoming>) -> R + Send + Sync,
    R: Future<Output = Response<ReplyBody>> + Send,
{
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "client left at once");
        return;
    }
    net::keep_alive(&stream);
    let (serve, stopping) = (&serve, &drain);
    let service = service_fn(move |request| async move {
        let mut response = serve(request).await;
        if stopping.has_begun() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        Ok::<_, Infallible>(response)
    });
    let patience = Patience::new(HEAD_TIMEOUT);
    let connection = http1::Builder::new()
        .timer(patience.clone())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = patience.is_over() => return,
        () = drain.closed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "client connection ended");
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
