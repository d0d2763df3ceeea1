//! What is left out of a union's lists because clients could not read it, and where that is said: in the lists, once in
//! the log, and to operators.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use serde::Serialize;

use super::list::List;
use crate::config::ServerName;

/// How much of one list is named.
const MAX_NAMED: usize = 100;

/// The longest part of a name, in characters.
const MAX_NAME: usize = 64;

/// How much of one list is logged.
const MAX_LOGGED: usize = 1000;

/// What is left out of one list of one server.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) named: Vec<Named>,
    /// How much there is, also of what is not named.
    pub(crate) count: usize,
}

/// A definition, or a field of one, that is left out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Named {
    /// The definition's own name, URI or URI template; empty if it has none.
    name: Box<str>,
    /// The field, if the rest is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<Box<str>>,
    why: Box<str>,
}

/// What is left out of all unions.
#[derive(Debug, Default)]
pub(super) struct AllLeftOut(Mutex<BTreeMap<(ServerName, &'static str), OfList>>);

#[derive(Debug, Default)]
struct OfList {
    now: LeftOut,
    logged: BTreeSet<Named>,
}

// === impl LeftOut ===

impl LeftOut {
    pub(super) fn add(&mut self, name: &str, field: Option<String>, why: String) {
        self.count += 1;
        if self.named.len() < MAX_NAMED {
            self.named.push(Named {
                name: name.chars().take(MAX_NAME).collect(),
                field: field.map(Into::into),
                why: why.into(),
            });
        }
    }

    pub(super) fn len(&self) -> usize {
        let named = self.named.iter();
        named.map(|one| one.name.len() + one.why.len()).sum()
    }
}

// === impl AllLeftOut ===

impl AllLeftOut {
    /// Notes what is left out of a list now. The log says what is new.
    pub(super) fn note(&self, server: &ServerName, list: List, left_out: &LeftOut) {
        let mut all = self.0.lock();
        let key = (server.clone(), list.items());
        if left_out.count == 0 && !all.contains_key(&key) {
            return;
        }
        let known = all.entry(key).or_default();
        known.now.clone_from(left_out);
        for one in &left_out.named {
            if known.logged.len() < MAX_LOGGED && known.logged.insert(one.clone()) {
                let Named { name, field, why } = one;
                // A URI's query may have secrets in it.
                let (name, list) = (name.split('?').next().unwrap_or_default(), list.items());
                tracing::warn!(%server, list, ?name, field, why, "left out of a union");
            }
        }
    }

    /// What is left out of the last lists of a server, by list.
    pub(super) fn of(&self, server: &ServerName) -> BTreeMap<&'static str, LeftOut> {
        let all = self.0.lock();
        let of_server = all.iter().filter(|((of, _), _)| of == server);
        let now = of_server.map(|((_, list), known)| (*list, known.now.clone()));
        now.filter(|(_, left_out)| left_out.count > 0).collect()
    }
}
