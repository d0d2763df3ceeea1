//! What a union calls its members' tools and prompts, and which member a name belongs to.
//!
//! A name is a function of the configuration and of the member's own name for the thing: the prefix of the server, the
//! separator, and that name. So it is the same on every gateway and after every restart.
//!
//! What is too long for clients is cut to [`MAX`] characters and ends with a hash. What has characters that models refuse
//! has others in their place, and ends with [`MARK`] and the hash. So does what ends like that by itself. A name that was
//! not changed has less than [`MAX`] characters and no such end, so the two cannot be mistaken for each other.
//!
//! A name is never re-pointed: what it meant once it means always, or it is refused. The configuration guarantees that
//! no prefix and separator begin like another's. A bare name that has the separator in it could be the prefixed name of
//! a server that is added later, so it is not exposed. A bare name that several members have is refused.

use std::collections::{HashMap, HashSet};
use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};

use crate::config::{ServerName, Union, UnionNames};

/// The most characters that clients accept in a name.
pub(crate) const MAX: usize = 64;

/// How many bare names a list has at most. Further ones are prefixed: who is shown a bare name can rely on it, so all
/// of them are kept for each client.
const MAX_BARE: usize = 10_000;

/// The characters of a hash, behind an underscore.
const HASH: usize = 10;

/// What stands before the hash of a name that was changed and not cut. No hash has a zero.
const MARK: &str = "_0";

/// What a union calls things.
#[derive(Debug)]
pub(crate) struct Names {
    members: Vec<Member>,
    separator: String,
    style: UnionNames,
    hash: fn(&ServerName, &str) -> String,
}

/// A server of the union.
#[derive(Debug)]
struct Member {
    server: ServerName,
    /// Its prefix and the separator.
    begin: String,
}

/// What the members have, as far as it is known: each server with its own names, in the order in which it lists them.
pub(crate) type Catalogue<'a> = [(&'a ServerName, Vec<&'a str>)];

/// What a catalogue is called.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) exposed: Vec<Exposed>,
    /// What cannot be exposed, because its name would be another's as well.
    pub(crate) refused: Vec<Refused>,
}

/// Something that clients see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exposed {
    /// What clients call it.
    pub(crate) name: String,
    /// Its place in the catalogue: which server, and which of its names.
    pub(crate) place: Place,
}

/// Where something is in a catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) server: usize,
    pub(crate) item: usize,
}

/// Things that would have one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The name that they would have.
    pub(crate) name: String,
    /// Which things: at least two.
    pub(crate) places: Vec<Place>,
}

/// What a client's name belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) server: ServerName,
    /// The server's own name for it.
    pub(crate) name: String,
}

// === impl Resolved ===

impl Resolved {
    /// What a name belongs to by this table, which says for each server with what its names begin. One that was changed
    /// says it to nobody.
    pub(crate) fn by_prefix<'a>(
        name: &str,
        mut begins: impl Iterator<Item = (&'a ServerName, &'a str)>,
    ) -> Option<Self> {
        if is_changed(name) {
            return None;
        }
        begins.find_map(|(server, begin)| {
            Some(Self {
                server: server.clone(),
                name: name.strip_prefix(begin)?.to_owned(),
            })
        })
    }
}

impl fmt::Display for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}` of `{}", self.name, self.server)
    }
}

/// Why a name belongs to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameRefusal {
    /// No server of the union has it, as far as is known.
    #[error("no server here has anything of this name; list again, and use a name of the list")]
    Unknown,
    /// Several servers have it.
    #[error("several servers have this name; use {}", one_of(.candidates))]
    Ambiguous {
        /// What to use in its place, in the order of the union.
        candidates: Vec<String>,
    },
    /// It cannot be said that no other server has it.
    #[error("{} could not be listed and may have something of this name, too; use {}", one_of(.unlisted), one_of(.candidates))]
    Doubtful {
        /// The servers whose names are not all known.
        unlisted: Vec<String>,
        /// What to use in its place.
        candidates: Vec<String>,
    },
    /// The configuration has changed since the client's last list, and what the name means with it.
    #[error("the configuration has changed, and this name may mean {}; list again, and use a name of the list", one_of(.meanings))]
    Moved {
        /// What it may mean, before and now.
        meanings: Vec<String>,
    },
    /// Names of these servers were changed to this one.
    #[error("this name stands for several things of {}, so none of them can be used", one_of(.servers))]
    Collision {
        /// The servers, each once.
        servers: Vec<String>,
    },
}

fn one_of(names: &[String]) -> String {
    format!("`{}`", names.join("` or `"))
}

// === impl Names ===

impl Names {
    /// The names of a union, whose servers have these prefixes.
    pub(crate) fn new(
        union: &Union,
        prefixes: impl IntoIterator<Item = (ServerName, String)>,
    ) -> Self {
        let members = prefixes.into_iter().map(|(server, prefix)| Member {
            server,
            begin: format!("{prefix}{}", union.separator),
        });
        Self {
            members: members.collect(),
            separator: union.separator.clone(),
            style: union.names,
            hash,
        }
    }

    /// What everything in a catalogue is called, in the order of the catalogue. A name that a server lists twice counts
    /// once, where it comes first. What belongs to no member is left out.
    pub(crate) fn exposed(&self, catalogue: &Catalogue<'_>) -> Listed {
        let owners = self.bare_owners(catalogue);
        let (mut things, mut bare) = (Vec::new(), 0);
        let mut owned: HashMap<String, Vec<Place>> = HashMap::new();
        for (at, (server, own_names)) in catalogue.iter().enumerate() {
            let Some(member) = self.member(server) else {
                continue;
            };
            let mut seen = HashSet::new();
            for (item, own) in own_names.iter().enumerate() {
                if !seen.insert(*own) {
                    continue;
                }
                let name = match owners.get(own) {
                    Some(1) if bare < MAX_BARE => {
                        bare += 1;
                        (*own).to_owned()
                    }
                    _ => self.prefixed(member, own),
                };
                let place = Place { server: at, item };
                owned.entry(name.clone()).or_default().push(place);
                things.push(Exposed { name, place });
            }
        }
        let is_alone = |thing: &Exposed| owned.get(&thing.name).is_some_and(|one| one.len() == 1);
        let (exposed, colliding): (Vec<_>, Vec<_>) = things.into_iter().partition(is_alone);
        let mut refused: Vec<Refused> = Vec::new();
        for Exposed { name, .. } in colliding {
            if let Some(places) = owned.remove(&name) {
                refused.push(Refused { name, places });
            }
        }
        Listed { exposed, refused }
    }

    /// What a name belongs to, if the name alone says so: one that is prefixed and was not changed. No catalogue is needed,
    /// and the server says whether it has it.
    pub(crate) fn resolve_prefixed(&self, name: &str) -> Option<Resolved> {
        Resolved::by_prefix(name, self.begins())
    }

    /// With what the prefixed names of each server begin.
    pub(crate) fn begins(&self) -> impl Iterator<Item = (&ServerName, &str)> {
        let members = self.members.iter();
        members.map(|member| (&member.server, member.begin.as_str()))
    }

    /// What a name belongs to: by itself, or else by this catalogue.
    pub(crate) fn resolve(
        &self,
        name: &str,
        catalogue: &Catalogue<'_>,
    ) -> Result<Resolved, NameRefusal> {
        if let Some(resolved) = self.resolve_prefixed(name) {
            return Ok(resolved);
        }
        let mut found: Vec<(&Member, &str)> = Vec::new();
        for (server, own_names) in catalogue {
            let Some(member) = self.member(server) else {
                continue;
            };
            let mut seen = HashSet::new();
            let matching = own_names.iter().filter(|own| match is_changed(name) {
                true => self
                    .exposed_as(member, own)
                    .is_some_and(|changed| changed == name),
                false => self.is_bare(own) && **own == name,
            });
            let unique = matching.filter(|own| seen.insert(**own));
            found.extend(unique.map(|own| (member, *own)));
        }
        match &found[..] {
            [] => Err(NameRefusal::Unknown),
            [(member, own)] => Ok(Resolved {
                server: member.server.clone(),
                name: (*own).to_owned(),
            }),
            several if is_changed(name) => {
                let mut servers: Vec<_> = several
                    .iter()
                    .map(|(it, _)| it.server.to_string())
                    .collect();
                servers.dedup();
                Err(NameRefusal::Collision { servers })
            }
            several => {
                let names = several
                    .iter()
                    .map(|(member, own)| self.prefixed(member, own));
                Err(NameRefusal::Ambiguous {
                    candidates: names.collect(),
                })
            }
        }
    }

    /// The same where these servers have not told all their names: a bare name may be one of theirs.
    pub(crate) fn resolve_without(
        &self,
        name: &str,
        catalogue: &Catalogue<'_>,
        unlisted: &[&ServerName],
    ) -> Result<Resolved, NameRefusal> {
        let resolved = self.resolve(name, catalogue);
        if unlisted.is_empty() || !self.is_bare(name) {
            return resolved;
        }
        let known = match &resolved {
            Ok(resolved) => vec![&resolved.server],
            Err(NameRefusal::Unknown) => Vec::new(),
            Err(_) => return resolved,
        };
        let possible = |member: &&Member| {
            let mut possible = known.iter().chain(unlisted);
            possible.any(|server| **server == member.server)
        };
        let candidates = self.members.iter().filter(possible);
        Err(NameRefusal::Doubtful {
            unlisted: unlisted.iter().map(ToString::to_string).collect(),
            candidates: candidates
                .map(|member| self.prefixed(member, name))
                .collect(),
        })
    }

    fn member(&self, server: &ServerName) -> Option<&Member> {
        self.members.iter().find(|member| member.server == *server)
    }

    /// By how many members a bare name is had, for names that may be exposed bare.
    fn bare_owners<'a>(&self, catalogue: &Catalogue<'a>) -> HashMap<&'a str, usize> {
        let mut owners = HashMap::new();
        let is_member = |server| self.member(server).is_some();
        for (_, own_names) in catalogue.iter().filter(|(server, _)| is_member(server)) {
            let unique: HashSet<&'a str> = own_names.iter().copied().collect();
            for own in unique.into_iter().filter(|own| self.is_bare(own)) {
                *owners.entry(own).or_default() += 1;
            }
        }
        owners
    }

    /// Whether a name may be exposed without a prefix, if no other member has it.
    fn is_bare(&self, own: &str) -> bool {
        let mut behind_first = own.chars();
        self.style == UnionNames::Bare
            && behind_first.next().is_some()
            // Behind its first character, a separator could end the prefix of some server.
            && !behind_first.as_str().contains(&self.separator)
            && !is_odd(own)
    }

    fn prefixed(&self, member: &Member, own: &str) -> String {
        let changed = self.exposed_as(member, own);
        changed.unwrap_or_else(|| format!("{}{own}", member.begin))
    }

    /// The name of what cannot have prefix, separator and its own name.
    fn exposed_as(&self, member: &Member, own: &str) -> Option<String> {
        let full = format!("{}{own}", member.begin);
        if own.chars().all(is_plain) && !is_changed(&full) {
            return None;
        }
        let hash = (self.hash)(&member.server, own);
        let own = own.chars();
        let plain = own.map(|char| if is_plain(char) { char } else { '_' });
        let full: String = member.begin.chars().chain(plain).collect();
        if full.len() + MARK.len() + HASH < MAX {
            return Some(format!("{full}{MARK}{hash}"));
        }
        let room = MAX - HASH - 1;
        let kept: String = full.chars().take(room).collect();
        Some(format!("{kept:_<room$}_{hash}"))
    }
}

/// Whether models accept this character in a tool's name.
fn is_plain(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '_' | '-')
}

/// Whether a name cannot be what clients see: models refuse it, or it looks changed.
fn is_odd(own: &str) -> bool {
    !own.chars().all(is_plain) || is_changed(own)
}

/// Whether a name is as long as those that were cut, or ends as those that were changed otherwise.
fn is_changed(name: &str) -> bool {
    let hash = name
        .len()
        .checked_sub(HASH)
        .and_then(|at| name.split_at_checked(at));
    let is_marked = hash.is_some_and(|(before, hash)| {
        before.ends_with(MARK) && hash.bytes().all(|byte| ALPHABET.contains(&byte))
    });
    is_marked || name.chars().nth(MAX - 1).is_some()
}

/// The characters of hashes.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// A hash of a server and its own name for something, in characters that every model accepts.
fn hash(server: &ServerName, own: &str) -> String {
    let text = [server.as_ref(), own].join("\0");
    let digest = digest(&SHA256, text.as_bytes());
    let mut bits = digest
        .as_ref()
        .iter()
        .fold((0u64, 0), |(bits, taken), byte| match taken {
            8 => (bits, taken),
            _ => (bits << 8 | u64::from(*byte), taken + 1),
        })
        .0;
    let mut hash = String::new();
    for _ in 0..HASH {
        // The highest five bits.
        let at = usize::try_from(bits >> 59).unwrap_or_default();
        hash.extend(ALPHABET.get(at).map(|byte| char::from(*byte)));
        bits <<= 5;
    }
    hash
}

#[cfg(test)]
mod tests;
