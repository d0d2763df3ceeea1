//! A loopback port that stays reserved while nothing listens on it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

const BACKLOG: u32 = 1024;

/// A reserved port, independent of whether anything listens on it.
#[derive(Debug)]
pub(crate) struct Port {
    address: SocketAddr,
    /// Bound and never listening: connections are refused, and the kernel does not assign the port
    /// again.
    _reserved: TcpSocket,
}

impl Port {
    pub(crate) fn reserve() -> io::Result<Self> {
        let reserved = socket((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self {
            address: reserved.local_addr()?,
            _reserved: reserved,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn listen(&self) -> io::Result<TcpListener> {
        socket(self.address)?.listen(BACKLOG)
    }
}

fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
