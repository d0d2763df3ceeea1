//! Who connects, and hosts, addresses and origins in text: which of them name this machine.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The other side of a client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// Somebody at this address.
    Address(IpAddr),
    /// A process of the user with this number, on this machine.
    User(u32),
    /// A process on this machine whose user is looked up when that matters, see
    /// [`OwnPeers`](crate::listener::OwnPeers).
    Local(SocketAddr),
}

impl Peer {
    /// The address that it comes from, unless that is a Unix socket.
    pub(crate) fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(address),
            Self::Local(address) => Some(address.ip()),
            Self::User(_) => None,
        }
    }

    /// What its connections are counted by. One party usually has a whole IPv6 /64 and can use any address in
    /// it, so the prefix counts.
    pub(crate) fn counted_as(self) -> Self {
        match self {
            Self::Address(address) => Self::Address(match address.to_canonical() {
                IpAddr::V4(address) => address.into(),
                IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            }),
            Self::User(_) | Self::Local(_) => self,
        }
    }
}

/// Whether `host`, `host:port` or `[address]:port` names this machine and nothing else.
pub(crate) fn is_loopback(authority: &str) -> bool {
    host_of(authority).is_some_and(|host| {
        let address = host.parse::<IpAddr>();
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(is_loopback_address)
    })
}

/// The host in `host`, `host:port` or `[address]:port`, if the text is nothing but that.
pub(crate) fn host_of(authority: &str) -> Option<&str> {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = rest.strip_prefix(':').unwrap_or(rest);
    port.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(host)
}

/// Also the loopback addresses of IPv4 as IPv6 writes them.
pub(crate) fn is_loopback_address(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// An origin as browsers write it: without the port that its scheme has anyway.
pub(crate) fn origin(scheme: &str, authority: &str) -> Box<str> {
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let authority = authority.strip_suffix(port).unwrap_or(authority);
    format!("{scheme}://{authority}")
        .to_ascii_lowercase()
        .into()
}
