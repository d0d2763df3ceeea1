//! An access token as requests carry it, and when it is due for a refresh, about to expire, and expired.

use std::time::Duration;

use std::sync::atomic::{AtomicBool, Ordering};

use bowline_system::jitter::random_fraction;
use http::HeaderValue;

use super::grant::Grant;

/// A token is refreshed after this part of its life, plus a random part of `SPREAD`: gateways that share a
/// grant must not all refresh it at once.
const RENEWED_AFTER: f64 = 0.8;
const SPREAD: f64 = 0.1;
/// This long before it expires, a token is not sent any more if it can be refreshed: the request takes time,
/// and clocks differ. Half the token's life, if that is shorter.
const MARGIN_MILLIS: u64 = 30_000;

/// An access token as requests carry it. `Debug` does not show it.
#[derive(Debug)]
pub(crate) struct Bearer {
    /// Marked as sensitive.
    header: HeaderValue,
    /// The number of the sign-in that it came from: another sign-in may be for another account.
    pub(crate) sign_in: u64,
    /// In milliseconds since 1970: when it is due for a refresh, when a request rather waits for the refresh,
    /// and when it has expired.
    pub(super) due: u64,
    pub(super) stale: u64,
    pub(super) expired: u64,
    /// Whether the server ever accepted it.
    accepted: AtomicBool,
}

/// The access token cannot be sent in a header.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the access token has characters that an HTTP header cannot carry")]
pub(crate) struct InvalidBearer;

// === impl Bearer ===

impl Bearer {
    pub(super) fn of(grant: &Grant) -> Result<Self, InvalidBearer> {
        let text = format!("Bearer {}", grant.access_token.expose());
        let mut header = HeaderValue::try_from(text).map_err(|_| InvalidBearer)?;
        header.set_sensitive(true);
        let bearer = Self {
            header,
            sign_in: grant.sign_in,
            due: u64::MAX,
            stale: u64::MAX,
            expired: u64::MAX,
            accepted: AtomicBool::new(false),
        };
        let Some(expires) = grant.expires else {
            return Ok(bearer);
        };
        let expired = millis(expires);
        if grant.refresh_token.is_none() {
            let (due, stale) = (expired, expired);
            return Ok(Self {
                due,
                stale,
                expired,
                ..bearer
            });
        }
        let obtained = millis(grant.obtained);
        let life = expired.saturating_sub(obtained);
        let stale = expired - MARGIN_MILLIS.min(life / 2);
        let part = RENEWED_AFTER + SPREAD * random_fraction();
        let ahead = Duration::from_millis(life).mul_f64(part).as_millis();
        let ahead = obtained.saturating_add(u64::try_from(ahead).unwrap_or(u64::MAX));
        Ok(Self {
            due: ahead.min(stale),
            stale,
            expired,
            ..bearer
        })
    }

    /// The value of the `Authorization` header.
    pub(crate) fn header(&self) -> &HeaderValue {
        &self.header
    }

    /// Notes that the server accepted it.
    pub(crate) fn note_accepted(&self) {
        // Read first: every request comes here, and only the first one writes.
        if !self.was_accepted() {
            self.accepted.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn was_accepted(&self) -> bool {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Whether it is the same token as another.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.header == other.header
    }
}

fn millis(seconds: i64) -> u64 {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oauth::grant::tests::{credentials, tokens};

    fn bearer(refresh: Option<&str>, life: Option<u64>) -> Bearer {
        let tokens = tokens("access-secret", refresh, life);
        Bearer::of(&Grant::new("alice", credentials(tokens), 3, 1000)).unwrap()
    }

    #[test]
    fn it_is_renewed_ahead_of_its_end_and_not_by_everybody_at_once() {
        let mut dues = Vec::new();
        for _ in 0..100 {
            let bearer = bearer(Some("refresh"), Some(1000));
            assert_eq!((bearer.stale, bearer.expired), (1_970_000, 2_000_000));
            assert!((1_800_000..=1_900_000).contains(&bearer.due), "{bearer:?}");
            dues.push(bearer.due);
        }
        dues.sort_unstable();
        assert!(dues[99] - dues[0] > 50_000, "{dues:?}");
    }

    #[test]
    fn a_short_life_leaves_some_time_to_use_it() {
        for (life, stale) in [
            (100, 1_070_000),
            (40, 1_020_000),
            (1, 1_000_500),
            (0, 1_000_000),
        ] {
            let bearer = bearer(Some("refresh"), Some(life));
            assert_eq!(bearer.stale, stale, "{life}");
            assert!(bearer.due <= stale, "{life}");
        }
    }

    #[test]
    fn what_cannot_be_renewed_is_used_to_its_end() {
        let end = bearer(None, Some(1000));
        assert_eq!(
            (end.due, end.stale, end.expired),
            (2_000_000, 2_000_000, 2_000_000)
        );
        for refresh in [None, Some("refresh")] {
            let never = bearer(refresh, None);
            assert_eq!((never.due, never.expired), (u64::MAX, u64::MAX));
        }
    }

    #[test]
    fn it_is_sent_and_not_shown() {
        let bearer = bearer(None, None);
        assert_eq!(bearer.header(), "Bearer access-secret");
        assert!(bearer.header().is_sensitive());
        assert!(!format!("{bearer:?}").contains("access-secret"));
        let tokens = tokens("two\nlines", None, None);
        Bearer::of(&Grant::new("alice", credentials(tokens), 3, 1000)).unwrap_err();
    }
}
