//! Where flows are stored until they end: sealed in the session store, so that the answer to a flow may reach
//! any gateway.

use std::sync::Arc;
use std::time::Duration;

use bowline_store::sealed::{NoRandomness, OpenError, SealKeys};
use bowline_store::{EntryError, Key, Lifetime, OpenedEntry, SealedEntry, Store, StoreError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::flow::{Flow, FlowId, FlowState};

/// How long an ended flow is remembered: longer than any late write takes.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The flows of the gateways on one store.
#[derive(Debug)]
pub(crate) struct FlowStore {
    store: Arc<Store>,
    keys: SealKeys,
    /// How long a record may be needed.
    ttl: Duration,
}

/// Why a flow cannot be read or written.
#[derive(Debug, Error)]
pub(crate) enum FlowStoreError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a sign-in's record is {0}")]
    Sealed(#[from] OpenError),
    #[error("a sign-in cannot be serialized")]
    Unwritable,
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    #[error("too many concurrent writes to one sign-in")]
    Contended,
}

// === impl FlowStore ===

impl FlowStore {
    pub(crate) fn new(store: Arc<Store>, keys: SealKeys, deadline: Duration) -> Self {
        Self {
            store,
            keys,
            ttl: 2 * deadline,
        }
    }

    /// Writes a new flow.
    pub(crate) async fn add(&self, flow: &Flow) -> Result<(), FlowStoreError> {
        let key = flow_key(&flow.id);
        let lifetime = Lifetime::FromCreation(self.ttl);
        let record = to_bytes(flow)?;
        self.entry(&key).write(None, &record, lifetime).await?;
        Ok(())
    }

    /// The flow with this id, if it has not ended.
    pub(crate) async fn flow(&self, id: &FlowId) -> Result<Option<Flow>, FlowStoreError> {
        self.load(&flow_key(id)).await
    }

    /// Changes a flow. `None`: it has ended, or `change` returned `false`.
    pub(crate) async fn change(
        &self,
        id: &FlowId,
        change: impl Fn(&mut Flow) -> bool,
    ) -> Result<Option<Flow>, FlowStoreError> {
        let key = flow_key(id);
        let mut changed = None;
        let lifetime = Lifetime::FromCreation(self.ttl);
        let entry = self.entry(&key);
        let changing = entry.change(lifetime, |record| {
            let flow = record.and_then(parse::<Flow>);
            changed = flow.and_then(|mut flow| change(&mut flow).then_some(flow));
            changed.as_ref().map(to_bytes).transpose()
        });
        changing.await?;
        Ok(changed)
    }

    /// Removes a flow.
    pub(crate) async fn remove(&self, id: &FlowId) -> Result<(), FlowStoreError> {
        self.store.end(&flow_key(id), REMEMBERED).await?;
        Ok(())
    }

    /// The flows of a caller at a server.
    pub(crate) async fn signing(
        &self,
        caller: &str,
        server_url: &str,
    ) -> Result<FlowState, FlowStoreError> {
        let found = self.load(&signing_key(caller, server_url)).await?;
        Ok(found.unwrap_or_default())
    }

    /// Changes the state of a caller's flows at a server, and returns the new state. `change` returns `false`
    /// if there is nothing to change.
    pub(crate) async fn change_signing(
        &self,
        caller: &str,
        server_url: &str,
        change: impl Fn(&mut FlowState) -> bool,
    ) -> Result<FlowState, FlowStoreError> {
        let key = signing_key(caller, server_url);
        let mut signing = FlowState::default();
        let lifetime = Lifetime::FromLastWrite(self.ttl);
        let entry = self.entry(&key);
        let changing = entry.change(lifetime, |record| {
            signing = record.and_then(parse).unwrap_or_default();
            change(&mut signing).then(|| to_bytes(&signing)).transpose()
        });
        changing.await?;
        Ok(signing)
    }

    async fn load<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<T>, FlowStoreError> {
        match self.entry(key).load().await? {
            OpenedEntry::Live { value, .. } => Ok(parse(&value)),
            OpenedEntry::Absent | OpenedEntry::Ended => Ok(None),
        }
    }

    fn entry<'a>(&'a self, key: &'a Key) -> SealedEntry<'a> {
        SealedEntry::new(&self.store, &self.keys, key)
    }
}

// === impl FlowStoreError ===

impl From<EntryError> for FlowStoreError {
    fn from(error: EntryError) -> Self {
        match error {
            EntryError::Store(error) => Self::Store(error),
            EntryError::Sealed(error) => Self::Sealed(error),
            EntryError::NoRandomness(error) => Self::NoRandomness(error),
            EntryError::Contended => Self::Contended,
        }
    }
}

fn to_bytes(value: &impl Serialize) -> Result<Vec<u8>, FlowStoreError> {
    serde_json::to_vec(value).map_err(|_| FlowStoreError::Unwritable)
}

/// `None`: a gateway of another version wrote this, so it counts for nothing here. At worst a sign-in has
/// to begin again.
fn parse<T: DeserializeOwned>(record: &[u8]) -> Option<T> {
    let read = serde_json::from_slice(record);
    if let Err(error) = &read {
        // The position only: the content may be secret.
        let at = error.column();
        tracing::warn!(at, "a sign-in's record is of another version");
    }
    read.ok()
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
    use bowline_store::Memory;

    #[tokio::test]
    async fn what_another_version_wrote_counts_for_nothing_and_is_in_nobodys_way() {
        let keys = SealKeys::parse(&SealKeys::generate().unwrap()).unwrap();
        let store = Arc::new(Store::Memory(Memory::new()));
        let pending = FlowStore::new(store, keys, Duration::from_secs(60));
        let id = FlowId::of("a state");
        for key in [flow_key(&id), signing_key("ann", "http://s")] {
            let other = json!({"of": "another version", "flow": 7});
            let record = to_bytes(&other).unwrap();
            let lifetime = Lifetime::FromCreation(pending.ttl);
            let written = pending.entry(&key).write(None, &record, lifetime).await;
            assert!(written.unwrap().is_some());
        }
        assert!(pending.flow(&id).await.unwrap().is_none());
        assert!(pending.change(&id, |_| true).await.unwrap().is_none());
        let none = FlowState::default();
        assert_eq!(pending.signing("ann", "http://s").await.unwrap(), none);
        let begun = |signing: &mut FlowState| {
            signing.flow = Some(id.clone());
            true
        };
        let signing = pending.change_signing("ann", "http://s", begun).await;
        assert_eq!(signing.unwrap().flow, Some(id.clone()));
        let signing = pending.signing("ann", "http://s").await.unwrap();
        assert_eq!(signing.flow, Some(id));
    }
}
