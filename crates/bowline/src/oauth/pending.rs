//! Where flows lie until they are over: sealed in the store of sessions, so that the answer to one
//! may reach any gateway.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::flow::{Flow, FlowId, Signing};
use crate::store::sealed::{NoRandomness, OpenError, SealKeys};
use crate::store::{Key, Live, Loaded, Part, Store, StoreError, Updated, Version};

/// How long a flow that is over is remembered: longer than anybody could still write to it.
const REMEMBERED: Duration = Duration::from_secs(60);
/// How often a write is tried that meets another gateway's.
const MAX_CONFLICTS: usize = 16;

/// The flows of the gateways on one store.
#[derive(Debug)]
pub(crate) struct Pending {
    store: Arc<Store>,
    keys: SealKeys,
    /// How long anything here may be needed.
    ttl: Duration,
}

/// Why nothing is known of a flow.
#[derive(Debug, Error)]
pub(crate) enum PendingError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a sign-in's record is {0}")]
    Sealed(#[from] OpenError),
    /// Where it stops making sense; what stands there is not told.
    #[error("a sign-in's record cannot be read from byte {0} on")]
    Malformed(usize),
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    #[error("too many write to one sign-in at once")]
    Contended,
}

// === impl PendingError ===

impl From<serde_json::Error> for PendingError {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(error.column())
    }
}

// === impl Pending ===

impl Pending {
    pub(crate) fn new(store: Arc<Store>, keys: SealKeys, deadline: Duration) -> Self {
        Self {
            store,
            keys,
            ttl: 2 * deadline,
        }
    }

    /// Writes a new flow.
    pub(crate) async fn add(&self, flow: &Flow) -> Result<(), PendingError> {
        let key = flow_key(&flow.id);
        let record = self.seal(&key, Version::FIRST, flow)?;
        self.store.create(&key, &record, &[], self.ttl).await?;
        Ok(())
    }

    /// A flow that is not over.
    pub(crate) async fn flow(&self, id: &FlowId) -> Result<Option<Flow>, PendingError> {
        let key = flow_key(id);
        match self.store.load(&key).await? {
            Loaded::Live(live) => Ok(Some(self.open(&key, &live)?)),
            Loaded::Absent | Loaded::Ended => Ok(None),
        }
    }

    /// Changes a flow that is not over. `None`: it is, or `change` did not want to.
    pub(crate) async fn change(
        &self,
        id: &FlowId,
        change: impl Fn(&mut Flow) -> bool,
    ) -> Result<Option<Flow>, PendingError> {
        let key = flow_key(id);
        let mut loaded = self.store.load(&key).await?;
        for _ in 0..MAX_CONFLICTS {
            let Loaded::Live(live) = loaded else {
                return Ok(None);
            };
            let mut flow: Flow = self.open(&key, &live)?;
            if !change(&mut flow) {
                return Ok(None);
            }
            let record = self.seal(&key, live.version.next(), &flow)?;
            loaded = match self.store.update(&key, live.version, &record, None).await? {
                Updated::Done(_) => return Ok(Some(flow)),
                Updated::Conflict(live) => Loaded::Live(live),
                Updated::Gone => return Ok(None),
            };
        }
        Err(PendingError::Contended)
    }

    /// Ends a flow, for one caller of this alone.
    pub(crate) async fn take(&self, id: &FlowId) -> Result<Option<Flow>, PendingError> {
        let key = flow_key(id);
        match self.store.end(&key, REMEMBERED).await? {
            Some(live) => Ok(Some(self.open(&key, &live)?)),
            None => Ok(None),
        }
    }

    /// What is under way between a caller and a server.
    pub(crate) async fn signing(
        &self,
        caller: &str,
        server_url: &str,
    ) -> Result<Signing, PendingError> {
        let key = signing_key(caller, server_url);
        match self.store.load(&key).await? {
            Loaded::Live(live) => self.open(&key, &live),
            Loaded::Absent | Loaded::Ended => Ok(Signing::default()),
        }
    }

    /// Changes what is under way between a caller and a server, and returns what is then. `change`
    /// may say that there is nothing to change.
    pub(crate) async fn change_signing(
        &self,
        caller: &str,
        server_url: &str,
        change: impl Fn(&mut Signing) -> bool,
    ) -> Result<Signing, PendingError> {
        let key = signing_key(caller, server_url);
        let mut loaded = self.store.load(&key).await?;
        for _ in 0..MAX_CONFLICTS {
            let (mut signing, version) = match &loaded {
                Loaded::Live(live) => (self.open(&key, live)?, Some(live.version)),
                Loaded::Absent | Loaded::Ended => (Signing::default(), None),
            };
            if !change(&mut signing) {
                return Ok(signing);
            }
            let next = version.map_or(Version::FIRST, Version::next);
            let record = self.seal(&key, next, &signing)?;
            loaded = match version {
                None => match self.store.create(&key, &record, &[], self.ttl).await? {
                    true => return Ok(signing),
                    false => self.store.load(&key).await?,
                },
                Some(version) => match self.store.update(&key, version, &record, None).await? {
                    Updated::Done(_) => {
                        self.store.touch(&key, self.ttl).await?;
                        return Ok(signing);
                    }
                    Updated::Conflict(live) => Loaded::Live(live),
                    Updated::Gone => Loaded::Absent,
                },
            };
        }
        Err(PendingError::Contended)
    }

    fn seal(
        &self,
        key: &Key,
        version: Version,
        value: &impl Serialize,
    ) -> Result<Vec<u8>, PendingError> {
        let bytes = serde_json::to_vec(value)?;
        Ok(self.keys.seal(&key.bound(Part::Record, version), &bytes)?)
    }

    fn open<T: DeserializeOwned>(&self, key: &Key, live: &Live) -> Result<T, PendingError> {
        let bound = key.bound(Part::Record, live.version);
        Ok(serde_json::from_slice(
            &self.keys.open(&bound, &live.record)?,
        )?)
    }
}

fn flow_key(id: &FlowId) -> Key {
    Key::named("flow", &[id.as_str()])
}

fn signing_key(caller: &str, server_url: &str) -> Key {
    Key::named("signing", &[caller, server_url])
}
