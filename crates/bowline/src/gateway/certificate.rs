//! The certificate of the listener: taken into use at the start, and replaced while connections go on.

use std::sync::Arc;

use bowline_store::private;
use bowline_system::clock;

use super::Gateway;
use crate::config::tls::date;
use crate::config::{Caller, Config, ServerCertificate, ServerCertificateError};
use crate::hub::Hub;
use crate::listener::ListenerTls;

/// How clients are served by TLS, if they are.
pub(super) fn listener(config: &Config) -> Result<Option<Arc<ListenerTls>>, rustls::Error> {
    let Some(certificate) = &config.tls else {
        return Ok(None);
    };
    warn(certificate);
    let asks = config.callers.values().any(has_certificates);
    let tls = ListenerTls::new(certificate.certified(), asks)?;
    Ok(Some(Arc::new(tls)))
}

/// Whether clients are asked for certificates.
fn has_certificates(caller: &Caller) -> bool {
    !caller.certificates.is_empty()
}

impl Gateway {
    /// The certificate of the listener, and the files that it is from; `None` without TLS.
    pub fn certificate(&self) -> Option<ServerCertificate> {
        self.certificate.lock().clone()
    }

    /// Reads the files of the listener's certificate again. Connections that are open go on; new ones get the new
    /// certificate. Without TLS, and if nothing has changed, this does nothing.
    ///
    /// # Errors
    ///
    /// When the files cannot be used; the old certificate stays in use.
    pub fn reload_certificate(&self) -> Result<(), ServerCertificateError> {
        if let Some(old) = self.certificate() {
            let new = old.read_again()?;
            if new != old {
                use_certificate(&self.hub, &new, self.hub.callers.now().have_certificates());
                *self.certificate.lock() = Some(new);
            }
        }
        Ok(())
    }

    /// Takes over what another configuration says.
    pub(super) fn reconfigure_certificate(&self, new: Option<ServerCertificate>, asked: bool) {
        let asks = self.hub.callers.now().have_certificates();
        let mut held = self.certificate.lock();
        if let Some(new) = &new
            && (held.as_ref(), asked) != (Some(new), asks)
        {
            use_certificate(&self.hub, new, asks);
        }
        *held = new;
    }
}

fn use_certificate(hub: &Hub, certificate: &ServerCertificate, asks: bool) {
    warn(certificate);
    if let Some(tls) = &hub.listener_tls {
        tls.replace(certificate.certified(), asks);
        let cert = certificate.cert().display();
        let expires = certificate.validity().map(|it| date(it.not_after));
        tracing::info!(%cert, expires, "certificate replaced");
    }
}

/// Warns of a certificate that clients will refuse, and of a key that others can read.
fn warn(certificate: &ServerCertificate) {
    if let Some(validity) = certificate.validity() {
        let (now, cert) = (clock::unix_seconds(), certificate.cert().display());
        if now > validity.not_after {
            let expired = date(validity.not_after);
            tracing::warn!(%cert, expired, "the certificate of the listener has expired: clients will refuse it");
        } else if now < validity.not_before {
            let from = date(validity.not_before);
            tracing::warn!(%cert, from, "the certificate of the listener is not valid yet: clients will refuse it");
        }
    }
    let key = certificate.key();
    // Not refused: a secret that is mounted into a container often cannot have another mode.
    if private::is_open_to_others(key).unwrap_or(false) {
        let key = key.display();
        tracing::warn!(%key, "other users of this machine can read or change the key of the listener's certificate: it has to be this user's (chmod 600), in a directory that nobody else can write to");
    }
}
