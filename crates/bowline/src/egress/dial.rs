//! From an origin to an open connection: name, address, TCP, TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt as _;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::EgressError;

/// Scheme, host and port of a URL.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) https: bool,
    host: Box<str>,
    port: u16,
}

/// How TLS connections are made and whom they trust: the platform's roots.
#[derive(Clone)]
pub(crate) struct Tls(TlsConnector);

/// TLS cannot be set up on this machine.
#[derive(Debug, Error)]
#[error("cannot set up TLS with this machine's trusted roots: {0}")]
pub(crate) struct TlsSetup(#[from] rustls::Error);

/// An open connection.
pub(crate) enum Dialled {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

// === impl Origin ===

impl Origin {
    /// The origin of a URL that the configuration has checked: it has a scheme and a host.
    pub(crate) fn of(url: &Uri) -> Self {
        let https = url.scheme() == Some(&Scheme::HTTPS);
        let host = url.host().unwrap_or_default();
        Self {
            https,
            host: host.trim_start_matches('[').trim_end_matches(']').into(),
            port: url.port_u16().unwrap_or(if https { 443 } else { 80 }),
        }
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Opens a connection within `limit`, all steps together.
    pub(super) async fn dial(&self, tls: &Tls, limit: Duration) -> Result<Dialled, EgressError> {
        tokio::time::timeout(limit, self.dial_unbounded(tls))
            .await
            .unwrap_or(Err(EgressError::ConnectTimeout(limit)))
    }

    async fn dial_unbounded(&self, tls: &Tls) -> Result<Dialled, EgressError> {
        #[expect(clippy::disallowed_methods, reason = "this is egress")]
        let connected = TcpStream::connect((&*self.host, self.port)).await;
        let tcp = connected.map_err(EgressError::Connect)?;
        tcp.set_nodelay(true).map_err(EgressError::Connect)?;
        if !self.https {
            return Ok(Dialled::Plain(tcp));
        }
        let name = ServerName::try_from(self.host.to_string())
            .map_err(|error| EgressError::Tls(io::Error::other(error)))?;
        let stream = tls.0.connect(name, tcp).await.map_err(EgressError::Tls)?;
        Ok(Dialled::Tls(Box::new(stream)))
    }
}

// === impl Tls ===

impl Tls {
    /// Trusts what the platform trusts.
    pub(crate) fn platform() -> Result<Self, TlsSetup> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_platform_verifier()?
            .with_no_client_auth();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}
