//! The certificate of the listener, read from its files together with the configuration.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bowline_wire::certificate::Validity;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use thiserror::Error as ThisError;

/// The largest file that is read: chains of certificates have a few KiB.
const LARGEST: u64 = 1024 * 1024;

/// A certificate with its chain and its key, and the files that they are from. `Debug` shows the files.
#[derive(Clone)]
pub struct ServerCertificate {
    cert: PathBuf,
    key: PathBuf,
    certified: Arc<CertifiedKey>,
}

/// Why two files cannot be used together.
#[derive(Debug, ThisError)]
pub enum ServerCertificateError {
    /// The file of the certificate cannot be read.
    #[error("`cert` cannot be read: {0}")]
    ReadCert(io::Error),
    /// The file of the key cannot be read.
    #[error("`key` cannot be read: {0}")]
    ReadKey(io::Error),
    /// There is no certificate in it.
    #[error("`cert` has no certificate (PEM) in it")]
    NoCertificate,
    /// What is in it is not one.
    #[error("`cert` has something in it that is not a certificate")]
    NotACertificate,
    /// The certificate is one that rustls cannot use.
    #[error("`cert` cannot be used: {0}")]
    UnusableCertificate(Error),
    /// There is no private key in it.
    #[error("`key` has no private key (PEM) in it")]
    NoKey,
    /// The key needs a passphrase.
    #[error("`key` is encrypted with a passphrase")]
    EncryptedKey,
    /// The key is one that rustls cannot use.
    #[error("`key` cannot be used: {0}")]
    UnusableKey(Error),
    /// The key is another's.
    #[error("`key` is not the key of the certificate in `cert`")]
    Mismatch,
}

// === impl ServerCertificate ===

impl ServerCertificate {
    /// Reads a certificate with its chain, and its key.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or holds something else, or when the two do not belong together.
    pub fn read(cert: &Path, key: &Path) -> Result<Self, ServerCertificateError> {
        let chain = read(cert).map_err(ServerCertificateError::ReadCert)?;
        let secret = read(key).map_err(ServerCertificateError::ReadKey)?;
        Ok(Self {
            cert: cert.to_owned(),
            key: key.to_owned(),
            certified: Arc::new(certified(&chain, &secret)?),
        })
    }

    /// The same files again, as they are now.
    ///
    /// # Errors
    ///
    /// As for [`ServerCertificate::read`].
    pub fn read_again(&self) -> Result<Self, ServerCertificateError> {
        Self::read(&self.cert, &self.key)
    }

    /// The file with the certificate.
    pub fn cert(&self) -> &Path {
        &self.cert
    }

    /// The file with the key.
    pub fn key(&self) -> &Path {
        &self.key
    }

    /// From when to when it is valid, for people.
    pub fn dates(&self) -> String {
        match self.validity() {
            Some(Validity {
                not_before,
                not_after,
            }) => format!("valid from {} to {}", date(not_before), date(not_after)),
            None => "valid at an unknown time".to_owned(),
        }
    }

    /// When it is valid, if it says so.
    pub(crate) fn validity(&self) -> Option<Validity> {
        Validity::of(self.certified.cert.first()?)
    }

    pub(crate) fn certified(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }
}

/// A key that matches a certificate is the certificate's only one.
impl PartialEq for ServerCertificate {
    fn eq(&self, other: &Self) -> bool {
        (&self.cert, &self.key, &self.certified.cert)
            == (&other.cert, &other.key, &other.certified.cert)
    }
}

impl Eq for ServerCertificate {}

impl fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerCertificate({})", self.cert.display())
    }
}

/// Seconds since 1970 as a date.
pub(crate) fn date(unix_seconds: i64) -> String {
    let since_1970 = Duration::from_secs(unix_seconds.try_into().unwrap_or_default());
    match UNIX_EPOCH.checked_add(since_1970) {
        Some(date) => humantime::format_rfc3339_seconds(date).to_string(),
        None => "an unknown date".to_owned(),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    use io::Read as _;

    let mut bytes = Vec::new();
    // Opening a pipe would wait for somebody who may never write.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let file = fs::File::open(path)?;
    file.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn certified(chain: &[u8], secret: &[u8]) -> Result<CertifiedKey, ServerCertificateError> {
    let certificates = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|_| ServerCertificateError::NotACertificate)?;
    if certificates.is_empty() {
        return Err(ServerCertificateError::NoCertificate);
    }
    if is_encrypted(secret) {
        return Err(ServerCertificateError::EncryptedKey);
    }
    let key = PrivateKeyDer::from_pem_slice(secret).map_err(|error| match error {
        pem::Error::NoItemsFound => ServerCertificateError::NoKey,
        error => ServerCertificateError::UnusableKey(Error::General(error.to_string())),
    })?;
    let key = default_provider()
        .key_provider
        .load_private_key(key)
        .map_err(ServerCertificateError::UnusableKey)?;
    let certified = CertifiedKey::new(certificates, key);
    match certified.keys_match() {
        Ok(()) => Ok(certified),
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(ServerCertificateError::Mismatch)
        }
        Err(error) => Err(ServerCertificateError::UnusableCertificate(error)),
    }
}

/// Whether a key needs a passphrase, in the form of PKCS #8 or in that of OpenSSL.
fn is_encrypted(key: &[u8]) -> bool {
    let has = |text: &str| memchr::memmem::find(key, text.as_bytes()).is_some();
    has("-----BEGIN ENCRYPTED PRIVATE KEY-----") || has("Proc-Type: 4,ENCRYPTED")
}

// === impl ServerCertificateError ===

impl ServerCertificateError {
    /// What to do about it.
    pub fn help(&self) -> &'static str {
        match self {
            Self::ReadCert(error) | Self::ReadKey(error) => match error.kind() {
                io::ErrorKind::NotFound => {
                    "correct the path; it is relative to the working directory"
                }
                io::ErrorKind::PermissionDenied => "let the user that runs Bowline read it",
                _ => "give a file that can be read",
            },
            Self::NoCertificate | Self::NotACertificate => {
                "give a file with the certificate and then its chain, each between `-----BEGIN CERTIFICATE-----` and `-----END CERTIFICATE-----`"
            }
            Self::UnusableCertificate(_) => {
                "give an X.509 certificate of version 3, such as `openssl req -x509` or an ACME client makes"
            }
            Self::NoKey => {
                "give a file with the certificate's key, `-----BEGIN PRIVATE KEY-----`; `openssl pkey` converts other formats"
            }
            Self::EncryptedKey => {
                "nobody is there to type the passphrase: remove it with `openssl pkey -in KEY -out NEW`, and make the new file readable for Bowline's user only (chmod 600)"
            }
            Self::UnusableKey(_) => {
                "give a key of RSA with at least 2048 bits, of P-256, P-384 or P-521, or of Ed25519"
            }
            Self::Mismatch => {
                "give the two that were made together; in `cert` the server's own certificate comes first, and its chain after it"
            }
        }
    }
}
