//! A TLS terminator in front of a server that speaks plain HTTP, as a load balancer provides it.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// Terminates TLS and relays the content. A connection ends in front in the same way as behind: by an
/// orderly end, a reset, or a refusal.
#[derive(Debug)]
pub struct Terminator {
    address: SocketAddr,
    _accepting: AbortOnDropHandle<()>,
}

impl Terminator {
    /// Starts one in front of this address, with the certificate of this name that `certificates::make`
    /// made.
    ///
    /// # Errors
    ///
    /// When there is no port, or the certificate cannot be used.
    pub async fn start(upstream: SocketAddr, directory: &Path, name: &str) -> anyhow::Result<Self> {
        let chain = CertificateDer::pem_file_iter(directory.join(format!("{name}.pem")))?;
        let chain = chain.collect::<Result<_, _>>().context("the certificate")?;
        let key = PrivateKeyDer::from_pem_file(directory.join(format!("{name}.key")))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let connections = TaskTracker::new();
        let accepting = TaskTracker::new().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(carry(client, acceptor.clone(), upstream));
            }
        });
        Ok(Self {
            address,
            _accepting: AbortOnDropHandle::new(accepting),
        })
    }

    /// The MCP endpoint behind it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}/mcp", self.address)
    }
}

async fn carry(client: TcpStream, acceptor: TlsAcceptor, upstream: SocketAddr) {
    #[expect(clippy::disallowed_methods, reason = "this is not the gateway")]
    let Ok(mut server) = TcpStream::connect(upstream).await else {
        _ = client.set_zero_linger();
        return;
    };
    _ = (client.set_nodelay(true), server.set_nodelay(true));
    let Ok(mut client) = acceptor.accept(client).await else {
        return;
    };
    let carried: io::Result<_> = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    if carried.is_err() {
        _ = client.get_ref().0.set_zero_linger();
        _ = server.set_zero_linger();
    }
}
