//! One sealed record under one key: load, open, change, seal, and write unless another gateway wrote first.
//!
//! Everything that is stored beside sessions (flows, grants, tool hints) is read and written through a
//! [`SealedEntry`].

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::sealed::{NoRandomness, OpenError, SealKeys};
use crate::{Key, KeyState, Live, Operation, Part, Store, StoreError, UpdateOutcome, Version};

/// How often a write is tried that conflicts with another gateway's write.
pub const MAX_CONFLICTS: usize = 16;

/// A record under one key, sealed for that key and its version.
#[derive(Clone, Copy, Debug)]
pub struct SealedEntry<'a> {
    store: &'a Store,
    keys: &'a SealKeys,
    key: &'a Key,
    observer: Option<&'a dyn Observer>,
}

/// Is notified of every operation that an entry asks of its store, to count it.
pub trait Observer: fmt::Debug + Sync {
    /// Called after an operation, with its duration and its error, if any.
    fn note(&self, operation: Operation, error: Option<&StoreError>, took: Duration);
}

/// What is under a key, with the seal opened.
#[derive(Clone, PartialEq, Eq)]
pub enum OpenedEntry {
    /// Nothing.
    Absent,
    /// The key has ended, and that is still remembered.
    Ended,
    /// A value.
    Live {
        /// How often it was written.
        version: Version,
        /// The value, without its seal.
        value: Vec<u8>,
    },
}

/// For how long an entry stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// So long after it was created.
    FromCreation(Duration),
    /// So long after it was last written.
    FromLastWrite(Duration),
}

/// Why an entry was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The seal does not open.
    #[error("a stored record is {0}")]
    Sealed(#[from] OpenError),
    /// The value could not be sealed.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// Every attempt conflicted with another write.
    #[error("too many write to one record at once")]
    Contended,
}

// === impl SealedEntry ===

impl<'a> SealedEntry<'a> {
    /// The entry under this key; nothing is read yet.
    #[must_use]
    pub fn new(store: &'a Store, keys: &'a SealKeys, key: &'a Key) -> Self {
        Self {
            store,
            keys,
            key,
            observer: None,
        }
    }

    /// Adds an observer for every operation.
    #[must_use]
    pub fn observed_by(self, observer: &'a dyn Observer) -> Self {
        Self {
            observer: Some(observer),
            ..self
        }
    }

    /// Reads the entry.
    ///
    /// # Errors
    ///
    /// When the store fails, or what it has does not open.
    pub async fn load(&self) -> Result<OpenedEntry, EntryError> {
        match self.ask(Operation::Load, self.store.load(self.key)).await? {
            KeyState::Absent => Ok(OpenedEntry::Absent),
            KeyState::Ended => Ok(OpenedEntry::Ended),
            KeyState::Live(live) => self.open(&live),
        }
    }

    /// Writes a value in place of this version, or as a new entry. Returns the version that the value has
    /// then; `None` when another write came first.
    ///
    /// # Errors
    ///
    /// When the store fails. It is then not known whether the value was written.
    pub async fn write(
        &self,
        replaces: Option<Version>,
        value: &[u8],
        lifetime: Lifetime,
    ) -> Result<Option<Version>, EntryError> {
        match self.try_write(replaces, value, lifetime).await? {
            UpdateOutcome::Done(version) => Ok(Some(version)),
            UpdateOutcome::Conflict(_) | UpdateOutcome::Gone => Ok(None),
        }
    }

    /// Changes the entry: `change` gets the value that is there, and returns the one to write, or `None` to
    /// leave everything as it is. If another gateway writes meanwhile, `change` is called again with
    /// what that one wrote.
    ///
    /// # Errors
    ///
    /// When the store fails, the seal does not open, `change` fails, or every attempt conflicts.
    pub async fn change<E: From<EntryError>>(
        &self,
        lifetime: Lifetime,
        mut change: impl FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<(), E> {
        let mut current = self.load().await?;
        for _ in 0..MAX_CONFLICTS {
            let (version, value) = match &current {
                OpenedEntry::Live { version, value } => (Some(*version), Some(&value[..])),
                OpenedEntry::Absent | OpenedEntry::Ended => (None, None),
            };
            let Some(value) = change(value)? else {
                return Ok(());
            };
            current = match self.try_write(version, &value, lifetime).await? {
                UpdateOutcome::Done(_) => return Ok(()),
                UpdateOutcome::Conflict(live) => self.open(&live)?,
                UpdateOutcome::Gone => self.load().await?,
            };
        }
        Err(EntryError::Contended.into())
    }

    async fn try_write(
        &self,
        replaces: Option<Version>,
        value: &[u8],
        lifetime: Lifetime,
    ) -> Result<UpdateOutcome, EntryError> {
        let next = replaces.map_or(Version::FIRST, Version::next);
        let sealed = self.keys.seal_part(self.key, Part::Record, next, value)?;
        let (Lifetime::FromCreation(ttl) | Lifetime::FromLastWrite(ttl)) = lifetime;
        let Some(version) = replaces else {
            let creating = self.store.create(self.key, &sealed, &[], ttl);
            return Ok(match self.ask(Operation::Create, creating).await? {
                true => UpdateOutcome::Done(next),
                false => UpdateOutcome::Gone,
            });
        };
        let updating = self.store.update(self.key, version, &sealed, None);
        let updated = self.ask(Operation::Update, updating).await?;
        if matches!(updated, UpdateOutcome::Done(_)) && lifetime == Lifetime::FromLastWrite(ttl) {
            let touching = self.store.touch(self.key, ttl);
            // The value is written, even if this fails.
            if let Err(error) = self.ask(Operation::Touch, touching).await {
                tracing::debug!(%error, "record lifetime not extended");
            }
        }
        Ok(updated)
    }

    fn open(&self, live: &Live) -> Result<OpenedEntry, EntryError> {
        let opened = self
            .keys
            .open_part(self.key, Part::Record, live.version, &live.record);
        Ok(OpenedEntry::Live {
            version: live.version,
            value: opened?,
        })
    }

    async fn ask<T>(
        &self,
        operation: Operation,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let answer = answer.await;
        if let Some(observer) = self.observer {
            observer.note(operation, answer.as_ref().err(), began.elapsed());
        }
        answer
    }
}

// === impl OpenedEntry ===

// The value may be secret.
impl fmt::Debug for OpenedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("Absent"),
            Self::Ended => f.write_str("Ended"),
            Self::Live { version, .. } => write!(f, "Live({})", version.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::Memory;

    const LIFETIME: Lifetime = Lifetime::FromLastWrite(Duration::from_secs(60));

    #[derive(Debug, Default)]
    struct Seen(Mutex<Vec<Operation>>);

    impl Observer for Seen {
        fn note(&self, operation: Operation, _error: Option<&StoreError>, _took: Duration) {
            self.0.lock().push(operation);
        }
    }

    fn parts() -> (Store, SealKeys, Key) {
        let keys = SealKeys::parse(&SealKeys::generate().unwrap()).unwrap();
        let key = Key::named("test", &["entry"]);
        (Store::Memory(Memory::new()), keys, key)
    }

    fn live(version: u64, value: &[u8]) -> OpenedEntry {
        OpenedEntry::Live {
            version: Version(version),
            value: value.to_vec(),
        }
    }

    #[tokio::test]
    async fn a_change_creates_updates_and_leaves_alone() {
        let (store, keys, key) = parts();
        let seen = Seen::default();
        let entry = SealedEntry::new(&store, &keys, &key).observed_by(&seen);
        assert_eq!(entry.load().await.unwrap(), OpenedEntry::Absent);
        for (before, after) in [(None, b"1"), (Some(&b"1"[..]), b"2")] {
            let changed = entry.change(LIFETIME, |value| {
                assert_eq!(value, before);
                Ok::<_, EntryError>(Some(after.to_vec()))
            });
            changed.await.unwrap();
        }
        let left = entry.change(LIFETIME, |_| Ok::<_, EntryError>(None));
        left.await.unwrap();
        assert_eq!(entry.load().await.unwrap(), live(2, b"2"));
        use Operation::{Create, Load, Touch, Update};
        let asked = [Load, Load, Create, Load, Update, Touch, Load, Load];
        assert_eq!(*seen.0.lock(), asked);
    }

    /// Another gateway's write, as it happens between a load and an update.
    fn interfere(store: &Store, keys: &SealKeys, key: &Key, version: u64) {
        let Store::Memory(memory) = store else {
            unreachable!()
        };
        let sealed = keys.seal_part(key, Part::Record, Version(version + 1), b"theirs");
        memory.update(key, Version(version), &sealed.unwrap(), None);
    }

    #[tokio::test]
    async fn a_change_that_conflicts_sees_what_the_other_wrote() {
        let (store, keys, key) = parts();
        let entry = SealedEntry::new(&store, &keys, &key);
        entry.write(None, b"ours", LIFETIME).await.unwrap();
        let mut seen = Vec::new();
        let changed = entry.change(LIFETIME, |value| {
            if seen.is_empty() {
                interfere(&store, &keys, &key, 1);
            }
            seen.push(value.unwrap_or_default().to_vec());
            Ok::<_, EntryError>(Some(b"ours again".to_vec()))
        });
        changed.await.unwrap();
        assert_eq!(seen, [&b"ours"[..], b"theirs"]);
        assert_eq!(entry.load().await.unwrap(), live(3, b"ours again"));
        // A write with an outdated version does not replace the newer value.
        let late = entry.write(Some(Version(2)), b"late", LIFETIME).await;
        assert_eq!(late.unwrap(), None);
    }

    #[tokio::test]
    async fn a_change_gives_up_when_every_attempt_conflicts() {
        let (store, keys, key) = parts();
        let entry = SealedEntry::new(&store, &keys, &key);
        entry.write(None, b"ours", LIFETIME).await.unwrap();
        let mut attempts = 0;
        let changed = entry.change(LIFETIME, |_| {
            attempts += 1;
            interfere(&store, &keys, &key, attempts);
            Ok::<_, EntryError>(Some(b"ours".to_vec()))
        });
        assert!(matches!(changed.await, Err(EntryError::Contended)));
        assert_eq!(attempts, MAX_CONFLICTS as u64);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lifetime_counts_from_creation_or_from_the_last_write() {
        let minute = Duration::from_secs(60);
        for (lifetime, stays) in [
            (Lifetime::FromCreation(minute), false),
            (Lifetime::FromLastWrite(minute), true),
        ] {
            let (store, keys, key) = parts();
            let entry = SealedEntry::new(&store, &keys, &key);
            entry.write(None, b"1", lifetime).await.unwrap();
            tokio::time::advance(minute / 2).await;
            let written = entry.write(Some(Version::FIRST), b"2", lifetime).await;
            assert_eq!(written.unwrap(), Some(Version(2)));
            tokio::time::advance(minute / 2).await;
            let is_there = entry.load().await.unwrap() != OpenedEntry::Absent;
            assert_eq!(is_there, stays, "{lifetime:?}");
        }
    }
}
