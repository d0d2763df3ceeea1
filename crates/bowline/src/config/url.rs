//! The URL of a server: which URLs can be used, and what is wrong with the others.
//!
//! Used by [`check`](super::check) for the file and by `Server::from_url` for the command line.
//! No problem carries any part of the URL, because a URL can hold a secret.

use http::Uri;

use crate::net;

/// Why a text is not the URL of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}; {}", self.what(), self.help())]
pub enum UrlProblem {
    /// It does not start with a scheme and `://`.
    NotAbsolute,
    /// Its scheme is neither `http` nor `https`.
    Scheme,
    /// It names no host.
    NoHost,
    /// It has a user name or password before the host.
    Userinfo,
    /// It has a fragment.
    Fragment,
    /// Its port is not a number from 1 to 65535.
    Port,
    /// It has a character that URLs cannot have, or is far too long.
    Malformed,
    /// One of several, separated by commas, does not start with a scheme and `://`.
    PartNotAbsolute,
    /// The same URL is among the endpoints twice.
    Twice,
}

/// Reads the URL of a server; path and query stay as they are written, byte for byte.
pub(super) fn parse(text: &str) -> Result<Uri, UrlProblem> {
    parse_with(["http", "https"], text)
}

/// The same for a URL with one of these schemes.
pub(super) fn parse_with(schemes: [&str; 2], text: &str) -> Result<Uri, UrlProblem> {
    let (scheme, rest) = text.split_once("://").ok_or(UrlProblem::NotAbsolute)?;
    let known = schemes.map(|known| scheme.eq_ignore_ascii_case(known));
    if !known.contains(&true) {
        return Err(UrlProblem::Scheme);
    }
    // `Uri` would drop a fragment silently and keep userinfo, so both are looked for in the text.
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(UrlProblem::Userinfo);
    }
    if rest.contains('#') {
        return Err(UrlProblem::Fragment);
    }
    if authority.is_empty() || authority.starts_with(':') {
        return Err(UrlProblem::NoHost);
    }
    // A `:` inside the brackets of an IPv6 address starts no port.
    let after_host = authority.rsplit(']').next().unwrap_or_default();
    if let Some((_, port)) = after_host.split_once(':') {
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        if !digits || !port.parse::<u16>().is_ok_and(|port| port > 0) {
            return Err(UrlProblem::Port);
        }
    }
    text.parse().map_err(|_| UrlProblem::Malformed)
}

/// Scheme, host and port.
pub(super) fn origin(url: &Uri) -> (Option<String>, Option<String>, Option<u16>) {
    let is_https = url
        .scheme_str()
        .is_some_and(|it| it.eq_ignore_ascii_case("https"));
    let port = url.port_u16().or(Some(if is_https { 443 } else { 80 }));
    let lower = |text: Option<&str>| text.map(str::to_ascii_lowercase);
    (lower(url.scheme_str()), lower(url.host()), port)
}

/// A server's URL as anybody may see it: its query may hold a secret.
pub fn shown_url(url: &str) -> String {
    url.split('?').next().unwrap_or_default().to_owned()
}

/// Whether a URL is of this machine and no other.
pub(super) fn is_loopback(url: &Uri) -> bool {
    let authority = url.authority();
    authority.is_some_and(|authority| net::is_loopback(authority.as_str()))
}

// === impl UrlProblem ===

impl UrlProblem {
    /// What is wrong with the URL.
    pub fn what(self) -> &'static str {
        match self {
            Self::NotAbsolute => "the URL has no scheme",
            Self::Scheme => "the URL's scheme is neither http nor https",
            Self::NoHost => "the URL has no host",
            Self::Userinfo => "the URL has a user name or password in it",
            Self::Fragment => "the URL has a fragment, which is never sent to a server",
            Self::Port => "the URL's port is not a number from 1 to 65535",
            Self::Malformed => "the URL has a character that URLs cannot have, or is too long",
            Self::PartNotAbsolute => "a URL between the commas has no scheme",
            Self::Twice => "the endpoint is given twice",
        }
    }

    /// What to do about it.
    pub fn help(self) -> &'static str {
        match self {
            Self::NotAbsolute | Self::NoHost => {
                "write it in full, such as `https://mcp.example.com/mcp`"
            }
            Self::Scheme => "use the server's Streamable HTTP endpoint, `http://` or `https://`",
            Self::Userinfo => "put credentials in `headers`, such as `Authorization`",
            Self::Fragment => "remove the `#` and what follows it, or write the `#` as `%23`",
            Self::Port => "correct the port, or leave it out to use the scheme's own",
            Self::Malformed => "percent-encode spaces and other special characters",
            Self::PartNotAbsolute => {
                "write each endpoint in full; a comma that belongs to a URL is written `%2C`"
            }
            Self::Twice => "keep one of them",
        }
    }
}
