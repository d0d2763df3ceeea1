//! What is remembered for one client: whose it is, its marks, which leg, what is live, when it was last used.
//! Found once per message, ended once.

pub(crate) mod calls;
pub(crate) mod client_state;
pub(crate) mod persistence;
pub(crate) mod record;
pub(crate) mod recovery;
pub(crate) mod server_requests;
pub(crate) mod streams;
pub(crate) mod timeline;
pub(crate) mod tool_hints;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bowline_wire::id::SessionId;
use bowline_wire::message::Message;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use self::persistence::Persistence;
use self::recovery::RecoveryState;
use self::streams::{StreamKey, Streams};
use self::timeline::Timeline;
use crate::caller::Caller;
use crate::leg::Leg;
use crate::leg::marks::Seal;
use crate::session_store::PersistenceError;
use crate::session_store::announcement::Announcement;
use crate::share::{Permit, Share, ShareOwner};
use crate::telemetry::SessionHash;
use crate::upstream::{Carried, Upstream};
pub(crate) use calls::{Call, Calls};
pub(crate) use client_state::{ClientState, MAX_OPENING};
pub(crate) use persistence::Published;
pub(crate) use persistence::claim::Claim;
pub(crate) use server_requests::{ServerRequest, ServerRequests};

/// What is remembered for one client. Persistence small: there are many, and most are idle.
///
/// What every request touches comes first, and stays together: among many sessions each cache line
/// is a wait.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Session {
    /// The client's name for it.
    pub(crate) id: SessionId,
    /// Requests and streams that are under way.
    uses: AtomicU32,
    leg: RwLock<Current>,
    /// The server, whichever of its endpoints the leg is on.
    pub(crate) upstream: Arc<Upstream>,
    /// The only one who may use it.
    pub(crate) caller: Caller,
    /// The places of its requests and streams.
    pub(crate) share: Arc<Share>,
    /// How it is kept beyond this process, if it is.
    pub(crate) persistence: Option<Box<Persistence>>,
    pub(crate) calls: Calls,
    opened: Instant,
    /// Milliseconds after `opened`.
    last_used: AtomicU64,
    pub(crate) streams: Mutex<Streams>,
    pub(crate) client_state: ClientState,
    pub(crate) seal: Seal,
    /// How operators call it.
    pub(crate) hash: SessionHash,
    pub(crate) server_requests: ServerRequests,
    pub(crate) recovery: RecoveryState,
    timeline: Timeline,
    /// Its caller's place among the sessions, if it has that here.
    place: Mutex<Option<Permit>>,
}

/// The leg that is used now.
#[derive(Debug)]
struct Current {
    leg: Arc<Leg>,
    /// The session is over, and stays it.
    ended: bool,
}

/// What became of making a leg the session's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    New,
    /// The session has it, or a newer one.
    Known,
    /// The session has ended.
    Ended,
}

/// Keeps a session from expiring while something of it is under way.
#[derive(Debug)]
pub(crate) struct InUse(Arc<Session>);

// === impl Session ===

impl Session {
    pub(crate) fn new(
        id: &SessionId,
        caller: Caller,
        seal: Seal,
        leg: impl Into<Arc<Leg>>,
        client_state: ClientState,
    ) -> Self {
        let leg = leg.into();
        Self {
            id: *id,
            hash: SessionHash::of(id),
            share: leg.upstream.streams.of_caller(&caller),
            caller,
            seal,
            upstream: Arc::clone(&leg.upstream),
            client_state,
            recovery: RecoveryState::default(),
            calls: Calls::default(),
            server_requests: ServerRequests::default(),
            timeline: Timeline::default(),
            place: Mutex::new(None),
            leg: RwLock::new(Current { leg, ended: false }),
            opened: Instant::now(),
            last_used: AtomicU64::new(0),
            uses: AtomicU32::new(0),
            streams: Mutex::default(),
            persistence: None,
        }
    }

    /// The same, kept beyond this process.
    pub(crate) fn persisted_by(self, persistence: Box<Persistence>) -> Self {
        Self {
            persistence: Some(persistence),
            ..self
        }
    }

    /// Has this place from now on, until it ends.
    pub(crate) fn take_place(&self, place: Permit) {
        *self.place.lock() = Some(place);
    }

    /// Has no place any more.
    pub(crate) fn give_up_place(&self) -> Option<Permit> {
        self.place.lock().take()
    }

    /// A place among the streams, for one more request or stream of its client's; otherwise whose places are
    /// all taken.
    pub(crate) fn stream_place(&self) -> Result<Permit, ShareOwner> {
        let place = self.share.take();
        place.ok_or_else(|| self.upstream.streams.exhausted())
    }

    /// Begins a use.
    pub(crate) fn begin_use(self: &Arc<Self>) -> InUse {
        self.uses.fetch_add(1, Ordering::AcqRel);
        InUse(Arc::clone(self))
    }

    /// The leg that is used now.
    pub(crate) fn leg(&self) -> Arc<Leg> {
        Arc::clone(&self.leg.read().leg)
    }

    /// Makes a new generation of the leg the session's, here and, where others share it, for all
    /// gateways. Nothing of the client's is sent on it before.
    pub(crate) async fn publish(
        self: &Arc<Self>,
        leg: &Arc<Leg>,
    ) -> Result<Published, PersistenceError> {
        // Before anybody can repeat a call on it: its tools may be others.
        self.forget_tools_everywhere().await?;
        if let Some(persistence) = &self.persistence {
            return persistence.publish(self, leg).await;
        }
        let put = self.put(leg);
        self.goes_on(put);
        Ok(match put {
            Put::New | Put::Known => Published::Done,
            Put::Ended => Published::Ended,
        })
    }

    /// What a request of Bowline's own carries: what that of the client's does which it is about, and
    /// what that missing_lists of what came with `initialize`.
    pub(crate) fn carried(&self, met: &Carried) -> Carried {
        match &self.client_state.carried {
            Some(opening) => met.or(opening, &self.upstream.config()),
            None => met.clone(),
        }
    }

    /// Whether this gateway is the one to open the next generation after `seen`.
    pub(crate) async fn claim(self: &Arc<Self>, seen: &Leg) -> Result<Claim, PersistenceError> {
        match &self.persistence {
            None => Ok(Claim::Mine(None)),
            Some(persistence) => persistence.claim(self, seen).await,
        }
    }

    /// Remembers what the client said and the server took. What other gateways should restore is
    /// written down for them; the leg that the session has then may be a newer one.
    pub(crate) async fn remember(self: &Arc<Self>, message: &Message) -> Option<Arc<Leg>> {
        if !ClientState::is_restorable(message) {
            return None;
        }
        self.client_state.note(message);
        let persistence = self.persistence.as_ref()?;
        match Box::pin(persistence.save(self, || self.client_state.note(message))).await {
            Ok(leg) => Some(leg),
            Err(error) => {
                // The server took it; only a recovery elsewhere would not know.
                tracing::warn!(session = %self.hash, %error, "what the client said is not in the store");
                None
            }
        }
    }

    /// Ends it in the store, where it is kept in one. `None`: it had ended before. Otherwise the
    /// leg on which it is to be ended upstream, by this caller and no other.
    pub(crate) async fn end_for_all(
        self: &Arc<Self>,
    ) -> Result<Option<Arc<Leg>>, PersistenceError> {
        match &self.persistence {
            None => Ok(Some(self.leg())),
            Some(persistence) => persistence.end(self).await,
        }
    }

    /// Lets it go from the store that gateways share, if none of them has used it for long enough. The
    /// leg on which it is to be ended upstream then, by this caller and no other.
    pub(crate) async fn expire_for_all(
        self: &Arc<Self>,
    ) -> Result<Option<Arc<Leg>>, PersistenceError> {
        match &self.persistence {
            None => Ok(None),
            Some(persistence) => persistence.expire(self).await,
        }
    }

    /// Whether it is kept beyond this process.
    pub(crate) fn is_persisted(&self) -> bool {
        self.persistence.is_some()
    }

    /// Whether other gateways may use it, too.
    pub(crate) fn is_shared(&self) -> bool {
        let persistence = self.persistence.as_ref();
        persistence.is_some_and(|persistence| persistence.session_store.is_shared())
    }

    /// Tells other gateways something of this session.
    pub(crate) fn announce(&self, news: impl FnOnce(SessionId) -> Announcement) {
        if let Some(persistence) = &self.persistence {
            persistence.session_store.announce(news(self.id));
        }
    }

    /// Makes a new generation of the leg the session's, unless it has that or a newer one. Where the
    /// session is kept, its place is locked meanwhile; [`Session::goes_on`] follows, without the lock.
    pub(crate) fn put(&self, leg: &Arc<Leg>) -> Put {
        let mut current = self.leg.write();
        if current.ended {
            return Put::Ended;
        }
        let (has, comes) = (current.leg.generation.number, leg.generation.number);
        // Two of one number there are only after a store was put back to an older state.
        let is_other = || leg.upstream_session() != current.leg.upstream_session();
        if has > comes || (has == comes && !is_other()) {
            return Put::Known;
        }
        // Before anything is sent on it.
        self.upstream.tool_hints.lose(&self.audience());
        current.leg = Arc::clone(leg);
        Put::New
    }

    /// Does what comes with a new generation: the client is told, and its GET begins anew.
    pub(crate) fn goes_on(&self, put: Put) {
        if put != Put::New {
            return;
        }
        self.client_state.lists_changed();
        self.server_requests
            .take()
            .iter()
            .for_each(|question| self.cancel(question));
        let standalone = self.streams.lock().find(&StreamKey::Standalone);
        if let Some(stream) = standalone {
            stream.restart();
        }
    }

    /// Ends the session, whose last leg is the one that it has now.
    pub(crate) fn end(&self) {
        self.leg.write().ended = true;
        self.end_streams();
    }

    /// Notes something for whoever asks what became of the session.
    pub(crate) fn note(&self, what: &'static str, detail: String) {
        self.timeline.note(self.age(), what, detail);
    }

    /// What became of the session, from its opening on.
    pub(crate) fn timeline(&self) -> Vec<serde_json::Value> {
        let leg = self.leg();
        let opened = format!("version {}", leg.version());
        self.timeline.told(opened, || home(&leg))
    }

    /// Notes that something happened to the session while it was on this leg.
    pub(crate) fn note_on(&self, leg: &Leg, what: &'static str, detail: String) {
        self.timeline.begin(|| home(leg));
        self.note(what, detail);
    }

    /// How long it has been open.
    pub(crate) fn age(&self) -> Duration {
        let before = self
            .persistence
            .as_ref()
            .map(|persistence| persistence.before);
        self.opened.elapsed() + before.unwrap_or_default()
    }

    /// Whether nothing of it is under way, so that the store's copy is all there is to it.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.uses.load(Ordering::Acquire) == 0 && self.live_streams() == 0
    }

    /// Keeps it in the store while something of it is under way: a stream may last longer than a
    /// session that nobody uses.
    pub(crate) fn outlast_use(self: &Arc<Self>) {
        if let Some(persistence) = &self.persistence
            && self.uses.load(Ordering::Acquire) > 0
        {
            persistence.touch(self);
        }
    }

    /// What the client must hear of its lists, once.
    pub(crate) fn take_news(self: &Arc<Self>) -> Option<Bytes> {
        let news = self.client_state.take_news()?;
        if let Some(persistence) = &self.persistence {
            persistence.was_told(self);
        }
        Some(news)
    }

    /// Writes what could not be written when it was used.
    pub(crate) fn catch_up(self: &Arc<Self>) {
        if let Some(persistence) = &self.persistence {
            persistence.keep_jar(self);
        }
    }

    /// How long nothing was under way.
    pub(crate) fn idle_for(&self) -> Duration {
        if self.uses.load(Ordering::Acquire) > 0 {
            return Duration::ZERO;
        }
        let last_used = Duration::from_millis(self.last_used.load(Ordering::Relaxed));
        self.opened.elapsed().saturating_sub(last_used)
    }

    /// Whether its caller is one of the configuration's.
    pub(crate) fn is_callers(&self) -> bool {
        self.upstream.identities().knows(&self.caller)
    }
}

/// Where a leg is, for operators.
fn home(leg: &Leg) -> String {
    format!("at {}", leg.endpoint.address)
}

// === impl InUse ===

impl InUse {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.0
    }
}

impl Clone for InUse {
    fn clone(&self) -> Self {
        self.0.begin_use()
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let since = u64::try_from(self.0.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last_used.store(since, Ordering::Relaxed);
        if let Some(persistence) = &self.0.persistence {
            persistence.after_use(&self.0);
        }
        // After the time was noted: whoever sees no use sees when it ended.
        self.0.uses.fetch_sub(1, Ordering::Release);
    }
}
