//! The kinds of listener: a TCP port, and a Unix socket that only the gateway's own user can use. A TCP port with
//! TLS is in [`tls`](super::tls).

use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowline_system::socket;
use bowline_system::socket_file::{SocketFile, SocketFileError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::own_peers::Addresses;
use crate::caller::ClientCertificate;
use crate::net::Peer;

/// After how long the connection of a client breaks that disappeared without closing it.
const SILENT_CLIENT: Duration = Duration::from_secs(60);

/// Where clients connect.
pub(crate) trait Door: Send + Sync + 'static {
    /// A connection as it was accepted.
    type Stream: AsyncRead + AsFd + Send + Unpin + 'static;

    /// A connection on which HTTP is spoken.
    type Open: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// What a client over the limits gets, if it could not read a response in HTTP.
    const REFUSAL: Option<&'static [u8]> = None;

    /// Waits for the next connection.
    fn next(&self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send;

    /// Which peers are the gateway's own user's, where that is not known when they connect.
    fn own_peers(&self) -> impl Future<Output = Addresses> + Send {
        std::future::ready(Addresses::default())
    }

    /// Makes a connection ready to be served, in the connection's own task.
    fn open(
        &self,
        stream: Self::Stream,
    ) -> impl Future<Output = Opened<Self::Open>> + Send + use<Self>;
}

/// A connection that can be served, and the certificate that its client showed; an error where the client has left
/// or does not speak as it must.
pub(crate) type Opened<S> = io::Result<(S, Option<Arc<ClientCertificate>>)>;

/// A Unix socket, whose file is removed with it.
#[derive(Debug)]
pub(crate) struct SocketDoor {
    listener: UnixListener,
    _file: SocketFile,
}

impl Door for TcpListener {
    type Stream = TcpStream;
    type Open = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, Peer)> {
        let (stream, peer) = self.accept().await?;
        Ok((stream, Peer::Address(peer.ip())))
    }

    fn open(&self, stream: TcpStream) -> impl Future<Output = Opened<TcpStream>> + Send + use<> {
        let ready = prepare(&stream).map(|()| (stream, None));
        std::future::ready(ready)
    }
}

/// Sets the options of a connection that is served. It fails where the client has left.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    socket::probe(stream, SILENT_CLIENT);
    Ok(())
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
    type Open = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, Peer)> {
        let (stream, _) = self.listener.accept().await?;
        let user = stream.peer_cred()?.uid();
        Ok((stream, Peer::User(user)))
    }

    fn open(&self, stream: UnixStream) -> impl Future<Output = Opened<UnixStream>> + Send + use<> {
        std::future::ready(Ok((stream, None)))
    }
}
