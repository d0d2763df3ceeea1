//! A caller's tool hints for a server, shared by all gateways on a store: a gateway that has not seen a
//! tool listing learns from them which calls are safe to repeat.
//!
//! The store has one sealed entry for each caller and server. It is read before a listing is requested,
//! and written when the listing contained something new. It is emptied before a new generation of a
//! session is published, so that no gateway relies on hints of the previous generation. Each decision
//! whether a call may run twice reads the store, which is rare; while the store is unavailable, what
//! this gateway itself has seen counts.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bowline_store::{Key, Lifetime, MAX_CONFLICTS, OpenedEntry, Version};
use tokio::sync::oneshot;

use crate::leg::Leg;
use crate::session::Session;
use crate::session_store::record_error::BadRecord;
use crate::session_store::{PersistenceError, SessionStore};
use crate::upstream::{Audience, Epoch, Forgetting, Sharing, Stored, Upstream};

/// How long an entry is kept after it was last written.
const KEPT_FOR: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// One caller's hints for one server, and where they are stored.
#[derive(Debug, Clone)]
pub(crate) struct SharedToolHints {
    session_store: Arc<SessionStore>,
    upstream: Arc<Upstream>,
    audience: Audience,
}

// === impl Session ===

impl Session {
    /// Prepares for a listing on this leg; `None` if its result may only remove hints.
    pub(crate) async fn before_listing(&self, leg: &Leg) -> Option<Epoch> {
        let tools = &self.upstream.tool_hints;
        if let Some(shown) = self.shown()
            && shown.session_store.is_reachable()
            && (shown.session_store.is_shared() || !tools.has_seen(&self.audience()))
        {
            shown.look().await;
        }
        let is_configured = self.upstream.is_configured(&leg.endpoint);
        is_configured.then(|| tools.epoch(&self.audience()))
    }

    /// Learns from the result of a `tools/list` (JSON text).
    pub(crate) fn learn_tools(&self, asked: Option<Epoch>, result: &str) {
        let (tools, audience) = (&self.upstream.tool_hints, &self.audience());
        if tools.learn(audience, result, asked, self.sharing()) {
            self.share_tools();
        }
    }

    /// Removes the hints: the server's tools may have changed.
    pub(crate) fn forget_tools(&self) {
        let (tools, audience) = (&self.upstream.tool_hints, &self.audience());
        if tools.forget(audience, Forgetting::Changed, self.sharing()) {
            self.share_tools();
        }
    }

    /// What lives here tells at once that the server's tools have changed, whether or not a client reads that.
    pub(crate) fn watch_tools(&self, leg: &Leg) {
        if !leg.is_live() {
            return;
        }
        let (upstream, audience) = (Arc::clone(&self.upstream), self.audience());
        let (sharing, shown) = (self.sharing(), self.shown());
        leg.conversation.watch_tools(move || {
            let tools = &upstream.tool_hints;
            if tools.forget(&audience, Forgetting::Changed, sharing)
                && let Some(shown) = &shown
            {
                shown.clone().share_later();
            }
        });
    }

    /// Removes the hints because there is a new generation. When this returns, no other gateway relies
    /// on them either.
    pub(crate) async fn forget_tools_everywhere(&self) -> Result<(), PersistenceError> {
        let (tools, audience) = (&self.upstream.tool_hints, &self.audience());
        tools.forget(audience, Forgetting::Generation, self.sharing());
        match self.shown() {
            Some(shown) => shown.share().await,
            None => Ok(()),
        }
    }

    /// Whether a tool may run twice, by the hints that this session's caller had when it was called.
    pub(crate) async fn is_safe_tool(&self, tool: &str, called: Epoch) -> bool {
        if let Some(shown) = self.shown()
            && shown.session_store.is_reachable()
        {
            shown.look().await;
        }
        // The hints describe the server that is configured now.
        self.upstream.is_configured(&self.leg().endpoint)
            && self
                .upstream
                .tool_hints
                .is_safe(&self.audience(), tool, called)
    }

    fn sharing(&self) -> Sharing {
        match self.shown().map(|shown| shown.session_store.is_shared()) {
            None => Sharing::Alone,
            Some(false) => Sharing::OnlyNew,
            Some(true) => Sharing::All,
        }
    }

    fn share_tools(&self) {
        if let Some(shown) = self.shown() {
            shown.share_later();
        }
    }

    /// Resolves when all tool hints are written or the write has failed. `None`: they are written.
    pub(crate) fn tools_written(&self) -> Option<oneshot::Receiver<Infallible>> {
        let shown = self.shown()?;
        if !shown.session_store.is_reachable()
            || self.upstream.tool_hints.is_shared(&self.audience())
        {
            return None;
        }
        let (done, written) = oneshot::channel();
        let tracker = shown.session_store.tracker.clone();
        tracker.spawn(async move {
            // `learn_tools` logs the error.
            drop(shown.share().await);
            drop(done);
        });
        Some(written)
    }

    /// The shared hints. Hints of a tenant are not shared: the number of tenants is unlimited, and an
    /// entry of each would stay for a long time.
    fn shown(&self) -> Option<SharedToolHints> {
        let session_store = &self.persistence.as_ref()?.session_store;
        let audience = self.audience();
        let is_tenant = !audience.tenant.is_empty();
        (!is_tenant).then(|| SharedToolHints::new(session_store, &self.upstream, audience))
    }

    /// Reads the caller's hints from the store, unless that was done before.
    pub(crate) fn look_at_hints_once(&self) {
        if let Some(shown) = self.shown() {
            shown.look_once();
        }
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
    pub(crate) fn new(
        session_store: &Arc<SessionStore>,
        upstream: &Arc<Upstream>,
        audience: Audience,
    ) -> Self {
        Self {
            session_store: Arc::clone(session_store),
            upstream: Arc::clone(upstream),
            audience,
        }
    }

    /// Reads the store in the background, unless that was done for this caller: it may be unavailable
    /// when the hints are needed.
    pub(crate) fn look_once(self) {
        if !self.upstream.tool_hints.has_seen(&self.audience) {
            let tracker = self.session_store.tracker.clone();
            tracker.spawn(async move { self.look().await });
        }
    }

    /// Brings the cached hints up to date with the store, if it is available.
    async fn look(&self) {
        let (tools, server) = (&self.upstream.tool_hints, self.upstream.identity());
        let read = tools.epoch(&self.audience);
        match self.load().await {
            Ok((version, stored)) => {
                tools.see(&self.audience, &stored.about(&server), version, read);
            }
            Err(error) => tracing::debug!(%error, "could not read tool hints"),
        }
    }

    /// Writes new hints in the background.
    fn share_later(self) {
        let tracker = self.session_store.tracker.clone();
        tracker.spawn(async move {
            if let Err(error) = self.share().await {
                tracing::debug!(%error, "could not write tool hints");
            }
        });
    }

    /// Writes new hints until all are written.
    pub(crate) async fn share(&self) -> Result<(), PersistenceError> {
        let tools = &self.upstream.tool_hints;
        let written = async {
            let _writing = tools.writing.lock().await;
            // The previous holder of the lock may have written these hints.
            while !tools.is_shared(&self.audience) && self.write().await? {}
            Ok(())
        };
        let written = written.await;
        if written.is_err() {
            self.upstream.tool_hints.not_shared(&self.audience);
        }
        written
    }

    /// Writes the pending changes. `true`: there are new ones by now.
    async fn write(&self) -> Result<bool, PersistenceError> {
        let tools = &self.upstream.tool_hints;
        for _ in 0..MAX_CONFLICTS {
            // In this order: if another server is configured meanwhile, this writes hints of the old
            // server, or nothing.
            let server = self.upstream.identity();
            let read = tools.epoch(&self.audience);
            let (version, stored) = self.load().await?;
            let Some(merged) = tools.merge(&self.audience, &stored.about(&server), version, read)
            else {
                continue;
            };
            if merged.stored == stored {
                return Ok(tools.shared(&self.audience, &merged, version));
            }
            let bytes = serde_json::to_vec(&merged.stored).map_err(BadRecord::from)?;
            let (key, lifetime) = (self.key(), Lifetime::FromLastWrite(KEPT_FOR));
            let entry = self.session_store.entry(&key);
            if let Some(version) = entry.write(version, &bytes, lifetime).await? {
                return Ok(tools.shared(&self.audience, &merged, Some(version)));
            }
        }
        Err(PersistenceError::Contended)
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
