//! `[peers]` as meant.

use std::net::SocketAddr;

use toml::Spanned;

use super::store::{full, path};
use crate::config::peers::{SHORTEST_SECRET, is_authority};
use crate::config::report::Findings;
use crate::config::{ListenAddress, Password, Peers, Store, StoreKind, file};

const LISTEN: &str = "write an IP address and a port, such as `10.0.0.5:6272`";
const ADVERTISE: &str = "write a host and a port, such as `10.0.0.5:6272` or `gw-1.internal:6272`";

/// How gateways reach each other; what is wrong goes to `findings`.
pub(super) fn check(
    written: Option<&file::Peers>,
    store: &Store,
    findings: &mut Findings,
) -> Option<Peers> {
    let written = written?;
    if !matches!(store.kind, StoreKind::Redis(_)) {
        findings.add(
            written.place.clone(),
            "`peers` means nothing without a store that gateways share",
            "write `kind = \"redis\"` in `[store]`, or take `[peers]` out",
        );
    }
    if written.listen.is_none() {
        let what = "`peers` needs a `listen` of its own";
        findings.add(written.place.clone(), what, LISTEN);
    }
    let listen = written.listen.as_ref();
    let listen = listen.and_then(|listen| address(listen, findings));
    let advertise = written.advertise.as_ref();
    let advertise = advertise.and_then(|it| advertised(it, findings));
    if let (Some(address), None, Some(place)) = (listen, &written.advertise, &written.listen)
        && address.ip().is_unspecified()
    {
        findings.add(
            place.span(),
            "`listen` is every address of this machine, so the others do not know which to use",
            format!("add `advertise`: {ADVERTISE}"),
        );
    }
    let secret = secret(written, findings)?;
    Some(Peers {
        listen: listen?,
        advertise,
        secret,
    })
}

fn address(written: &Spanned<String>, findings: &mut Findings) -> Option<SocketAddr> {
    let address = written.get_ref().parse::<ListenAddress>().ok();
    let address = address.and_then(|address| address.tcp());
    if address.is_none() {
        let what = "`listen` of `peers` is not an IP address with a port";
        findings.add(written.span(), what, LISTEN);
    }
    address
}

fn advertised(written: &Spanned<String>, findings: &mut Findings) -> Option<String> {
    let text = written.get_ref();
    if is_authority(text) {
        return Some(text.clone());
    }
    findings.add(
        written.span(),
        "`advertise` is not a host with a port",
        ADVERTISE,
    );
    None
}

fn secret(written: &file::Peers, findings: &mut Findings) -> Option<Password> {
    let Some(secret) = &written.secret else {
        let file = path("secret_file", written.secret_file.as_ref(), findings);
        return file.map(Password::File);
    };
    let text = full("secret", secret, findings)?;
    if text.len() < SHORTEST_SECRET {
        findings.add(
            secret.span(),
            format!("the secret has fewer than {SHORTEST_SECRET} characters, so it can be guessed"),
            "make a long one, such as with `openssl rand -hex 32`",
        );
    }
    Some(Password::Written(text))
}
