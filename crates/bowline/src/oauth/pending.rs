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
    #[error("a sign-in cannot be written down")]
    Unwritable,
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    #[error("too many write to one sign-in at once")]
    Contended,
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
            Loaded::Live(live) => self.open(&key, &live),
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
            let flow = self.open::<Flow>(&key, &live)?;
            let Some(mut flow) = flow else {
                return Ok(None);
            };
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

    /// Takes a flow out: nobody finds it any more.
    pub(crate) async fn remove(&self, id: &FlowId) -> Result<(), PendingError> {
        self.store.end(&flow_key(id), REMEMBERED).await?;
        Ok(())
    }

    /// What is under way between a caller and a server.
    pub(crate) async fn signing(
        &self,
        caller: &str,
        server_url: &str,
    ) -> Result<Signing, PendingError> {
        let key = signing_key(caller, server_url);
        match self.store.load(&key).await? {
            Loaded::Live(live) => Ok(self.open(&key, &live)?.unwrap_or_default()),
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
                Loaded::Live(live) => {
                    let signing = self.open::<Signing>(&key, live)?;
                    (signing.unwrap_or_default(), Some(live.version))
                }
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
        let bytes = serde_json::to_vec(value).map_err(|_| PendingError::Unwritable)?;
        Ok(self.keys.seal(&key.bound(Part::Record, version), &bytes)?)
    }

    /// `None`: what lies there was written by a gateway of another version, so it counts for nothing
    /// here. It is no more than a sign-in that is begun anew.
    fn open<T: DeserializeOwned>(&self, key: &Key, live: &Live) -> Result<Option<T>, PendingError> {
        let bound = key.bound(Part::Record, live.version);
        let read = serde_json::from_slice(&self.keys.open(&bound, &live.record)?);
        if let Err(error) = &read {
            // Where it stops making sense; what stands there is not told.
            let at = error.column();
            tracing::warn!(at, "a sign-in's record is of another version");
        }
        Ok(read.ok())
    }
}

fn flow_key(id: &FlowId) -> Key {
    Key::named("flow", &[id.as_str()])
}

fn signing_key(caller: &str, server_url: &str) -> Key {
    Key::named("signing", &[caller, server_url])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::Memory;

    #[tokio::test]
    async fn what_another_version_wrote_counts_for_nothing_and_is_in_nobodys_way() {
        let keys = SealKeys::parse(&SealKeys::generate().unwrap()).unwrap();
        let store = Arc::new(Store::Memory(Memory::new()));
        let pending = Pending::new(store, keys, Duration::from_secs(60));
        let id = FlowId::of("a state");
        for key in [flow_key(&id), signing_key("ann", "http://s")] {
            let other = json!({"of": "another version", "flow": 7});
            let record = pending.seal(&key, Version::FIRST, &other).unwrap();
            let created = pending.store.create(&key, &record, &[], pending.ttl);
            assert!(created.await.unwrap());
        }
        assert!(pending.flow(&id).await.unwrap().is_none());
        assert!(pending.change(&id, |_| true).await.unwrap().is_none());
        let none = Signing::default();
        assert_eq!(pending.signing("ann", "http://s").await.unwrap(), none);
        let begun = |signing: &mut Signing| {
            signing.flow = Some(id.clone());
            true
        };
        let signing = pending.change_signing("ann", "http://s", begun).await;
        assert_eq!(signing.unwrap().flow, Some(id.clone()));
        let signing = pending.signing("ann", "http://s").await.unwrap();
        assert_eq!(signing.flow, Some(id));
    }
}
