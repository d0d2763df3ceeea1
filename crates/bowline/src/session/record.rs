//! One client's session: whose it is, its marks, which leg, what is live, when it was last used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bowline_wire::id::SessionId;
use bowline_wire::message::Message;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use super::keeper::Unsure;
use super::kept::{Kept, Published, Turn};
use super::news::News;
use super::timeline::Timeline;
use super::{Believed, Caller, Calls, LiveStream, Question, Questions, Seal, StreamKey};
use crate::leg::{Leg, Mending};
use crate::share::{Place, Share};
use crate::store::StoreError;
use crate::telemetry::SessionHash;
use crate::upstream::{Carried, Upstream};

/// What is remembered for one client. Kept small: there are many, and most are idle.
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
    pub(super) kept: Option<Box<Kept>>,
    pub(crate) calls: Calls,
    opened: Instant,
    /// Milliseconds after `opened`.
    last_used: AtomicU64,
    streams: Mutex<Streams>,
    pub(crate) believed: Believed,
    pub(crate) seal: Seal,
    /// How operators call it.
    pub(crate) hash: SessionHash,
    pub(crate) questions: Questions,
    pub(crate) mending: Mending,
    timeline: Timeline,
    /// Its caller's place among the sessions, if it has that here.
    place: Mutex<Option<Place>>,
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
pub(super) enum Put {
    New,
    /// The session has it, or a newer one.
    Known,
    /// The session has ended.
    Ended,
}

#[derive(Debug, Default)]
struct Streams {
    ended: bool,
    /// The number of the newest stream of a GET, here or elsewhere.
    newest: u64,
    live: Vec<(StreamKey, Arc<LiveStream>)>,
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
        leg: Leg,
        believed: Believed,
    ) -> Self {
        Self {
            id: *id,
            hash: SessionHash::of(id),
            share: leg.upstream.streams.of_caller(&caller),
            caller,
            seal,
            upstream: Arc::clone(&leg.upstream),
            believed,
            mending: Mending::default(),
            calls: Calls::default(),
            questions: Questions::default(),
            timeline: Timeline::default(),
            place: Mutex::new(None),
            leg: RwLock::new(Current {
                leg: Arc::new(leg),
                ended: false,
            }),
            opened: Instant::now(),
            last_used: AtomicU64::new(0),
            uses: AtomicU32::new(0),
            streams: Mutex::default(),
            kept: None,
        }
    }

    /// The same, kept beyond this process.
    pub(super) fn kept_by(self, kept: Box<Kept>) -> Self {
        Self {
            kept: Some(kept),
            ..self
        }
    }

    /// Has this place from now on, until it ends.
    pub(super) fn take_place(&self, place: Place) {
        *self.place.lock() = Some(place);
    }

    /// Has no place any more.
    pub(super) fn give_up_place(&self) -> Option<Place> {
        self.place.lock().take()
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
    pub(crate) async fn publish(self: &Arc<Self>, leg: &Arc<Leg>) -> Result<Published, Unsure> {
        // Before anybody can repeat a call on it: its tools may be others.
        self.forget_tools_everywhere().await?;
        if let Some(kept) = &self.kept {
            return kept.publish(self, leg).await;
        }
        let put = self.put(leg);
        self.goes_on(put);
        Ok(match put {
            Put::New | Put::Known => Published::Done,
            Put::Ended => Published::Ended,
        })
    }

    /// What a request of Bowline's own carries: what that of the client's does which it is about, and
    /// what that lacks of what came with `initialize`.
    pub(crate) fn carried(&self, met: &Carried) -> Carried {
        match &self.believed.carried {
            Some(opening) => met.or(opening, &self.upstream.server()),
            None => met.clone(),
        }
    }

    /// Whether this gateway is the one to open the next generation after `seen`.
    pub(crate) async fn turn(self: &Arc<Self>, seen: &Leg) -> Result<Turn, Unsure> {
        match &self.kept {
            None => Ok(Turn::Mine(None)),
            Some(kept) => kept.turn(self, seen).await,
        }
    }

    /// Remembers what the client said and the server took. What other gateways should restore is
    /// written down for them; the leg that the session has then may be a newer one.
    pub(crate) async fn remember(self: &Arc<Self>, message: &Message) -> Option<Arc<Leg>> {
        if !Believed::is_memorable(message) {
            return None;
        }
        self.believed.note(message);
        let kept = self.kept.as_ref()?;
        match Box::pin(kept.save(self, || self.believed.note(message))).await {
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
    pub(crate) async fn end_for_all(self: &Arc<Self>) -> Result<Option<Arc<Leg>>, Unsure> {
        match &self.kept {
            None => Ok(Some(self.leg())),
            Some(kept) => kept.end(self).await,
        }
    }

    /// Lets it go from the store that gateways share, if none of them has used it for long enough. The
    /// leg on which it is to be ended upstream then, by this caller and no other.
    pub(crate) async fn expire_for_all(self: &Arc<Self>) -> Result<Option<Arc<Leg>>, Unsure> {
        match &self.kept {
            None => Ok(None),
            Some(kept) => kept.expire(self).await,
        }
    }

    /// Whether it is kept beyond this process.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// Whether other gateways may use it, too.
    pub(crate) fn is_shared(&self) -> bool {
        let kept = self.kept.as_ref();
        kept.is_some_and(|kept| kept.keeper.is_shared())
    }

    /// Tells other gateways something of this session.
    pub(crate) fn announce(&self, news: impl FnOnce(SessionId) -> News) {
        if let Some(kept) = &self.kept {
            kept.keeper.announce(news(self.id));
        }
    }

    /// Makes a new generation of the leg the session's, unless it has that or a newer one. Where the
    /// session is kept, its place is locked meanwhile; [`Session::goes_on`] follows, without the lock.
    pub(super) fn put(&self, leg: &Arc<Leg>) -> Put {
        let mut current = self.leg.write();
        if current.ended {
            return Put::Ended;
        }
        let (has, comes) = (current.leg.at.generation, leg.at.generation);
        // Two of one number there are only after a store was put back to an older state.
        let is_other = || leg.upstream_session() != current.leg.upstream_session();
        if has > comes || (has == comes && !is_other()) {
            return Put::Known;
        }
        // Before anything is sent on it.
        self.upstream.tools.lose(&self.caller);
        current.leg = Arc::clone(leg);
        Put::New
    }

    /// Does what comes with a new generation: the client is told, and its GET begins anew.
    pub(super) fn goes_on(&self, put: Put) {
        if put != Put::New {
            return;
        }
        self.believed.lists_changed();
        self.questions
            .take()
            .iter()
            .for_each(|question| self.cancel(question));
        let standalone = self.streams.lock().find(&StreamKey::Standalone);
        if let Some(stream) = standalone {
            stream.restart();
        }
    }

    /// Tells the client something on the stream of its GET, now or when it opens one.
    pub(crate) fn tell(&self, event: &Bytes) {
        let standalone = self.streams.lock().find(&StreamKey::Standalone);
        if !standalone.is_some_and(|stream| stream.say(event)) {
            self.questions.tell_later(event.clone());
        }
    }

    /// Tells the client that nobody waits for its answer: where it was asked, or else on the stream
    /// of its GET, now or when it opens one.
    fn cancel(&self, question: &Question) {
        let event = question.cancelled();
        let streams =
            [&question.shown_on, &StreamKey::Standalone].map(|key| self.streams.lock().find(key));
        let mut streams = streams.into_iter().flatten();
        if !streams.any(|stream| stream.say(&event)) {
            self.questions.tell_later(event);
        }
    }

    /// Ends the session, whose last leg is the one that it has now.
    pub(super) fn end(&self) {
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
        let before = self.kept.as_ref().map(|kept| kept.before);
        self.opened.elapsed() + before.unwrap_or_default()
    }

    /// How many streams of it are live.
    pub(crate) fn live_streams(&self) -> usize {
        self.streams.lock().live.len()
    }

    /// Whether nothing of it is under way, so that the store's copy is all there is to it.
    pub(super) fn is_at_rest(&self) -> bool {
        self.uses.load(Ordering::Acquire) == 0 && self.live_streams() == 0
    }

    /// Keeps it in the store while something of it is under way: a stream may last longer than a
    /// session that nobody uses.
    pub(super) fn outlast_use(self: &Arc<Self>) {
        if let Some(kept) = &self.kept
            && self.uses.load(Ordering::Acquire) > 0
        {
            kept.is_used(self);
        }
    }

    /// What the client must hear of its lists, once.
    pub(crate) fn take_news(self: &Arc<Self>) -> Option<Bytes> {
        let news = self.believed.take_news()?;
        if let Some(kept) = &self.kept {
            kept.was_told(self);
        }
        Some(news)
    }

    /// Writes what could not be written when it was used.
    pub(super) fn catch_up(self: &Arc<Self>) {
        if let Some(kept) = &self.kept {
            kept.keep_jar(self);
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

    /// Puts a stream under this key, ending the one that had it. `false`: the session has ended; or its
    /// caller is not configured any more, and so the stream has.
    pub(crate) fn attach(&self, key: StreamKey, stream: Arc<LiveStream>) -> bool {
        let replaced = {
            let mut streams = self.streams.lock();
            if streams.ended {
                return false;
            }
            // Under the lock, so that whoever ends streams after a reload finds this one.
            if !self.is_callers() {
                drop(streams);
                stream.end();
                return false;
            }
            let replaced = streams.take(&key);
            streams.live.push((key, stream));
            replaced
        };
        if let Some(replaced) = replaced {
            replaced.end();
        }
        true
    }

    /// Ends the stream that has this key, if there is one.
    pub(crate) fn end_stream(&self, key: &StreamKey) {
        let found = self.streams.lock().take(key);
        if let Some(stream) = found {
            stream.end();
        }
    }

    /// Attaches the stream of a GET, which takes over from the one before, also at another gateway.
    /// Of several at once the one with the highest number stays: the others end.
    pub(crate) async fn attach_listener(&self, stream: &Arc<LiveStream>) -> bool {
        let number = match &self.kept {
            Some(kept) => kept.next_number().await,
            None => None,
        };
        let is_newest = {
            let mut streams = self.streams.lock();
            let number = number.unwrap_or(streams.newest);
            let is_newest = number >= streams.newest;
            streams.newest = streams.newest.max(number);
            is_newest
        };
        if !is_newest {
            stream.end();
            return true;
        }
        let is_attached = self.attach(StreamKey::Standalone, Arc::clone(stream));
        if let Some(number) = number {
            self.announce(|session| News::Listens(session, number));
        }
        is_attached
    }

    /// The client opened the stream of a GET at another gateway, with this number.
    pub(super) fn listens_elsewhere(&self, number: u64) {
        let older = {
            let mut streams = self.streams.lock();
            if number <= streams.newest {
                return;
            }
            streams.newest = number;
            streams.take(&StreamKey::Standalone)
        };
        if let Some(older) = older {
            older.end();
        }
    }

    /// Ends the stream of a GET here if the client has opened a newer one elsewhere, of which nothing may
    /// have been heard.
    pub(super) async fn give_way_to_newer(&self) -> Result<(), StoreError> {
        if let Some(kept) = &self.kept
            && let Some(number) = kept.last_number().await?
        {
            self.listens_elsewhere(number);
        }
        Ok(())
    }

    /// Whether the stream of a GET is open here.
    pub(super) fn listens(&self) -> bool {
        let streams = self.streams.lock();
        streams.find(&StreamKey::Standalone).is_some()
    }

    /// Forgets a stream that is over.
    pub(crate) fn detach(&self, stream: &Arc<LiveStream>) {
        self.streams
            .lock()
            .live
            .retain(|(_, live)| !Arc::ptr_eq(live, stream));
    }

    /// Whether its caller is one of the configuration's.
    pub(crate) fn is_callers(&self) -> bool {
        self.upstream.identities().knows(&self.caller)
    }

    /// Ends every stream that there is now.
    pub(crate) fn cut_streams(&self) {
        let live = std::mem::take(&mut self.streams.lock().live);
        for (_, stream) in live {
            stream.end();
        }
    }

    /// Ends every stream, and every later one at once.
    pub(crate) fn end_streams(&self) {
        let live = {
            let mut streams = self.streams.lock();
            streams.ended = true;
            std::mem::take(&mut streams.live)
        };
        for (_, stream) in live {
            stream.end();
        }
    }
}

/// Where a leg is, for operators.
fn home(leg: &Leg) -> String {
    format!("at {}", leg.endpoint.origin)
}

// === impl Streams ===

impl Streams {
    fn find(&self, key: &StreamKey) -> Option<Arc<LiveStream>> {
        let found = self.live.iter().find(|(live, _)| live == key)?;
        Some(Arc::clone(&found.1))
    }

    fn take(&mut self, key: &StreamKey) -> Option<Arc<LiveStream>> {
        let at = self.live.iter().position(|(live, _)| live == key)?;
        Some(self.live.swap_remove(at).1)
    }
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
        if let Some(kept) = &self.0.kept {
            kept.after_use(&self.0);
        }
        // After the time was noted: whoever sees no use sees when it ended.
        self.0.uses.fetch_sub(1, Ordering::Release);
    }
}
