//! A caller's identity, under which its grants and flows are stored: its name and a fingerprint of its key, or
//! of its first certificate.
//! If the name is later given to another key, that is another caller, which finds nothing of the old one.

use std::collections::{BTreeMap, HashMap};

use parking_lot::RwLock;

use crate::caller::{Caller, KeyPrint};
use crate::config::{self, CallerName, ServerName};

/// Separates name and fingerprint; it occurs in neither.
const BETWEEN: char = '#';

/// The configured callers, by name.
#[derive(Debug, Default)]
pub(crate) struct CallerIdentities(RwLock<HashMap<CallerName, Known>>);

#[derive(Debug)]
struct Known {
    key: KeyPrint,
    /// The servers that it may use; `None` for all.
    servers: Option<Vec<ServerName>>,
}

impl CallerIdentities {
    /// Replaces the known callers by these.
    pub(crate) fn know(&self, callers: &BTreeMap<CallerName, config::Caller>) {
        let known = callers.iter().filter_map(|(name, caller)| {
            let known = Known {
                key: KeyPrint::of_caller(caller)?,
                servers: caller.servers.clone(),
            };
            Some((name.clone(), known))
        });
        *self.0.write() = known.collect();
    }

    /// The caller with this name; if none is configured, one without a key.
    pub(crate) fn named(&self, name: CallerName) -> Caller {
        let key = self.0.read().get(&name).map(|known| known.key);
        Caller::Named(name, key)
    }

    /// Whether this caller is configured, with this key.
    pub(crate) fn knows(&self, caller: &Caller) -> bool {
        let known = self.0.read();
        match caller {
            Caller::Local => known.is_empty(),
            Caller::Named(name, key) => {
                key.is_some() && known.get(name).map(|known| known.key) == *key
            }
        }
    }

    /// Whether this caller is configured, with this key, and may use this server.
    pub(crate) fn may_use(&self, caller: &Caller, server: &ServerName) -> bool {
        let known = self.0.read();
        match caller {
            Caller::Local => known.is_empty(),
            Caller::Named(name, key) => known.get(name).is_some_and(|known| {
                let servers = known.servers.as_ref();
                Some(known.key) == *key && servers.is_none_or(|servers| servers.contains(server))
            }),
        }
    }

    /// The same for a caller's identity.
    pub(crate) fn knows_identity(&self, identity: &str) -> bool {
        match name_of(identity).parse() {
            Ok(name) => {
                let caller = self.named(name);
                caller.key().is_some() && *identity_of(&caller) == *identity
            }
            Err(_) => identity.is_empty() && self.knows(&Caller::Local),
        }
    }
}

/// A caller's identity; empty for the local caller.
pub(crate) fn identity_of(caller: &Caller) -> Box<str> {
    match caller {
        Caller::Local => "".into(),
        Caller::Named(name, None) => format!("{name}{BETWEEN}").into(),
        Caller::Named(name, Some(key)) => format!("{name}{BETWEEN}{key}").into(),
    }
}

/// The caller's name in an identity; empty for the local caller.
pub(crate) fn name_of(identity: &str) -> &str {
    identity.split(BETWEEN).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KeyHash;

    #[test]
    fn a_name_with_another_key_is_somebody_else() {
        let identities = CallerIdentities::default();
        assert!(identities.knows(&Caller::Local) && identities.knows_identity(""));
        let name = || "bob".parse().unwrap();
        let with = |key: &[u8]| {
            let caller = config::Caller::with_key(KeyHash::of(key));
            identities.know(&BTreeMap::from([(name(), caller)]));
            identities.named(name())
        };
        let (first, second) = (with(b"first"), with(b"second"));
        assert_ne!(first, second);
        assert_eq!(with(b"first"), first);
        let known = |caller: &Caller| {
            let is_known = identities.knows(caller);
            assert_eq!(identities.knows_identity(&identity_of(caller)), is_known);
            is_known
        };
        assert!(known(&first) && !known(&second) && !known(&Caller::Local));
        identities.know(&BTreeMap::new());
        let nobody = identities.named(name());
        assert!(nobody != first && nobody != second);
        for caller in [&first, &second, &nobody] {
            assert!(!known(caller));
            assert_eq!(name_of(&identity_of(caller)), "bob");
        }
        assert_eq!(name_of(&identity_of(&Caller::Local)), "");
    }

    #[test]
    fn a_caller_may_use_the_servers_that_it_was_given() {
        let identities = CallerIdentities::default();
        let [name, server, other] = ["bob", "s", "t"].map(|name| name.parse().unwrap());
        assert!(identities.may_use(&Caller::Local, &server));
        let mut caller = config::Caller::with_key(KeyHash::of(b"first"));
        let mut know = |servers: Option<&ServerName>| {
            caller.servers = servers.map(|server| vec![server.clone()]);
            identities.know(&BTreeMap::from([(
                CallerName::clone(&name),
                caller.clone(),
            )]));
            identities.named(name.clone())
        };
        let bob = know(None);
        assert!(identities.may_use(&bob, &server) && identities.may_use(&bob, &other));
        assert_eq!(know(Some(&server)), bob, "it is the same caller");
        assert!(identities.may_use(&bob, &server) && !identities.may_use(&bob, &other));
        assert!(identities.knows(&bob) && !identities.may_use(&Caller::Local, &server));
        let nobody = Caller::Named(name.clone(), None);
        assert!(!identities.may_use(&nobody, &server));
    }
}
