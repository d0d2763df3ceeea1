//! Certificates of authorities to trust for a server, read from a file together with the configuration.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use thiserror::Error;

/// The certificates of authorities, and the file that they are from. `Debug` shows the file.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificates {
    file: PathBuf,
    all: Vec<CertificateDer<'static>>,
}

/// Why a file holds no certificates that could be trusted.
#[derive(Debug, Error)]
pub enum CertificatesError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// There is none in it.
    #[error("has no certificate (PEM) in it")]
    Empty,
    /// One of them is not one.
    #[error("has something in it that is not a certificate")]
    NotACertificate,
}

impl Certificates {
    /// Those in a file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or holds anything else.
    pub fn read(file: &Path) -> Result<Self, CertificatesError> {
        let text = fs::read(file)?;
        let all = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
        let all = all.map_err(|_| CertificatesError::NotACertificate)?;
        if all.is_empty() {
            return Err(CertificatesError::Empty);
        }
        let mut store = RootCertStore::empty();
        for one in &all {
            let added = store.add(one.clone());
            added.map_err(|_| CertificatesError::NotACertificate)?;
        }
        Ok(Self {
            file: file.to_owned(),
            all,
        })
    }

    /// The file that they are from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn all(&self) -> &[CertificateDer<'static>] {
        &self.all
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificates({})", self.file.display())
    }
}
