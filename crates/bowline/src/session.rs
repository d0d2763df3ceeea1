//! The state of one client's session: its caller, its marks, its leg, its open streams and calls, and
//! when it was last used. A message looks its session up once; a session ends once.

pub(crate) mod calls;
pub(crate) mod client_state;
mod generations;
mod in_use;
mod keep_alive;
mod last_leg;
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
use bowline_wire::sse::Event;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use self::generations::Current;
use self::keep_alive::{Contact, Requests};
use self::persistence::Persistence;
use self::recovery::RecoveryState;
use self::streams::Streams;
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
pub(crate) use in_use::InUse;
pub(crate) use last_leg::LastLeg;
pub(crate) use persistence::claim::Claim;
pub(crate) use server_requests::{ServerRequest, ServerRequests};

/// The state of one client's session. It is kept small: there are many sessions, and most are idle.
///
/// The fields that every request touches come first and stay together, to save cache misses when there
/// are many sessions.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Session {
    /// The id that the client uses.
    pub(crate) id: SessionId,
    /// The number of requests and streams in progress.
    uses: AtomicU32,
    /// When its server was last sent something.
    contact: Contact,
    leg: RwLock<Current>,
    /// The configured server, independent of the endpoint that the leg uses.
    pub(crate) upstream: Arc<Upstream>,
    /// The only caller that may use this session.
    pub(crate) caller: Caller,
    /// Limits the requests and streams of this session.
    pub(crate) share: Arc<Share>,
    /// How the session is stored outside this process, if it is.
    pub(crate) persistence: Option<Box<Persistence>>,
    pub(crate) calls: Calls,
    opened: Instant,
    /// Milliseconds after `opened`.
    last_used: AtomicU64,
    pub(crate) streams: Mutex<Streams>,
    pub(crate) client_state: ClientState,
    pub(crate) seal: Seal,
    /// The id that operators see.
    pub(crate) hash: SessionHash,
    pub(crate) server_requests: ServerRequests,
    pub(crate) recovery: RecoveryState,
    timeline: Timeline,
    /// Its caller's place among the sessions, if this gateway holds it.
    place: Mutex<Option<Permit>>,
    /// How often the client has used it.
    requests: Requests,
}

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
            requests: Requests::default(),
            contact: Contact::default(),
            leg: RwLock::new(Current::new(leg)),
            opened: Instant::now(),
            last_used: AtomicU64::new(0),
            uses: AtomicU32::new(0),
            streams: Mutex::default(),
            persistence: None,
        }
    }

    /// Adds persistence in a store.
    pub(crate) fn persisted_by(self, persistence: Box<Persistence>) -> Self {
        Self {
            persistence: Some(persistence),
            ..self
        }
    }

    /// Holds this place until the session ends.
    pub(crate) fn take_place(&self, place: Permit) {
        *self.place.lock() = Some(place);
    }

    pub(crate) fn give_up_place(&self) -> Option<Permit> {
        self.place.lock().take()
    }

    /// Takes a place for one more request or stream of the client. The error says whose places are all
    /// taken.
    pub(crate) fn stream_place(&self) -> Result<Permit, ShareOwner> {
        let place = self.share.take();
        place.ok_or_else(|| self.upstream.streams.exhausted())
    }

    /// What Bowline's own requests carry: the same as the client's request that caused them, completed
    /// by what was carried with `initialize`.
    pub(crate) fn carried(&self, met: &Carried) -> Carried {
        match &self.client_state.carried {
            Some(opening) => met.or(opening, &self.upstream.config()),
            None => met.clone(),
        }
    }

    /// Asks whether this gateway may open the next generation after `seen`.
    pub(crate) async fn claim(self: &Arc<Self>, seen: &Leg) -> Result<Claim, PersistenceError> {
        match &self.persistence {
            None => Ok(Claim::Mine(None)),
            Some(persistence) => persistence.claim(self, seen).await,
        }
    }

    /// Remembers a setting that the server accepted, and stores what other gateways would have to
    /// restore. Returns the session's current leg if it was stored, which may be newer than the
    /// caller's.
    pub(crate) async fn remember(self: &Arc<Self>, message: &Message) -> Option<Arc<Leg>> {
        if !ClientState::is_restorable(message) {
            return None;
        }
        self.client_state.note(message);
        let persistence = self.persistence.as_ref()?;
        match Box::pin(persistence.save(self, || self.client_state.note(message))).await {
            Ok(leg) => Some(leg),
            Err(error) => {
                // The server accepted it; only a recovery at another gateway would miss it.
                tracing::warn!(session = %self.hash, %error, "could not persist log level or subscriptions");
                None
            }
        }
    }

    /// Ends the session in its store, if it has one. `None`: it had already ended.
    pub(crate) async fn end_for_all(self: &Arc<Self>) -> Result<Option<LastLeg>, PersistenceError> {
        match &self.persistence {
            None => Ok(Some(LastLeg::of(self))),
            Some(persistence) => persistence.end(self).await,
        }
    }

    /// Removes the session from a shared store if no gateway has used it for the idle time. `None`: one has, or it
    /// is gone.
    pub(crate) async fn expire_for_all(
        self: &Arc<Self>,
    ) -> Result<Option<LastLeg>, PersistenceError> {
        match &self.persistence {
            None => Ok(None),
            Some(persistence) => persistence.expire(self).await,
        }
    }

    /// Whether the session is stored outside this process.
    pub(crate) fn is_persisted(&self) -> bool {
        self.persistence.is_some()
    }

    /// Whether other gateways may use this session as well.
    pub(crate) fn is_shared(&self) -> bool {
        let persistence = self.persistence.as_ref();
        persistence.is_some_and(|persistence| persistence.session_store.is_shared())
    }

    /// Sends an announcement about this session to the other gateways.
    pub(crate) fn announce(&self, news: impl FnOnce(SessionId) -> Announcement) {
        if let Some(persistence) = &self.persistence {
            persistence.session_store.announce(news(self.id));
        }
    }

    /// Adds an event to the timeline.
    pub(crate) fn note(&self, what: &'static str, detail: String) {
        self.timeline.note(self.age(), what, detail);
    }

    /// The events of the session, oldest first, starting with its opening.
    pub(crate) fn timeline(&self) -> Vec<serde_json::Value> {
        let leg = self.leg();
        let opened = format!("version {}", leg.version());
        self.timeline.told(opened, || home(&leg))
    }

    /// Adds an event to the timeline, together with the leg on which it happened.
    pub(crate) fn note_on(&self, leg: &Leg, what: &'static str, detail: String) {
        self.timeline.begin(|| home(leg));
        self.note(what, detail);
    }

    /// The time since the session was opened.
    pub(crate) fn age(&self) -> Duration {
        let before = self
            .persistence
            .as_ref()
            .map(|persistence| persistence.before);
        self.opened.elapsed() + before.unwrap_or_default()
    }

    /// Whether no request or stream is in progress, and nothing of it lives in this process, so that the
    /// store's copy is complete.
    pub(crate) fn is_at_rest(&self) -> bool {
        let is_idle = self.uses.load(Ordering::Acquire) == 0 && self.live_streams() == 0;
        is_idle && !self.leg().is_live()
    }

    /// Extends the session's time in the store while a request or stream is in progress: a stream may
    /// last longer than the idle time.
    pub(crate) fn outlast_use(self: &Arc<Self>) {
        if let Some(persistence) = &self.persistence
            && self.uses.load(Ordering::Acquire) > 0
        {
            persistence.touch(self);
        }
    }

    /// The list-changed notifications that the client has not received yet. They are returned once.
    pub(crate) fn take_news(self: &Arc<Self>) -> Vec<Event> {
        let news = self.client_state.take_news();
        if let Some(persistence) = &self.persistence
            && !news.is_empty()
        {
            persistence.was_told(self);
        }
        news
    }

    /// Repeats writes that failed earlier.
    pub(crate) fn catch_up(self: &Arc<Self>) {
        if let Some(persistence) = &self.persistence {
            persistence.keep_jar(self);
        }
    }

    /// Whether it is this caller's, who may use it now.
    pub(crate) fn is_for(&self, caller: &Caller) -> bool {
        self.caller == *caller && self.upstream.permit(caller).is_some()
    }

    /// Whether its caller may use it now.
    pub(crate) fn is_permitted(&self) -> bool {
        self.is_for(&self.caller)
    }
}

/// The location of a leg, as operators see it.
fn home(leg: &Leg) -> String {
    format!("at {}", leg.endpoint.address)
}
