//! Whether a request may speak at all: the check against pages that reach for local services.
//!
//! A page on the web can make a browser send requests to a loopback address, and by rebinding its
//! own name even read the answers. So on a loopback listener `Host` must be a loopback name, and
//! everywhere an `Origin`, which only browsers send, must be the gateway's own. A page whose name was
//! rebound to the gateway is its own origin, too, so a name is believed only where requests need a
//! key, which that page does not have.

use std::net::IpAddr;

use http::{HeaderMap, Uri, header};

use crate::fault::Fault;

/// The checks of one listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guard {
    /// Whether the listener is bound to a loopback address.
    pub(crate) loopback: bool,
}

impl Guard {
    /// Refuses what a browser was tricked into sending. `keyed`: requests need a key as well.
    pub(crate) fn check(self, uri: &Uri, headers: &HeaderMap, keyed: bool) -> Result<(), Fault> {
        let host = headers
            .get(header::HOST)
            .map(|value| value.to_str().unwrap_or_default());
        // A request in absolute form names its host in the URI (RFC 9112, 3.2.2).
        let host = uri
            .authority()
            .map(|authority| authority.as_str())
            .or(host)
            .unwrap_or_default();
        if self.loopback && !is_loopback(host) {
            return Err(Fault::Host);
        }
        match headers.get(header::ORIGIN) {
            None => Ok(()),
            Some(origin) if self.allows(origin.to_str().unwrap_or_default(), host, keyed) => Ok(()),
            Some(_) => Err(Fault::Origin),
        }
    }

    fn allows(self, origin: &str, host: &str, keyed: bool) -> bool {
        let Some((scheme, authority)) = origin.split_once("://") else {
            return false;
        };
        let is_web = scheme == "http" || scheme == "https";
        let is_own = authority.eq_ignore_ascii_case(host) && (keyed || is_address(authority));
        is_web && (is_own || (self.loopback && is_loopback(authority)))
    }
}

/// Whether `host`, `host:port` or `[address]:port` names this machine and nothing else.
pub(crate) fn is_loopback(authority: &str) -> bool {
    host_of(authority).is_some_and(|host| {
        let address = host.parse::<IpAddr>();
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(is_loopback_address)
    })
}

/// Whether an authority is an address, which cannot be rebound.
fn is_address(authority: &str) -> bool {
    host_of(authority).is_some_and(|host| host.parse::<IpAddr>().is_ok())
}

/// The host in `host`, `host:port` or `[address]:port`, if the text is nothing but that.
fn host_of(authority: &str) -> Option<&str> {
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

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn passes(loopback: bool, host: &str, origin: Option<&str>) -> bool {
        passes_with(loopback, host, origin, false)
    }

    fn passes_with(loopback: bool, host: &str, origin: Option<&str>, keyed: bool) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        Guard { loopback }
            .check(&Uri::from_static("/mcp"), &headers, keyed)
            .is_ok()
    }

    #[test]
    fn a_loopback_listener_answers_to_loopback_names_only() {
        for good in [
            "localhost",
            "LocalHost:6270",
            "127.0.0.1:1",
            "[::1]:6270",
            "[::1]",
        ] {
            assert!(passes(true, good, None), "{good}");
        }
        for bad in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "",
            "[::2]",
            "0.0.0.0",
        ] {
            assert!(!passes(true, bad, None), "{bad}");
        }
        assert!(passes(false, "mcp.example.com", None));
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        assert!(passes(true, "localhost:1", Some("http://localhost:3000")));
        assert!(passes(true, "localhost:1", Some("https://127.0.0.1")));
        assert!(passes(true, "127.0.0.2:1", None) && passes(true, "[::ffff:127.0.0.1]:1", None));
        for bad in [
            "localhost:x@evil.example",
            "user@localhost",
            "[::1]evil.example",
        ] {
            assert!(!passes(true, bad, None), "{bad}");
        }
        for bad in [
            "http://evil.example",
            "null",
            "file://",
            "http://localhost.evil.example",
            "localhost",
        ] {
            assert!(!passes(true, "localhost:1", Some(bad)), "{bad}");
        }
        // A rebound name is its own origin; an address cannot be rebound, and a key is not known.
        let own = Some("https://mcp.example.com");
        assert!(!passes(false, "mcp.example.com", own));
        assert!(passes_with(false, "mcp.example.com", own, true));
        assert!(passes(false, "10.0.0.1:80", Some("http://10.0.0.1:80")));
        assert!(!passes(
            false,
            "mcp.example.com",
            Some("https://example.com")
        ));
        assert!(!passes(false, "mcp.example.com", Some("http://localhost")));
    }

    #[test]
    fn an_absolute_target_is_the_host() {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        let uri = Uri::from_static("http://evil.example/mcp");
        assert!(
            Guard { loopback: true }
                .check(&uri, &headers, false)
                .is_err()
        );
    }
}
