//! Whether a request may speak at all: the check against pages that reach for local services.
//!
//! A page on the web can make a browser send requests to a loopback address, and by rebinding its
//! own name even read the answers. So on a loopback listener `Host` must be a loopback name, and
//! everywhere an `Origin`, which only browsers send, must be the gateway's own.

use std::net::IpAddr;

use http::uri::Authority;
use http::{HeaderMap, Uri, header};

use crate::fault::Fault;

/// The checks of one listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guard {
    /// Whether the listener is bound to a loopback address.
    pub(crate) loopback: bool,
}

impl Guard {
    /// Refuses what a browser was tricked into sending.
    pub(crate) fn check(self, uri: &Uri, headers: &HeaderMap) -> Result<(), Fault> {
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
            Some(origin) if self.allows(origin.to_str().unwrap_or_default(), host) => Ok(()),
            Some(_) => Err(Fault::Origin),
        }
    }

    fn allows(self, origin: &str, host: &str) -> bool {
        let Some((scheme, authority)) = origin.split_once("://") else {
            return false;
        };
        let is_web = scheme == "http" || scheme == "https";
        let is_own = authority.eq_ignore_ascii_case(host);
        is_web && (is_own || (self.loopback && is_loopback(authority)))
    }
}

/// Whether `host`, `host:port` or `[address]:port` names this machine and nothing else.
fn is_loopback(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else {
        return false;
    };
    let host = authority.host();
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    let is_loopback =
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(is_loopback_address);
    is_loopback && !authority.as_str().contains('@')
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
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        Guard { loopback }
            .check(&Uri::from_static("/mcp"), &headers)
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
        for bad in [
            "http://evil.example",
            "null",
            "file://",
            "http://localhost.evil.example",
            "localhost",
        ] {
            assert!(!passes(true, "localhost:1", Some(bad)), "{bad}");
        }
        assert!(passes(
            false,
            "mcp.example.com",
            Some("https://mcp.example.com")
        ));
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
        assert!(Guard { loopback: true }.check(&uri, &headers).is_err());
    }
}
