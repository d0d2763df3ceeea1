//! A cable between two programs that speak whatever they like: it can be cut, or carry nothing for a while.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::faulty::Port;

const PIECE: usize = 16 * 1024;

/// What a cable does with what it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It arrives.
    Open,
    /// It is held until the way is open again: connections stay, and nobody is told anything.
    Silent,
    /// Connections are reset, also new ones.
    Cut,
}

/// A cable. Dropping it cuts it.
#[derive(Debug)]
pub struct Cable {
    port: Port,
    way: Arc<watch::Sender<Way>>,
    _accepting: AbortOnDropHandle<()>,
}

impl Cable {
    /// A cable to this address, on a free loopback port.
    ///
    /// # Errors
    ///
    /// When there is no port.
    pub async fn start(to: SocketAddr) -> io::Result<Self> {
        let port = Port::reserve()?;
        let way = Arc::new(watch::Sender::new(Way::Open));
        let (listener, tasks) = (port.listen()?, TaskTracker::new());
        let (connections, ways) = (tasks.clone(), Arc::clone(&way));
        let accepting = tasks.spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                connections.spawn(connection(near, to, ways.subscribe()));
            }
        });
        Ok(Self {
            port,
            way,
            _accepting: AbortOnDropHandle::new(accepting),
        })
    }

    /// Where it begins.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Opens it, or not.
    pub fn set(&self, way: Way) {
        self.way.send_replace(way);
    }
}

/// An address that nothing listens at now.
///
/// # Errors
///
/// When there is no port.
pub fn free_address() -> io::Result<SocketAddr> {
    Ok(Port::reserve()?.address())
}

async fn connection(near: TcpStream, to: SocketAddr, mut way: watch::Receiver<Way>) {
    let mut cut = way.clone();
    let carrying = carry(near, to, &mut way);
    tokio::select! {
        // Either side may break it.
        _ = carrying => {}
        _ = cut.wait_for(|way| *way == Way::Cut) => {}
    }
}

async fn carry(near: TcpStream, to: SocketAddr, way: &mut watch::Receiver<Way>) -> io::Result<()> {
    near.set_nodelay(true)?;
    // Whoever drops it in the middle resets it.
    near.set_zero_linger()?;
    open(way).await?;
    #[expect(clippy::disallowed_methods, reason = "this is not the gateway")]
    let far = TcpStream::connect(to).await?;
    far.set_nodelay(true)?;
    far.set_zero_linger()?;
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    let mut back = way.clone();
    tokio::try_join!(
        pump(near_in, far_out, way),
        pump(far_in, near_out, &mut back)
    )?;
    Ok(())
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    way: &mut watch::Receiver<Way>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let read = from.read(&mut piece).await?;
        open(way).await?;
        match read {
            0 => return to.shutdown().await,
            _ => to.write_all(&piece[..read]).await?,
        }
    }
}

async fn open(way: &mut watch::Receiver<Way>) -> io::Result<()> {
    let opened = way.wait_for(|way| *way == Way::Open).await;
    opened
        .map(drop)
        .map_err(|_| io::ErrorKind::BrokenPipe.into())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A connection through a cable: its two ends.
    async fn connected(cable: &Cable, listener: &TcpListener) -> (TcpStream, TcpStream) {
        #[expect(clippy::disallowed_methods, reason = "this is not the gateway")]
        let near = TcpStream::connect(cable.address());
        let (near, far) = tokio::join!(near, listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    #[tokio::test]
    async fn a_silent_cable_holds_everything_and_a_cut_one_resets() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cable = Cable::start(listener.local_addr().unwrap()).await.unwrap();
        let (mut near, mut far) = connected(&cable, &listener).await;
        cable.set(Way::Silent);
        near.write_all(b"late").await.unwrap();
        let mut text = [0; 4];
        let early = std::time::Duration::from_millis(50);
        let read = tokio::time::timeout(early, far.read_exact(&mut text)).await;
        assert!(read.is_err(), "it is held");
        cable.set(Way::Open);
        far.read_exact(&mut text).await.unwrap();
        assert_eq!(&text, b"late");
        cable.set(Way::Cut);
        assert!(near.read_exact(&mut text).await.is_err());
        assert!(far.read_exact(&mut text).await.is_err());
        cable.set(Way::Open);
        let (mut near, mut far) = connected(&cable, &listener).await;
        near.write_all(b"anew").await.unwrap();
        far.read_exact(&mut text).await.unwrap();
        assert_eq!(&text, b"anew");
    }
}
