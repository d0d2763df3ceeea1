//! The plain proxy: each connection becomes one to the other side, and bytes pass both ways. It reads none of
//! them, and keeps nothing.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

/// Serves for as long as the process lives.
pub(super) async fn serve(listener: TcpListener, to: SocketAddr) {
    let tracker = TaskTracker::new();
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                tracker.spawn(pass(client, to));
            }
            Err(error) => tracing::error!(%error, "cannot accept a connection"),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the other side is on this machine, and this process is no gateway"
)]
async fn pass(mut client: TcpStream, to: SocketAddr) {
    let passed = async {
        let mut server = TcpStream::connect(to).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        copy_bidirectional(&mut client, &mut server).await
    };
    if let Err(error) = passed.await {
        tracing::debug!(%error, "a connection ended");
    }
}
