//! What the names mean that a client was shown: the prefixes of the servers, and whose the bare ones were. A name means
//! that until the client's next list, at any gateway and after a restart: so it is in the client's record. Who has not
//! listed yet may know prefixed names from before, and they mean what they meant when it came.
//!
//! A record is small: it has four bytes of a hash for each name. The hash is salted, so no server can choose a name
//! with the hash of another's. In memory, what many clients were shown is there once.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

use aws_lc_rs::{digest, rand};
use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::list::List;
use super::page::Entry;
use crate::config::ServerName;
use crate::route::names::{self as route, Resolved};

/// What the names mean that a client was shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shown {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tools: Meanings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prompts: Meanings,
}

/// What the names of one list mean, if that is known.
type Meanings = Option<Arc<Names>>;

/// The names of one list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
struct Names {
    salt: u64,
    /// The bare ones, as sorted hashes.
    of: BTreeMap<ServerName, Vec<u32>>,
    /// With what the prefixed ones begin.
    begins: Begins,
}

/// With what the prefixed names of each server begin.
type Begins = BTreeMap<ServerName, String>;

/// The same in a record.
#[derive(Serialize, Deserialize)]
struct Written {
    salt: u64,
    of: BTreeMap<String, String>,
    #[serde(default)]
    begins: BTreeMap<String, String>,
}

/// What all clients were shown.
#[derive(Debug)]
pub(super) struct SharedNames {
    salt: u64,
    known: Mutex<HashMap<u64, Weak<Names>>>,
}

// === impl Shown ===

impl Shown {
    /// What a client knows that has not listed yet.
    pub(super) fn nothing(names: &route::Names, shared: &SharedNames) -> Self {
        let nothing = shared.names(None, names, &[]);
        Self {
            tools: nothing.clone(),
            prompts: nothing,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What a tool's or prompt's name meant.
    pub(super) fn meaning(&self, list: List, name: &str) -> Option<Resolved> {
        self.of(list)?.meaning(name)
    }

    /// Whether the prefixes are other ones now.
    pub(super) fn has_other_prefixes(&self, list: List, now: &route::Names) -> bool {
        let begins = self.of(list).map(|names| &names.begins);
        begins.is_some_and(|begins| !begins.is_empty() && *begins != begins_of(now))
    }

    /// The same after a list with these entries was shown.
    pub(super) fn after(
        &self,
        list: List,
        names: &route::Names,
        entries: &[Entry],
        shared: &SharedNames,
    ) -> Self {
        let mut after = self.clone();
        let meanings = match list {
            List::Tools => &mut after.tools,
            List::Prompts => &mut after.prompts,
            List::Resources | List::Templates => return after,
        };
        *meanings = shared.names(meanings.as_deref(), names, entries);
        after
    }

    fn of(&self, list: List) -> Option<&Names> {
        match list {
            List::Tools => self.tools.as_deref(),
            List::Prompts => self.prompts.as_deref(),
            List::Resources | List::Templates => None,
        }
    }

    /// The same, in memory once.
    pub(super) fn shared(self, shared: &SharedNames) -> Self {
        let share = |names: Meanings| names.map(|names| shared.share(Arc::unwrap_or_clone(names)));
        Self {
            tools: share(self.tools),
            prompts: share(self.prompts),
        }
    }
}

// === impl Names ===

impl Names {
    /// `None`: with this salt, names of two servers have one hash.
    fn of(entries: &[&Entry], begins: &Begins, salt: u64) -> Option<Self> {
        let mut owners: HashMap<u32, &str> = HashMap::with_capacity(entries.len());
        let mut of: BTreeMap<ServerName, Vec<u32>> = BTreeMap::new();
        for entry in entries {
            let hash = hash(salt, &entry.key);
            if *owners.entry(hash).or_insert(&entry.server) != &*entry.server {
                return None;
            }
            if let Ok(server) = entry.server.parse() {
                of.entry(server).or_default().push(hash);
            }
        }
        of.values_mut().for_each(|hashes| hashes.sort_unstable());
        let begins = begins.clone();
        Some(Self { salt, of, begins })
    }

    fn meaning(&self, name: &str) -> Option<Resolved> {
        let hash = hash(self.salt, name);
        let has = |hashes: &Vec<u32>| hashes.binary_search(&hash).is_ok();
        match self.of.iter().find(|(_, hashes)| has(hashes)) {
            Some((server, _)) => Some(Resolved {
                server: server.clone(),
                name: name.to_owned(),
            }),
            None => {
                let begins = self.begins.iter();
                Resolved::by_prefix(name, begins.map(|(server, begin)| (server, &**begin)))
            }
        }
    }
}

fn begins_of(names: &route::Names) -> Begins {
    let begins = names.begins();
    begins
        .map(|(server, begin)| (server.clone(), begin.to_owned()))
        .collect()
}

fn hash(salt: u64, name: &str) -> u32 {
    let mut hash = digest::Context::new(&digest::SHA256);
    hash.update(&salt.to_le_bytes());
    hash.update(name.as_bytes());
    let bytes = hash.finish();
    let first = bytes.as_ref().first_chunk();
    first.copied().map_or(0, u32::from_le_bytes)
}

impl From<Names> for Written {
    fn from(names: Names) -> Self {
        let text = |hashes: Vec<u32>| {
            let bytes: Vec<u8> = hashes.into_iter().flat_map(u32::to_le_bytes).collect();
            BASE64_STANDARD_NO_PAD.encode(bytes)
        };
        let of = names.of.into_iter();
        let begins = names.begins.into_iter();
        Self {
            salt: names.salt,
            of: of
                .map(|(server, hashes)| (server.to_string(), text(hashes)))
                .collect(),
            begins: begins
                .map(|(server, begin)| (server.to_string(), begin))
                .collect(),
        }
    }
}

impl TryFrom<Written> for Names {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let read = |(server, text): (String, String)| {
            let bytes = BASE64_STANDARD_NO_PAD.decode(text).ok()?;
            let (hashes, []) = bytes.as_chunks() else {
                return None;
            };
            let hashes = hashes.iter().copied().map(u32::from_le_bytes);
            Some((server.parse().ok()?, hashes.collect()))
        };
        let of: Option<_> = written.of.into_iter().map(read).collect();
        let begins = written.begins.into_iter();
        let begins = begins.map(|(server, begin)| Some((server.parse().ok()?, begin)));
        let begins: Option<_> = begins.collect();
        Ok(Self {
            salt: written.salt,
            of: of.ok_or("not the names of a server")?,
            begins: begins.ok_or("not a server")?,
        })
    }
}

// === impl SharedNames ===

impl Default for SharedNames {
    fn default() -> Self {
        let mut salt = [0; 8];
        // Without chance, a server could make a bare name of another's unusable, and no more than that.
        _ = rand::fill(&mut salt);
        Self {
            salt: u64::from_le_bytes(salt),
            known: Mutex::default(),
        }
    }
}

impl SharedNames {
    /// The names of these entries: `before`, if they are the same.
    fn names(&self, before: Option<&Names>, names: &route::Names, entries: &[Entry]) -> Meanings {
        let bare: Vec<&Entry> = entries.iter().filter(|entry| entry.is_bare).collect();
        let begins = begins_of(names);
        let own = (0..8).map(|attempt| self.salt.wrapping_add(attempt));
        let salts = before.map(|before| before.salt).into_iter().chain(own);
        let mut names = salts.filter_map(|salt| Names::of(&bare, &begins, salt));
        let first = names.next()?;
        let is_known = before == Some(&first);
        // Under the salt of this gateway, it is equal for all clients.
        let names = match is_known || first.salt == self.salt {
            true => first,
            false => names.next()?,
        };
        Some(self.share(names))
    }

    fn share(&self, names: Names) -> Arc<Names> {
        let mut hasher = DefaultHasher::new();
        names.hash(&mut hasher);
        let mut known = self.known.lock();
        let key = hasher.finish();
        let same = known.get(&key).and_then(Weak::upgrade);
        if let Some(same) = same.filter(|same| **same == names) {
            return same;
        }
        if known.len() == known.capacity() {
            known.retain(|_, names| names.strong_count() > 0);
        }
        let names = Arc::new(names);
        known.insert(key, Arc::downgrade(&names));
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Union;

    /// The names of two servers with these prefixes.
    fn names(prefixes: [&str; 2]) -> route::Names {
        let servers = ["a", "b"].map(|server| server.parse().unwrap());
        let prefixes = prefixes.map(str::to_owned);
        route::Names::new(&Union::default(), servers.into_iter().zip(prefixes))
    }

    fn owner(shown: &Shown, list: List, name: &str) -> Option<String> {
        Some(shown.meaning(list, name)?.server.to_string())
    }

    fn entries(named: &[(&str, &str)]) -> Vec<Entry> {
        let entry = |(server, name): &(&str, &str)| Entry {
            server: (*server).into(),
            key: (*name).into(),
            is_bare: true,
            raw: String::new(),
        };
        named.iter().map(entry).collect()
    }

    #[test]
    fn a_name_is_whose_it_was_shown_to_be_also_from_a_record() {
        let shared = SharedNames::default();
        let listed = entries(&[("a", "x"), ("b", "y"), ("a", "z")]);
        let before = names(["a", "b"]);
        let shown = Shown::default().after(List::Tools, &before, &listed, &shared);
        let record = serde_json::to_vec(&shown).unwrap();
        let read: Shown = serde_json::from_slice(&record).unwrap();
        assert_eq!(read, shown);
        for (name, server) in [("x", "a"), ("y", "b"), ("z", "a")] {
            assert_eq!(owner(&read, List::Tools, name).as_deref(), Some(server));
        }
        assert_eq!(owner(&read, List::Tools, "w"), None);
        assert_eq!(owner(&read, List::Prompts, "x"), None);
        let none = shown.after(List::Tools, &before, &[], &shared);
        assert_eq!(owner(&none, List::Tools, "x"), None);
    }

    #[test]
    fn a_prefix_is_whose_it_was_in_the_last_list_also_from_a_record() {
        let shared = SharedNames::default();
        let (before, now) = (names(["a", "b"]), names(["b", "a"]));
        let opened = Shown::nothing(&before, &shared);
        let listed = opened.after(List::Tools, &now, &[], &shared);
        let record = serde_json::to_vec(&listed).unwrap();
        let read: Shown = serde_json::from_slice(&record).unwrap();
        assert_eq!(read, listed);
        for shown in [&opened, &read] {
            assert_eq!(owner(shown, List::Prompts, "a__t").as_deref(), Some("a"));
            assert!(shown.has_other_prefixes(List::Prompts, &now));
        }
        assert_eq!(owner(&opened, List::Tools, "a__t").as_deref(), Some("a"));
        assert_eq!(owner(&read, List::Tools, "a__t").as_deref(), Some("b"));
        assert!(!read.has_other_prefixes(List::Tools, &now));
        // A record of before has none.
        let written = br#"{"tools":{"salt":1,"of":{}}}"#;
        let old: Shown = serde_json::from_slice(written).unwrap();
        assert_eq!(owner(&old, List::Tools, "a__t"), None);
        assert!(!old.has_other_prefixes(List::Tools, &now));
    }

    #[test]
    fn what_is_equal_is_in_memory_once_and_small() {
        let shared = SharedNames::default();
        let names: Vec<String> = (0..5000).map(|number| format!("tool_{number}")).collect();
        let named: Vec<(&str, &str)> = names.iter().map(|name| ("a", name.as_str())).collect();
        let listed = entries(&named);
        let of = |shown: &Shown| Arc::as_ptr(shown.tools.as_ref().unwrap());
        let called = route::Names::new(&Union::default(), []);
        let first = Shown::default().after(List::Tools, &called, &listed, &shared);
        let second = Shown::default().after(List::Tools, &called, &listed, &shared);
        assert_eq!(of(&first), of(&second));
        let record = serde_json::to_vec(&first).unwrap();
        assert!(record.len() < 30_000, "{}", record.len());
        // Also what comes from a record, whichever gateway wrote it.
        let elsewhere = SharedNames::default();
        let read = || serde_json::from_slice::<Shown>(&record).unwrap();
        let (third, fourth) = (read().shared(&elsewhere), read().shared(&elsewhere));
        assert_eq!(of(&third), of(&fourth));
        // And it is not written again only because another gateway has another salt.
        let again = third.after(List::Tools, &called, &listed, &elsewhere);
        assert_eq!(again, first);
        drop((first, second));
        for number in 0..100 {
            let name = number.to_string();
            let listed = entries(&[("a", &name)]);
            drop(Shown::default().after(List::Tools, &called, &listed, &shared));
        }
        assert!(
            shared.known.lock().len() < 20,
            "what nobody has is forgotten"
        );
    }

    #[test]
    fn names_of_two_servers_never_have_one_hash() {
        let named: Vec<String> = (0..100_000).map(|number| number.to_string()).collect();
        let meets = |salt| {
            let mut seen = HashMap::new();
            let meeting = named.iter().find_map(|name| {
                let before = seen.insert(hash(salt, name), name)?;
                Some((before.clone(), name.clone()))
            });
            meeting.map(|names| (salt, names))
        };
        let (salt, (one, other)) = (0..1000).find_map(meets).unwrap();
        let listed = entries(&[("a", &one), ("b", &other)]);
        let shared = SharedNames {
            salt,
            known: Mutex::default(),
        };
        let called = route::Names::new(&Union::default(), []);
        let shown = Shown::default().after(List::Tools, &called, &listed, &shared);
        for (name, server) in [(&one, "a"), (&other, "b")] {
            assert_eq!(owner(&shown, List::Tools, name).as_deref(), Some(server));
        }
    }
}
