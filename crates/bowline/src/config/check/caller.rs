//! Callers as meant. Of a key only its hash is kept, and no two callers share one, nor a certificate.

use std::collections::BTreeMap;

use toml::Spanned;

use super::union::Known;
use crate::config::read::OneOrMany;
use crate::config::report::Findings;
use crate::config::tree::join;
use crate::config::{Caller, CallerName, CertificateHash, KeyHash, file};

/// The fewest characters of a key: with fewer, it can be found by trying.
const SHORTEST: usize = 16;

/// The callers by name; what is wrong goes to `findings`, never with any part of a key.
///
/// `has_tls`: whether clients can show certificates.
pub(super) fn check(
    written: Vec<file::Caller>,
    has_tls: bool,
    known: &Known,
    findings: &mut Findings,
) -> BTreeMap<CallerName, Caller> {
    let mut callers = BTreeMap::new();
    let mut owners: Vec<([u8; 32], String)> = Vec::new();
    for caller in written {
        let path = join("callers", caller.name.get_ref());
        let name = caller.name.get_ref().parse::<CallerName>();
        if let Err(problem) = &name {
            let message = problem.what().replacen("server", "caller", 1);
            let help = problem.help().replacen("the server", "the caller", 1);
            findings.add(caller.name.span(), message, help.replace("files", "alice"));
        }
        let key = match (&caller.key, &caller.key_sha256) {
            (Some(key), _) => of_key(key, findings),
            (None, Some(hash)) => of_hash(hash, findings),
            (None, None) => None,
        };
        let certificates = certificates(caller.certificate_sha256, has_tls, findings);
        let keys = key.iter().map(|key| ("key", key.0));
        let shown = certificates.iter().map(|hash| ("certificate", hash.0));
        for (what, hash) in keys.chain(shown) {
            match owners.iter().find(|(other, _)| *other == hash) {
                Some((_, other)) => findings.add(
                    caller.name.span(),
                    format!("`{path}` has the same {what} as `{other}`"),
                    format!("give each caller a {what} of its own"),
                ),
                None => owners.push((hash, path.clone())),
            }
        }
        let servers = caller.servers.as_ref();
        let servers = servers.map(|written| known.servers(&path, written, findings));
        if let Ok(name) = name
            && (key.is_some() || !certificates.is_empty())
        {
            let caller = Caller {
                key,
                certificates,
                servers,
            };
            callers.insert(name, caller);
        }
    }
    callers
}

fn of_key(key: &Spanned<String>, findings: &mut Findings) -> Option<KeyHash> {
    let text = key.get_ref();
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        findings.add(
            key.span(),
            "the key has a character that cannot be sent: a space, a line break or one beyond ASCII",
            "use letters, digits and punctuation; a line break is easily copied along",
        );
        return None;
    }
    if text.len() < SHORTEST {
        findings.add(
            key.span(),
            format!("the key has fewer than {SHORTEST} characters, so it can be guessed"),
            "make a long one, such as with `openssl rand -hex 32`",
        );
        return None;
    }
    Some(KeyHash::of(text.as_bytes()))
}

fn of_hash(written: &Spanned<String>, findings: &mut Findings) -> Option<KeyHash> {
    let hash = written.get_ref().parse();
    if hash.is_err() {
        findings.add(
            written.span(),
            "`key_sha256` is not a SHA-256 hash of 64 hexadecimal digits",
            "make it with `printf %s \"$KEY\" | sha256sum`",
        );
    }
    hash.ok()
}

fn certificates(
    written: Option<OneOrMany>,
    has_tls: bool,
    findings: &mut Findings,
) -> Vec<CertificateHash> {
    let (place, written) = match written {
        None => return Vec::new(),
        Some(OneOrMany::One(hash)) => (hash.span(), vec![hash]),
        Some(OneOrMany::Many(hashes)) => (hashes.span(), hashes.into_inner()),
    };
    if !has_tls {
        findings.add(
            place.clone(),
            "`certificate_sha256` means nothing without TLS: clients show no certificates",
            "add `[tls]` with `cert` and `key`, or give the caller a `key`",
        );
    }
    if written.is_empty() {
        let help = "write at least one hash, or give the caller a `key`";
        findings.add(place, "`certificate_sha256` is an empty list", help);
    }
    let mut hashes = Vec::new();
    for one in written {
        match one.get_ref().parse() {
            Ok(hash) => hashes.push(hash),
            Err(error) => findings.add(
                one.span(),
                format!("`certificate_sha256` is {error}"),
                "make it with `openssl x509 -in client.pem -noout -fingerprint -sha256`, and write what comes after the `=`",
            ),
        }
    }
    hashes
}
