//! `[tls]` as meant: both files are read, and belong together.

use super::store::path;
use crate::config::report::Findings;
use crate::config::{ListenAddress, ServerCertificate, ServerCertificateError as Error, file};

/// The certificate of the listener; what is wrong goes to `findings`.
pub(super) fn check(
    written: Option<&file::Tls>,
    listen: &ListenAddress,
    findings: &mut Findings,
) -> Option<ServerCertificate> {
    let written = written?;
    if listen.unix().is_some() {
        findings.add(
            written.place.clone(),
            "`tls` means nothing on a Unix socket, which never leaves this machine",
            "listen on an IP address and a port, or take `[tls]` out",
        );
    }
    let both = [("cert", &written.cert), ("key", &written.key)];
    for (key, _) in both.iter().filter(|(_, written)| written.is_none()) {
        findings.add(
            written.place.clone(),
            format!("`tls` has no `{key}`"),
            format!(
                "add a line such as `{key} = \"/etc/bowline/tls.{}\"`",
                &key.replace("cert", "crt")
            ),
        );
    }
    let [cert, key] = both.map(|(key, written)| path(key, written.as_ref(), findings));
    let read = ServerCertificate::read(&cert?, &key?);
    let report = |error: &Error| {
        let is_of_cert = matches!(
            error,
            Error::ReadCert(_)
                | Error::NoCertificate
                | Error::NotACertificate
                | Error::UnusableCertificate(_)
        );
        let [(_, cert), (_, key)] = both;
        let place = if is_of_cert { cert } else { key };
        let place = place.as_ref().map_or(written.place.clone(), |it| it.span());
        findings.add(place, error.to_string(), error.help());
    };
    read.inspect_err(report).ok()
}
