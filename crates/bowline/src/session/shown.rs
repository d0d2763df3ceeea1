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

use tokio::sync::oneshot;

use super::keeper::{Keeper, Unsure};
use super::written::BadRecord;
use super::{Caller, Session};
use crate::leg::Leg;
use crate::store::{Key, Live, Loaded, Operation, Part, Updated, Version};
use crate::upstream::{Epoch, Forgetting, Sharing, Stored, Upstream};

/// How long it is kept after it was last written.
const KEPT_FOR: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// How often a write is tried that meets another gateway's.
const MAX_CONFLICTS: usize = 16;

/// What one caller was shown of one server, and where that is kept.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    keeper: Arc<Keeper>,
    upstream: Arc<Upstream>,
    caller: Caller,
}

// === impl Session ===

impl Session {
    /// A listing is about to be asked for on this leg; `None` if it can only take back what is known.
    pub(crate) async fn before_listing(&self, leg: &Leg) -> Option<Epoch> {
        let tools = &self.upstream.tools;
        if let Some(shown) = self.shown()
            && shown.keeper.is_reachable()
            && (shown.keeper.is_shared() || !tools.has_seen(&self.caller))
        {
            shown.look().await;
        }
        let is_configured = self.upstream.is_configured(&leg.endpoint);
        is_configured.then(|| tools.epoch(&self.caller))
    }

    /// Takes what a listing says (JSON text): the result of `tools/list`.
    pub(crate) fn learn_tools(&self, asked: Option<Epoch>, result: &str) {
        let (tools, caller) = (&self.upstream.tools, &self.caller);
        if tools.learn(caller, result, asked, self.sharing()) {
            self.share_tools();
        }
    }

    /// The server's tools may be others now.
    pub(crate) fn forget_tools(&self) {
        let (tools, caller) = (&self.upstream.tools, &self.caller);
        if tools.forget(caller, Forgetting::Changed, self.sharing()) {
            self.share_tools();
        }
    }

    /// The same because there is a new generation; no other gateway relies on them either when this
    /// returns.
    pub(super) async fn forget_tools_everywhere(&self) -> Result<(), Unsure> {
        let (tools, caller) = (&self.upstream.tools, &self.caller);
        tools.forget(caller, Forgetting::Generation, self.sharing());
        match self.shown() {
            Some(shown) => shown.share().await,
            None => Ok(()),
        }
    }

    /// Whether a tool may run twice, as this session's caller was shown it when it was called.
    pub(crate) async fn may_run_twice(&self, tool: &str, called: Epoch) -> bool {
        if let Some(shown) = self.shown()
            && shown.keeper.is_reachable()
        {
            shown.look().await;
        }
        // What is known is about the server that is configured.
        self.upstream.is_configured(&self.leg().endpoint)
            && self.upstream.tools.is_harmless(&self.caller, tool, called)
    }

    fn sharing(&self) -> Sharing {
        match self.kept.as_ref().map(|kept| kept.keeper.is_shared()) {
            None => Sharing::Alone,
            Some(false) => Sharing::News,
            Some(true) => Sharing::All,
        }
    }

    fn share_tools(&self) {
        if let Some(shown) = self.shown() {
            let tracker = shown.keeper.tracker.clone();
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
        if !shown.keeper.is_reachable() || self.upstream.tools.is_shared(&self.caller) {
            return None;
        }
        let (done, written) = oneshot::channel();
        let tracker = shown.keeper.tracker.clone();
        tracker.spawn(async move {
            // An error was told by whoever learnt it.
            drop(shown.share().await);
            drop(done);
        });
        Some(written)
    }

    fn shown(&self) -> Option<Shown> {
        let keeper = &self.kept.as_ref()?.keeper;
        Some(Shown::new(keeper, &self.upstream, &self.caller))
    }
}

// === impl Shown ===

impl Shown {
    pub(super) fn new(keeper: &Arc<Keeper>, upstream: &Arc<Upstream>, caller: &Caller) -> Self {
        Self {
            keeper: Arc::clone(keeper),
            upstream: Arc::clone(upstream),
            caller: caller.clone(),
        }
    }

    /// Looks at the store, without anybody waiting for it, if that was never done for this caller: it
    /// may be away when it matters.
    pub(super) fn look_once(self) {
        if !self.upstream.tools.has_seen(&self.caller) {
            let tracker = self.keeper.tracker.clone();
            tracker.spawn(async move { self.look().await });
        }
    }

    /// Makes what is at hand what is in the store, if that can be asked.
    async fn look(&self) {
        let (tools, server) = (&self.upstream.tools, self.upstream.identity());
        let read = tools.epoch(&self.caller);
        match self.load().await {
            Ok((version, stored)) => {
                tools.see(&self.caller, &stored.about(&server), version, read);
            }
            Err(error) => tracing::debug!(%error, "what a caller was shown was not read"),
        }
    }

    /// Writes what was learnt, until there is nothing more.
    async fn share(&self) -> Result<(), Unsure> {
        let tools = &self.upstream.tools;
        let written = async {
            let _writing = tools.writing.lock().await;
            // Whoever wrote last may have written this, too.
            while !tools.is_shared(&self.caller) && self.write().await? {}
            Ok(())
        };
        let written = written.await;
        if written.is_err() {
            self.upstream.tools.not_shared(&self.caller);
        }
        written
    }

    /// Makes the changes that are due in the store. `true`: there are more by now.
    async fn write(&self) -> Result<bool, Unsure> {
        let tools = &self.upstream.tools;
        for _ in 0..MAX_CONFLICTS {
            // In this order: where another server is configured meanwhile, what is written is about
            // the one before, or nothing.
            let server = self.upstream.identity();
            let read = tools.epoch(&self.caller);
            let (version, stored) = self.load().await?;
            let Some(merged) = tools.merge(&self.caller, &stored.about(&server), version, read)
            else {
                continue;
            };
            if merged.stored == stored {
                return Ok(tools.shared(&self.caller, &merged, version));
            }
            let bytes = serde_json::to_vec(&merged.stored).map_err(BadRecord::from)?;
            if let Some(version) = self.put(version, &bytes).await? {
                return Ok(tools.shared(&self.caller, &merged, Some(version)));
            }
        }
        Err(Unsure::Contended)
    }

    /// Puts this in place of that version; the version that it has then, unless another was faster.
    async fn put(&self, version: Option<Version>, bytes: &[u8]) -> Result<Option<Version>, Unsure> {
        let (key, store) = (self.key(), &self.keeper.store);
        let next = version.map_or(Version::FIRST, Version::next);
        let place = key.bound(Part::Record, next);
        let sealed = self.keeper.keys.seal(&place, bytes)?;
        let is_written = match version {
            None => {
                let creating = store.create(&key, &sealed, &[], KEPT_FOR);
                self.keeper.ask(Operation::Create, creating).await?
            }
            Some(version) => {
                let updating = store.update(&key, version, &sealed, None);
                let updated = self.keeper.ask(Operation::Update, updating).await?;
                let is_written = matches!(updated, Updated::Done(_));
                if is_written {
                    let touching = store.touch(&key, KEPT_FOR);
                    self.keeper.ask(Operation::Touch, touching).await?;
                }
                is_written
            }
        };
        Ok(is_written.then_some(next))
    }

    async fn load(&self) -> Result<(Option<Version>, Stored), Unsure> {
        let key = self.key();
        let loading = self.keeper.store.load(&key);
        match self.keeper.ask(Operation::Load, loading).await? {
            Loaded::Absent | Loaded::Ended => Ok((None, Stored::default())),
            Loaded::Live(Live {
                version, record, ..
            }) => {
                let place = key.bound(Part::Record, version);
                let bytes = self.keeper.keys.open(&place, &record)?;
                // What an earlier release wrote says nothing of the server: it is written anew.
                let stored = serde_json::from_slice(&bytes).unwrap_or_default();
                Ok((Some(version), stored))
            }
        }
    }

    fn key(&self) -> Key {
        Key::named(
            "tools",
            &[
                self.upstream.name.as_ref(),
                self.caller.name().unwrap_or_default(),
            ],
        )
    }
}
