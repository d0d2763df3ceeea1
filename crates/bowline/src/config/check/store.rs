//! The store as meant. A key that means nothing with the kind of store is refused: whoever wrote it
//! expects something of it.

use std::ops::Range;
use std::path::PathBuf;

use http::Uri;
use toml::Spanned;

use super::value;
use crate::config::report::Findings;
use crate::config::{
    Environment, OnUnreachable, Password, RedisStore, Store, StoreKind, UrlProblem, file, url,
};

const KINDS: &str = "write `memory`, `file` or `redis`";
const URL: &str =
    "write it like `redis://10.0.0.1:6379` or, with TLS, `rediss://redis.example.com`";
const PREFIX: &str = "bowline";
/// The longest prefix: every key has it.
const LONGEST_PREFIX: usize = 64;

/// The store; what is wrong goes to `findings`.
pub(super) fn check(
    written: &file::Store,
    environment: &Environment<'_>,
    findings: &mut Findings,
) -> Store {
    let default = Store::default();
    let state = state_directory(environment);
    // Whoever wrote a key of a store expects one.
    let lacks_state_directory = state.is_none() && is_silent(written);
    let unwritten = if lacks_state_directory {
        "memory"
    } else {
        "file"
    };
    let kind = written.kind.as_ref();
    let kind = kind.map_or(unwritten, |kind| kind.get_ref().as_str());
    match kind {
        "memory" | "file" | "redis" => misplaced(written, kind, findings),
        _ => {
            if let Some(kind) = &written.kind {
                findings.add(kind.span(), "unknown kind of store", KINDS);
            }
        }
    }
    let kind = match kind {
        "file" => directory(written, state, findings),
        "redis" => redis(written, findings).map(StoreKind::Redis),
        _ => None,
    };
    let (timeout, grace) = (written.timeout.as_ref(), written.grace.as_ref());
    Store {
        kind: kind.unwrap_or_default(),
        lacks_state_directory,
        timeout: value::duration("timeout", timeout, default.timeout, findings),
        cache: value::count("cache", 1, written.cache.as_ref(), default.cache, findings),
        grace: value::duration("grace", grace, default.grace, findings),
        seal_keys: None,
        seal_keys_file: path("seal_keys_file", written.seal_keys_file.as_ref(), findings),
    }
}

/// Refuses what means nothing with this kind.
fn misplaced(written: &file::Store, kind: &str, findings: &mut Findings) {
    let mut only = |kinds: &[&str], keys: &[KeySpan]| {
        let written = keys.iter().filter(|_| !kinds.contains(&kind));
        for (key, place) in written {
            let Some(place) = place else { continue };
            findings.add(
                place.clone(),
                format!("`{key}` means nothing with a store of kind `{kind}`"),
                format!("write `kind = \"{}\"`, or take it out", kinds[0]),
            );
        }
    };
    only(&["file"], &of_file(written));
    only(&["redis"], &of_redis(written));
    only(&["redis", "file"], &of_both(written));
}

/// A key, and where it is written if it is.
type KeySpan = (&'static str, Option<Range<usize>>);

fn of_file(written: &file::Store) -> [KeySpan; 1] {
    [("path", span(&written.path))]
}

fn of_redis(written: &file::Store) -> [KeySpan; 7] {
    [
        ("url", span(&written.url)),
        ("user", span(&written.user)),
        ("password", span(&written.password)),
        ("password_file", span(&written.password_file)),
        ("ca_file", span(&written.ca_file)),
        ("prefix", span(&written.prefix)),
        ("on_unreachable_start", span(&written.on_unreachable_start)),
    ]
}

fn of_both(written: &file::Store) -> [KeySpan; 4] {
    [
        ("timeout", span(&written.timeout)),
        ("cache", written.cache.as_ref().map(Spanned::span)),
        ("grace", span(&written.grace)),
        ("seal_keys_file", span(&written.seal_keys_file)),
    ]
}

fn span(text: &Option<Spanned<String>>) -> Option<Range<usize>> {
    text.as_ref().map(Spanned::span)
}

/// Whether nothing is written about the store.
fn is_silent(written: &file::Store) -> bool {
    let keys = of_file(written).into_iter().chain(of_redis(written));
    let mut keys = keys.chain(of_both(written));
    written.kind.is_none() && keys.all(|(_, place)| place.is_none())
}

fn earliest(keys: &[KeySpan]) -> Option<Range<usize>> {
    let places = keys.iter().filter_map(|(_, place)| place.clone());
    places.min_by_key(|place| place.start)
}

fn directory(
    written: &file::Store,
    state: Option<PathBuf>,
    findings: &mut Findings,
) -> Option<StoreKind> {
    if written.path.is_some() {
        let path = path("path", written.path.as_ref(), findings)?;
        return Some(StoreKind::File { path });
    }
    // What is only for Redis was complained of already.
    let place = span(&written.kind).or_else(|| earliest(&of_both(written)));
    if let (None, Some(place)) = (&state, place) {
        findings.add(
            place,
            "there is no directory for the sessions: neither XDG_STATE_HOME nor HOME is set",
            "write `path`, such as `path = \"/var/lib/bowline\"`",
        );
    }
    Some(StoreKind::File {
        path: state?.join("bowline"),
    })
}

/// Where programs of this user keep what should outlive them.
fn state_directory(environment: &Environment<'_>) -> Option<PathBuf> {
    let variable = |name: &str| {
        let value = environment(name).map(PathBuf::from);
        // The specification of these directories says to ignore what is relative.
        value.filter(|path| path.is_absolute())
    };
    let state = variable("XDG_STATE_HOME");
    state.or_else(|| Some(variable("HOME")?.join(".local/state")))
}

fn redis(written: &file::Store, findings: &mut Findings) -> Option<RedisStore> {
    if let (None, Some(kind)) = (&written.url, &written.kind) {
        findings.add(kind.span(), "a store of kind `redis` needs a `url`", URL);
    }
    let url = written.url.as_ref().and_then(|url| place(url, findings));
    let user = written.user.as_ref();
    let user = user.and_then(|user| full("user", user, findings));
    let password = password(written, findings);
    if let (Some(written), None) = (&written.user, &password) {
        findings.add(
            written.span(),
            "there is a `user` and no password",
            "add `password` or `password_file`",
        );
    }
    let ca_file = path("ca_file", written.ca_file.as_ref(), findings);
    let tls = url.as_ref().and_then(Uri::scheme_str) == Some("rediss");
    if let (Some(written), false, true) = (&written.ca_file, tls, url.is_some()) {
        findings.add(
            written.span(),
            "`ca_file` means nothing without TLS",
            "write `rediss://` in the `url`, or take it out",
        );
    }
    let prefix = written.prefix.as_ref();
    let redis = RedisStore {
        user,
        password,
        ca_file,
        prefix: prefix.map_or_else(
            || PREFIX.to_owned(),
            |prefix| self::prefix(prefix, findings),
        ),
        on_unreachable_start: on_unreachable_start(written, findings),
        url: url?,
    };
    Some(redis)
}

fn place(written: &Spanned<String>, findings: &mut Findings) -> Option<Uri> {
    let (what, help) = match url::parse_with(["redis", "rediss"], written.get_ref()) {
        Ok(url) => {
            let database = url.path().trim_start_matches('/');
            if url.query().is_none() && (database.is_empty() || database.parse::<u16>().is_ok()) {
                return Some(url);
            }
            let what = "the URL has more than a host, a port and the number of a database";
            (what, URL)
        }
        Err(UrlProblem::Scheme) => ("the URL's scheme is neither redis nor rediss", URL),
        Err(problem @ UrlProblem::Userinfo) => {
            (problem.what(), "write `user` and `password` instead")
        }
        Err(problem @ (UrlProblem::NotAbsolute | UrlProblem::NoHost)) => (problem.what(), URL),
        Err(problem) => (problem.what(), problem.help()),
    };
    findings.add(written.span(), what, help);
    None
}

fn password(written: &file::Store, findings: &mut Findings) -> Option<Password> {
    if let (Some(_), Some(file)) = (&written.password, &written.password_file) {
        findings.add(
            file.span(),
            "there are both `password` and `password_file`",
            "keep one of them",
        );
    }
    if let Some(password) = &written.password {
        return full("password", password, findings).map(Password::Written);
    }
    path("password_file", written.password_file.as_ref(), findings).map(Password::File)
}

fn prefix(written: &Spanned<String>, findings: &mut Findings) -> String {
    let text = written.get_ref();
    // Braces would change which part of a key a cluster looks at.
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if text.is_empty() || text.len() > LONGEST_PREFIX || !text.chars().all(allowed) {
        findings.add(
            written.span(),
            format!(
                "`prefix` must have 1 to {LONGEST_PREFIX} ASCII letters, digits, `-`, `_`, `.` or `:`"
            ),
            "write it like `prefix = \"bowline\"`; a `:` is added behind it",
        );
    }
    text.clone()
}

fn on_unreachable_start(written: &file::Store, findings: &mut Findings) -> OnUnreachable {
    let Some(written) = &written.on_unreachable_start else {
        return OnUnreachable::default();
    };
    match written.get_ref().as_str() {
        "wait" => OnUnreachable::Wait,
        "exit" => OnUnreachable::Exit,
        _ => {
            findings.add(
                written.span(),
                "`on_unreachable_start` is neither `wait` nor `exit`",
                "write `wait` to retry until it is available, or `exit` to exit with an error",
            );
            OnUnreachable::default()
        }
    }
}

pub(super) fn path(
    key: &str,
    written: Option<&Spanned<String>>,
    findings: &mut Findings,
) -> Option<PathBuf> {
    full(key, written?, findings).map(PathBuf::from)
}

/// A text that is not empty, as one easily is by a variable.
pub(super) fn full(
    key: &str,
    written: &Spanned<String>,
    findings: &mut Findings,
) -> Option<String> {
    if written.get_ref().is_empty() {
        findings.add(
            written.span(),
            format!("`{key}` is empty"),
            "give it a value, or take it out",
        );
        return None;
    }
    Some(written.get_ref().clone())
}
