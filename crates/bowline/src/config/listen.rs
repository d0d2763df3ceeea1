//! Where a listener is: an IP address and a port, or a Unix socket.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use bowline_system::socket_file::MAX_PATH;
use thiserror::Error;

use crate::net::is_loopback_address;

/// Where a listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// A Unix socket at this path, for processes of the same user.
    Unix(PathBuf),
}

/// Why a text is no address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{}", self.what())]
pub enum ListenProblem {
    /// It is neither an IP address with a port nor a Unix socket.
    NotAnAddress,
    /// The path of the socket is not absolute.
    NotAbsolute,
    /// The path of the socket is longer than systems allow.
    TooLong,
    /// The path of the socket has characters that cannot be printed.
    Unprintable,
}

// === impl ListenAddress ===

impl ListenAddress {
    /// The IP address and port, if it is one.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// The path of the socket, if it is one.
    pub fn unix(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(path) => Some(path),
        }
    }

    /// Whether nobody on the network can connect.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => is_loopback_address(address.ip()),
            Self::Unix(_) => true,
        }
    }

    /// Whether two listeners could not both be there. With port 0 each gets a port of its own.
    pub fn collides_with(&self, other: &Self) -> bool {
        self == other && self.tcp().is_none_or(|address| address.port() != 0)
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl FromStr for ListenAddress {
    type Err = ListenProblem;

    /// `127.0.0.1:6270`, `unix:/run/bowline.sock` or `unix:///run/bowline.sock`.
    fn from_str(text: &str) -> Result<Self, ListenProblem> {
        let Some(path) = text.strip_prefix("unix:") else {
            let address = text.parse().map_err(|_| ListenProblem::NotAnAddress)?;
            return Ok(Self::Tcp(address));
        };
        let path = match path.strip_prefix("//") {
            Some(rest) if rest.starts_with('/') => rest,
            Some(_) => return Err(ListenProblem::NotAbsolute),
            None => path,
        };
        if !path.starts_with('/') || path.ends_with('/') {
            return Err(ListenProblem::NotAbsolute);
        }
        if path.chars().any(char::is_control) {
            return Err(ListenProblem::Unprintable);
        }
        match path.len() {
            0..=MAX_PATH => Ok(Self::Unix(path.into())),
            _ => Err(ListenProblem::TooLong),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

// === impl ListenProblem ===

impl ListenProblem {
    /// What is wrong.
    pub fn what(self) -> &'static str {
        match self {
            Self::NotAnAddress => "not an IP address with a port, nor a Unix socket",
            Self::NotAbsolute => "a Unix socket without an absolute path",
            Self::TooLong => "a Unix socket with a path of more than 103 bytes",
            Self::Unprintable => "a Unix socket with a path that cannot be printed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_a_socket() {
        for (text, shown) in [
            ("127.0.0.1:6270", "127.0.0.1:6270"),
            ("[::1]:0", "[::1]:0"),
            ("unix:/run/bowline.sock", "unix:/run/bowline.sock"),
            ("unix:///run/bowline.sock", "unix:/run/bowline.sock"),
            ("unix:/a b/c.sock", "unix:/a b/c.sock"),
        ] {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(shown.parse(), Ok(address));
        }
    }

    #[test]
    fn what_is_neither() {
        let long = format!("unix:/{}", "x".repeat(MAX_PATH));
        for (text, problem) in [
            ("", ListenProblem::NotAnAddress),
            ("localhost:1", ListenProblem::NotAnAddress),
            ("/run/bowline.sock", ListenProblem::NotAnAddress),
            ("UNIX:/run/bowline.sock", ListenProblem::NotAnAddress),
            ("unix:", ListenProblem::NotAbsolute),
            ("unix:bowline.sock", ListenProblem::NotAbsolute),
            ("unix:@bowline", ListenProblem::NotAbsolute),
            ("unix:/run/", ListenProblem::NotAbsolute),
            ("unix://host/run/bowline.sock", ListenProblem::NotAbsolute),
            ("unix:/run/a\nb", ListenProblem::Unprintable),
            ("unix:/run/a\0b", ListenProblem::Unprintable),
            (&long, ListenProblem::TooLong),
        ] {
            assert_eq!(text.parse::<ListenAddress>(), Err(problem), "{text}");
        }
        assert!(
            ListenProblem::TooLong
                .what()
                .contains(&MAX_PATH.to_string())
        );
    }

    #[test]
    fn two_cannot_share_a_place() {
        let collide = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|it| it.parse::<ListenAddress>().unwrap());
            one.collides_with(&other)
        };
        assert!(collide("127.0.0.1:1", "127.0.0.1:1"));
        assert!(!collide("127.0.0.1:0", "127.0.0.1:0"));
        assert!(collide("unix:/a", "unix:///a"));
        assert!(!collide("unix:/a", "unix:/b"));
    }
}
