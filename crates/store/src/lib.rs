//! Where sessions, grants and sign-ins are stored: in this process, in a file, or in a Redis that
//! gateways share.
//!
//! The session store, the sign-in code and the gateway call it. A store keeps bytes under keys and does
//! not interpret them: the caller knows what is in a record, and [`sealed`] decides who can read it. There
//! are three kinds with one set of laws, which [`Store`] states and `tests` tries on each of them.
//!
//! This crate must not know what a session is, must not retry on its own, and depends on no crate of
//! Bowline but `bowline-wire` and `bowline-system`.

mod entry;
mod error;
mod file;
mod key;
mod local;
mod memory;
mod open;
mod operation;
#[cfg(feature = "planted")]
pub mod planted;
pub mod private;
mod redis;
pub mod sealed;
mod store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use self::entry::{EntryError, Lifetime, MAX_CONFLICTS, Observer, OpenedEntry, SealedEntry};
pub use self::error::{Refusal, StoreError};
pub use self::file::{File, SESSIONS_FILE};
pub use self::key::{Key, Part};
use self::local::LocalListener;
pub use self::memory::Memory;
pub use self::open::{OpenStoreError, Password, RedisSettings, StoreAddress, StoreSettings, open};
pub use self::operation::Operation;
pub use self::redis::{Redis, RedisAddress};
pub use self::store::Store;

/// The largest record, and the largest jar.
pub const LARGEST_VALUE: usize = 256 * 1024;
/// The largest announcement.
pub const LARGEST_ANNOUNCEMENT: usize = 4 * 1024;

/// How often a record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version(pub u64);

/// The content of a live key. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Live {
    /// How often the record was written.
    pub version: Version,
    /// The record.
    pub record: Vec<u8>,
    /// The cookies of the session, apart from the record.
    pub jar: Vec<u8>,
    /// The version that the jar belongs to.
    pub jar_since: Version,
}

/// What is under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// Nothing, and nothing is remembered.
    Absent,
    /// The key has ended, and that is still remembered.
    Ended,
    /// The key is live.
    Live(Live),
}

/// The outcome of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// Written, with this new version.
    Done(Version),
    /// Another write came first, with this content.
    Conflict(Live),
    /// The key is absent or ended.
    Gone,
}

/// Something that all gateways should know soon. The store does not interpret it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedAnnouncement {
    /// What kind of announcement it is.
    pub kind: u8,
    /// The sealed content.
    pub body: Bytes,
}

/// What a listener receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerEvent {
    /// An announcement of some gateway.
    Announcement(SealedAnnouncement),
    /// From now on, announcements may be missed.
    Broken,
    /// From now on every announcement is received; earlier ones may have been missed. This comes first.
    Whole,
}

/// The announcements of a store.
#[derive(Debug)]
pub enum Listener {
    /// Within this process.
    Local(LocalListener),
    /// Over a Redis.
    Redis(Box<redis::RedisListener>),
}

/// A gateway that the store lists.
///
/// It stays listed until it leaves, or until another one that knows it to be gone has it forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGateway {
    /// What it said of itself; `None` if that cannot be read.
    pub presence: Option<Presence>,
    /// For how long it is present, unless it renews that; zero: it did not renew it in time.
    pub left: Duration,
    /// Its name in the list: another one when it comes back after it was not present.
    pub name: Box<str>,
    /// What the list has under that name.
    pub said: Box<[u8]>,
}

/// A gateway that uses the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// Random, chosen at its start.
    pub id: String,
    /// Bowline's version.
    pub version: String,
    /// The ids of its seal keys: it seals with the first one and opens with any of them.
    pub seal_keys: Vec<String>,
    /// A fingerprint of the servers in its configuration.
    pub servers: String,
    /// Where other gateways reach it, sealed by whoever uses the store; `None` if they cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
}

// === impl Presence ===

impl Presence {
    /// Whether this gateway can open what the other one seals.
    pub fn opens_what_is_sealed_by(&self, other: &Self) -> bool {
        let sealed_with = other.seal_keys.first();
        sealed_with.is_some_and(|key| self.seal_keys.contains(key))
    }
}

// === impl Listener ===

impl Listener {
    /// Waits for the next event. Dropping the wait loses nothing.
    pub async fn next(&mut self) -> ListenerEvent {
        match self {
            Self::Local(local) => local.next().await,
            Self::Redis(redis) => redis.next().await,
        }
    }
}

// === impl Version ===

impl Version {
    /// The version of a new key.
    pub const FIRST: Self = Self(1);

    /// The version after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

// === impl Live ===

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live")
            .field("version", &self.version.0)
            .field("jar_since", &self.jar_since.0)
            .finish_non_exhaustive()
    }
}
