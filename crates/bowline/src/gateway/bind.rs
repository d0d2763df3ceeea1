//! Binding the listeners, before anything else of the gateway starts.

use std::sync::Arc;

use tokio::net::TcpListener;

use super::{StartError, serve};
use crate::config::ListenAddress;
use crate::guard::Guard;
use crate::hub::Hub;
use crate::listener::{SocketDoor, TlsDoor};

/// A listener that is bound, and where: with the port that the system chose.
pub(super) struct Bound {
    pub(super) address: ListenAddress,
    listener: Listener,
}

enum Listener {
    Tcp(TcpListener),
    Unix(SocketDoor),
}

impl Bound {
    /// Binds to an address, which the configuration calls `key`.
    pub(super) async fn bind(
        address: &ListenAddress,
        key: &'static str,
    ) -> Result<Self, StartError> {
        match address {
            ListenAddress::Tcp(address) => {
                let bound = async {
                    let listener = TcpListener::bind(address).await?;
                    let address = listener.local_addr()?.into();
                    let listener = Listener::Tcp(listener);
                    Ok(Self { address, listener })
                };
                bound.await.map_err(|source| StartError::Listen {
                    address: *address,
                    key,
                    source,
                })
            }
            ListenAddress::Unix(path) => match SocketDoor::open(path) {
                Ok(door) => Ok(Self {
                    address: address.clone(),
                    listener: Listener::Unix(door),
                }),
                Err(source) => Err(StartError::Socket {
                    path: path.clone(),
                    key,
                    source,
                }),
            },
        }
    }

    /// Serves clients here, with TLS if the gateway has a certificate.
    pub(super) fn serve_clients(self, hub: &Arc<Hub>) {
        match (self.listener, &hub.listener_tls) {
            (Listener::Tcp(listener), Some(tls)) => {
                let tls = Arc::clone(tls);
                serve::clients(hub, TlsDoor { listener, tls });
            }
            (Listener::Tcp(door), None) => serve::clients(hub, door),
            (Listener::Unix(door), _) => serve::clients(hub, door),
        }
    }

    /// Serves other gateways here.
    pub(super) fn serve_peers(self, hub: &Arc<Hub>) {
        match self.listener {
            Listener::Tcp(door) => serve::peers(hub, door),
            Listener::Unix(door) => serve::peers(hub, door),
        }
    }

    /// Serves the operator here.
    pub(super) fn serve_operator(self, hub: &Arc<Hub>, guard: Guard) {
        match self.listener {
            Listener::Tcp(door) => serve::operator(hub, door, guard),
            Listener::Unix(door) => serve::operator(hub, door, guard),
        }
    }
}
