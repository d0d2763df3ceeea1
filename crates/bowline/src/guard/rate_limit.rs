//! The rate limit of anonymous requests: a bucket for each address, which fills slowly.
//!
//! Requests with a key or the API token are not counted, so anonymous ones cannot use up their rate.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How many requests may come at once, and how long one more takes.
const BURST: f64 = 50.0;
const EVERY: Duration = Duration::from_millis(100);

/// How many addresses have a bucket of their own. All others share the one of this address.
const MAX_ADDRESSES: usize = 4096;
const THE_REST: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The anonymous requests of each address.
#[derive(Debug, Default)]
pub(crate) struct RateLimit(Mutex<HashMap<IpAddr, Bucket>>);

#[derive(Debug)]
struct Bucket {
    left: f64,
    reckoned: Instant,
}

impl RateLimit {
    /// Counts one more request from this address, if it is within the limit.
    pub(crate) fn admit(&self, address: IpAddr) -> bool {
        let now = Instant::now();
        let mut buckets = self.0.lock();
        let is_known = buckets.contains_key(&address);
        if !is_known && buckets.len() >= MAX_ADDRESSES {
            buckets.retain(|_, bucket| !bucket.is_full(now));
        }
        let has_room = is_known || buckets.len() < MAX_ADDRESSES;
        let address = if has_room { address } else { THE_REST };
        let bucket = buckets.entry(address).or_insert(Bucket {
            left: BURST,
            reckoned: now,
        });
        bucket.take(now)
    }
}

// === impl Bucket ===

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        self.left = self.left_at(now);
        self.reckoned = now;
        let admits = self.left >= 1.0;
        if admits {
            self.left -= 1.0;
        }
        admits
    }

    fn is_full(&self, now: Instant) -> bool {
        self.left_at(now) >= BURST
    }

    fn left_at(&self, now: Instant) -> f64 {
        let refilled = (now - self.reckoned).as_secs_f64() / EVERY.as_secs_f64();
        (self.left + refilled).min(BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    fn admitted(limit: &RateLimit, address: IpAddr) -> usize {
        (0..100).filter(|_| limit.admit(address)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_let_in_and_then_ten_a_second() {
        let limit = RateLimit::default();
        assert_eq!(admitted(&limit, address(1)), 50);
        tokio::time::advance(Duration::from_millis(1050)).await;
        assert_eq!(admitted(&limit, address(1)), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_uses_up_its_own_visits_alone() {
        let limit = RateLimit::default();
        assert_eq!(admitted(&limit, address(1)), 50);
        assert_eq!(admitted(&limit, address(2)), 50);
    }

    #[tokio::test(start_paused = true)]
    async fn many_addresses_take_no_more_room_than_there_is() {
        let limit = RateLimit::default();
        for number in 0..10_000 {
            limit.admit(address(number));
        }
        assert_eq!(limit.0.lock().len(), MAX_ADDRESSES + 1);
        // Those without a place of their own have one together, which is used up.
        assert_eq!(admitted(&limit, address(20_000)), 0);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(admitted(&limit, address(20_001)), 50);
        assert!(limit.0.lock().len() < 10);
    }
}
