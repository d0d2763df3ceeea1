//! Flows, the sign-ins under way: one at a time per caller and server, and finished by any gateway that gets
//! the answer.
//!
//! A flow belongs to a caller and a server; a wait belongs to one request. A wait that ends does not end its
//! flow: somebody may be typing a password. A flow ends once: by success, by a decline, or at its deadline.
//! The gateway that takes it exchanges its code. No lock is held while a person signs in.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bowline_system::clock;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::account_key::AccountKey;
use super::auth_servers::AuthServers;
use super::failures::RecentFailures;
use super::flow::{Flow, FlowId, FlowOutcome, FlowProgress, FlowState, LoopbackAddress};
use super::flow_store::{FlowStore, FlowStoreError};
use super::given_up::GivenUp;
use super::grants::Grants;
use super::prompts::Prompts;
use super::step_ups::StepUps;
use super::vault::Vault;
use crate::callers::Callers;
use crate::config;

/// How often the store is read to see whether another gateway has finished a flow.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The flows of one gateway.
#[derive(Debug)]
pub(crate) struct Flows {
    pub(super) grants: Arc<Grants>,
    pub(super) vault: Arc<Vault>,
    pub(super) flow_store: FlowStore,
    settings: config::OAuth,
    /// The URL of this gateway's pages, without a slash at the end.
    public_url: Box<str>,
    /// Where browsers return to instead, in a process that serves one person.
    pub(super) loopback: Option<Arc<dyn Loopback>>,
    pub(crate) auth_servers: Arc<AuthServers>,
    /// One start of a sign-in at a time per account.
    pub(super) beginning: Mutex<HashMap<AccountKey, Arc<tokio::sync::Mutex<()>>>>,
    pub(super) failures: RecentFailures,
    pub(super) given_up: GivenUp,
    pub(super) step_ups: StepUps,
    pub(crate) prompts: Arc<Prompts>,
    /// When an answer with an unknown state was last refused.
    pub(super) last_stray: Mutex<Option<Instant>>,
    /// The last result of `initialize`, per account, with the number of the sign-in whose token was sent.
    pub(super) initialized: Mutex<HashMap<AccountKey, (u64, Box<str>)>>,
    pub(super) changed: Notify,
    /// The callers that are configured now.
    pub(crate) callers: Arc<Callers>,
}

/// Where the browser returns to after a sign-in.
pub(crate) enum Home<'a> {
    /// To the pages of a gateway at this URL.
    Pages(&'a str),
    /// To a listener of the flow's own.
    Loopback(Arc<dyn Loopback>),
}

/// The listeners to which browsers return.
pub(crate) trait Loopback: fmt::Debug + Send + Sync {
    /// The address for the next flow. Somebody listens there from now on.
    fn address(&self) -> io::Result<LoopbackAddress>;

    /// This flow has that address.
    fn started(&self, flow: &Flow);

    /// Whether flows are shown in a browser, without the client's help.
    fn opens_browser(&self) -> bool;
}

// === impl Flows ===

impl Flows {
    pub(crate) fn new(
        grants: Arc<Grants>,
        vault: Arc<Vault>,
        flow_store: FlowStore,
        settings: config::OAuth,
        home: Home<'_>,
        auth_servers: Arc<AuthServers>,
    ) -> Arc<Self> {
        let (public_url, loopback) = match home {
            Home::Pages(public_url) => (public_url, None),
            Home::Loopback(loopback) => ("", Some(loopback)),
        };
        Arc::new(Self {
            grants,
            vault,
            flow_store,
            settings,
            public_url: public_url.trim_end_matches('/').into(),
            loopback,
            auth_servers,
            beginning: Mutex::default(),
            failures: RecentFailures::default(),
            given_up: GivenUp::default(),
            step_ups: StepUps::default(),
            prompts: Arc::default(),
            last_stray: Mutex::default(),
            initialized: Mutex::default(),
            changed: Notify::new(),
            callers: Arc::default(),
        })
    }

    pub(crate) fn settings(&self) -> &config::OAuth {
        &self.settings
    }

    /// Whether this process shows flows in a browser, without the client's help.
    pub(crate) fn opens_browser(&self) -> bool {
        let loopback = self.loopback.as_ref();
        loopback.is_some_and(|loopback| loopback.opens_browser())
    }

    /// Reads what other processes wrote to the vault.
    pub(crate) async fn notice(&self) {
        self.grants.notice().await;
    }

    /// Stops using grants of issuers that the configuration does not accept any more.
    pub(crate) fn recheck_issuers(&self) {
        self.grants.recheck_issuers();
    }

    /// Waits until this gateway learns that a caller has signed out.
    pub(crate) async fn signed_out(&self) {
        self.grants.signed_out().await;
    }

    /// The URL of this gateway's pages, without a slash at the end.
    pub(crate) fn public_url(&self) -> &str {
        &self.public_url
    }

    pub(super) fn callback_url(&self) -> String {
        format!("{}/oauth/callback", self.public_url)
    }

    pub(super) async fn under_way(
        &self,
        signing: &FlowState,
        now: i64,
    ) -> Result<Option<Flow>, FlowStoreError> {
        let Some(id) = signing.current(now) else {
            return Ok(None);
        };
        let flow = self.flow_store.flow(id).await?;
        // One that cannot be finished is in nobody's way: it may be for another server with the same URL.
        Ok(flow.filter(|flow| self.callers.permits_sign_in(&flow.caller, &flow.server)))
    }

    /// Whether no other flow replaced this one, and its caller may still use the server.
    pub(super) async fn is_under_way(&self, flow: &Flow) -> Result<bool, FlowStoreError> {
        if !self.callers.permits_sign_in(&flow.caller, &flow.server) {
            return Ok(false);
        }
        let signing = self
            .flow_store
            .signing(&flow.caller, &flow.server_url)
            .await?;
        Ok(signing.flow.as_ref() == Some(&flow.id))
    }

    /// Waits until a flow has ended; `None` if another flow replaced it. Dropping the wait does not end the
    /// flow.
    pub(crate) async fn wait(&self, flow: &Flow) -> Option<FlowOutcome> {
        loop {
            let told = self.changed.notified();
            match self
                .flow_store
                .signing(&flow.caller, &flow.server_url)
                .await
            {
                Ok(signing) => match signing.of(flow, clock::unix_seconds()) {
                    FlowProgress::UnderWay => {}
                    FlowProgress::Ended(end) => return Some(end),
                    FlowProgress::Replaced => return None,
                },
                // Read again later: the outcome is only unknown for now.
                Err(error) => tracing::debug!(%error, "sign-in state unavailable"),
            }
            // Nothing notifies of the deadline, nor of an end at another gateway.
            drop(tokio::time::timeout(LOOK_EVERY, told).await);
        }
    }

    /// Replaces a flow that was taken by another one.
    pub(super) async fn replace(&self, old: &Flow, new: &Flow) -> Result<(), FlowStoreError> {
        self.flow_store.add(new).await?;
        let signing = self
            .flow_store
            .change_signing(&old.caller, &old.server_url, |signing| {
                let is_current = signing.flow.as_ref() == Some(&old.id);
                if is_current {
                    (signing.flow, signing.ends) = (Some(new.id.clone()), new.ends);
                }
                is_current
            })
            .await?;
        self.forget(&old.id).await;
        if signing.flow.as_ref() != Some(&new.id) {
            self.forget(&new.id).await;
        }
        self.changed.notify_waiters();
        Ok(())
    }

    /// Removes a flow that is not needed any more. If that fails, the flow is dead all the same: it was
    /// taken, or is not the one under way.
    pub(super) async fn forget(&self, id: &FlowId) {
        if let Err(error) = self.flow_store.remove(id).await {
            tracing::debug!(%error, flow = ?id, "sign-in record not removed");
        }
    }

    /// Forgets what the server answered to this account's `initialize`: the next one may be somebody else's.
    pub(super) fn forget_initialized(&self, caller: &str, server_url: &str) {
        let account = AccountKey {
            caller: caller.into(),
            server_url: server_url.into(),
        };
        self.initialized.lock().remove(&account);
    }

    /// The flow that is under way for a caller at a server, if any.
    pub(crate) async fn current_flow(
        &self,
        caller: &str,
        server_url: &str,
    ) -> Result<Option<Flow>, FlowStoreError> {
        let signing = self.flow_store.signing(caller, server_url).await?;
        self.under_way(&signing, clock::unix_seconds()).await
    }
}

#[cfg(test)]
impl Flows {
    /// Flows without any sign-in.
    pub(crate) fn idle() -> Arc<Self> {
        use bowline_store::sealed::SealKeys;
        use bowline_store::{Memory, Store};
        let tls = bowline_egress::Tls::platform();
        let (vault, auth_servers) = (
            Arc::new(Vault::Memory(super::vault::Memory::default())),
            Arc::new(AuthServers::new(tls)),
        );
        let renew: Arc<AuthServers> = Arc::clone(&auth_servers);
        let tracker = tokio_util::task::TaskTracker::new();
        let grants = Grants::new(Arc::clone(&vault), renew, tracker);
        let keys = SealKeys::parse(&SealKeys::generate().unwrap()).unwrap();
        let store = Arc::new(Store::Memory(Memory::new()));
        let settings = config::OAuth::default();
        let flow_store = FlowStore::new(store, keys, settings.deadline);
        let home = Home::Pages("http://127.0.0.1:9");
        Self::new(grants, vault, flow_store, settings, home, auth_servers)
    }
}
