//! Where session records live: in this process, in a file, or in a Redis that gateways share.
//!
//! A store keeps bytes under keys and does nothing with them; what is in a record is for the
//! session, and who may read it for [`sealed`]. There are three kinds with one set of laws, which
//! [`Store`] states and `tests` tries on each of them.

mod error;
mod file;
mod key;
mod local;
mod memory;
mod open;
mod operation;
pub(crate) mod private;
mod redis;
pub(crate) mod sealed;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use self::error::{Refusal, StoreError};
pub(crate) use self::file::{File, SESSIONS_FILE};
pub(crate) use self::key::{Key, Part};
use self::local::LocalListener;
pub(crate) use self::memory::Memory;
pub use self::open::OpenStoreError;
pub(crate) use self::open::open;
pub(crate) use self::operation::Operation;
pub(crate) use self::redis::{Redis, RedisPlace};

/// The largest record, and the largest jar.
pub(crate) const LARGEST_VALUE: usize = 256 * 1024;
/// The largest announcement.
pub(crate) const LARGEST_ANNOUNCEMENT: usize = 4 * 1024;

/// A store. Every kind obeys these laws.
///
/// **Errors.** An error means that it is not known whether the operation happened; it may even
/// happen later. It never means "absent". Nothing waits longer than the store's timeout, and
/// dropping a call gives up waiting, not the operation.
///
/// **Sessions.** A key is absent, live or ended.
/// 1. `create` makes an absent key live and changes no other. Of any number of creators, one wins.
/// 2. A live key has a version: 1 at first, one more with each update. `update` changes it only if
///    the caller names the present version, so each version is written once; the others get what
///    is there now.
/// 3. `end` makes a live key ended. It hands what it replaced to exactly one caller.
/// 4. An ended key stays ended for as long as it is to be remembered, whatever late writers try, and
///    is absent afterwards. Nothing but `create` makes a key live, and for a session `create` is only
///    ever called with a new random id: so one that has ended does not come back.
/// 5. A live key becomes absent, with all that it has, when its time is over, or by `expire` when that is
///    near, which hands what it had to exactly one caller. `create` sets that
///    time, `touch` starts it anew, nothing else does.
/// 6. A jar belongs to the version at which it was last replaced together with the record. Of
///    several `put_jar` for that version the last wins; for any other version, and unless the key
///    is live, it does nothing: a late cookie of an old generation does not reach a new one.
/// 7. Whoever was told that something happened finds it in every later load, from any gateway.
///    With the file, this holds across `kill -9` as well, except that the last second of touches
///    may be forgotten, and that what has ended is absent: nobody is left who could write late.
///
/// 8. Of the numbers of a live key, each is higher than those that were handed out before.
///
/// **Leases.** A lease has at most one holder, and none after its time. `lease` takes a free one or
/// keeps the holder's own, and its time begins anew.
///
/// **Announcements** reach every listener of every gateway on this store, in order, while its
/// channel is whole; a listener is told when it is not ([`Heard`]). Nothing may depend on one
/// arriving.
#[derive(Debug)]
pub(crate) enum Store {
    /// In this process; sessions end with it.
    Memory(Memory),
    /// In a file of this machine, held by one gateway at a time.
    File(File),
    /// In a Redis or Valkey that gateways share.
    Redis(Box<Redis>),
}

/// How often a record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Version(pub(crate) u64);

/// What a live key has. `Debug` shows no content.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) version: Version,
    pub(crate) record: Vec<u8>,
    pub(crate) jar: Vec<u8>,
    /// The version that the jar belongs to.
    pub(crate) jar_since: Version,
}

/// What is under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loaded {
    Absent,
    Ended,
    Live(Live),
}

/// What became of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Updated {
    /// It was written; this is its version.
    Done(Version),
    /// Somebody else had written before: this.
    Conflict(Live),
    /// The key is absent or ended.
    Gone,
}

/// Something that all gateways should know soon. What it says is not the store's business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    pub(crate) kind: u8,
    pub(crate) body: Bytes,
}

/// What a listener hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Announcement(Announcement),
    /// From now on, announcements may be missed.
    Broken,
    /// From now on everything is heard; anything may have been missed before. Comes first.
    Whole,
}

/// The announcements of a store.
#[derive(Debug)]
pub(crate) enum Listener {
    Local(LocalListener),
    Redis(Box<redis::RedisListener>),
}

/// The gateways that use a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Present {
    /// In the order of their ids.
    pub(crate) gateways: Vec<Presence>,
    /// How many say something that cannot be read.
    pub(crate) unreadable: usize,
}

/// A gateway that uses the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Presence {
    /// Random, chosen at its start.
    pub(crate) id: String,
    /// Bowline's version.
    pub(crate) version: String,
    /// The ids of its seal keys: it seals with the first, and opens what any of them sealed.
    pub(crate) seal_keys: Vec<String>,
    /// A fingerprint of the servers in its configuration.
    pub(crate) servers: String,
}

// === impl Store ===

impl Store {
    /// The kind's name in the configuration.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::File(_) => "file",
            Self::Redis(_) => "redis",
        }
    }

    /// Makes an absent key live. `false`: it was not absent.
    pub(crate) async fn create(
        &self,
        key: &Key,
        record: &[u8],
        jar: &[u8],
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        within(LARGEST_VALUE, &[record, jar])?;
        match self {
            Self::Memory(memory) => Ok(memory.create(key, record, jar, ttl)),
            Self::File(file) => file.create(key, record, jar, ttl).await,
            Self::Redis(redis) => redis.create(key, record, jar, ttl).await,
        }
    }

    /// What is under a key.
    pub(crate) async fn load(&self, key: &Key) -> Result<Loaded, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.load(key)),
            Self::File(file) => file.load(key).await,
            Self::Redis(redis) => redis.load(key).await,
        }
    }

    /// Replaces the record, and the jar if there is a new one, if `version` is still the present one.
    pub(crate) async fn update(
        &self,
        key: &Key,
        version: Version,
        record: &[u8],
        jar: Option<&[u8]>,
    ) -> Result<Updated, StoreError> {
        within(LARGEST_VALUE, &[record, jar.unwrap_or_default()])?;
        match self {
            Self::Memory(memory) => Ok(memory.update(key, version, record, jar)),
            Self::File(file) => file.update(key, version, record, jar).await,
            Self::Redis(redis) => redis.update(key, version, record, jar).await,
        }
    }

    /// Starts the time of a live key anew. `false`: it is not live. Callers do this at most once in
    /// a tenth of the time.
    pub(crate) async fn touch(&self, key: &Key, ttl: Duration) -> Result<bool, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.touch(key, ttl)),
            Self::File(file) => file.touch(key, ttl).await,
            Self::Redis(redis) => redis.touch(key, ttl).await,
        }
    }

    /// Ends a live key and returns what it had. `None`: it was not live. `remember` must be longer
    /// than anything that could still write.
    pub(crate) async fn end(
        &self,
        key: &Key,
        remember: Duration,
    ) -> Result<Option<Live>, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.end(key, remember)),
            Self::File(file) => file.end(key, remember).await,
            Self::Redis(redis) => redis.end(key, remember).await,
        }
    }

    /// Makes a live key absent of whose time no more than this is left, and returns what it had. `None`:
    /// it is not live, or has more.
    pub(crate) async fn expire(
        &self,
        key: &Key,
        left: Duration,
    ) -> Result<Option<Live>, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.expire(key, left)),
            Self::File(file) => file.expire(key, left).await,
            Self::Redis(redis) => redis.expire(key, left).await,
        }
    }

    /// How many sessions are live, of all gateways on this store. One that expired or whose last write
    /// failed may count for a while.
    pub(crate) async fn count(&self) -> Result<usize, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.count()),
            Self::File(file) => Ok(file.count()),
            Self::Redis(redis) => redis.count().await,
        }
    }

    /// The same where that is known without asking.
    pub(crate) fn count_at_hand(&self) -> Option<usize> {
        match self {
            Self::Memory(memory) => Some(memory.count()),
            Self::File(file) => Some(file.count()),
            Self::Redis(_) => None,
        }
    }

    /// Replaces the jar that belongs to this version. `false`: there is none any more.
    pub(crate) async fn put_jar(
        &self,
        key: &Key,
        since: Version,
        jar: &[u8],
    ) -> Result<bool, StoreError> {
        within(LARGEST_VALUE, &[jar])?;
        match self {
            Self::Memory(memory) => Ok(memory.put_jar(key, since, jar)),
            Self::File(file) => file.put_jar(key, since, jar).await,
            Self::Redis(redis) => redis.put_jar(key, since, jar).await,
        }
    }

    /// The next number of a live key. `None`: it is not live.
    pub(crate) async fn next_number(&self, key: &Key) -> Result<Option<u64>, StoreError> {
        match self {
            Self::Memory(Memory { local, .. }) | Self::File(File { local, .. }) => {
                let is_live = matches!(self.load(key).await?, Loaded::Live(_));
                Ok(is_live.then(|| local.next_number()))
            }
            Self::Redis(redis) => redis.next_number(key).await,
        }
    }

    /// The last number of a live key; 0 if it has had none. `None`: it is not live.
    pub(crate) async fn last_number(&self, key: &Key) -> Result<Option<u64>, StoreError> {
        match self {
            Self::Memory(Memory { local, .. }) | Self::File(File { local, .. }) => {
                let is_live = matches!(self.load(key).await?, Loaded::Live(_));
                Ok(is_live.then(|| local.last_number()))
            }
            Self::Redis(redis) => redis.last_number(key).await,
        }
    }

    /// Takes a lease, or keeps it. `false`: somebody else holds it.
    pub(crate) async fn lease(
        &self,
        name: &str,
        holder: &str,
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.local.lease(name, holder, ttl)),
            // As from any other store: what the turn is for would have to be written.
            Self::File(file) => {
                file.takes_writes()?;
                Ok(file.local.lease(name, holder, ttl))
            }
            Self::Redis(redis) => redis.lease(name, holder, ttl).await,
        }
    }

    /// Gives a lease back. `false`: it was not the holder's any more.
    pub(crate) async fn release(&self, name: &str, holder: &str) -> Result<bool, StoreError> {
        match self {
            Self::Memory(Memory { local, .. }) | Self::File(File { local, .. }) => {
                Ok(local.release(name, holder))
            }
            Self::Redis(redis) => redis.release(name, holder).await,
        }
    }

    /// Tells every listener.
    pub(crate) async fn announce(&self, announcement: &Announcement) -> Result<(), StoreError> {
        within(LARGEST_ANNOUNCEMENT, &[&announcement.body])?;
        match self {
            Self::Memory(Memory { local, .. }) | Self::File(File { local, .. }) => {
                local.announce(announcement);
                Ok(())
            }
            Self::Redis(redis) => redis.announce(announcement).await,
        }
    }

    /// Everything that is announced, once its channel is whole.
    pub(crate) fn listen(&self) -> Listener {
        match self {
            Self::Memory(Memory { local, .. }) | Self::File(File { local, .. }) => {
                Listener::Local(local.listen())
            }
            Self::Redis(redis) => Listener::Redis(Box::new(redis.listen())),
        }
    }

    /// Says that this gateway is there, for as long as `ttl`.
    pub(crate) async fn appear(&self, me: &Presence, ttl: Duration) -> Result<(), StoreError> {
        match self {
            Self::Memory(memory) => {
                memory.local.appear(me, ttl);
                Ok(())
            }
            // Nobody else reads it; what a gateway says all the time shows whether the disk takes it.
            Self::File(file) => {
                file.takes_writes()?;
                file.local.appear(me, ttl);
                Ok(())
            }
            Self::Redis(redis) => redis.appear(me, ttl).await,
        }
    }

    /// Says that this gateway is there no longer.
    pub(crate) async fn leave(&self, id: &str) -> Result<(), StoreError> {
        match self {
            Self::Memory(Memory { local, .. }) | Self::File(File { local, .. }) => {
                local.leave(id);
                Ok(())
            }
            Self::Redis(redis) => redis.leave(id).await,
        }
    }

    /// Every gateway that is there.
    pub(crate) async fn gateways(&self) -> Result<Present, StoreError> {
        match self {
            Self::Memory(Memory { local, .. }) | Self::File(File { local, .. }) => Ok(Present {
                gateways: local.gateways(),
                unreadable: 0,
            }),
            Self::Redis(redis) => redis.gateways().await,
        }
    }

    /// Whether the store answers.
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::File(file) => file.ping().await,
            Self::Redis(redis) => redis.ping().await,
        }
    }

    /// The policy by which the store may throw live sessions away to make room, if it has one.
    pub(crate) async fn eviction(&self) -> Result<Option<String>, StoreError> {
        match self {
            Self::Memory(_) | Self::File(_) => Ok(None),
            Self::Redis(redis) => redis.eviction().await,
        }
    }
}

// === impl Presence ===

impl Presence {
    /// Whether this gateway can open what the other one seals.
    pub(crate) fn opens_what_is_sealed_by(&self, other: &Self) -> bool {
        let sealed_with = other.seal_keys.first();
        sealed_with.is_some_and(|key| self.seal_keys.contains(key))
    }
}

// === impl Listener ===

impl Listener {
    /// Waits for what is heard next. Dropping the wait loses nothing.
    pub(crate) async fn next(&mut self) -> Heard {
        match self {
            Self::Local(local) => local.next().await,
            Self::Redis(redis) => redis.next().await,
        }
    }
}

// === impl Version ===

impl Version {
    pub(crate) const FIRST: Self = Self(1);

    /// The version after this one.
    pub(crate) fn next(self) -> Self {
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

fn within(limit: usize, values: &[&[u8]]) -> Result<(), StoreError> {
    match values.iter().map(|value| value.len()).max() {
        Some(bytes) if bytes > limit => Err(StoreError::TooLarge { bytes, limit }),
        _ => Ok(()),
    }
}
