//! A server far away: everything is delayed, including the end of a connection and the refusal of data
//! that arrives after it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// A relay that delays bytes.
#[derive(Debug)]
pub struct Distant {
    address: SocketAddr,
    _relaying: AbortOnDropHandle<()>,
}

/// Input of a connection, and when it arrived.
enum Coming {
    Bytes(Instant, Bytes),
    End(Instant),
    Reset(Instant),
}

impl Distant {
    /// A relay to this address on a free loopback port; each way takes `latency`.
    ///
    /// # Errors
    ///
    /// When there is no port.
    pub async fn start(server: SocketAddr, latency: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let tracker = TaskTracker::new();
        let connections = tracker.clone();
        let relaying = tracker.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(relay(client, server, latency));
            }
        });
        Ok(Self {
            address,
            _relaying: AbortOnDropHandle::new(relaying),
        })
    }

    /// The MCP endpoint behind it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

async fn relay(client: TcpStream, server: SocketAddr, latency: Duration) {
    #[expect(clippy::disallowed_methods, reason = "this is the way to the server")]
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let over = CancellationToken::new();
    tokio::join!(
        pass(from_client, to_server, latency, &over, true),
        pass(from_server, to_client, latency, &over, false),
    );
}

/// Relays one direction. When the client ends the connection, everything ends. When the server does,
/// later data of the client is refused, and the client sees the reset.
async fn pass(
    from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    latency: Duration,
    over: &CancellationToken,
    is_clients: bool,
) {
    let (sender, mut coming) = mpsc::unbounded_channel();
    let writing = async {
        while let Some(next) = coming.recv().await {
            let (Coming::Bytes(at, _) | Coming::End(at) | Coming::Reset(at)) = &next;
            tokio::time::sleep_until(*at + latency).await;
            match next {
                // A refusal is seen on the way back.
                Coming::Bytes(_, bytes) => _ = to.write_all(&bytes).await,
                Coming::End(_) => _ = to.shutdown().await,
                Coming::Reset(_) => {
                    _ = to.as_ref().set_zero_linger();
                    over.cancel();
                }
            }
        }
        if is_clients {
            over.cancel();
        }
    };
    tokio::select! {
        () = over.cancelled() => {}
        ((), ()) = async { tokio::join!(read(from, sender), writing) } => {}
    }
}

async fn read(mut from: OwnedReadHalf, coming: mpsc::UnboundedSender<Coming>) {
    loop {
        let mut bytes = BytesMut::with_capacity(64 * 1024);
        let read = from.read_buf(&mut bytes).await;
        let now = Instant::now();
        let sent = match read {
            Ok(0) => {
                _ = coming.send(Coming::End(now));
                break;
            }
            Ok(_) => coming.send(Coming::Bytes(now, bytes.freeze())),
            Err(_) => coming.send(Coming::Reset(now)),
        };
        if read.is_err() || sent.is_err() {
            return;
        }
    }
    if from.ready(Interest::ERROR).await.is_ok() {
        _ = coming.send(Coming::Reset(Instant::now()));
    }
}
