//! What a session learns about its server's tools, and what gateways on one store tell each other about it.
//!
//! Each gateway learns by itself which tools are safe to repeat, leg by leg. What another gateway has to know is
//! that it may rely on that no longer: the tools changed, or a client was shown something else. So the store has one
//! sealed entry for each caller and server: a count of the revocations, and the tools that any gateway relies on. It
//! is read before a list is requested and before a call is repeated, which is rare, and written when either
//! changes. While the store is unavailable, what this gateway itself has seen counts, but for a session that lives in
//! another gateway. An owner that cannot write a revocation tells it with the failure of a call.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bowline_store::{Key, Lifetime, MAX_CONFLICTS, OpenedEntry, Version};
use tokio::sync::oneshot;

use crate::leg::Leg;
use crate::session::Session;
use crate::session_store::record_error::BadRecord;
use crate::session_store::{PersistenceError, SessionStore};
use crate::upstream::{Audience, Epoch, Stored, Upstream, WantedList};

/// How long an entry is kept after it was last written.
const KEPT_FOR: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// What the store has about one caller's tools at one server.
#[derive(Debug, Clone)]
pub(crate) struct SharedToolHints {
    session_store: Arc<SessionStore>,
    upstream: Arc<Upstream>,
    audience: Audience,
}

// === impl Session ===

impl Session {
    /// Prepares for a listing on this leg; `None` if its result may only revoke hints.
    pub(crate) async fn before_listing(&self, leg: &Leg) -> Option<Epoch> {
        if let Some(shared) = self.shared_hints() {
            shared.look().await;
        }
        let is_configured = self.upstream.is_configured(&leg.endpoint);
        is_configured.then(|| self.upstream.tool_hints.since(&self.audience()))
    }

    /// Learns from the result of a `tools/list` on this leg (JSON text).
    pub(crate) fn learn_tools(&self, leg: &Leg, asked: Option<Epoch>, result: &str) {
        let (tools, audience) = (&self.upstream.tool_hints, &self.audience());
        tools.learn(audience, &leg.tool_hints, result, asked);
        self.share_tools();
    }

    /// Revokes the hints: the server's tools may have changed.
    pub(crate) fn revoke_tools(&self) {
        self.upstream.tool_hints.revoke(&self.audience());
        self.share_tools();
    }

    /// What lives here tells at once that the server's tools have changed, whether or not a client reads that.
    pub(crate) fn watch_tools(&self, leg: &Leg) {
        if !leg.is_live() {
            return;
        }
        let (upstream, audience) = (Arc::clone(&self.upstream), self.audience());
        let shared = self.shared_hints();
        leg.conversation.watch_tools(move || {
            upstream.tool_hints.revoke(&audience);
            if let Some(shared) = &shared {
                shared.clone().share_later();
            }
        });
    }

    /// Whether a tool that was called on this leg in this epoch may run twice.
    pub(crate) async fn is_safe_tool(&self, leg: &Leg, tool: &str, sent: Epoch) -> bool {
        let is_stored = match self.shared_hints() {
            Some(shared) => shared.look().await,
            None => false,
        };
        // Its owner hears what changes, and tells the store.
        if !is_stored && leg.conversation.is_elsewhere() {
            return false;
        }
        let tools = &self.upstream.tool_hints;
        // The hints describe the server that is configured now.
        self.upstream.is_configured(&leg.endpoint)
            && tools.is_safe(&self.audience(), &leg.tool_hints, (tool, sent), is_stored)
    }

    /// Whether the tools of this leg are known, as a look without locks tells.
    pub(crate) fn knows_tools(&self, leg: &Leg) -> bool {
        self.upstream.tool_hints.is_known(&leg.tool_hints)
    }

    /// Whether Bowline should list the tools on this leg by itself.
    pub(crate) fn wants_tools(&self, leg: &Leg) -> Option<WantedList> {
        let tools = &self.upstream.tool_hints;
        tools.wants_list(|| self.audience(), &leg.tool_hints, leg.shared_endpoint())
    }

    /// Whether a leg that wanted a list has one by now.
    pub(crate) fn got_tools(&self, leg: &Leg) -> bool {
        let tools = &self.upstream.tool_hints;
        tools.got_list(&self.audience(), &leg.tool_hints, leg.shared_endpoint())
    }

    /// A list of Bowline's own on this leg is over, which was requested in the epoch `since`, at this moment.
    pub(crate) fn listed_tools(&self, leg: &Leg, (since, asked): (Epoch, Epoch)) {
        let (tools, endpoint) = (&self.upstream.tool_hints, leg.shared_endpoint());
        let audience = self.audience();
        tools.listed(&audience, &leg.tool_hints, (since, asked), endpoint);
    }

    fn share_tools(&self) {
        if let Some(shared) = self.shared_hints()
            && !self.upstream.tool_hints.is_stored(&shared.audience)
        {
            shared.share_later();
        }
    }

    /// Resolves when all tool hints are written or the write has failed. `None`: they are written.
    pub(crate) fn tools_written(&self) -> Option<oneshot::Receiver<Infallible>> {
        let shared = self.shared_hints()?;
        if !shared.session_store.is_reachable()
            || self.upstream.tool_hints.is_stored(&shared.audience)
        {
            return None;
        }
        let (done, written) = oneshot::channel();
        let tracker = shared.session_store.tracker.clone();
        tracker.spawn(async move {
            if let Err(error) = shared.share().await {
                tracing::debug!(%error, "could not write tool hints");
            }
            drop(done);
        });
        Some(written)
    }

    fn shared_hints(&self) -> Option<SharedToolHints> {
        let session_store = &self.persistence.as_ref()?.session_store;
        SharedToolHints::new(session_store, &self.upstream, self.audience())
    }

    /// Whether the server's tools have changed, and other gateways could not be told by the store.
    pub(crate) fn owes_tools(&self) -> bool {
        let shared = self.shared_hints();
        shared.is_some_and(|shared| self.upstream.tool_hints.owes(&shared.audience))
    }

    /// The caller whose hints this session uses.
    pub(crate) fn audience(&self) -> Audience {
        let carried = self.client_state.carried.as_ref();
        Audience {
            caller: self.caller.clone(),
            tenant: carried
                .map(|carried| carried.fingerprint())
                .unwrap_or_default(),
        }
    }
}

// === impl SharedToolHints ===

impl SharedToolHints {
    /// `None` if no other gateway uses the store. Nor is anything shared about a tenant: the number of tenants is
    /// unlimited, and an entry of each would stay for a long time.
    pub(crate) fn new(
        session_store: &Arc<SessionStore>,
        upstream: &Arc<Upstream>,
        audience: Audience,
    ) -> Option<Self> {
        let is_shared = session_store.is_shared() && audience.tenant.is_empty();
        is_shared.then(|| Self {
            session_store: Arc::clone(session_store),
            upstream: Arc::clone(upstream),
            audience,
        })
    }

    /// Learns what other gateways have revoked. `false`: the store could not be read.
    async fn look(&self) -> bool {
        if !self.session_store.is_reachable() {
            return false;
        }
        let (tools, server) = (&self.upstream.tool_hints, self.upstream.identity());
        match self.load().await {
            Ok((_, stored)) => {
                tools.see(&self.audience, &stored.about(&server));
                true
            }
            Err(error) => {
                tracing::debug!(%error, "could not read tool hints");
                false
            }
        }
    }

    /// Writes in the background.
    fn share_later(self) {
        let tracker = self.session_store.tracker.clone();
        tracker.spawn(async move {
            if let Err(error) = self.share().await {
                tracing::debug!(%error, "could not write tool hints");
            }
        });
    }

    /// Writes until the store knows everything.
    pub(crate) async fn share(&self) -> Result<(), PersistenceError> {
        let tools = &self.upstream.tool_hints;
        let _writing = tools.writing.lock().await;
        for _ in 0..MAX_CONFLICTS {
            // The previous holder of the lock may have written it.
            if tools.is_stored(&self.audience) || self.write().await? {
                return Ok(());
            }
        }
        Err(PersistenceError::Contended)
    }

    /// Writes once. `true`: there was nothing to write.
    async fn write(&self) -> Result<bool, PersistenceError> {
        let tools = &self.upstream.tool_hints;
        // In this order: if another server is configured meanwhile, this writes hints of the old
        // server, or nothing.
        let server = self.upstream.identity();
        let (version, stored) = self.load().await?;
        let merged = tools.merge(&self.audience, &stored.about(&server));
        let is_news = merged.stored != stored;
        if is_news {
            let bytes = serde_json::to_vec(&merged.stored).map_err(BadRecord::from)?;
            let (key, lifetime) = (self.key(), Lifetime::FromLastWrite(KEPT_FOR));
            let entry = self.session_store.entry(&key);
            if entry.write(version, &bytes, lifetime).await?.is_none() {
                return Ok(false);
            }
        }
        tools.stored(&self.audience, merged);
        Ok(!is_news)
    }

    async fn load(&self) -> Result<(Option<Version>, Stored), PersistenceError> {
        match self.session_store.entry(&self.key()).load().await? {
            OpenedEntry::Absent | OpenedEntry::Ended => Ok((None, Stored::default())),
            OpenedEntry::Live { version, value } => {
                // Entries of earlier releases do not name the server and are replaced.
                let stored = serde_json::from_slice(&value).unwrap_or_default();
                Ok((Some(version), stored))
            }
        }
    }

    fn key(&self) -> Key {
        Key::named(
            "tools",
            &[
                self.upstream.name.as_ref(),
                self.audience.caller.name().unwrap_or_default(),
            ],
        )
    }
}
