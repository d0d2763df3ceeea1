//! What a client of several servers holds: an id, its own `initialize`, a key for marks, and members, which are
//! ordinary sessions. It has no leg. Where sessions are stored it is stored, too, and any gateway goes on with it.

mod record;
pub(super) mod stored;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bowline_wire::id::SessionId;
use bowline_wire::message::{Message, RawId, RawIdBuf};
use bowline_wire::version::Agreed;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::stored::Stored;
use super::listening::Listening;
use super::slot::Slot;
use super::state::{Member, State};
use crate::caller::Caller;
use crate::config::ServerName;
use crate::leg::marks::Seal;
use crate::route::union::Union;
use crate::session_store::PersistenceError;
use crate::share::Permit;
use crate::telemetry::SessionHash;
use crate::upstream::Carried;

/// What a client of several servers holds.
#[derive(Debug)]
pub(crate) struct Attachment {
    /// The id that the client uses.
    pub(crate) id: SessionId,
    /// The id that operators see.
    pub(crate) hash: SessionHash,
    /// The only caller that may use it.
    pub(crate) caller: Caller,
    pub(crate) union: Arc<Union>,
    /// Seals the marks of all members.
    pub(crate) seal: Seal,
    /// The client's `initialize`, with which members are opened.
    pub(crate) initialize: Message,
    /// The headers and query carried with it.
    pub(crate) carried: Option<Box<Carried>>,
    pub(crate) version: Agreed,
    /// In seconds since 1970.
    pub(super) opened_at: i64,
    /// Its age when this gateway began to use it.
    pub(super) before: Duration,
    opened: Instant,
    /// Requests and streams in progress.
    uses: AtomicU32,
    /// Milliseconds after `opened`.
    last_used: AtomicU64,
    pub(super) state: Mutex<State>,
    /// Held while the state is changed.
    pub(super) changing: tokio::sync::Mutex<()>,
    pub(super) stored: Option<Stored>,
    slots: Mutex<HashMap<ServerName, Arc<Slot>>>,
    /// Requests whose members are being opened, so that the client can cancel them.
    openings: Mutex<Vec<(RawIdBuf, CancellationToken)>>,
    /// Which server had which resource.
    pub(super) uris: Mutex<Homes>,
    pub(super) listening: Listening,
    /// Held by the one request that may prompt the client for a sign-in.
    pub(super) prompting: Arc<tokio::sync::Mutex<()>>,
    pub(super) place: Mutex<Option<Permit>>,
    /// It has ended, or the gateway stops: nothing more is asked for it in the background.
    pub(super) over: CancellationToken,
}

/// Which server had which resource, as the last read of it showed.
#[derive(Debug, Default)]
pub(super) struct Homes(VecDeque<(String, ServerName)>);

/// What an attachment is made of.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) id: SessionId,
    pub(super) caller: Caller,
    pub(super) union: Arc<Union>,
    pub(super) seal: Seal,
    pub(super) initialize: Message,
    pub(super) carried: Option<Box<Carried>>,
    pub(super) version: Agreed,
    pub(super) opened_at: i64,
    pub(super) before: Duration,
    pub(super) state: State,
    pub(super) stored: Option<Stored>,
}

/// Keeps an attachment from expiring while a request or a stream of it is in progress.
#[derive(Debug)]
pub(crate) struct AttachmentUse(Arc<Attachment>);

/// A request whose member is being opened, for as long as this is held.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    attachment: &'a Attachment,
    cancelled: CancellationToken,
}

// === impl Attachment ===

impl Attachment {
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            hash: SessionHash::of(&parts.id),
            id: parts.id,
            caller: parts.caller,
            union: parts.union,
            seal: parts.seal,
            initialize: parts.initialize,
            carried: parts.carried,
            version: parts.version,
            opened_at: parts.opened_at,
            before: parts.before,
            opened: Instant::now(),
            uses: AtomicU32::new(0),
            last_used: AtomicU64::new(0),
            state: Mutex::new(parts.state),
            changing: tokio::sync::Mutex::default(),
            stored: parts.stored,
            slots: Mutex::default(),
            openings: Mutex::default(),
            uris: Mutex::default(),
            listening: Listening::default(),
            prompting: Arc::default(),
            place: Mutex::default(),
            over: CancellationToken::new(),
        }
    }

    /// What this gateway knows of one server for this client.
    pub(super) fn slot(&self, server: &ServerName) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        Arc::clone(slots.entry(server.clone()).or_default())
    }

    pub(super) fn slots(&self) -> Vec<(ServerName, Arc<Slot>)> {
        let slots = self.slots.lock();
        let slots = slots.iter();
        slots
            .map(|(name, slot)| (name.clone(), Arc::clone(slot)))
            .collect()
    }

    pub(super) fn members(&self) -> Vec<Member> {
        self.state.lock().members.clone()
    }

    pub(super) fn member_of(&self, server: &ServerName) -> Option<Member> {
        self.state.lock().member_of(server).cloned()
    }

    pub(super) fn member(&self, number: u16) -> Option<Member> {
        self.state.lock().member(number).cloned()
    }

    pub(super) fn level(&self) -> Option<String> {
        self.state.lock().level.clone()
    }

    /// Changes the state, here and in the store. `change` is called again if another gateway changed it first.
    /// `None`: the attachment has ended.
    pub(super) async fn change<R>(
        &self,
        mut change: impl FnMut(&mut State) -> R,
    ) -> Result<Option<R>, PersistenceError> {
        let _changing = self.changing.lock().await;
        let Some(stored) = &self.stored else {
            return Ok(Some(change(&mut self.state.lock())));
        };
        stored.change(self, change).await
    }

    /// The attachment as operators see it.
    pub(super) fn report(&self) -> Value {
        let members = self.members();
        let members = members.iter().map(|member| {
            let session = SessionHash::of(&member.session).to_string();
            json!({"server": member.server.to_string(), "session": session})
        });
        json!({
            "session": self.hash.to_string(),
            "caller": self.caller.name(),
            "union": self.union.name.to_string(),
            "version": self.version.as_str(),
            "members": members.collect::<Vec<_>>(),
            "age_seconds": self.age().as_secs(),
            "idle_seconds": self.idle_for().as_secs(),
        })
    }

    /// The time since it was opened.
    pub(crate) fn age(&self) -> Duration {
        self.opened.elapsed() + self.before
    }

    /// The time since the last request or stream ended.
    pub(super) fn idle_for(&self) -> Duration {
        if self.uses.load(Ordering::Acquire) > 0 {
            return Duration::ZERO;
        }
        let last_used = Duration::from_millis(self.last_used.load(Ordering::Relaxed));
        self.opened.elapsed().saturating_sub(last_used)
    }

    pub(crate) fn begin_use(self: &Arc<Self>) -> AttachmentUse {
        self.uses.fetch_add(1, Ordering::AcqRel);
        AttachmentUse(Arc::clone(self))
    }

    /// Notes that a request waits for its member.
    pub(super) fn waiting(&self, id: RawId<'_>) -> Waiting<'_> {
        let cancelled = CancellationToken::new();
        self.openings.lock().push((id.to_buf(), cancelled.clone()));
        Waiting {
            attachment: self,
            cancelled,
        }
    }

    /// Cancels a request that waits for its member. `false`: none with this id does.
    pub(super) fn cancel_waiting(&self, id: RawId<'_>) -> bool {
        let openings = self.openings.lock();
        let found = openings.iter().find(|(waiting, _)| waiting.as_id() == id);
        found.inspect(|(_, cancelled)| cancelled.cancel()).is_some()
    }
}

// === impl Homes ===

impl Homes {
    /// How many are remembered, and up to which length. Others are asked for again.
    const MAX: usize = 1000;
    const LONGEST: usize = 1024;

    pub(super) fn get(&self, uri: &str) -> Option<ServerName> {
        let found = self.0.iter().find(|(known, _)| known == uri)?;
        Some(found.1.clone())
    }

    pub(super) fn forget(&mut self, uri: &str) {
        self.0.retain(|(known, _)| known != uri);
    }

    /// A server has listed its resources: what it had is its only if it is among them.
    pub(super) fn keep_listed(&mut self, by: &ServerName, is_listed: impl Fn(&str) -> bool) {
        self.0
            .retain(|(known, server)| server != by || is_listed(known));
    }

    pub(super) fn remember(&mut self, uri: String, server: ServerName) {
        self.forget(&uri);
        if uri.len() > Self::LONGEST {
            return;
        }
        self.0.push_back((uri, server));
        if self.0.len() > Self::MAX {
            self.0.pop_front();
        }
    }
}

// === impl AttachmentUse ===

impl AttachmentUse {
    pub(crate) fn attachment(&self) -> &Arc<Attachment> {
        &self.0
    }

    /// Whether something else uses it as well.
    pub(crate) fn is_shared(&self) -> bool {
        self.0.uses.load(Ordering::Acquire) > 1
    }
}

impl Clone for AttachmentUse {
    fn clone(&self) -> Self {
        self.0.begin_use()
    }
}

impl Drop for AttachmentUse {
    fn drop(&mut self) {
        let since = u64::try_from(self.0.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last_used.store(since, Ordering::Relaxed);
        if let Some(stored) = &self.0.stored {
            stored.touch(&self.0);
        }
        self.0.uses.fetch_sub(1, Ordering::Release);
    }
}

// === impl Waiting ===

impl Waiting<'_> {
    pub(super) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.cancelled.cancel();
        let mut openings = self.attachment.openings.lock();
        openings.retain(|(_, cancelled)| !cancelled.is_cancelled());
    }
}
