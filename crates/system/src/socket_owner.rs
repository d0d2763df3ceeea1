//! Whose process is at the other end of a connection on this machine.
//!
//! Every local user can connect to a port of the loopback interface. Linux lists all TCP sockets together with
//! the user that each belongs to. Other systems have no such list, so there the answer is always "unknown".

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Whether this system says whose a socket is.
pub const IS_KNOWN: bool = cfg!(target_os = "linux");

/// The lists; an IPv6 socket can have an IPv4 connection.
const LISTS: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// The state of a socket that neither side has closed. Later states do not count: a socket without a process
/// is listed as root's.
const ESTABLISHED: &str = "01";

/// The user of this process.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The addresses of this user's sockets that are connected to `here`. Others' are not among them, nor those that are not
/// known, nor those whose side has begun to close the connection. It takes as long as the system's list is.
pub fn own_peers(here: SocketAddr) -> HashSet<SocketAddr> {
    let own = user();
    let sockets = connected_to(here).into_iter();
    let sockets = sockets.filter(|socket| socket.user == own);
    sockets.map(|socket| socket.local).collect()
}

fn connected_to(here: SocketAddr) -> Vec<Socket> {
    let port = format!(":{:04X}", here.port());
    let mut found = Vec::new();
    for list in LISTS {
        let list = fs::read_to_string(list).unwrap_or_default();
        let sockets = list.lines().filter_map(|line| Socket::parse(line, &port));
        found.extend(sockets.filter(|socket| socket.remote == here));
    }
    found
}

/// One line of the list.
struct Socket {
    local: SocketAddr,
    remote: SocketAddr,
    user: u32,
}

impl Socket {
    /// `None`: the heading, or a socket that is not connected to this port.
    fn parse(line: &str, port: &str) -> Option<Self> {
        let mut columns = line.split_ascii_whitespace().skip(1);
        let (local, remote) = (columns.next()?, columns.next()?);
        // Most lines end here, before anything costs much.
        if !remote.ends_with(port) || columns.next()? != ESTABLISHED {
            return None;
        }
        let (local, remote) = (address(local)?, address(remote)?);
        // Between the state and the user: two queues, timers, retries.
        let user = columns.nth(3)?.parse().ok()?;
        Some(Self {
            local,
            remote,
            user,
        })
    }
}

/// `0100007F:1F90`: words of 32 bits as this machine reads them, and a port.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let mut bytes = Vec::with_capacity(16);
    if address.len() % 8 != 0 {
        return None;
    }
    for word in address.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let address = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).map(Ipv4Addr::from).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).map(Ipv6Addr::from).ok()?),
        _ => return None,
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(SocketAddr::new(address.to_canonical(), port))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::unix::fs::fchown;

    use super::*;

    fn connected() -> (TcpListener, TcpStream, SocketAddr, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let stream = TcpStream::connect(here).unwrap();
        let peer = stream.local_addr().unwrap();
        (listener, stream, peer, here)
    }

    #[test]
    fn a_connection_of_this_process_is_its_users() {
        let (_listener, _stream, peer, here) = connected();
        assert_eq!(own_peers(here), HashSet::from([peer]));
        let other = SocketAddr::new(here.ip(), 1);
        assert_eq!(own_peers(other), HashSet::new());
        let other = SocketAddr::from(([127, 0, 0, 2], here.port()));
        assert_eq!(own_peers(other), HashSet::new());
    }

    #[test]
    fn one_that_is_half_closed_is_nobodys() {
        let (_listener, stream, peer, here) = connected();
        stream.shutdown(Shutdown::Write).unwrap();
        assert!(!own_peers(here).contains(&peer));
        drop(stream);
        assert!(!own_peers(here).contains(&peer));
    }

    #[test]
    fn one_of_another_user_is_not() {
        // Only root can give a socket away.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (_listener, stream, peer, here) = connected();
        fchown(&stream, Some(65534), None).unwrap();
        assert_eq!(connected_to(here)[0].user, 65534);
        assert!(!own_peers(here).contains(&peer));
    }

    #[test]
    fn an_ipv4_connection_of_an_ipv6_socket_is_found() {
        let mapped = "0000000000000000FFFF00000100007F:1F90";
        let plain = "0100007F:1F90";
        if cfg!(target_endian = "little") {
            assert_eq!(address(mapped), address(plain));
            assert_eq!(address(plain), "127.0.0.1:8080".parse().ok());
        }
        for bad in ["", "local_address", "0100007F", "01:1", "0100007F0:1F90"] {
            assert_eq!(address(bad), None, "{bad}");
        }
    }
}
