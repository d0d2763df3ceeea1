//! Ids of Bowline's own requests.
//!
//! They contain nothing that a JSON encoder escapes, and none is used twice, because a server may
//! identify requests by them.

use std::hash::{BuildHasher as _, RandomState};

use bowline_wire::message::RawIdBuf;

/// An id for a request of our own. No other request has it, on this gateway or another.
pub(crate) fn own_id(purpose: &str) -> RawIdBuf {
    let random = RandomState::new().hash_one(purpose);
    RawIdBuf::new(format!(r#""bowline-{purpose}-{random:016x}""#))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_of_our_own_are_one() {
        let ids = (0..1000).map(|_| own_id("ping").to_string());
        let ids: std::collections::HashSet<_> = ids.collect();
        assert_eq!(ids.len(), 1000);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-\"".contains(&byte);
        assert!(ids.iter().all(|id| id.bytes().all(is_plain)));
    }
}
