//! What a caller was shown of a server's tools, shared by whoever keeps its sessions: a gateway that
//! carried no listing knows from it which calls may run twice.
//!
//! It lies beside the sessions, one entry for each caller and server, sealed like them. It is read
//! before a listing is asked for, and written when that taught something new. It is emptied before a new
//! generation of a session is published, so that no gateway relies on what the one before was. Whether a
//! call may run twice is asked of the store each time, which is rare; while that is away, what this
//! gateway itself saw counts.

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

/// How long it is kept after it was last written.
const KEPT_FOR: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// What one caller was shown of one server, and where that is kept.
#[derive(Debug, Clone)]
pub(crate) struct SharedToolHints {
    session_store: Arc<SessionStore>,
    upstream: Arc<Upstream>,
    audience: Audience,
}

// === impl Session ===

impl Session {
    /// A listing is about to be asked for on this leg; `None` if it can only take back what is known.
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

    /// Takes what a listing says (JSON text): the result of `tools/list`.
    pub(crate) fn learn_tools(&self, asked: Option<Epoch>, result: &str) {
        let (tools, audience) = (&self.upstream.tool_hints, &self.audience());
        if tools.learn(audience, result, asked, self.sharing()) {
            self.share_tools();
        }
    }

    /// The server's tools may be others now.
    pub(crate) fn forget_tools(&self) {
        let (tools, audience) = (&self.upstream.tool_hints, &self.audience());
        if tools.forget(audience, Forgetting::Changed, self.sharing()) {
            self.share_tools();
        }
    }

    /// The same because there is a new generation; no other gateway relies on them either when this
    /// returns.
    pub(crate) async fn forget_tools_everywhere(&self) -> Result<(), PersistenceError> {
        let (tools, audience) = (&self.upstream.tool_hints, &self.audience());
        tools.forget(audience, Forgetting::Generation, self.sharing());
        match self.shown() {
            Some(shown) => shown.share().await,
            None => Ok(()),
        }
    }

    /// Whether a tool may run twice, as this session's caller was shown it when it was called.
    pub(crate) async fn may_run_twice(&self, tool: &str, called: Epoch) -> bool {
        if let Some(shown) = self.shown()
            && shown.session_store.is_reachable()
        {
            shown.look().await;
        }
        // What is known is about the server that is configured.
        self.upstream.is_configured(&self.leg().endpoint)
            && self
                .upstream
                .tool_hints
                .is_harmless(&self.audience(), tool, called)
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
            let tracker = shown.session_store.tracker.clone();
            tracker.spawn(async move {
                if let Err(error) = shown.share().await {
                    tracing::debug!(%error, "what a caller was shown was not written");
                }
            });
        }
    }

    /// Resolves when all that is known of the server's tools is written, or cannot be. `None`: it is.
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
            // An error was told by whoever learnt it.
            drop(shown.share().await);
            drop(done);
        });
        Some(written)
    }

    /// Where the hints are shared. Those of a tenant are not: there may be any number of them, and an entry of
    /// each would stay for long.
    fn shown(&self) -> Option<SharedToolHints> {
        let session_store = &self.persistence.as_ref()?.session_store;
        let audience = self.audience();
        let is_tenant = !audience.tenant.is_empty();
        (!is_tenant).then(|| SharedToolHints::new(session_store, &self.upstream, audience))
    }

    /// Looks at the store for what its caller was shown, if that was never done.
    pub(crate) fn look_at_hints_once(&self) {
        if let Some(shown) = self.shown() {
            shown.look_once();
        }
    }

    /// Who is shown what this session lists.
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

    /// Looks at the store, without anybody waiting for it, if that was never done for this caller: it
    /// may be away when it matters.
    pub(crate) fn look_once(self) {
        if !self.upstream.tool_hints.has_seen(&self.audience) {
            let tracker = self.session_store.tracker.clone();
            tracker.spawn(async move { self.look().await });
        }
    }

    /// Makes what is at hand what is in the store, if that can be asked.
    async fn look(&self) {
        let (tools, server) = (&self.upstream.tool_hints, self.upstream.identity());
        let read = tools.epoch(&self.audience);
        match self.load().await {
            Ok((version, stored)) => {
                tools.see(&self.audience, &stored.about(&server), version, read);
            }
            Err(error) => tracing::debug!(%error, "what a caller was shown was not read"),
        }
    }

    /// Writes what was learnt, until there is nothing more.
    pub(crate) async fn share(&self) -> Result<(), PersistenceError> {
        let tools = &self.upstream.tool_hints;
        let written = async {
            let _writing = tools.writing.lock().await;
            // Whoever wrote last may have written this, too.
            while !tools.is_shared(&self.audience) && self.write().await? {}
            Ok(())
        };
        let written = written.await;
        if written.is_err() {
            self.upstream.tool_hints.not_shared(&self.audience);
        }
        written
    }

    /// Makes the changes that are due in the store. `true`: there are more by now.
    async fn write(&self) -> Result<bool, PersistenceError> {
        let tools = &self.upstream.tool_hints;
        for _ in 0..MAX_CONFLICTS {
            // In this order: where another server is configured meanwhile, what is written is about
            // the one before, or nothing.
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
                // What an earlier release wrote does not name the server: it is replaced.
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
