//! Sign-ins of a process that serves one person. Grants are in the vault of the configuration, which other
//! processes share. Everything else ends with the process.

use std::sync::Arc;

use bowline_egress::Tls;
use bowline_store::sealed::{SealKeys, SealKeysError};
use bowline_store::{Memory, OpenStoreError, Store};
use tokio_util::task::TaskTracker;

use super::StartError;
use crate::config::{Config, Flow as FlowKind, Server, ServerOAuth, StoreKind};
use crate::oauth::{
    AuthServers, FileVault, FlowStore, Flows, Grants, Home, Loopback, MemoryVault, SharedVault,
    Vault,
};
use crate::registry::presence;

/// The vault that gateways with this configuration use.
pub(crate) async fn vault(config: &Config, tracker: &TaskTracker) -> Result<Vault, StartError> {
    Ok(match &config.store.kind {
        StoreKind::Memory => Vault::Memory(MemoryVault::default()),
        StoreKind::File { path } => {
            let vault = FileVault::at(path).map_err(|error| StartError::Vault(error.into()))?;
            Vault::File(vault)
        }
        StoreKind::Redis(_) => Vault::Shared(shared(config, tracker).await?),
    })
}

/// The vault that gateways share.
async fn shared(config: &Config, tracker: &TaskTracker) -> Result<SharedVault, StartError> {
    let failed = |source: OpenStoreError| StartError::Store {
        kind: config.store.kind.clone(),
        source,
    };
    let (store, keys) = bowline_store::open(&config.store.settings())
        .await
        .map_err(failed)?;
    let keys = keys.ok_or(OpenStoreError::NoSealKeys).map_err(failed)?;
    let me = presence::name().map_err(|error| StartError::Vault(error.into()))?;
    Ok(SharedVault::new(Arc::new(store), keys, me, tracker.clone()))
}

/// The server's configuration for a sign-in that this process does itself, whatever `flow` gateways use.
pub(crate) fn with_oauth(server: &Server) -> Server {
    let oauth = server.oauth.clone().unwrap_or_default();
    Server {
        oauth: Some(ServerOAuth {
            flow: FlowKind::Managed,
            redirect_uri: None,
            ..oauth
        }),
        ..server.clone()
    }
}

/// Flows that end with this process, which alone has their listener. So do client registrations: the next
/// process listens on another port, and a grant contains its client.
pub(crate) fn flows(
    config: &Config,
    vault: &Arc<Vault>,
    tls: &Tls,
    tracker: TaskTracker,
    loopback: Arc<dyn Loopback>,
) -> Result<Arc<Flows>, SealKeysError> {
    let auth_servers = Arc::new(AuthServers::new(tls.clone()));
    let renew: Arc<AuthServers> = Arc::clone(&auth_servers);
    let grants = Grants::new(Arc::clone(vault), renew, tracker);
    let registrations = Arc::new(Vault::Memory(MemoryVault::default()));
    let keys = SealKeys::parse(&SealKeys::generate()?)?;
    let store = Arc::new(Store::Memory(Memory::new()));
    let flow_store = FlowStore::new(store, keys, config.oauth.deadline);
    let settings = config.oauth.clone();
    let flows = Flows::new(
        grants,
        registrations,
        flow_store,
        settings,
        Home::Loopback(loopback),
        auth_servers,
    );
    flows.callers.replace(&config.callers);
    Ok(flows)
}
