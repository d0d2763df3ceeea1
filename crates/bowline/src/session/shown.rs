//! What a caller was shown of a server's tools, shared by whoever keeps its sessions: a gateway that
//! carried no listing knows from it which calls may run twice.
//!
//! It lies beside the sessions, one entry for each caller and server, sealed like them. It is written
//! when a listing taught something new, and read again for a listing that comes [a while] after. Whether
//! a call may run twice is asked of the store each time, which is rare; while that is away, what this
//! gateway itself saw counts.
//!
//! [a while]: super::keeper

use std::sync::Arc;
use std::time::Duration;

use super::keeper::{Keeper, Unsure};
use super::written::BadRecord;
use super::{Caller, Session};
use crate::store::{Key, Live, Loaded, Operation, Part, Updated, Version};
use crate::upstream::{Changes, Harmless, Seen, Sharing, Upstream};

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
    /// Takes what a listing says (JSON text): the result of `tools/list`.
    pub(crate) fn learn_tools(&self, result: &str) {
        let keeper = self.kept.as_ref().map(|kept| &kept.keeper);
        let sharing = |seen: Option<u64>| match keeper {
            None => Sharing::Alone,
            Some(keeper) if seen.is_some_and(|seen| keeper.is_fresh(seen)) => Sharing::News,
            Some(_) => Sharing::All,
        };
        let tools = &self.upstream.tools;
        if tools.learn(&self.caller, result, sharing) {
            self.share_tools();
        }
    }

    /// The server said that its tools are others now.
    pub(crate) fn forget_tools(&self) {
        if self.upstream.tools.forget(&self.caller, self.is_kept()) {
            self.share_tools();
        }
    }

    /// Whether a tool may run twice, as this session's caller was shown it.
    pub(crate) async fn may_run_twice(&self, tool: &str) -> bool {
        if let Some(shown) = self.shown()
            && shown.keeper.is_reachable()
        {
            shown.look().await;
        }
        self.upstream.tools.is_harmless(&self.caller, tool)
    }

    fn share_tools(&self) {
        if let Some(shown) = self.shown() {
            let tracker = shown.keeper.tracker.clone();
            tracker.spawn(async move { shown.share().await });
        }
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
        match self.load().await {
            Ok((seen, stored)) => self.upstream.tools.see(&self.caller, stored, seen),
            Err(error) => tracing::debug!(%error, "what a caller was shown was not read"),
        }
    }

    /// Writes what was learnt, until there is nothing more.
    async fn share(&self) {
        loop {
            let tools = &self.upstream.tools;
            let changes = tools.unshared(&self.caller);
            match self.write(&changes).await {
                Ok((seen, stored)) => {
                    if !tools.shared(&self.caller, stored, &changes, seen) {
                        return;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "what a caller was shown was not written");
                    tools.not_shared(&self.caller);
                    return;
                }
            }
        }
    }

    /// Makes these changes in the store; what it has then.
    async fn write(&self, changes: &Changes) -> Result<(Seen, Harmless), Unsure> {
        let (key, store) = (self.key(), &self.keeper.store);
        for _ in 0..MAX_CONFLICTS {
            let (seen, before) = self.load().await?;
            let mut after = before.clone();
            changes.apply(&mut after);
            if after == before {
                return Ok((seen, after));
            }
            let next = seen.version.map_or(Version::FIRST, Version::next);
            let bytes = after.to_bytes().map_err(BadRecord::from)?;
            let sealed = self
                .keeper
                .keys
                .seal(&key.bound(Part::Record, next), &bytes)?;
            let is_written = match seen.version {
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
            if is_written {
                let version = Some(next);
                return Ok((Seen { version, ..seen }, after));
            }
        }
        Err(Unsure::Contended)
    }

    async fn load(&self) -> Result<(Seen, Harmless), Unsure> {
        let key = self.key();
        let (version, at) = (None, self.keeper.now());
        let loading = self.keeper.store.load(&key);
        match self.keeper.ask(Operation::Load, loading).await? {
            Loaded::Absent | Loaded::Ended => Ok((Seen { version, at }, Harmless::default())),
            Loaded::Live(Live {
                version, record, ..
            }) => {
                let place = key.bound(Part::Record, version);
                let bytes = self.keeper.keys.open(&place, &record)?;
                let stored = Harmless::parse(&bytes).map_err(BadRecord::from)?;
                let version = Some(version);
                Ok((Seen { version, at }, stored))
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
