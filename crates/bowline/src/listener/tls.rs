//! A TCP port with TLS: the handshake, and who the client is by its certificate.
//!
//! HTTP/1.1 is spoken inside, as on a port without TLS. The handshake is done in the connection's own task, has a
//! deadline, and can be evicted like any connection of a stranger, so one that hangs holds nobody up.
//!
//! Any certificate of a client passes the handshake if the client proves that it has the key. Whose it is, and
//! whether it is still valid, is decided for each request ([`identify`](crate::guard::callers::identify)): there a
//! reload counts at once, and the client gets a reason that a person can read, where a failed handshake is a number.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ConfigBuilder, DigitallySignedStruct, DistinguishedName};
use rustls::{Error, ServerConfig, SignatureScheme, WantsVerifier};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::doors::{Door, Opened, prepare};
use crate::caller::ClientCertificate;
use crate::net::Peer;

/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A fatal alert, `internal_error`: the only reason that a client can read before a handshake.
const ALERT: &[u8] = &[0x15, 3, 3, 0, 2, 2, 80];

/// What a client gets that speaks HTTP without TLS.
const PLAIN_HTTP: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 66\r\n\
    Connection: close\r\n\r\nThis port speaks TLS: use https:// instead of http:// in the URL.\n";

/// How much of a request without TLS is read, and for how long, so that its client reads the response.
const PLAIN_READ: u64 = 256 * 1024;
const PLAIN_TIME: Duration = Duration::from_secs(1);

/// How handshakes are done from now on. A reload replaces it; connections that are open go on.
pub(crate) struct ListenerTls {
    builder: ConfigBuilder<ServerConfig, WantsVerifier>,
    verifier: Arc<AnyCertificate>,
    config: RwLock<Arc<ServerConfig>>,
}

/// A TCP port with TLS.
#[derive(Debug)]
pub(crate) struct TlsDoor {
    pub(crate) listener: TcpListener,
    pub(crate) tls: Arc<ListenerTls>,
}

/// Accepts every certificate whose key the client has.
#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

// === impl ListenerTls ===

impl ListenerTls {
    /// `asks`: whether clients are asked for certificates. Browsers ask people for one then, so only where some
    /// caller has one.
    pub(crate) fn new(certified: &CertifiedKey, asks: bool) -> Result<Self, Error> {
        let provider = Arc::new(default_provider());
        let verifier = AnyCertificate(provider.signature_verification_algorithms);
        let builder =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let verifier = Arc::new(verifier);
        let config = config(&builder, &verifier, certified, asks);
        Ok(Self {
            builder,
            verifier,
            config: RwLock::new(config),
        })
    }

    /// Uses this certificate from the next handshake on. Sessions of TLS are not resumed across the change: in an
    /// old one, a client may not have been asked for its certificate.
    pub(crate) fn replace(&self, certified: &CertifiedKey, asks: bool) {
        let config = config(&self.builder, &self.verifier, certified, asks);
        *self.config.write() = config;
    }

    fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config.read()))
    }
}

impl fmt::Debug for ListenerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ListenerTls")
    }
}

fn config(
    builder: &ConfigBuilder<ServerConfig, WantsVerifier>,
    verifier: &Arc<AnyCertificate>,
    certified: &CertifiedKey,
    asks: bool,
) -> Arc<ServerConfig> {
    let builder = builder.clone();
    let builder = match asks {
        true => builder.with_client_cert_verifier(Arc::clone(verifier) as _),
        false => builder.with_no_client_auth(),
    };
    let resolver = SingleCertAndKey::from(certified.clone());
    let mut config = builder.with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

// === impl TlsDoor ===

impl Door for TlsDoor {
    type Stream = TcpStream;
    type Open = TlsStream<TcpStream>;

    const REFUSAL: Option<&'static [u8]> = Some(ALERT);

    async fn next(&self) -> io::Result<(TcpStream, Peer)> {
        self.listener.next().await
    }

    fn open(&self, stream: TcpStream) -> impl Future<Output = Opened<Self::Open>> + Send + use<> {
        let acceptor = self.tls.acceptor();
        async move {
            let opening = tokio::time::timeout(HANDSHAKE_TIMEOUT, shake_hands(acceptor, stream));
            let no_time = |_| io::Error::from(io::ErrorKind::TimedOut);
            opening.await.map_err(no_time).flatten()
        }
    }
}

async fn shake_hands(acceptor: TlsAcceptor, mut stream: TcpStream) -> Opened<TlsStream<TcpStream>> {
    prepare(&stream)?;
    // A handshake begins with the byte 22, and a request in HTTP with the name of a method.
    let mut first = [0];
    if stream.peek(&mut first).await? > 0 && first[0].is_ascii_uppercase() {
        refuse_plain(&mut stream).await;
        return Err(io::Error::other("the client spoke HTTP without TLS"));
    }
    let stream = acceptor.accept(stream).await?;
    let shown = stream.get_ref().1.peer_certificates();
    let shown = shown.and_then(|chain| ClientCertificate::of(chain.first()?));
    Ok((stream, shown.map(Arc::new)))
}

/// Answers a client that speaks HTTP without TLS. Unread bytes would discard the response.
async fn refuse_plain(stream: &mut TcpStream) {
    let answer = async {
        stream.write_all(PLAIN_HTTP).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(PLAIN_READ), &mut tokio::io::sink()).await
    };
    // A client that does not read misses the response.
    drop(tokio::time::timeout(PLAIN_TIME, answer).await);
}

// === impl AnyCertificate ===

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match ClientCertificate::of(certificate) {
            Some(_) => Ok(ClientCertVerified::assertion()),
            None => Err(CertificateError::BadEncoding.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
