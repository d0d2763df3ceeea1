//! Who sends a request: its bearer key says so.
//!
//! Where callers are configured every request needs the key of one of them; there is no other way
//! in to fall back on. Keys are known by their hashes only. Where none are configured everybody
//! who can reach the listener is the one local caller.

use std::collections::BTreeMap;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::{HeaderMap, header};
use parking_lot::RwLock;

use crate::caller::{Caller, KeyPrint};
use crate::config::{self, CallerName, KeyHash, ListenAddress};
use crate::fault::Fault;

/// The callers of a gateway; a reload replaces them all.
#[derive(Debug)]
pub(crate) struct Callers(RwLock<Vec<(Caller, KeyHash)>>);

// === impl Callers ===

impl Callers {
    pub(crate) fn new(configured: &BTreeMap<CallerName, config::Caller>) -> Self {
        Self(RwLock::new(known(configured)))
    }

    /// Replaces the callers by these.
    pub(crate) fn replace(&self, configured: &BTreeMap<CallerName, config::Caller>) {
        *self.0.write() = known(configured);
    }

    /// Who sent a request with these headers.
    pub(crate) fn identify(&self, headers: &HeaderMap) -> Result<Caller, Fault> {
        let known = self.0.read();
        if known.is_empty() {
            return Ok(Caller::Local);
        }
        let key = bearer_key(headers).ok_or(Fault::Unauthorized)?;
        let presented = KeyHash::of(key);
        // Always all of them, so that the time taken tells nothing of who is known.
        let mut found = None;
        for (caller, hash) in known.iter() {
            if verify_slices_are_equal(&presented.0, &hash.0).is_ok() {
                found = Some(caller);
            }
        }
        found.cloned().ok_or(Fault::Unauthorized)
    }

    /// Whether callers need keys.
    pub(crate) fn have_keys(&self) -> bool {
        !self.0.read().is_empty()
    }

    /// Whether anybody on the network may use a gateway that listens here.
    pub(crate) fn are_open_at(&self, listen: &ListenAddress) -> bool {
        self.0.read().is_empty() && !listen.is_local()
    }
}

fn known(configured: &BTreeMap<CallerName, config::Caller>) -> Vec<(Caller, KeyHash)> {
    let known = configured.iter().map(|(name, caller)| {
        let print = KeyPrint::of(&caller.key);
        (Caller::Named(name.clone(), Some(print)), caller.key.clone())
    });
    known.collect()
}

/// The key in `Authorization: Bearer KEY`. Two such headers could be two readers' two callers, so
/// there must be one.
pub(crate) fn bearer_key(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, rest) = value.as_bytes().split_at_checked(b"Bearer".len())?;
    let key = rest.trim_ascii_start();
    let is_bearer = scheme.eq_ignore_ascii_case(b"Bearer") && key.len() < rest.len();
    (is_bearer && !key.is_empty()).then_some(key)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn configured(callers: &[(&str, &str)]) -> BTreeMap<CallerName, config::Caller> {
        let hash = |key: &str| KeyHash::of(key.as_bytes());
        let callers = callers
            .iter()
            .map(|(name, key)| (name.parse().unwrap(), config::Caller { key: hash(key) }));
        callers.collect()
    }

    fn who(callers: &Callers, authorization: &[&str]) -> Option<Caller> {
        let mut headers = HeaderMap::new();
        for value in authorization {
            headers.append(
                header::AUTHORIZATION,
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        callers.identify(&headers).ok()
    }

    fn named(name: &str, key: &str) -> Option<Caller> {
        let print = KeyPrint::of(&KeyHash::of(key.as_bytes()));
        Some(Caller::Named(name.parse().unwrap(), Some(print)))
    }

    #[test]
    fn a_key_names_its_caller() {
        let callers = Callers::new(&configured(&[("ann", "k-ann"), ("bob", "k-bob")]));
        for good in ["Bearer k-ann", "bearer k-ann", "BEARER   k-ann"] {
            assert_eq!(who(&callers, &[good]), named("ann", "k-ann"), "{good}");
        }
        assert_eq!(who(&callers, &["Bearer k-bob"]), named("bob", "k-bob"));
    }

    #[test]
    fn anything_else_names_nobody() {
        let callers = Callers::new(&configured(&[("ann", "k-ann"), ("bob", "k-bob")]));
        for bad in [
            &[][..],
            &[""],
            &["k-ann"],
            &["Bearer"],
            &["Bearer "],
            &["Bearerk-ann"],
            &["Bearer k-annx"],
            &["Bearer k-an"],
            &["Bearer K-ANN"],
            &["Bearer k-ann k-ann"],
            &["Bearer ann"],
            &["Basic k-ann"],
            &["Basic Bearer k-ann"],
            &["Bearer\u{e9} k-ann"],
            &["Bearer k-ann", "Bearer k-ann"],
            &["Bearer k-ann", "Bearer k-bob"],
            &["Bearer k-ann", "Basic x"],
        ] {
            assert_eq!(who(&callers, bad), None, "{bad:?}");
        }
    }

    #[test]
    fn without_callers_everybody_is_the_local_one() {
        let callers = Callers::new(&configured(&[]));
        for any in [&[][..], &["Bearer x"], &["nonsense", "twice"]] {
            assert_eq!(who(&callers, any), Some(Caller::Local));
        }
    }

    #[test]
    fn callers_that_were_replaced_are_strangers() {
        let callers = Callers::new(&configured(&[("ann", "k-ann"), ("bob", "k-bob")]));
        callers.replace(&configured(&[("bob", "new")]));
        for gone in ["Bearer k-ann", "Bearer k-bob"] {
            assert_eq!(who(&callers, &[gone]), None);
        }
        assert_eq!(who(&callers, &["Bearer new"]), named("bob", "new"));
    }

    #[test]
    fn a_listener_that_others_reach_needs_callers() {
        let open = |listen: &str, callers: &[(&str, &str)]| {
            Callers::new(&configured(callers)).are_open_at(&listen.parse().unwrap())
        };
        assert!(open("0.0.0.0:6270", &[]));
        assert!(open("[::]:6270", &[]));
        assert!(open("10.0.0.1:6270", &[]));
        assert!(!open("127.0.0.1:6270", &[]));
        assert!(!open("[::1]:6270", &[]));
        assert!(!open("unix:/run/bowline.sock", &[]));
        assert!(!open("0.0.0.0:6270", &[("ann", "k")]));
    }
}
