//! Callers as meant. Of a key only its hash is kept, and no two callers share one.

use std::collections::BTreeMap;

use toml::Spanned;

use crate::config::report::Findings;
use crate::config::tree::join;
use crate::config::{Caller, CallerName, KeyHash, file};

/// The fewest characters of a key: with fewer, it can be found by trying.
const SHORTEST: usize = 16;

/// The callers by name; what is wrong goes to `findings`, never with any part of a key.
pub(super) fn check(
    written: Vec<file::Caller>,
    findings: &mut Findings,
) -> BTreeMap<CallerName, Caller> {
    let mut callers = BTreeMap::new();
    let mut owners: Vec<(KeyHash, String)> = Vec::new();
    for caller in written {
        let path = join("callers", caller.name.get_ref());
        let name = caller.name.get_ref().parse::<CallerName>();
        if let Err(problem) = &name {
            let message = problem.what().replacen("server", "caller", 1);
            let help = problem.help().replacen("the server", "the caller", 1);
            findings.add(caller.name.span(), message, help.replace("files", "alice"));
        }
        let hash = match (&caller.key, &caller.key_sha256) {
            (Some(key), _) => of_key(key, findings),
            (None, Some(hash)) => of_hash(hash, findings),
            (None, None) => None,
        };
        let Some(hash) = hash else { continue };
        match owners.iter().find(|(other, _)| *other == hash) {
            Some((_, other)) => findings.add(
                caller.name.span(),
                format!("`{path}` has the same key as `{other}`"),
                "give each caller a key of its own",
            ),
            None => owners.push((hash.clone(), path)),
        }
        if let Ok(name) = name {
            callers.insert(name, Caller { key: hash });
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
    let hash = hexadecimal(written.get_ref());
    if hash.is_none() {
        findings.add(
            written.span(),
            "`key_sha256` is not a SHA-256 hash of 64 hexadecimal digits",
            "make it with `printf %s \"$KEY\" | sha256sum`",
        );
    }
    hash.map(KeyHash)
}

fn hexadecimal(text: &str) -> Option<[u8; 32]> {
    let (digits, rest) = text.as_bytes().as_chunks::<2>();
    let mut bytes = [0; 32];
    if digits.len() != bytes.len() || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(digits) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?;
    }
    Some(bytes)
}
