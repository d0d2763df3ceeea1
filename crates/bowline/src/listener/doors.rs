//! The two kinds of listener: a TCP port, and a Unix socket that only the gateway's own user can use.

use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use bowline_system::socket;
use bowline_system::socket_file::{SocketFile, SocketFileError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::own_peers::Addresses;
use crate::net::Peer;

/// After how long the connection of a client breaks that disappeared without closing it.
const SILENT_CLIENT: Duration = Duration::from_secs(60);

/// Where clients connect.
pub(crate) trait Door: Send + Sync + 'static {
    /// One connection.
    type Stream: AsyncRead + AsyncWrite + AsFd + Send + Unpin + 'static;

    /// Waits for the next connection.
    fn next(&self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send;

    /// Which peers are the gateway's own user's, where that is not known when they connect.
    fn own_peers(&self) -> impl Future<Output = Addresses> + Send {
        std::future::ready(Addresses::default())
    }

    /// Sets the options of a connection that is served. It fails where the client has left.
    fn prepare(stream: &Self::Stream) -> io::Result<()>;
}

/// A Unix socket, whose file is removed with it.
#[derive(Debug)]
pub(crate) struct SocketDoor {
    listener: UnixListener,
    _file: SocketFile,
}

impl Door for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, Peer)> {
        let (stream, peer) = self.accept().await?;
        Ok((stream, Peer::Address(peer.ip())))
    }

    fn prepare(stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        socket::probe(stream, SILENT_CLIENT);
        Ok(())
    }
}

// === impl SocketDoor ===

impl SocketDoor {
    /// Listens at a path.
    pub(crate) fn open(path: &Path) -> Result<Self, SocketFileError> {
        let (listener, file) = SocketFile::listen(path)?;
        Ok(Self {
            listener: UnixListener::from_std(listener)?,
            _file: file,
        })
    }
}

impl Door for SocketDoor {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, Peer)> {
        let (stream, _) = self.listener.accept().await?;
        let user = stream.peer_cred()?.uid();
        Ok((stream, Peer::User(user)))
    }

    fn prepare(_: &UnixStream) -> io::Result<()> {
        Ok(())
    }
}
