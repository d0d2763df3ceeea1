//! The check of `Host` and `Origin`: against pages that use a browser to reach local services.
//!
//! A page on the web can make a browser send requests to any address that the browser reaches, and by
//! rebinding its own name even read the answers. So `Host` must be one of the gateway's names, or an
//! address, which cannot be rebound; and an `Origin`, which only browsers send, must be the gateway's own
//! or one that is let in. Both hold on every listener, keys or no keys: some routes ask for none.
//!
//! A browser cannot reach a Unix socket, and its clients have no name for it: they send whatever `Host` their
//! HTTP library makes up. So any `Host` is served there. A proxy may pass requests of browsers on to it, so an
//! `Origin` is judged as elsewhere; pages of this machine are not let in, because to a proxy they could be
//! anybody's.

pub(crate) mod callers;
pub(crate) mod loops;
pub(crate) mod rate_limit;

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, Uri, header};

use crate::config::{Config, ListenAddress};
use crate::fault::Fault;
use crate::net::{host_of, is_loopback, is_loopback_address, origin};

/// The checks of one listener.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    reach: Reach,
    /// Whether requests that name no host are served.
    serves_nameless: bool,
    /// Whether it speaks TLS, and so its own pages come by https.
    is_tls: bool,
    /// Whether pages of this machine are let in: not where people come from elsewhere, by a proxy, whose
    /// own machines' pages would look the same.
    lets_local_pages_in: bool,
    /// The gateway's host names.
    names: Box<[Box<str>]>,
    /// The origin of the pages that people reach by a proxy.
    public_origin: Option<Box<str>>,
    /// Other origins that are let in.
    origins: Box<[Box<str>]>,
}

/// Where requests can come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Any machine.
    Network,
    /// This machine, by a loopback address.
    Loopback,
    /// This machine, by a Unix socket.
    Socket,
}

impl Guard {
    /// That of a gateway's listener at this address, with TLS or without.
    pub(crate) fn new(address: &ListenAddress, is_tls: bool, config: &Config) -> Self {
        let reach = match address {
            ListenAddress::Unix(_) => Reach::Socket,
            ListenAddress::Tcp(address) if is_loopback_address(address.ip()) => Reach::Loopback,
            ListenAddress::Tcp(_) => Reach::Network,
        };
        let public = config.oauth.public_url.as_ref();
        let public = public.and_then(|url| Some((url.scheme_str()?, url.authority()?)));
        let public_host = public.and_then(|(_, authority)| host_of(authority.as_str()));
        let is_local = |host: &str| is_loopback(host) || is_loopback(&format!("[{host}]"));
        let names = config.hosts.iter().map(String::as_str).chain(public_host);
        Self {
            reach,
            serves_nameless: reach == Reach::Socket,
            is_tls,
            lets_local_pages_in: reach == Reach::Loopback && public_host.is_none_or(is_local),
            names: names.map(Into::into).collect(),
            public_origin: public.map(|(scheme, authority)| origin(scheme, authority.as_str())),
            origins: config.origins.iter().map(|it| it.as_str().into()).collect(),
        }
    }

    /// That of a loopback listener which knows of no configuration.
    pub(crate) fn loopback() -> Self {
        Self {
            reach: Reach::Loopback,
            serves_nameless: false,
            is_tls: false,
            lets_local_pages_in: true,
            names: Box::default(),
            public_origin: None,
            origins: Box::default(),
        }
    }

    /// That of the operator's listener. Health checks of load balancers name no host, and browsers always do.
    pub(crate) fn for_operators(self) -> Self {
        Self {
            serves_nameless: true,
            ..self
        }
    }

    /// Whether the listener is a Unix socket.
    pub(crate) fn is_of_socket(&self) -> bool {
        self.reach == Reach::Socket
    }

    /// Rejects what a browser was tricked into sending. Returns the origin of the page that sent it, if one did.
    pub(crate) fn check<'a>(
        &self,
        uri: &Uri,
        headers: &'a HeaderMap,
    ) -> Result<Option<&'a str>, Fault> {
        let host = self.host(uri, headers)?;
        match only(headers, &header::ORIGIN) {
            Ok(None) => Ok(None),
            Ok(Some(origin)) if self.lets_in(origin, host) => Ok(Some(origin)),
            _ => Err(Fault::Origin),
        }
    }

    /// The same for what nothing but a page of a sign-in may do.
    pub(crate) fn check_own(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Fault> {
        let host = self.host(uri, headers)?;
        match only(headers, &header::ORIGIN) {
            Ok(None) => Ok(()),
            Ok(Some(origin)) if self.is_own_page(origin, host) => Ok(()),
            _ => Err(Fault::Origin),
        }
    }

    /// Whether pages of this origin are those of sign-ins. Where there is a public URL, these are nowhere else: a
    /// proxy may pass any `Host` on, and a sign-in that started elsewhere could not end there.
    fn is_own_page(&self, origin: &str, host: &str) -> bool {
        match &self.public_origin {
            Some(public) => public.eq_ignore_ascii_case(origin),
            None => self.is_own(origin, host),
        }
    }

    /// The host that a request names, if it is one of the gateway's. Where none is needed, no page is that one's
    /// own; on a Unix socket any other is like none.
    fn host<'a>(&self, uri: &'a Uri, headers: &'a HeaderMap) -> Result<&'a str, Fault> {
        let named = only(headers, &header::HOST).map_err(|Repeated| Fault::Host)?;
        // A request in absolute form names its host in the URI (RFC 9112, 3.2.2).
        let authority = uri.authority().map(|authority| authority.as_str());
        let Some(authority) = authority.or(named) else {
            return self.serves_nameless.then_some("").ok_or(Fault::Host);
        };
        let is_address = match self.reach {
            Reach::Loopback | Reach::Socket => is_loopback(authority),
            Reach::Network => is_loopback(authority) || is_address(authority),
        };
        match (is_address || self.has_name(authority), self.reach) {
            (true, _) => Ok(authority),
            (false, Reach::Socket) => Ok(""),
            (false, Reach::Loopback | Reach::Network) => Err(Fault::Host),
        }
    }

    fn has_name(&self, authority: &str) -> bool {
        host_of(authority).is_some_and(|host| {
            self.names
                .iter()
                .any(|name| name.eq_ignore_ascii_case(host))
        })
    }

    fn lets_in(&self, origin: &str, host: &str) -> bool {
        let is_named = || {
            self.origins
                .iter()
                .any(|it| it.eq_ignore_ascii_case(origin))
        };
        let is_local =
            || self.lets_local_pages_in && web_authority(origin).is_some_and(is_loopback);
        self.is_own(origin, host) || is_named() || is_local()
    }

    /// Whether pages of this origin are the gateway's, which was asked for by this host.
    fn is_own(&self, origin: &str, host: &str) -> bool {
        let named = web_authority(origin);
        let public = self.public_origin.as_deref();
        if public.is_some_and(|public| public.eq_ignore_ascii_case(origin)) {
            return true;
        }
        let secure = public.and_then(|public| host_of(public.strip_prefix("https://")?));
        let is_insecure = secure.is_some_and(|secure| {
            let host = named.and_then(host_of);
            host.is_some_and(|host| host.eq_ignore_ascii_case(secure))
        });
        // By http the same name may be anybody on the network.
        let is_insecure = is_insecure || self.is_tls && !origin.starts_with("https://");
        !is_insecure && !host.is_empty() && named.is_some_and(|it| it.eq_ignore_ascii_case(host))
    }
}

/// A header came more than once, and two readers could mean two of them.
struct Repeated;

/// The one value of a header; one that is not text is like no other.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Repeated> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => Ok(Some(value.to_str().unwrap_or_default())),
        (Some(_), Some(_)) => Err(Repeated),
    }
}

/// What comes behind `http://` or `https://`.
fn web_authority(origin: &str) -> Option<&str> {
    let (scheme, authority) = origin.split_once("://")?;
    matches!(scheme, "http" | "https").then_some(authority)
}

/// Whether an authority is an address, which cannot be rebound.
fn is_address(authority: &str) -> bool {
    host_of(authority).is_some_and(|host| host.parse::<IpAddr>().is_ok())
}

#[cfg(test)]
mod tests;
