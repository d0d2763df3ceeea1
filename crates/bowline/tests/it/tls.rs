//! TLS at the listener: handshakes and their limits, certificates of clients, and certificates that are replaced.
//!
//! Here belongs what a client sees of TLS. Servers with TLS are in `operations` and in `interop/tls`.

mod callers;
mod files;
mod handshakes;

use std::path::Path;
use std::sync::Arc;

use bowline::Gateway;
use bowline::config::Config;
use bowline_testbed::answering::{Answering, Said, Seen};
use bowline_testbed::certificates;
use bowline_testbed::scripted::{PATIENCE, initialize_result};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::kit::messages::initialize_message;

/// A gateway with TLS, in front of a server that answers everything.
struct Site {
    directory: tempfile::TempDir,
    _server: Answering,
    gateway: Gateway,
}

/// A client with TLS: what it trusts, what it shows, what it speaks.
struct Speaker {
    trusts: &'static str,
    shows: Option<Arc<CertifiedKey>>,
    /// The only version that it speaks, if it does not speak both.
    version: Option<&'static SupportedProtocolVersion>,
    alpn: &'static [&'static str],
}

/// What came back.
#[derive(Debug)]
struct Heard {
    status: u16,
    head: String,
    body: String,
}

impl Site {
    /// With the certificate `server` in `tls.crt` and `tls.key`, and what else the file says.
    async fn start(more: impl FnOnce(&Path) -> String) -> Self {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path(), "server").await;
        let server = Answering::start(|seen: &Seen| match seen.method.as_str() {
            "POST" => seen.result(&initialize_result()),
            _ => Said::status(405),
        })
        .await;
        install(directory.path(), "server");
        let mut config = parsed(directory.path(), &more(directory.path())).unwrap();
        let url = format!("http://{}/", server.address());
        let behind = bowline::config::Server::from_url(&url).unwrap();
        config.servers.insert("s".parse().unwrap(), behind);
        Self {
            gateway: Gateway::start(config).await.unwrap(),
            _server: server,
            directory,
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    async fn dial(&self) -> TcpStream {
        let address = self.gateway.listen().tcp().unwrap();
        #[expect(clippy::disallowed_methods, reason = "a client's own")]
        TcpStream::connect(address).await.unwrap()
    }

    async fn connect(&self, by: &Speaker) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = self.dial().await;
        by.greet(self.path(), stream).await
    }

    /// Sends `initialize` on a connection of its own.
    async fn ask(&self, by: &Speaker, headers: &str) -> std::io::Result<Heard> {
        let mut stream = self.connect(by).await?;
        exchange(&mut stream, headers).await
    }
}

impl Default for Speaker {
    fn default() -> Self {
        Self {
            trusts: "server",
            shows: None,
            version: None,
            alpn: &[],
        }
    }
}

impl Speaker {
    fn showing(shows: Arc<CertifiedKey>) -> Self {
        Self {
            shows: Some(shows),
            ..Self::default()
        }
    }

    async fn greet(
        &self,
        directory: &Path,
        stream: TcpStream,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        let ca = directory.join(format!("{}-ca.pem", self.trusts));
        roots
            .add(CertificateDer::from_pem_file(ca).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let only = self.version.map(|version| [version]);
        let versions = only.as_ref().map_or(rustls::ALL_VERSIONS, |only| only);
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &self.shows {
            Some(shown) => builder.with_client_cert_resolver(Arc::new(Shown(Arc::clone(shown)))),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = self.alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let greeted = TlsConnector::from(Arc::new(config)).connect(name, stream);
        tokio::time::timeout(PATIENCE, greeted).await.unwrap()
    }
}

/// Shows this certificate whatever the gateway asks for.
#[derive(Debug)]
struct Shown(Arc<CertifiedKey>);

impl rustls::client::ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// One request and its answer. The connection can be used again.
async fn exchange(stream: &mut TlsStream<TcpStream>, headers: &str) -> std::io::Result<Heard> {
    let body = initialize_message().to_string();
    let request = format!(
        "POST /mcp/s HTTP/1.1\r\nhost: localhost\r\naccept: application/json, text/event-stream\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let heard = tokio::time::timeout(PATIENCE, hear(stream)).await;
    heard.expect("an answer")
}

/// An answer with a length, or without a body.
async fn hear(stream: &mut TlsStream<TcpStream>) -> std::io::Result<Heard> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.split("content-length: ").nth(1).unwrap_or("0\r\n");
    let length = length.split("\r\n").next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Heard {
        status: head[9..12].parse().unwrap(),
        head,
        body: String::from_utf8(body).unwrap(),
    })
}

/// Makes a certificate: `NAME.pem`, `NAME.key`, and its authority `NAME-ca.pem`.
async fn make(directory: &Path, name: &str) {
    certificates::make(directory, name).await.unwrap();
    let ca = directory.join(format!("{name}-ca.pem"));
    std::fs::rename(directory.join("ca.pem"), ca).unwrap();
}

/// Puts a certificate where the gateway reads it.
fn install(directory: &Path, name: &str) {
    for (from, to) in [("pem", "tls.crt"), ("key", "tls.key")] {
        let from = directory.join(format!("{name}.{from}"));
        std::fs::copy(from, directory.join(to)).unwrap();
    }
}

/// A file with `[tls]`, and what it says as well.
fn parsed(directory: &Path, more: &str) -> Result<Config, String> {
    let at = |name: &str| directory.join(name).display().to_string();
    let text = format!(
        "listen = '127.0.0.1:0'\nadmin = 'off'\nstore.kind = 'memory'\n\
         [tls]\ncert = '{}'\nkey = '{}'\n{more}",
        at("tls.crt"),
        at("tls.key")
    );
    Config::parse("test", &text, &|_| None).map_err(|errors| errors.to_string())
}

/// A certificate, with the key of that name.
fn pair(directory: &Path, name: &str, key: &str) -> Arc<CertifiedKey> {
    let at = |name: String| directory.join(name);
    let chain = CertificateDer::from_pem_file(at(format!("{name}.pem"))).unwrap();
    let key = PrivateKeyDer::from_pem_file(at(format!("{key}.key"))).unwrap();
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).unwrap();
    Arc::new(CertifiedKey::new(vec![chain], key))
}
