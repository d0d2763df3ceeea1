//! The three kinds of store behind one interface.

use std::time::Duration;

use crate::{
    File, Key, KeyState, LARGEST_ANNOUNCEMENT, LARGEST_VALUE, ListedGateway, Listener, Live,
    Memory, Presence, Redis, SealedAnnouncement, StoreError, UpdateOutcome, Version,
};

/// A store. Every kind obeys these laws.
///
/// **Errors.** An error means that it is not known whether the operation happened; it may even
/// happen later. It never means "absent". No call waits longer than the store's timeout, and
/// dropping a call stops the waiting, not the operation.
///
/// **Sessions.** A key is absent, live or ended.
/// 1. `create` makes an absent key live and changes no other. Of any number of creators, one wins.
/// 2. A live key has a version: 1 at first, one more with each update. `update` changes it only if
///    the caller names the current version, so each version is written once; the other writers get what
///    is there now.
/// 3. `end` makes a live key ended. It returns what it replaced to exactly one caller.
/// 4. An ended key stays ended for as long as it is to be remembered, whatever late writers try, and
///    is absent afterwards. Only `create` makes a key live, and for a session `create` is only
///    ever called with a new random id: so a session that has ended does not come back.
/// 5. A live key becomes absent, with all that it has, when its time is over, or by `expire` when that is
///    near, which returns what it had to exactly one caller. `create` sets that time, `touch` restarts
///    it, nothing else does.
/// 6. A jar belongs to the version at which it was last replaced together with the record. Of
///    several `put_jar` for that version the last wins; for any other version, and unless the key
///    is live, it does nothing: a late cookie of an old generation does not reach a new one.
/// 7. Once a call has returned that something happened, every later load finds it, from any gateway.
///    With the file, this holds across `kill -9` as well, except that the last second of touches
///    may be lost, and that an ended key is absent: nobody is left who could write late.
/// 8. Of the numbers of a live key, each is higher than those that were given out before.
///
/// **Claims.** A claim is the right to do something once among gateways. It has at most one holder, and
/// none after its time. `claim` takes a free claim or renews the holder's own, and restarts its time.
///
/// **Announcements** reach every listener of every gateway on this store, in order, while its
/// channel is whole; a listener learns when it is not ([`ListenerEvent`](crate::ListenerEvent)). Nothing
/// may depend on an announcement arriving.
#[derive(Debug)]
pub enum Store {
    /// In this process; sessions end with it.
    Memory(Memory),
    /// In a file of this machine, held by one gateway at a time.
    File(File),
    /// In a Redis or Valkey that gateways share.
    Redis(Box<Redis>),
}

// === impl Store ===

impl Store {
    /// The kind's name in the configuration.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::File(_) => "file",
            Self::Redis(_) => "redis",
        }
    }

    /// Makes an absent key live. `false`: it was not absent.
    pub async fn create(
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
    pub async fn load(&self, key: &Key) -> Result<KeyState, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.load(key)),
            Self::File(file) => file.load(key).await,
            Self::Redis(redis) => redis.load(key).await,
        }
    }

    /// Whether anything may be under one of these keys, with one question. Where reading a key costs no question
    /// over a network, it may be.
    pub async fn may_have_any(&self, keys: &[Key]) -> Result<bool, StoreError> {
        match self {
            Self::Memory(_) | Self::File(_) => Ok(true),
            Self::Redis(redis) => redis.has_any(keys).await,
        }
    }

    /// Replaces the record, and the jar if there is a new one, if `version` is still the present one.
    pub async fn update(
        &self,
        key: &Key,
        version: Version,
        record: &[u8],
        jar: Option<&[u8]>,
    ) -> Result<UpdateOutcome, StoreError> {
        within(LARGEST_VALUE, &[record, jar.unwrap_or_default()])?;
        match self {
            Self::Memory(memory) => Ok(memory.update(key, version, record, jar)),
            Self::File(file) => file.update(key, version, record, jar).await,
            Self::Redis(redis) => redis.update(key, version, record, jar).await,
        }
    }

    /// Restarts the time of a live key. `false`: it is not live. Callers do this at most once in
    /// a tenth of the time.
    pub async fn touch(&self, key: &Key, ttl: Duration) -> Result<bool, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.touch(key, ttl)),
            Self::File(file) => file.touch(key, ttl).await,
            Self::Redis(redis) => redis.touch(key, ttl).await,
        }
    }

    /// Ends a live key and returns what it had. `None`: it was not live. `remember` must be longer
    /// than anything that could still write.
    pub async fn end(&self, key: &Key, remember: Duration) -> Result<Option<Live>, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.end(key, remember)),
            Self::File(file) => file.end(key, remember).await,
            Self::Redis(redis) => redis.end(key, remember).await,
        }
    }

    /// Makes a live key absent if no more than `left` of its time is left, and returns what it had.
    /// `None`: it is not live, or more is left.
    pub async fn expire(&self, key: &Key, left: Duration) -> Result<Option<Live>, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.expire(key, left)),
            Self::File(file) => file.expire(key, left).await,
            Self::Redis(redis) => redis.expire(key, left).await,
        }
    }

    /// How many sessions are live, of all gateways on this store. A session that
    /// expired, or whose last write failed, may still be counted for a while.
    pub async fn count(&self) -> Result<usize, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.count()),
            Self::File(file) => Ok(file.count()),
            Self::Redis(redis) => redis.count().await,
        }
    }

    /// The same, where it is known without asking the store.
    pub fn cached_count(&self) -> Option<usize> {
        match self {
            Self::Memory(memory) => Some(memory.count()),
            Self::File(file) => Some(file.count()),
            Self::Redis(_) => None,
        }
    }

    /// Replaces the jar that belongs to this version. `false`: that jar is gone.
    pub async fn put_jar(&self, key: &Key, since: Version, jar: &[u8]) -> Result<bool, StoreError> {
        within(LARGEST_VALUE, &[jar])?;
        match self {
            Self::Memory(memory) => Ok(memory.put_jar(key, since, jar)),
            Self::File(file) => file.put_jar(key, since, jar).await,
            Self::Redis(redis) => redis.put_jar(key, since, jar).await,
        }
    }

    /// The next number of a live key. `None`: it is not live.
    pub async fn next_number(&self, key: &Key) -> Result<Option<u64>, StoreError> {
        match self {
            Self::Memory(Memory { local, .. }) | Self::File(File { local, .. }) => {
                let is_live = matches!(self.load(key).await?, KeyState::Live(_));
                Ok(is_live.then(|| local.next_number()))
            }
            Self::Redis(redis) => redis.next_number(key).await,
        }
    }

    /// The last number of a live key; 0 if it has had none. `None`: it is not live.
    pub async fn last_number(&self, key: &Key) -> Result<Option<u64>, StoreError> {
        match self {
            Self::Memory(Memory { local, .. }) | Self::File(File { local, .. }) => {
                let is_live = matches!(self.load(key).await?, KeyState::Live(_));
                Ok(is_live.then(|| local.last_number()))
            }
            Self::Redis(redis) => redis.last_number(key).await,
        }
    }

    /// Takes a claim, or renews it. `false`: another holder has it.
    pub async fn claim(&self, name: &str, holder: &str, ttl: Duration) -> Result<bool, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.local.claim(name, holder, ttl)),
            // As with any other store: what the claim is for would have to be written.
            Self::File(file) => {
                file.check_writable()?;
                Ok(file.local.claim(name, holder, ttl))
            }
            Self::Redis(redis) => redis.claim(name, holder, ttl).await,
        }
    }

    /// Releases a claim. `false`: the holder did not have it any more.
    pub async fn release(&self, name: &str, holder: &str) -> Result<bool, StoreError> {
        match self {
            Self::Memory(Memory { local, .. }) | Self::File(File { local, .. }) => {
                Ok(local.release(name, holder))
            }
            Self::Redis(redis) => redis.release(name, holder).await,
        }
    }

    /// Sends an announcement to every listener.
    pub async fn announce(&self, announcement: &SealedAnnouncement) -> Result<(), StoreError> {
        within(LARGEST_ANNOUNCEMENT, &[&announcement.body])?;
        match self {
            Self::Memory(Memory { local, .. }) | Self::File(File { local, .. }) => {
                local.announce(announcement);
                Ok(())
            }
            Self::Redis(redis) => redis.announce(announcement).await,
        }
    }

    /// Listens to announcements; the first event says that the channel is whole.
    pub fn listen(&self) -> Listener {
        match self {
            Self::Memory(Memory { local, .. }) | Self::File(File { local, .. }) => {
                Listener::Local(local.listen())
            }
            Self::Redis(redis) => Listener::Redis(Box::new(redis.listen())),
        }
    }

    /// Lists this gateway, and makes it present for `ttl`. That it is present may be renewed although this fails: a
    /// full Redis has room for that, and not for what the gateway says of itself.
    pub async fn appear(&self, me: &Presence, ttl: Duration) -> Result<(), StoreError> {
        match self {
            Self::Memory(memory) => {
                memory.local.appear(me, ttl);
                Ok(())
            }
            // Nothing else reads it, but it is repeated often, so it shows whether the disk accepts
            // writes.
            Self::File(file) => {
                file.check_writable()?;
                file.local.appear(me, ttl);
                Ok(())
            }
            Self::Redis(redis) => redis.appear(me, ttl).await,
        }
    }

    /// Removes this gateway from those present.
    pub async fn leave(&self, id: &str) -> Result<(), StoreError> {
        match self {
            Self::Memory(Memory { local, .. }) | Self::File(File { local, .. }) => {
                local.leave(id);
                Ok(())
            }
            Self::Redis(redis) => redis.leave(id).await,
        }
    }

    /// Every gateway that is listed, present or not.
    pub async fn gateways(&self) -> Result<Vec<ListedGateway>, StoreError> {
        match self {
            Self::Memory(Memory { local, .. }) | Self::File(File { local, .. }) => {
                Ok(local.gateways())
            }
            Self::Redis(redis) => redis.gateways().await,
        }
    }

    /// Takes a gateway from the list that is gone, unless the list has something else under its name by now.
    pub async fn forget(&self, gone: &ListedGateway) -> Result<(), StoreError> {
        match self {
            // They list nobody who is not present.
            Self::Memory(_) | Self::File(_) => Ok(()),
            Self::Redis(redis) => redis.forget(gone).await,
        }
    }

    /// Whether the store answers.
    pub async fn ping(&self) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::File(file) => file.ping().await,
            Self::Redis(redis) => redis.ping().await,
        }
    }

    /// The policy by which the store may evict live sessions to make room, if it has one.
    pub async fn eviction(&self) -> Result<Option<String>, StoreError> {
        match self {
            Self::Memory(_) | Self::File(_) => Ok(None),
            Self::Redis(redis) => redis.eviction().await,
        }
    }
}

fn within(limit: usize, values: &[&[u8]]) -> Result<(), StoreError> {
    match values.iter().map(|value| value.len()).max() {
        Some(bytes) if bytes > limit => Err(StoreError::TooLarge { bytes, limit }),
        _ => Ok(()),
    }
}
