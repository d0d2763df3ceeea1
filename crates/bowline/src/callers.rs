//! The callers of a gateway: who is known now, and what each may use now. A reload replaces them all.
//!
//! Whoever does anything for a caller asks here, at every request. What only a caller that may do so can have is made
//! by asking: the exchange of a session and the request of an attachment ask when they are made, a session when it is
//! opened, and a mailbox takes a [`Permitted`], which nothing else makes. So a way in that does not ask does not
//! compile. What goes on after that, a stream, ends with the reload that takes the leave away.
//!
//! A caller's identity is what its grants and flows are stored under: its name, and a fingerprint of its key or of its
//! first certificate. If the name is later given to another key, that is another caller, which finds nothing of the
//! old one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use tokio::sync::watch;

use crate::caller::{Caller, KeyPrint};
use crate::config::{self, CallerName, CertificateHash, KeyHash, ServerName};

/// Separates name and fingerprint; it occurs in neither.
const BETWEEN: char = '#';

/// The configured callers.
#[derive(Debug, Default)]
pub(crate) struct Callers(watch::Sender<Arc<Known>>);

/// The callers of one configuration.
#[derive(Debug, Default)]
pub(crate) struct Known {
    named: HashMap<CallerName, Rights>,
    keys: Vec<(Caller, KeyHash)>,
    certificates: Vec<(Caller, CertificateHash)>,
}

/// What one caller is known by, and may use.
#[derive(Debug)]
struct Rights {
    key: Option<KeyPrint>,
    /// The servers that it may use; `None` for all.
    servers: Option<Vec<ServerName>>,
}

/// A caller that is known and may use a server, or speak to a union, as was asked just now.
#[derive(Debug)]
pub(crate) struct Permitted<'a> {
    caller: &'a Caller,
    at: &'a ServerName,
}

// === impl Callers ===

impl Callers {
    pub(crate) fn new(configured: &BTreeMap<CallerName, config::Caller>) -> Self {
        Self(watch::Sender::new(Arc::new(Known::of(configured))))
    }

    /// Replaces the callers by these.
    pub(crate) fn replace(&self, configured: &BTreeMap<CallerName, config::Caller>) {
        self.0.send_replace(Arc::new(Known::of(configured)));
    }

    /// Waits until this does not hold any more, which only a reload can bring about.
    pub(crate) async fn until_not(&self, holds: impl Fn(&Self) -> bool) {
        let mut replaced = self.0.subscribe();
        while holds(self) {
            // The sender is `self`.
            drop(replaced.changed().await);
        }
    }

    /// Those of now.
    pub(crate) fn now(&self) -> Arc<Known> {
        Arc::clone(&self.0.borrow())
    }

    /// A caller's leave to use a server now.
    pub(crate) fn permit<'a>(
        &self,
        caller: &'a Caller,
        server: &'a ServerName,
    ) -> Option<Permitted<'a>> {
        let may_use = self.0.borrow().may_use(caller, server.as_ref());
        may_use.then_some(Permitted { caller, at: server })
    }

    /// A caller's leave to speak to a union now. Which of its servers the caller may use is asked for each of them.
    pub(crate) fn permit_union<'a>(
        &self,
        caller: &'a Caller,
        union: &'a ServerName,
    ) -> Option<Permitted<'a>> {
        self.knows(caller)
            .then_some(Permitted { caller, at: union })
    }

    /// Whether this caller is configured, with this key.
    pub(crate) fn knows(&self, caller: &Caller) -> bool {
        self.0.borrow().knows(caller)
    }

    /// Whether the caller with this identity may sign in at a server now.
    pub(crate) fn permits_sign_in(&self, identity: &str, server: &str) -> bool {
        let caller = self.with_identity(identity);
        caller.is_some_and(|caller| self.0.borrow().may_use(&caller, server))
    }

    /// The caller with this name; if none is configured, one without a key.
    pub(crate) fn named(&self, name: CallerName) -> Caller {
        let key = self.0.borrow().named.get(&name).and_then(|one| one.key);
        Caller::Named(name, key)
    }

    /// The caller with this identity, if it is anybody's now.
    fn with_identity(&self, identity: &str) -> Option<Caller> {
        let caller = match name_of(identity) {
            "" => Caller::Local,
            name => self.named(name.parse().ok()?),
        };
        (*identity_of(&caller) == *identity).then_some(caller)
    }
}

// === impl Known ===

impl Known {
    fn of(configured: &BTreeMap<CallerName, config::Caller>) -> Self {
        let mut known = Self::default();
        for (name, configured) in configured {
            let key = KeyPrint::of_caller(configured);
            let caller = Caller::Named(name.clone(), key);
            let keys = configured.key.iter();
            let keys = keys.map(|key| (caller.clone(), key.clone()));
            known.keys.extend(keys);
            let certificates = configured.certificates.iter();
            let certificates = certificates.map(|hash| (caller.clone(), *hash));
            known.certificates.extend(certificates);
            let servers = configured.servers.clone();
            known.named.insert(name.clone(), Rights { key, servers });
        }
        known
    }

    /// Whether nobody has to show who they are: everybody is the local caller.
    pub(crate) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// Whether some of them show certificates.
    pub(crate) fn have_certificates(&self) -> bool {
        !self.certificates.is_empty()
    }

    /// The caller with this key.
    pub(crate) fn by_key(&self, key: &[u8]) -> Option<&Caller> {
        let presented = KeyHash::of(key);
        // Always all of them, so that the time taken tells nothing of who is known.
        let mut found = None;
        for (caller, hash) in &self.keys {
            if verify_slices_are_equal(&presented.0, &hash.0).is_ok() {
                found = Some(caller);
            }
        }
        found
    }

    /// The caller with this certificate.
    pub(crate) fn by_certificate(&self, shown: CertificateHash) -> Option<&Caller> {
        let mut known = self.certificates.iter();
        let (caller, _) = known.find(|(_, hash)| *hash == shown)?;
        Some(caller)
    }

    fn knows(&self, caller: &Caller) -> bool {
        match caller {
            Caller::Local => self.is_empty(),
            Caller::Named(name, key) => self.rights(name, *key).is_some(),
        }
    }

    /// Whether a caller is known, and may use this server: the one place where that is decided.
    fn may_use(&self, caller: &Caller, server: &str) -> bool {
        match caller {
            Caller::Local => self.is_empty(),
            Caller::Named(name, key) => self.rights(name, *key).is_some_and(|rights| {
                let servers = rights.servers.as_ref();
                servers.is_none_or(|servers| servers.iter().any(|one| one.as_ref() == server))
            }),
        }
    }

    /// Those of the caller with this name and this key. One without a key speaks for nobody.
    fn rights(&self, name: &CallerName, key: Option<KeyPrint>) -> Option<&Rights> {
        let rights = self.named.get(name)?;
        (key.is_some() && rights.key == key).then_some(rights)
    }
}

// === impl Permitted ===

impl<'a> Permitted<'a> {
    pub(crate) fn caller(&self) -> &'a Caller {
        self.caller
    }

    /// The name of the server, or of the union.
    pub(crate) fn at(&self) -> &'a ServerName {
        self.at
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

    fn with_key(key: &[u8]) -> BTreeMap<CallerName, config::Caller> {
        let caller = config::Caller::with_key(KeyHash::of(key));
        BTreeMap::from([("bob".parse().unwrap(), caller)])
    }

    #[test]
    fn a_name_with_another_key_is_somebody_else() {
        let callers = Callers::default();
        assert!(callers.knows(&Caller::Local) && callers.permits_sign_in("", "s"));
        let name = || "bob".parse().unwrap();
        let with = |key: &[u8]| {
            callers.replace(&with_key(key));
            callers.named(name())
        };
        let (first, second) = (with(b"first"), with(b"second"));
        assert_ne!(first, second);
        assert_eq!(with(b"first"), first);
        let known = |caller: &Caller| {
            let is_known = callers.knows(caller);
            assert_eq!(callers.permits_sign_in(&identity_of(caller), "s"), is_known);
            is_known
        };
        assert!(known(&first) && !known(&second) && !known(&Caller::Local));
        callers.replace(&BTreeMap::new());
        let nobody = callers.named(name());
        assert!(nobody != first && nobody != second);
        for caller in [&first, &second, &nobody] {
            assert!(!known(caller));
            assert_eq!(name_of(&identity_of(caller)), "bob");
        }
        assert_eq!(name_of(&identity_of(&Caller::Local)), "");
    }

    #[test]
    fn a_caller_may_use_the_servers_that_it_was_given() {
        let callers = Callers::default();
        let [server, other]: [ServerName; 2] = ["s", "t"].map(|name| name.parse().unwrap());
        let may = |caller: &Caller, server: &ServerName| {
            let is_permitted = callers.permit(caller, server).is_some();
            let identity = identity_of(caller);
            assert_eq!(
                callers.permits_sign_in(&identity, server.as_ref()),
                is_permitted
            );
            is_permitted
        };
        assert!(may(&Caller::Local, &server));
        let know = |servers: Option<&ServerName>| {
            let mut configured = with_key(b"first");
            for caller in configured.values_mut() {
                caller.servers = servers.map(|server| vec![server.clone()]);
            }
            callers.replace(&configured);
            callers.named("bob".parse().unwrap())
        };
        let bob = know(None);
        assert!(may(&bob, &server) && may(&bob, &other));
        assert_eq!(know(Some(&server)), bob, "it is the same caller");
        assert!(may(&bob, &server) && !may(&bob, &other));
        assert!(callers.knows(&bob) && !may(&Caller::Local, &server));
        let nobody = Caller::Named("bob".parse().unwrap(), None);
        assert!(!may(&nobody, &server));
        assert!(callers.permit_union(&bob, &other).is_some());
        assert!(callers.permit_union(&Caller::Local, &other).is_none());
    }
}
