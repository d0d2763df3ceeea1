//! An access token as requests carry it, and until when it is good for what.

use std::time::Duration;

use std::sync::atomic::{AtomicBool, Ordering};

use http::HeaderValue;

use super::grant::Grant;
use crate::upstream::random_fraction;

/// A token is renewed after this part of its life, and up to as much again later: gateways that
/// share a grant should not all think of it at once.
const RENEWED_AFTER: f64 = 0.8;
const SPREAD: f64 = 0.1;
/// So long before its end a token is not sent any more if there is a way to renew it: it has yet to
/// travel, and clocks differ. Half its life, if it is short.
const MARGIN_MILLIS: u64 = 30_000;

/// An access token as requests carry it. `Debug` does not show it.
#[derive(Debug)]
pub(crate) struct Bearer {
    /// Marked as sensitive.
    header: HeaderValue,
    /// The number of the sign-in that it came from: another one may be another account's.
    pub(crate) sign_in: u64,
    /// In milliseconds since 1970: from when on it is to be renewed, from when on a request rather
    /// waits for that, and from when on it is worth nothing.
    pub(super) due: u64,
    pub(super) stale: u64,
    pub(super) expired: u64,
    /// Whether the server ever took it.
    accepted: AtomicBool,
}

/// An access token cannot be what no header can hold.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the access token has characters that a header cannot have")]
pub(crate) struct NotAHeader;

// === impl Bearer ===

impl Bearer {
    pub(super) fn of(grant: &Grant) -> Result<Self, NotAHeader> {
        let text = format!("Bearer {}", grant.access_token.expose());
        let mut header = HeaderValue::try_from(text).map_err(|_| NotAHeader)?;
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

    /// What goes into `Authorization`.
    pub(crate) fn header(&self) -> &HeaderValue {
        &self.header
    }

    /// The server has taken it.
    pub(crate) fn note_accepted(&self) {
        // Read first: every request comes here, and all but the first have nothing to say.
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
    use crate::oauth::grant::tests::{found, tokens};

    fn bearer(refresh: Option<&str>, life: Option<u64>) -> Bearer {
        let tokens = tokens("access-secret", refresh, life);
        Bearer::of(&Grant::new("alice", found(), tokens, 3, 1000)).unwrap()
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
        Bearer::of(&Grant::new("alice", found(), tokens, 3, 1000)).unwrap_err();
    }
}
