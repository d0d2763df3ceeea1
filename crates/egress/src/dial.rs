//! From an origin to an open connection: name, address, TCP, TLS.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_system::{descriptors, socket};
use http::Uri;
use http::uri::Scheme;
use parking_lot::RwLock;
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls_platform_verifier::{BuilderVerifierExt as _, Verifier};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Certificates, EgressError};

/// After how long the connection of a server breaks that disappeared without closing it. Many clients wait a
/// minute for an answer, so there is time for a second attempt.
const SILENT_SERVER: Duration = Duration::from_secs(30);

/// Scheme, host and port of a URL and, where it is pinned, the address to dial.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Whether connections use TLS.
    pub https: bool,
    host: Box<str>,
    port: u16,
    address: Option<SocketAddr>,
}

/// How TLS connections are made and which certificates they trust: the platform's and, for a server that
/// has some, authorities of its own. Clones share their state.
#[derive(Clone, Default)]
pub struct Tls {
    platform: Arc<ConnectorCell>,
    own: Arc<RwLock<Option<Arc<OwnTrust>>>>,
}

/// Makes TLS connections. Created at the first use, because a machine without root certificates can still
/// serve what needs none.
#[derive(Default)]
struct ConnectorCell(OnceLock<Result<TlsConnector, rustls::Error>>);

/// The authorities of one server.
struct OwnTrust {
    trusted: Certificates,
    maker: ConnectorCell,
}

/// An open connection.
#[derive(Debug)]
pub enum Connection {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

// === impl Origin ===

impl Origin {
    /// The origin of a URL that the configuration has checked: it has a scheme and a host.
    pub fn of(url: &Uri) -> Self {
        let https = url.scheme() == Some(&Scheme::HTTPS);
        let host = url.host().unwrap_or_default();
        Self {
            https,
            host: host.trim_start_matches('[').trim_end_matches(']').into(),
            port: url.port_u16().unwrap_or(if https { 443 } else { 80 }),
            address: None,
        }
    }

    /// The same origin, dialled at this address only; name and certificate stay the origin's.
    pub fn at(&self, address: SocketAddr) -> Self {
        Self {
            address: Some(address),
            ..self.clone()
        }
    }

    /// The address that is dialled, if it is pinned.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Whether both are the same scheme, host and port, whichever address is dialled.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.https, self.port) == (other.https, other.port)
            && self.host.eq_ignore_ascii_case(&other.host)
    }

    /// Whether the host is a name, which may have several addresses.
    pub fn is_named(&self) -> bool {
        self.host.parse::<IpAddr>().is_err()
    }

    /// Every address that the name has now.
    pub async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let found = tokio::net::lookup_host((&*self.host, self.port)).await?;
        let mut addresses: Vec<SocketAddr> = found.collect();
        addresses.sort_unstable();
        addresses.dedup();
        Ok(addresses)
    }

    /// The host, without brackets around an IPv6 address.
    pub fn host(&self) -> &str {
        &self.host
    }

    #[cfg(test)]
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Opens a connection within `limit`, all steps together.
    pub async fn dial(&self, tls: &Tls, limit: Duration) -> Result<Connection, EgressError> {
        self.dial_home(tls, limit, None).await
    }

    /// The same, and at this address first if the name has it.
    pub(super) async fn dial_home(
        &self,
        tls: &Tls,
        limit: Duration,
        home: Option<IpAddr>,
    ) -> Result<Connection, EgressError> {
        tokio::time::timeout(limit, self.dial_unbounded(tls, limit, home))
            .await
            .unwrap_or(Err(EgressError::ConnectTimeout(limit)))
    }

    async fn dial_unbounded(
        &self,
        tls: &Tls,
        limit: Duration,
        home: Option<IpAddr>,
    ) -> Result<Connection, EgressError> {
        let connected = self.connect(limit, home).await;
        let tcp = connected.map_err(EgressError::not_connected)?;
        descriptors::leave_reserve(&tcp).map_err(EgressError::not_connected)?;
        tcp.set_nodelay(true).map_err(EgressError::Connect)?;
        socket::probe_always(&tcp, SILENT_SERVER);
        if !self.https {
            return Ok(Connection::Plain(tcp));
        }
        let name = ServerName::try_from(self.host.to_string())
            .map_err(|error| EgressError::Tls(io::Error::other(error)))?;
        let connecting = tls.connector()?.connect(name, tcp);
        let stream = connecting.await.map_err(EgressError::Tls)?;
        Ok(Connection::Tls(Box::new(stream)))
    }
}

impl Origin {
    /// Connects to the first address that accepts. None but the last may take more than its share of the time.
    async fn connect(&self, limit: Duration, home: Option<IpAddr>) -> io::Result<TcpStream> {
        let addresses = match self.address {
            Some(address) => vec![address],
            None => {
                let found = tokio::net::lookup_host((&*self.host, self.port)).await?;
                at_home_first(found.collect(), home)
            }
        };
        let Some((last, before)) = addresses.split_last() else {
            let error = "the name has no address";
            return Err(io::Error::new(io::ErrorKind::NotFound, error));
        };
        let share = limit / u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        for address in before {
            #[expect(clippy::disallowed_methods, reason = "this is egress")]
            let connecting = TcpStream::connect(*address);
            match tokio::time::timeout(share, connecting).await {
                Ok(Ok(tcp)) => return Ok(tcp),
                Ok(Err(error)) => tracing::debug!(%address, %error, "not connected"),
                Err(_) => tracing::debug!(%address, "not connected within {share:?}"),
            }
        }
        #[expect(clippy::disallowed_methods, reason = "this is egress")]
        TcpStream::connect(*last).await
    }
}

/// A name's addresses in the order in which they are tried. An address that the name no longer has is not, because it
/// may be somebody else's by now.
fn at_home_first(mut found: Vec<SocketAddr>, home: Option<IpAddr>) -> Vec<SocketAddr> {
    // Stable: the system prefers one address to another.
    found.sort_by_key(|address| Some(address.ip()) != home);
    found
}

// === impl Connection ===

impl Connection {
    /// The address at the other end.
    pub(super) fn peer(&self) -> Option<IpAddr> {
        Some(self.socket().peer_addr().ok()?.ip())
    }

    /// The socket below.
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

// === impl Tls ===

impl Tls {
    /// Trusts what the platform trusts.
    pub fn platform() -> Self {
        Self::default()
    }

    /// The same for one server, for which these are trusted as well.
    pub fn of_server(&self, trusted: Option<&Certificates>) -> Self {
        let tls = Self {
            platform: Arc::clone(&self.platform),
            own: Arc::default(),
        };
        tls.trust(trusted);
        tls
    }

    /// Trusts these, and no others but the platform's, from the next connection on.
    pub fn trust(&self, trusted: Option<&Certificates>) {
        let mut own = self.own.write();
        if own.as_ref().map(|own| &own.trusted) != trusted {
            *own = trusted.map(|trusted| {
                Arc::new(OwnTrust {
                    trusted: trusted.clone(),
                    maker: ConnectorCell::default(),
                })
            });
        }
    }

    fn connector(&self) -> Result<TlsConnector, EgressError> {
        let own = self.own.read().clone();
        match own {
            None => self.platform.connector(&[]),
            Some(own) => own.maker.connector(own.trusted.all()),
        }
    }
}

// === impl ConnectorCell ===

impl ConnectorCell {
    fn connector(&self, extra: &[CertificateDer<'static>]) -> Result<TlsConnector, EgressError> {
        let made = self.0.get_or_init(|| {
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()?;
            let builder = match extra {
                [] => builder.with_platform_verifier()?,
                extra => {
                    let extra = extra.iter().cloned();
                    let verifier = Verifier::new_with_extra_roots(extra, provider)?;
                    // What `with_platform_verifier` does, with more to trust.
                    let builder = builder.dangerous();
                    builder.with_custom_certificate_verifier(Arc::new(verifier))
                }
            };
            Ok(TlsConnector::from(Arc::new(builder.with_no_client_auth())))
        });
        made.clone()
            .map_err(|error| EgressError::Tls(io::Error::other(error)))
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = &self.host;
        if host.contains(':') {
            write!(f, "[{host}]:{}", self.port)?;
        } else {
            write!(f, "{host}:{}", self.port)?;
        }
        match self.address {
            Some(address) if self.is_named() => write!(f, "@{}", address.ip()),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_before_is_tried_first_while_the_name_has_it() {
        let found: Vec<SocketAddr> = ["[::1]:80", "127.0.0.1:80", "127.0.0.2:80"]
            .map(|text| text.parse().unwrap())
            .into();
        let first = |home: &str| at_home_first(found.clone(), home.parse().ok())[0];
        assert_eq!(first("127.0.0.2"), found[2]);
        assert_eq!(first("127.0.0.3"), found[0], "it may be somebody else's");
        assert_eq!(at_home_first(found.clone(), None), found);
        let others = at_home_first(found.clone(), Some(found[1].ip()));
        assert_eq!(others, [found[1], found[0], found[2]]);
    }
}
