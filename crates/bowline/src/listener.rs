//! Accepting connections, and serving HTTP/1.1 on each until it closes or the gateway stops.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use crate::descriptors;
use crate::drain::Drain;
use crate::front::ReplyBody;
use crate::net;

mod crowd;
mod guests;
mod patience;
mod refusal;

use crowd::counted_as;
pub(crate) use crowd::{Crowd, Crowded, Visit};
use guests::Guests;
use patience::{Patience, REST};
pub(crate) use refusal::AT_ONCE as REFUSED_AT_ONCE;
use refusal::Refusals;

/// The most of one request's head, and of one body that is read ahead.
const BUFFER: usize = 64 * 1024;

/// How long accepting pauses when it fails, first and at most.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Accepts until the gateway stops, serving every request with `serve`. What is not let in is told to
/// `refused`.
pub(crate) async fn accept<F, R>(
    listener: TcpListener,
    drain: Drain,
    crowd: Arc<Crowd>,
    refused: impl Fn(Crowded) + Send + 'static,
    serve: F,
) where
    F: Fn(Request<Incoming>, &Arc<Visit>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<ReplyBody>> + Send + 'static,
{
    let mut refusals = Refusals::default();
    let mut operators = crowd.is_operators.then(|| Guests::new(crowd.limit));
    let mut pause = ACCEPT_PAUSE;
    loop {
        let accepted = tokio::select! {
            () = drain.begun() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_about_the_peer(&error) => continue,
            Err(error) => {
                if pause == ACCEPT_PAUSE {
                    tracing::warn!(%error, "cannot accept connections");
                }
                tokio::time::sleep(pause).await;
                pause = LONGEST_PAUSE.min(pause * 2);
                continue;
            }
        };
        pause = ACCEPT_PAUSE;
        if let Some(operators) = &mut operators {
            operators.make_room().await;
        }
        let is_out = !crowd.is_operators && descriptors::is_of_reserve(&stream);
        let entered = match is_out {
            true => Err(Crowded::Everywhere),
            false => crowd.enter(peer.ip()),
        };
        match entered {
            Ok(visit) => {
                let address = visit.address;
                let served = connection(stream, visit, drain.clone(), serve.clone());
                let served = drain.connections().spawn(served);
                if let Some(operators) = &mut operators {
                    operators.let_in(address, served);
                }
            }
            Err(why) => {
                refused(why);
                match is_out {
                    true => refusal::tell_in_passing(&stream, why),
                    false => {
                        let from = counted_as(peer.ip());
                        refusals
                            .tell((stream, from), why, drain.connections())
                            .await;
                    }
                }
            }
        }
    }
}

async fn connection<F, R>(stream: TcpStream, visit: Arc<Visit>, drain: Drain, serve: F)
where
    F: Fn(Request<Incoming>, &Arc<Visit>) -> R + Send + Sync,
    R: Future<Output = Response<ReplyBody>> + Send,
{
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "client left at once");
        return;
    }
    net::keep_alive(&stream);
    let patience = Patience::new(Arc::clone(&visit));
    let (serve, stopping, visit) = (&serve, &drain, &visit);
    let service = service_fn(move |request| async move {
        let mut response = serve(request, visit).await;
        if stopping.has_begun() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        Ok::<_, Infallible>(response)
    });
    let connection = http1::Builder::new()
        .timer(patience.clone())
        .header_read_timeout(REST)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(patience.with(stream)), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        // In this order: what comes over the connection decides how long it is waited for.
        biased;
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
