//! A cable between two programs that can be cut: what is on its way stays there, and nothing breaks.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// A relay of TCP.
pub(crate) struct Cable {
    pub(crate) address: SocketAddr,
    is_cut: watch::Sender<bool>,
    _relaying: AbortOnDropHandle<()>,
}

impl Cable {
    /// A cable to this address.
    pub(crate) async fn to(there: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (is_cut, cut) = watch::channel(false);
        let relaying = async move {
            let mut connections = JoinSet::new();
            while let Ok((here, _)) = listener.accept().await {
                connections.spawn(relay(here, there, cut.clone()));
            }
        };
        #[expect(clippy::disallowed_methods, reason = "it ends with the cable")]
        let relaying = AbortOnDropHandle::new(tokio::spawn(relaying));
        Self {
            address,
            is_cut,
            _relaying: relaying,
        }
    }

    /// Nothing passes from now on.
    pub(crate) fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    /// New connections pass again; those from before are broken.
    pub(crate) fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

async fn relay(mut here: TcpStream, there: SocketAddr, mut cut: watch::Receiver<bool>) {
    let mut ends = cut.clone();
    let carried = async {
        #[expect(clippy::disallowed_methods, reason = "it carries bytes of others")]
        let Ok(mut there) = TcpStream::connect(there).await else {
            return;
        };
        drop(tokio::io::copy_bidirectional(&mut here, &mut there).await);
    };
    tokio::select! {
        biased;
        () = until(&mut cut, true) => until(&mut ends, false).await,
        () = carried => {}
    }
}

async fn until(cut: &mut watch::Receiver<bool>, is_so: bool) {
    drop(cut.wait_for(|is_cut| *is_cut == is_so).await);
}
