//! The cookies of one leg: what a balancer set, sent back to exactly the origin that set it.
//!
//! RFC 6265 for a jar that only ever sees one origin: `Domain` is checked but never widens a
//! cookie, paths and expiry count, `Secure` means https. Count and size are capped. The jar is
//! below everything that classifies a response, so that a cookie on an error counts too.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use bowline_system::clock;
use cookie::{Cookie, Expiration};
use http::{HeaderMap, HeaderValue, header};
use serde::{Deserialize, Serialize};

/// More cookies than any balancer sets; beyond that the oldest is removed.
const MAX_COOKIES: usize = 32;
/// The size that browsers allow for one cookie.
const MAX_COOKIE_BYTES: usize = 4096;

/// The cookies of one leg.
#[derive(Debug, Default, Clone)]
pub struct Jar {
    /// Oldest first.
    cookies: Vec<StoredCookie>,
    /// Whether a cookie has changed since this flag was last cleared.
    pub has_changed: bool,
}

/// Where a request goes, as far as cookies care.
#[derive(Debug, Clone, Copy)]
pub struct CookieUrl<'a> {
    /// Whether the request is encrypted.
    pub https: bool,
    /// The host that the request is sent to.
    pub host: &'a str,
    /// The path of the request.
    pub path: &'a str,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredCookie {
    name: Box<str>,
    value: Box<str>,
    path: Box<str>,
    https_only: bool,
    expires: Option<i64>,
}

// === impl Jar ===

impl Jar {
    /// Whether there is no cookie.
    pub fn is_empty(&self) -> bool {
        self.cookies.is_empty()
    }

    /// Parses stored bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let cookies: Vec<StoredCookie> = serde_json::from_slice(bytes)?;
        Ok(Self {
            cookies,
            has_changed: false,
        })
    }

    /// The jar as bytes, to be stored.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&self.cookies)
    }

    /// A hash of the cookies' names, independent of their values.
    pub fn names(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for cookie in &self.cookies {
            (&cookie.name, &cookie.path).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Stores every `Set-Cookie` of a response from `url`.
    pub fn store(&mut self, headers: &HeaderMap, url: CookieUrl<'_>) {
        for value in headers.get_all(header::SET_COOKIE) {
            if value.len() <= MAX_COOKIE_BYTES
                && let Ok(text) = value.to_str()
                && let Ok(cookie) = Cookie::parse(text)
            {
                self.keep(&cookie, url, clock::unix_seconds());
            }
        }
    }

    /// The `Cookie` header for a request to `url`, if any cookie belongs there.
    pub fn header(&self, url: CookieUrl<'_>) -> Option<HeaderValue> {
        if self.cookies.is_empty() {
            return None;
        }
        self.header_at(url, clock::unix_seconds())
    }

    fn header_at(&self, url: CookieUrl<'_>, now: i64) -> Option<HeaderValue> {
        let mut going: Vec<&StoredCookie> = Vec::with_capacity(self.cookies.len());
        going.extend(
            self.cookies
                .iter()
                .filter(|cookie| cookie.goes_to(url, now)),
        );
        // Longer paths first, then older first (RFC 6265, 5.4).
        going.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        let mut text = String::new();
        for cookie in going {
            if !text.is_empty() {
                text.push_str("; ");
            }
            text.push_str(&cookie.name);
            text.push('=');
            text.push_str(&cookie.value);
        }
        let mut value = HeaderValue::try_from(text)
            .ok()
            .filter(|text| !text.is_empty())?;
        value.set_sensitive(true);
        Some(value)
    }

    fn keep(&mut self, cookie: &Cookie<'_>, url: CookieUrl<'_>, now: i64) {
        if cookie.name().is_empty()
            || !cookie
                .domain()
                .is_none_or(|domain| is_within(url.host, domain))
        {
            return;
        }
        let kept = StoredCookie::new(cookie, url, now);
        let same = |other: &StoredCookie| other.name == kept.name && other.path == kept.path;
        let expired = kept.is_expired(now);
        match self.cookies.iter().position(same) {
            Some(at) if !expired && self.cookies[at] == kept => return,
            Some(at) if expired => drop(self.cookies.remove(at)),
            Some(at) => self.cookies[at] = kept,
            None if expired => return,
            None => self.insert(kept, now),
        }
        self.has_changed = true;
    }

    fn insert(&mut self, kept: StoredCookie, now: i64) {
        if self.cookies.len() >= MAX_COOKIES {
            self.cookies.retain(|cookie| !cookie.is_expired(now));
        }
        if self.cookies.len() >= MAX_COOKIES {
            self.cookies.remove(0);
        }
        self.cookies.push(kept);
    }
}

// === impl StoredCookie ===

impl StoredCookie {
    fn new(cookie: &Cookie<'_>, url: CookieUrl<'_>, now: i64) -> Self {
        // Max-Age wins over Expires (RFC 6265, 5.3).
        let expires = match (cookie.max_age(), cookie.expires()) {
            (Some(age), _) => Some(now.saturating_add(age.whole_seconds())),
            (None, Some(Expiration::DateTime(date))) => Some(date.unix_timestamp()),
            (None, Some(Expiration::Session) | None) => None,
        };
        let path = cookie.path().filter(|path| path.starts_with('/'));
        Self {
            name: cookie.name().into(),
            value: cookie.value().into(),
            path: path.unwrap_or_else(|| default_path(url.path)).into(),
            https_only: cookie.secure() == Some(true),
            expires,
        }
    }

    fn is_expired(&self, now: i64) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    fn goes_to(&self, url: CookieUrl<'_>, now: i64) -> bool {
        !self.is_expired(now)
            && (url.https || !self.https_only)
            && path_matches(url.path, &self.path)
    }
}

impl std::fmt::Debug for StoredCookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}=…", self.name)
    }
}

/// The directory of a request's path (RFC 6265, 5.1.4).
fn default_path(request: &str) -> &str {
    match request.rfind('/') {
        Some(0) | None => "/",
        Some(last) => &request[..last],
    }
}

fn path_matches(request: &str, cookie: &str) -> bool {
    request
        .strip_prefix(cookie)
        .is_some_and(|rest| rest.is_empty() || cookie.ends_with('/') || rest.starts_with('/'))
}

/// Whether a host may set a cookie for this domain: its own, or one above it.
fn is_within(host: &str, domain: &str) -> bool {
    let domain = domain.trim_start_matches('.');
    let Some(cut) = host.len().checked_sub(domain.len()) else {
        return false;
    };
    host.is_char_boundary(cut)
        && host[cut..].eq_ignore_ascii_case(domain)
        && (cut == 0 || host[..cut].ends_with('.'))
}

#[cfg(test)]
mod tests;
