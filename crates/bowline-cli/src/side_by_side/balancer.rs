//! A load balancer with sticky cookies: the first answer sets a cookie that names the replica, and requests with
//! the cookie go there. Without one they go to each replica in turn, and also if the replica cannot be reached.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, COOKIE, SET_COOKIE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::http::{LONGEST_BODY, send};

/// The name of its cookie.
const NAME: &str = "replica";

/// Where the replicas are, and whose turn it is.
#[derive(Debug)]
struct Balancer {
    replicas: [SocketAddr; 2],
    turn: AtomicUsize,
}

/// Begins to serve on a free port.
pub(super) async fn start(
    replicas: [SocketAddr; 2],
    tracker: &TaskTracker,
    stop: &CancellationToken,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let turn = AtomicUsize::new(0);
    let balancer = Arc::new(Balancer { replicas, turn });
    let serving = accept(listener, balancer, stop.clone(), tracker.clone());
    tracker.spawn(stop.clone().run_until_cancelled_owned(serving));
    Ok(address)
}

async fn accept(
    listener: TcpListener,
    balancer: Arc<Balancer>,
    stop: CancellationToken,
    tracker: TaskTracker,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let serving = connection(stream, Arc::clone(&balancer));
                tracker.spawn(stop.clone().run_until_cancelled_owned(serving));
            }
            Err(error) => tracing::error!(%error, "cannot accept a connection"),
        }
    }
}

async fn connection(stream: TcpStream, balancer: Arc<Balancer>) {
    // Without it, what is shown would be the time that TCP waits for more.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection ended at once");
        return;
    }
    let service = service_fn(|request| {
        let balancer = Arc::clone(&balancer);
        async move { Ok::<_, Infallible>(balancer.serve(request).await) }
    });
    let served = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended");
    }
}

// === impl Balancer ===

impl Balancer {
    async fn serve(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        #[expect(clippy::disallowed_methods, reason = "the body is limited")]
        let Ok(body) = Limited::new(body, LONGEST_BODY).collect().await else {
            return refusal(StatusCode::BAD_REQUEST);
        };
        let body = body.to_bytes();
        let named = named_replica(&head.headers);
        let first = named.unwrap_or_else(|| self.turn.fetch_add(1, Ordering::Relaxed) % 2);
        for replica in [first, 1 - first] {
            let mut request = Request::new(Full::new(body.clone()));
            *request.method_mut() = head.method.clone();
            *request.uri_mut() = head.uri.clone();
            *request.headers_mut() = end_to_end(head.headers.clone());
            match send(self.replicas[replica], request).await {
                Ok(answer) => return pass_on(answer, (named != Some(replica)).then_some(replica)),
                Err(error) => tracing::debug!(%error, replica, "cannot be reached"),
            }
        }
        refusal(StatusCode::SERVICE_UNAVAILABLE)
    }
}

/// The replica that the cookie names.
fn named_replica(headers: &HeaderMap) -> Option<usize> {
    let cookies = headers.get_all(COOKIE).iter();
    let texts = cookies.filter_map(|value| value.to_str().ok());
    let mut pairs = texts
        .flat_map(|text| text.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(name, _)| *name == NAME)?;
    value.parse().ok().filter(|replica| *replica < 2)
}

/// Without what belongs to one connection.
fn end_to_end(mut headers: HeaderMap) -> HeaderMap {
    for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    headers
}

/// The answer, with a cookie if the client has to learn another replica.
fn pass_on(answer: Response<Bytes>, learnt: Option<usize>) -> Response<Full<Bytes>> {
    let (mut head, body) = answer.into_parts();
    head.headers = end_to_end(head.headers);
    let cookie = learnt.map(|replica| format!("{NAME}={replica}; Path=/; HttpOnly"));
    let cookie = cookie.and_then(|text| HeaderValue::try_from(text).ok());
    if let Some(cookie) = cookie {
        head.headers.append(SET_COOKIE, cookie);
    }
    Response::from_parts(head, Full::new(body))
}

fn refusal(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_names_the_replica() {
        let named = |text: &'static str| {
            let value = HeaderValue::from_static(text);
            named_replica(&HeaderMap::from_iter([(COOKIE, value)]))
        };
        assert_eq!(named("replica=1"), Some(1));
        assert_eq!(named("a=b; replica=0"), Some(0));
        for other in ["", "replica=2", "replica=x", "replicas=1"] {
            assert_eq!(named(other), None, "{other}");
        }
    }
}
