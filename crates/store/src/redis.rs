//! Sessions in a Redis or Valkey that gateways share.
//!
//! A session is one Redis hash, `PREFIX:{SCOPE:HASH}`: `v` its version, `r` the record, `j` the jar,
//! `s` the version of the jar, `n` the last number, or only `e` once it has ended. So record, jar and tombstone change
//! together and expire together, and no script touches two keys: any of this also works on a
//! cluster. Everything conditional is a script, because another gateway may write in between.
//! `PREFIX:sessions` names them all, sorted by when they expire, so that they can be counted.
//!
//! Which gateways there are is in [`gateways`].
//!
//! One connection carries all commands and reconnects by itself; announcements have a connection of
//! their own ([`listener`]). A command whose caller stopped waiting may still be executed later.

mod address;
mod errors;
mod fields;
mod gateways;
mod listener;
mod scripts;

use std::fmt;
use std::future::Future;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::RwLock;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisError, cmd};

pub use self::address::RedisAddress;
use self::errors::{refused, store_error};
use self::fields::{Fields, live};
pub(crate) use self::listener::RedisListener;
use self::scripts::Scripts;
use super::{Key, KeyState, Live, SealedAnnouncement, StoreError, UpdateOutcome, Version};

/// Sessions in a Redis.
pub struct Redis {
    client: Client,
    connection: RwLock<ConnectionManager>,
    config: ConnectionManagerConfig,
    scripts: Scripts,
    prefix: String,
    timeout: Duration,
    /// How often this gateway became present.
    appearances: AtomicU64,
}

// === impl Redis ===

impl Redis {
    /// A store at this place. Nothing is connected yet, so this fails only if the place is not valid.
    ///
    /// Must be called on the runtime that will use it.
    pub fn new(place: RedisAddress) -> Result<Self, StoreError> {
        let client = place.client()?;
        // A call makes one attempt to connect, so that a refused connection is reported at once. The
        // session cache handles the outage.
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(place.timeout))
            .set_response_timeout(Some(place.timeout));
        let connection = ConnectionManager::new_lazy_with_config(client.clone(), config.clone())
            .map_err(|error| refused(&error))?;
        Ok(Self {
            client,
            connection: RwLock::new(connection),
            config,
            scripts: Scripts::new(),
            prefix: place.prefix,
            timeout: place.timeout,
            appearances: AtomicU64::new(0),
        })
    }

    pub(super) async fn create(
        &self,
        key: &Key,
        record: &[u8],
        jar: &[u8],
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        let mut call = self.scripts.create.key(self.key(key));
        call.arg(record).arg(jar).arg(millis(ttl));
        let (mut connection, counting) = (self.connection(), self.count_in(key, ttl));
        let (created, ()) = tokio::join!(self.ask(call.invoke_async(&mut connection)), counting);
        created
    }

    /// Counts a session, for as long as it lives. If this fails, or the session was not created, the next
    /// touch or the expiry corrects the count.
    async fn count_in(&self, key: &Key, ttl: Duration) {
        if !Key::is_sessions(key.as_str()) {
            return;
        }
        let mut call = self.scripts.count_in.key(self.sessions_key());
        call.arg(key.as_str()).arg(millis(ttl));
        let mut connection = self.connection();
        let counted = self.ask(call.invoke_async::<()>(&mut connection));
        if let Err(error) = counted.await {
            tracing::debug!(%error, "session not counted");
        }
    }

    async fn count_out(&self, key: &Key) {
        let mut remove = cmd("ZREM");
        remove.arg(self.sessions_key()).arg(key.as_str());
        let mut connection = self.connection();
        let counted = self.ask(remove.query_async::<()>(&mut connection));
        if let Err(error) = counted.await {
            tracing::debug!(%error, "session still counted");
        }
    }

    /// How many sessions there are, of all gateways.
    pub(super) async fn count(&self) -> Result<usize, StoreError> {
        let call = self.scripts.count.key(self.sessions_key());
        self.ask(call.invoke_async(&mut self.connection())).await
    }

    pub(super) async fn load(&self, key: &Key) -> Result<KeyState, StoreError> {
        let mut get = cmd("HMGET");
        get.arg(self.key(key)).arg(&["e", "v", "r", "j", "s"]);
        let (ended, version, record, jar, since): (Option<u8>, _, _, _, _) =
            self.ask(get.query_async(&mut self.connection())).await?;
        match (ended, live(version, record, jar, since)?) {
            (Some(_), _) => Ok(KeyState::Ended),
            (None, Some(live)) => Ok(KeyState::Live(live)),
            (None, None) => Ok(KeyState::Absent),
        }
    }

    pub(super) async fn has_any(&self, keys: &[Key]) -> Result<bool, StoreError> {
        let mut exist = cmd("EXISTS");
        keys.iter().for_each(|key| {
            exist.arg(self.key(key));
        });
        let found: usize = self.ask(exist.query_async(&mut self.connection())).await?;
        Ok(found > 0)
    }

    pub(super) async fn update(
        &self,
        key: &Key,
        version: Version,
        record: &[u8],
        jar: Option<&[u8]>,
    ) -> Result<UpdateOutcome, StoreError> {
        let mut call = self.scripts.update.key(self.key(key));
        call.arg(version.0).arg(record).arg(jar);
        let (done, (version_now, record, jar, since)): (bool, Fields) =
            self.ask(call.invoke_async(&mut self.connection())).await?;
        match (done, live(version_now, record, jar, since)?) {
            (true, _) => Ok(UpdateOutcome::Done(version.next())),
            (false, Some(live)) => Ok(UpdateOutcome::Conflict(live)),
            (false, None) => Ok(UpdateOutcome::Gone),
        }
    }

    pub(super) async fn touch(&self, key: &Key, ttl: Duration) -> Result<bool, StoreError> {
        let mut call = self.scripts.touch.key(self.key(key));
        call.arg(millis(ttl));
        let touched = self.ask(call.invoke_async(&mut self.connection())).await?;
        if touched {
            self.count_in(key, ttl).await;
        }
        Ok(touched)
    }

    pub(super) async fn end(
        &self,
        key: &Key,
        remember: Duration,
    ) -> Result<Option<Live>, StoreError> {
        let mut call = self.scripts.end.key(self.key(key));
        call.arg(millis(remember));
        let mut connection = self.connection();
        let ending = self.ask(call.invoke_async(&mut connection));
        let (fields, ()) = tokio::join!(ending, self.count_out(key));
        let (version, record, jar, since): Fields = fields?;
        live(version, record, jar, since)
    }

    pub(super) async fn expire(
        &self,
        key: &Key,
        left: Duration,
    ) -> Result<Option<Live>, StoreError> {
        let mut call = self.scripts.expire.key(self.key(key));
        call.arg(millis(left));
        let (version, record, jar, since): Fields =
            self.ask(call.invoke_async(&mut self.connection())).await?;
        let expired = live(version, record, jar, since)?;
        if expired.is_some() {
            self.count_out(key).await;
        }
        Ok(expired)
    }

    pub(super) async fn put_jar(
        &self,
        key: &Key,
        since: Version,
        jar: &[u8],
    ) -> Result<bool, StoreError> {
        let mut call = self.scripts.put_jar.key(self.key(key));
        call.arg(since.0).arg(jar);
        self.ask(call.invoke_async(&mut self.connection())).await
    }

    pub(super) async fn next_number(&self, key: &Key) -> Result<Option<u64>, StoreError> {
        let call = self.scripts.next_number.key(self.key(key));
        self.ask(call.invoke_async(&mut self.connection())).await
    }

    pub(super) async fn last_number(&self, key: &Key) -> Result<Option<u64>, StoreError> {
        let mut asking = cmd("HMGET");
        asking.arg(self.key(key)).arg("v").arg("n");
        let mut connection = self.connection();
        let found = self.ask(asking.query_async(&mut connection)).await?;
        let (version, number): (Option<u64>, Option<u64>) = found;
        Ok(version.map(|_| number.unwrap_or_default()))
    }

    pub(super) async fn claim(
        &self,
        name: &str,
        holder: &str,
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        let mut call = self.scripts.claim.key(self.claim_key(name));
        call.arg(holder).arg(millis(ttl));
        self.ask(call.invoke_async(&mut self.connection())).await
    }

    pub(super) async fn release(&self, name: &str, holder: &str) -> Result<bool, StoreError> {
        let mut call = self.scripts.release.key(self.claim_key(name));
        call.arg(holder);
        self.ask(call.invoke_async(&mut self.connection())).await
    }

    pub(super) async fn announce(
        &self,
        announcement: &SealedAnnouncement,
    ) -> Result<(), StoreError> {
        let mut message = vec![announcement.kind];
        message.extend_from_slice(&announcement.body);
        let mut publish = cmd("PUBLISH");
        publish.arg(self.channel()).arg(message);
        self.ask(publish.query_async(&mut self.connection())).await
    }

    pub(super) fn listen(&self) -> RedisListener {
        RedisListener::new(self.client.clone(), self.channel(), self.timeout)
    }

    pub(super) async fn ping(&self) -> Result<(), StoreError> {
        let mut connection = self.connection();
        let answer = self.ask(cmd("PING").query_async(&mut connection)).await;
        if matches!(answer, Err(StoreError::Refused { .. })) {
            self.reconnect();
        }
        answer
    }

    pub(super) async fn eviction(&self) -> Result<Option<String>, StoreError> {
        // Not CONFIG GET, which hosted services refuse.
        let mut info = cmd("INFO");
        info.arg("memory");
        let info: String = self.ask(info.query_async(&mut self.connection())).await?;
        let mut lines = info.lines();
        let policy = lines.find_map(|line| line.strip_prefix("maxmemory_policy:"));
        Ok(policy
            .filter(|policy| *policy != "noeviction")
            .map(ToOwned::to_owned))
    }

    /// Waits for an answer, but not longer than the timeout.
    async fn ask<T>(
        &self,
        asking: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(self.timeout, asking).await {
            Err(_) => Err(StoreError::Timeout(self.timeout)),
            Ok(answer) => answer.map_err(|error| store_error(error, self.timeout)),
        }
    }

    fn connection(&self) -> ConnectionManager {
        self.connection.read().clone()
    }

    /// A connection whose credentials were refused keeps refusing, even after they were corrected.
    fn reconnect(&self) {
        let (client, config) = (self.client.clone(), self.config.clone());
        if let Ok(connection) = ConnectionManager::new_lazy_with_config(client, config) {
            *self.connection.write() = connection;
        }
    }

    /// The braces are a cluster's hash tag: everything that is stored for a session is on one node.
    fn key(&self, key: &Key) -> String {
        format!("{}:{{{}}}", self.prefix, key.as_str())
    }

    /// `lease` is what older gateways on the same Redis call a claim.
    fn claim_key(&self, name: &str) -> String {
        format!("{}:lease:{{{name}}}", self.prefix)
    }

    fn sessions_key(&self) -> String {
        format!("{}:sessions", self.prefix)
    }

    fn channel(&self) -> String {
        format!("{}:announcements", self.prefix)
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

fn millis(duration: Duration) -> u64 {
    // Zero would mean "delete".
    u64::try_from(duration.as_millis())
        .unwrap_or(u64::MAX)
        .clamp(1, i64::MAX as u64 / 2)
}
