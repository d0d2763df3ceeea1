//! One HTTP request on a connection of its own, for the clients and the load balancers.

use std::net::SocketAddr;

use anyhow::anyhow;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The longest body that is read.
pub(super) const LONGEST_BODY: usize = 1024 * 1024;

/// Sends a request, and reads the answer whole.
#[expect(
    clippy::disallowed_methods,
    reason = "the other side is on this machine, this process is no gateway, and the body is limited"
)]
pub(super) async fn send(
    to: SocketAddr,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<Response<Bytes>> {
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answered = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, LONGEST_BODY).collect().await;
        let body = body.map_err(|error| anyhow!(error))?.to_bytes();
        Ok(Response::from_parts(head, body))
    };
    tokio::pin!(answered, connection);
    tokio::select! {
        answered = &mut answered => answered,
        ended = &mut connection => {
            ended?;
            answered.await
        }
    }
}
