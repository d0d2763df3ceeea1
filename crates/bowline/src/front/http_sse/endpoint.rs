//! The URL that a client posts its messages to, as it has to see it: a path, which clients resolve against the URL
//! of their stream.
//!
//! A path, because some clients resolve it against the origin alone. So it has to begin with what a proxy took off.
//! That is known from the proxy, if it is configured as one, or from `public_url`. Whatever a stranger sends in
//! `X-Forwarded-Prefix` counts for nothing. The path begins with one slash, so it never leads to another origin.

use std::borrow::Cow;

use http::header::HOST;
use http::{HeaderMap, Uri};

use crate::config::ServerName;
use crate::front::arrival::Arrival;
use crate::net::host_of;

const FORWARDED_PREFIX: &str = "x-forwarded-prefix";

/// The longest prefix.
const MAX_PREFIX: usize = 256;

/// The path of the stream that was asked for at `path`, without a slash at its end. Where the path names no
/// server, it is named: another server may be configured later.
pub(super) fn path<'a>(path: &'a str, server: &ServerName) -> Cow<'a, str> {
    match path.trim_end_matches('/') {
        "/sse" => format!("/sse/{server}").into(),
        path => path.into(),
    }
}

/// What comes before our paths in the URLs of this client.
pub(super) fn prefix(arrival: &Arrival, uri: &Uri, is_proxied: bool) -> String {
    let public = arrival.hub.flows.public_url().parse::<Uri>();
    let public = public.unwrap_or_default();
    prefix_of(&public, uri, &arrival.headers, is_proxied)
}

fn prefix_of(public: &Uri, uri: &Uri, headers: &HeaderMap, is_proxied: bool) -> String {
    if is_proxied && let Some(told) = forwarded(headers) {
        return told.to_owned();
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let asked = uri.authority().map_or(host, |it| Some(it.as_str()));
    let (asked, named) = (asked.and_then(host_of), public.host());
    let is_public = match (asked, named) {
        (Some(asked), Some(named)) => asked.eq_ignore_ascii_case(named),
        _ => false,
    };
    match is_public || is_proxied {
        true => public.path().trim_end_matches('/').to_owned(),
        false => String::new(),
    }
}

/// The prefix that a proxy says it took off, if it is a path.
fn forwarded(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(FORWARDED_PREFIX).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let prefix = value.to_str().ok()?.trim_end_matches('/');
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:@".contains(&byte);
    let is_path = prefix.starts_with('/')
        && prefix.len() <= MAX_PREFIX
        && prefix.bytes().all(allowed)
        && !prefix.contains("//")
        && !prefix.split('/').any(|part| matches!(part, "." | ".."));
    (is_path || prefix.is_empty()).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn prefix(public: &str, host: &str, told: Option<&str>, is_proxied: bool) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).unwrap());
        if let Some(told) = told {
            headers.insert(FORWARDED_PREFIX, HeaderValue::from_str(told).unwrap());
        }
        let uri = Uri::from_static("/sse/a");
        prefix_of(&public.parse().unwrap(), &uri, &headers, is_proxied)
    }

    const PUBLIC: &str = "https://gw.example.com/bowline/";

    #[test]
    fn a_configured_proxy_says_what_it_took_off() {
        let host = "10.0.0.1:6270";
        assert_eq!(prefix(PUBLIC, host, Some("/tools/"), true), "/tools");
        assert_eq!(prefix(PUBLIC, host, Some("/"), true), "");
        assert_eq!(prefix(PUBLIC, host, None, true), "/bowline");
        for bad in [
            "//evil.example",
            "https://evil.example",
            "x",
            "/a//b",
            "/a/../b",
            "/a?b",
            "/a b",
        ] {
            assert_eq!(prefix(PUBLIC, host, Some(bad), true), "/bowline", "{bad}");
        }
    }

    #[test]
    fn nobody_else_does() {
        let told = Some("/elsewhere");
        assert_eq!(prefix(PUBLIC, "10.0.0.1:6270", told, false), "");
        assert_eq!(prefix(PUBLIC, "GW.example.com", told, false), "/bowline");
        assert_eq!(
            prefix("http://127.0.0.1:6270", "127.0.0.1:6270", told, false),
            ""
        );
    }

    #[test]
    fn the_path_is_the_one_that_was_asked_for() {
        let server = "a".parse().unwrap();
        for (asked, used) in [
            ("/sse", "/sse/a"),
            ("/sse/", "/sse/a"),
            ("/sse/a/", "/sse/a"),
            ("/a/sse", "/a/sse"),
        ] {
            assert_eq!(path(asked, &server), used);
        }
    }
}
