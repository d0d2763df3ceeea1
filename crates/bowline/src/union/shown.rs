//! The bare names that a client was shown, and whose they were. Such a name means that until the client's next list, at
//! any gateway and after a restart: so it is in the client's record.
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

/// The bare names that a client was shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shown {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tools: Owners,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prompts: Owners,
}

/// Whose the bare names of one list are, if it has any.
type Owners = Option<Arc<Names>>;

/// Names of servers, as hashes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
struct Names {
    salt: u64,
    /// Sorted.
    of: BTreeMap<ServerName, Vec<u32>>,
}

/// The same in a record.
#[derive(Serialize, Deserialize)]
struct Written {
    salt: u64,
    of: BTreeMap<String, String>,
}

/// What all clients were shown.
#[derive(Debug)]
pub(super) struct SharedNames {
    salt: u64,
    known: Mutex<HashMap<u64, Weak<Names>>>,
}

// === impl Shown ===

impl Shown {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The server whose tool or prompt had this name.
    pub(super) fn owner(&self, list: List, name: &str) -> Option<ServerName> {
        match list {
            List::Tools => self.tools.as_ref()?.owner(name),
            List::Prompts => self.prompts.as_ref()?.owner(name),
            List::Resources | List::Templates => None,
        }
    }

    /// The same after a list with these entries was shown.
    pub(super) fn after(&self, list: List, entries: &[Entry], shared: &SharedNames) -> Self {
        let mut after = self.clone();
        let owners = match list {
            List::Tools => &mut after.tools,
            List::Prompts => &mut after.prompts,
            List::Resources | List::Templates => return after,
        };
        *owners = shared.names(owners.as_deref(), entries);
        after
    }

    /// The same, in memory once.
    pub(super) fn shared(self, shared: &SharedNames) -> Self {
        let share = |owners: Owners| owners.map(|names| shared.share(Arc::unwrap_or_clone(names)));
        Self {
            tools: share(self.tools),
            prompts: share(self.prompts),
        }
    }
}

// === impl Names ===

impl Names {
    /// `None`: with this salt, names of two servers have one hash.
    fn of(entries: &[&Entry], salt: u64) -> Option<Self> {
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
        Some(Self { salt, of })
    }

    fn owner(&self, name: &str) -> Option<ServerName> {
        let hash = hash(self.salt, name);
        let has = |hashes: &Vec<u32>| hashes.binary_search(&hash).is_ok();
        let found = self.of.iter().find(|(_, hashes)| has(hashes))?;
        Some(found.0.clone())
    }
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
        Self {
            salt: names.salt,
            of: of
                .map(|(server, hashes)| (server.to_string(), text(hashes)))
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
        Ok(Self {
            salt: written.salt,
            of: of.ok_or("not the names of a server")?,
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
    /// The bare names of these entries: `before`, if they are the same.
    fn names(&self, before: Option<&Names>, entries: &[Entry]) -> Owners {
        let bare: Vec<&Entry> = entries.iter().filter(|entry| entry.is_bare).collect();
        if bare.is_empty() {
            return None;
        }
        let own = (0..8).map(|attempt| self.salt.wrapping_add(attempt));
        let salts = before.map(|before| before.salt).into_iter().chain(own);
        let mut names = salts.filter_map(|salt| Names::of(&bare, salt));
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
        let shown = Shown::default().after(List::Tools, &listed, &shared);
        let record = serde_json::to_vec(&shown).unwrap();
        let read: Shown = serde_json::from_slice(&record).unwrap();
        assert_eq!(read, shown);
        for (name, server) in [("x", "a"), ("y", "b"), ("z", "a")] {
            let owner = read.owner(List::Tools, name).unwrap();
            assert_eq!(owner.as_ref(), server, "{name}");
        }
        assert_eq!(read.owner(List::Tools, "w"), None);
        assert_eq!(read.owner(List::Prompts, "x"), None);
        let none = shown.after(List::Tools, &[], &shared);
        assert!(none.is_empty());
    }

    #[test]
    fn what_is_equal_is_in_memory_once_and_small() {
        let shared = SharedNames::default();
        let names: Vec<String> = (0..5000).map(|number| format!("tool_{number}")).collect();
        let named: Vec<(&str, &str)> = names.iter().map(|name| ("a", name.as_str())).collect();
        let listed = entries(&named);
        let of = |shown: &Shown| Arc::as_ptr(shown.tools.as_ref().unwrap());
        let first = Shown::default().after(List::Tools, &listed, &shared);
        let second = Shown::default().after(List::Tools, &listed, &shared);
        assert_eq!(of(&first), of(&second));
        let record = serde_json::to_vec(&first).unwrap();
        assert!(record.len() < 30_000, "{}", record.len());
        // Also what comes from a record, whichever gateway wrote it.
        let elsewhere = SharedNames::default();
        let read = || serde_json::from_slice::<Shown>(&record).unwrap();
        let (third, fourth) = (read().shared(&elsewhere), read().shared(&elsewhere));
        assert_eq!(of(&third), of(&fourth));
        // And it is not written again only because another gateway has another salt.
        assert_eq!(third.after(List::Tools, &listed, &elsewhere), first);
        drop((first, second));
        for number in 0..100 {
            let name = number.to_string();
            drop(Shown::default().after(List::Tools, &entries(&[("a", &name)]), &shared));
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
        let shown = Shown::default().after(List::Tools, &listed, &shared);
        for (name, server) in [(&one, "a"), (&other, "b")] {
            let owner = shown.owner(List::Tools, name).unwrap();
            assert_eq!(owner.as_ref(), server);
        }
    }
}
