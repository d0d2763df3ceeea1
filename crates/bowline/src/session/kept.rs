//! One kept session: written before its client hears of it, looked at again before it is believed,
//! moved to a new generation by one gateway at a time, and ended once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bowline_wire::id::SessionId;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Session;
use super::keeper::{Keeper, Unsure};
use super::news::News;
use super::shown::Shown;
use super::written::{BadRecord, Written};
use crate::clock;
use crate::egress::Jar;
use crate::leg::{Leg, LegRef, Life};
use crate::store::{Key, Live, Loaded, Operation, Part, Updated, Version};
use crate::upstream::Upstream;

/// How often a jar is written, unless a cookie comes or goes.
const JAR_EVERY: Duration = Duration::from_secs(1);
/// How often a write is tried that meets another gateway's.
const MAX_CONFLICTS: usize = 16;
/// How long an end is remembered: longer than anything that was under way could still write.
const REMEMBERED: Duration = Duration::from_secs(600);
/// For how long nobody may open a session again whose gateway died while it did. Gateways that live
/// renew it so many times as often.
const LEASE: Duration = Duration::from_secs(3);
const RENEWALS: u32 = 3;

/// How one session is kept.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(super) keeper: Arc<Keeper>,
    key: Key,
    /// When it was opened, in seconds since 1970.
    pub(super) opened: i64,
    /// How old it was when this gateway got it.
    pub(super) before: Duration,
    place: Mutex<Place>,
    /// When it was last seen in the store, and when its time there last began; milliseconds after
    /// the keeper started.
    seen: AtomicU64,
    touched: AtomicU64,
    /// An older key sealed what is in the store.
    has_old_seal: AtomicBool,
}

/// Where a session is in the store, as far as this gateway knows.
#[derive(Debug)]
struct Place {
    version: Version,
    jar_since: Version,
    /// The tag of the jar that was last read there: any other one was written since.
    jar_tag: Option<JarTag>,
    jar_names: u64,
    jar_written: Instant,
}

type JarTag = [u8; 16];

/// What became of publishing a generation.
#[derive(Debug)]
pub(crate) enum Published {
    /// It is the session's generation.
    Done,
    /// Another gateway was first.
    Other(Arc<Leg>),
    /// The session has ended.
    Ended,
}

/// Whether this gateway may open the next generation.
#[derive(Debug)]
pub(crate) enum Turn {
    Mine(Option<Held>),
    /// Another gateway is about to.
    Theirs,
    /// Another gateway has.
    Other(Arc<Leg>),
    Ended,
}

/// The turn to open the next generation, where it has to be held against other gateways: until this
/// is dropped, or this gateway dies.
#[derive(Debug)]
pub(crate) struct Held(#[expect(dead_code, reason = "ends it when dropped")] DropGuard);

// === impl Kept ===

impl Kept {
    /// How a new session is kept; nothing is written yet.
    pub(super) fn new(keeper: &Arc<Keeper>, id: &SessionId, server: &str) -> Box<Self> {
        let now = keeper.now();
        Box::new(Self {
            keeper: Arc::clone(keeper),
            key: Key::of(server, id),
            opened: clock::unix_seconds(),
            before: Duration::ZERO,
            place: Mutex::new(Place {
                version: Version::FIRST,
                jar_since: Version::FIRST,
                jar_tag: None,
                jar_names: 0,
                jar_written: Instant::now(),
            }),
            seen: now.into(),
            touched: now.into(),
            has_old_seal: false.into(),
        })
    }

    /// A session that this gateway does not have, if there is one. `None`: there is none.
    pub(super) async fn load(
        keeper: &Arc<Keeper>,
        id: &SessionId,
        upstream: &Arc<Upstream>,
    ) -> Result<Option<Session>, Unsure> {
        if keeper.has_ended(id) {
            return Ok(None);
        }
        keeper.counts.loads.inc();
        let mut kept = Self::new(keeper, id, upstream.name.as_ref());
        let live = match keeper
            .ask(Operation::Load, keeper.store.load(&kept.key))
            .await?
        {
            Loaded::Live(live) => live,
            Loaded::Absent | Loaded::Ended => return Ok(None),
        };
        let written = kept.open(&live)?;
        kept.opened = written.opened;
        let before = clock::unix_seconds().saturating_sub(written.opened);
        kept.before = Duration::from_secs(u64::try_from(before).unwrap_or(0));
        kept.note_place(&live);
        kept.note_seal(&live);
        // Its time may be nearly over: the first use begins it anew.
        kept.touched = 0.into();
        let leg = kept.leg(upstream, &written, &live).await?;
        let believed = written.believed();
        if written.generation > LegRef::FIRST.generation {
            // Whether the client was told of the recovery, nobody here knows.
            believed.lists_changed();
        }
        let caller = written.caller()?;
        Shown::new(keeper, upstream, &caller).look_once();
        let session = Session::new(id, caller, written.seal(), leg, believed);
        Ok(Some(session.kept_by(kept)))
    }

    /// Whether what is at hand may be believed without asking.
    pub(super) fn is_fresh(&self) -> bool {
        self.keeper.is_fresh(self.seen.load(Ordering::Relaxed))
    }

    fn is_within_grace(&self) -> bool {
        self.keeper
            .is_within_grace(self.seen.load(Ordering::Relaxed))
    }

    fn was_seen(&self, at: u64) {
        self.seen.fetch_max(at, Ordering::Relaxed);
    }

    /// Makes what is at hand what is in the store. `false`: the session has ended.
    pub(super) async fn refresh(&self, session: &Arc<Session>) -> Result<bool, Unsure> {
        // While it is known to be away not every request waits for it: it is asked all the time
        // whether it is back.
        if !self.keeper.is_reachable() && self.is_within_grace() {
            return Ok(true);
        }
        let loading = self.keeper.store.load(&self.key);
        match self.keeper.ask(Operation::Load, loading).await {
            Ok(Loaded::Live(live)) => {
                self.adopt(session, &live).await?;
                Ok(true)
            }
            Ok(Loaded::Absent | Loaded::Ended) => Ok(false),
            Err(_) if self.is_within_grace() => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes over what another gateway has written, unless it is older than what is known.
    async fn adopt(&self, session: &Arc<Session>, live: &Live) -> Result<(), Unsure> {
        let seen = self.keeper.now();
        let known = self.place.lock().version;
        if live.version < known {
            return Ok(());
        }
        self.note_seal(live);
        if live.version > known {
            let written = self.open(live)?;
            if written.generation > session.leg().at.generation {
                let leg = self.leg(&session.upstream, &written, live).await?;
                session.go_on_with(Arc::new(leg));
            }
            // Only now, and only if nothing newer came meanwhile: whoever writes next writes what
            // was said here, under this version.
            let mut place = self.place.lock();
            if live.version > place.version {
                written.said_to(&session.believed);
                (place.version, place.jar_since) = (live.version, live.jar_since);
            }
        }
        self.adopt_jar(&session.leg(), live)?;
        // Not now: finding its endpoint may have taken a while.
        self.was_seen(seen);
        Ok(())
    }

    /// Takes over the cookies that another gateway got since this one looked.
    fn adopt_jar(&self, leg: &Leg, live: &Live) -> Result<(), Unsure> {
        let tag = tag(&live.jar);
        let is_news = {
            let place = self.place.lock();
            let is_its = live.jar_since == place.jar_since && live.version == place.version;
            is_its && tag != place.jar_tag
        };
        if is_news && leg.take_over_jar(self.jar(live)?) {
            self.place.lock().jar_tag = tag;
        }
        Ok(())
    }

    /// The leg that a record speaks of. Where its endpoint is unknown here, even after another look
    /// at the names, the upstream's session counts as lost.
    async fn leg(
        &self,
        upstream: &Arc<Upstream>,
        written: &Written,
        live: &Live,
    ) -> Result<Leg, Unsure> {
        let found = match upstream.endpoints.by_id(written.endpoint()) {
            Some(endpoint) => Some(endpoint),
            None => upstream.look_for(written.endpoint()).await,
        };
        let is_lost = found.is_none();
        let endpoint = match found {
            Some(endpoint) => endpoint,
            None => upstream.pick().await.map_err(Unsure::Nowhere)?,
        };
        let jar = self.jar(live)?;
        let life = Life {
            at: written.at(),
            session_id: written.upstream_session()?,
            version: written.version()?,
            sign_in: written.sign_in,
            lacks: written.lacks,
        };
        let account = upstream.account(&written.caller()?);
        Ok(Leg::revived(
            Arc::clone(upstream),
            endpoint,
            life,
            jar,
            (account, is_lost),
        ))
    }

    fn open(&self, live: &Live) -> Result<Written, Unsure> {
        let place = self.key.bound(Part::Record, live.version);
        Ok(Written::parse(
            &self.keeper.keys.open(&place, &live.record)?,
        )?)
    }

    fn jar(&self, live: &Live) -> Result<Jar, Unsure> {
        if live.jar.is_empty() {
            return Ok(Jar::default());
        }
        let place = self.key.bound(Part::Jar, live.jar_since);
        let bytes = self.keeper.keys.open(&place, &live.jar)?;
        Ok(Jar::from_bytes(&bytes).map_err(BadRecord::from)?)
    }

    fn note_place(&self, live: &Live) {
        let mut place = self.place.lock();
        place.version = live.version;
        place.jar_since = live.jar_since;
        place.jar_tag = tag(&live.jar);
    }

    fn note_seal(&self, live: &Live) {
        let is_new = |sealed: &[u8]| sealed.is_empty() || self.keeper.keys.is_newest_of(sealed);
        let is_old = !is_new(&live.record) || !is_new(&live.jar);
        self.has_old_seal.store(is_old, Ordering::Relaxed);
    }

    fn sealed(&self, part: Part, version: Version, bytes: &[u8]) -> Result<Vec<u8>, Unsure> {
        Ok(self
            .keeper
            .keys
            .seal(&self.key.bound(part, version), bytes)?)
    }

    /// The jar as it is written; what changed in it so far is dealt with.
    fn sealed_jar(&self, leg: &Leg, version: Version) -> Result<Vec<u8>, Unsure> {
        leg.take_jar_change();
        match leg.jar_bytes() {
            None => Ok(Vec::new()),
            Some(bytes) => self.sealed(Part::Jar, version, &bytes.map_err(BadRecord::from)?),
        }
    }

    /// Writes a new session, before anybody hears of it.
    pub(super) async fn create(&self, session: &Session) -> Result<(), Unsure> {
        let leg = session.leg();
        let record = Written::of(session, &leg, self.opened)?.to_bytes()?;
        let record = self.sealed(Part::Record, Version::FIRST, &record)?;
        let jar = self.sealed_jar(&leg, Version::FIRST)?;
        self.place.lock().jar_names = leg.jar_names();
        let store = &self.keeper.store;
        let creating = store.create(&self.key, &record, &jar, self.keeper.ttl);
        match self.keeper.ask(Operation::Create, creating).await? {
            true => Ok(()),
            // Ids are random: this is not one of ours by chance.
            false => Err(Unsure::Contended),
        }
    }

    /// Makes `leg` the session's generation, for every gateway, unless another has made one.
    pub(super) async fn publish(
        &self,
        session: &Arc<Session>,
        leg: &Arc<Leg>,
    ) -> Result<Published, Unsure> {
        for _ in 0..MAX_CONFLICTS {
            let (version, written) = {
                // What is believed belongs to the version, see `adopt`; and so does the leg: where
                // the version is known, a generation that was published with it is.
                let place = self.place.lock();
                let current = session.leg();
                if current.at.generation >= leg.at.generation {
                    return Ok(Published::Other(current));
                }
                (place.version, Written::of(session, leg, self.opened)?)
            };
            let record = self.sealed(Part::Record, version.next(), &written.to_bytes()?)?;
            let jar = self.sealed_jar(leg, version.next())?;
            let store = &self.keeper.store;
            let updating = store.update(&self.key, version, &record, Some(&jar));
            match self.keeper.ask(Operation::Update, updating).await? {
                Updated::Done(version) => {
                    let mut place = self.place.lock();
                    if version > place.version {
                        (place.version, place.jar_since) = (version, version);
                        place.jar_names = leg.jar_names();
                    }
                    drop(place);
                    self.was_seen(self.keeper.now());
                    self.keeper.announce(News::Changed(session.id));
                    return Ok(Published::Done);
                }
                Updated::Gone => return Ok(Published::Ended),
                Updated::Conflict(live) => self.adopt(session, &live).await?,
            }
        }
        Err(Unsure::Contended)
    }

    /// Writes what the client has said; `said` says it after whatever another gateway wrote. The leg
    /// that is then the session's may be a newer one.
    pub(super) async fn save(
        &self,
        session: &Arc<Session>,
        said: impl Fn(),
    ) -> Result<Arc<Leg>, Unsure> {
        for _ in 0..MAX_CONFLICTS {
            let (version, leg, written) = {
                // What is believed belongs to the version, see `adopt`.
                let place = self.place.lock();
                said();
                let leg = session.leg();
                let written = Written::of(session, &leg, self.opened)?;
                (place.version, leg, written)
            };
            let record = self.sealed(Part::Record, version.next(), &written.to_bytes()?)?;
            let store = &self.keeper.store;
            let updating = store.update(&self.key, version, &record, None);
            match self.keeper.ask(Operation::Update, updating).await? {
                Updated::Done(version) => {
                    {
                        let mut place = self.place.lock();
                        place.version = place.version.max(version);
                    }
                    self.was_seen(self.keeper.now());
                    self.keeper.announce(News::Changed(session.id));
                    return Ok(leg);
                }
                // Its end is found by whoever asks next.
                Updated::Gone => return Ok(leg),
                Updated::Conflict(live) => self.adopt(session, &live).await?,
            }
        }
        Err(Unsure::Contended)
    }

    /// Whether this gateway may open the next generation after `seen`; if so, nobody else does while
    /// the turn is held.
    pub(super) async fn turn(&self, session: &Arc<Session>, seen: &Leg) -> Result<Turn, Unsure> {
        let store = &self.keeper.store;
        let lease = format!("mend/{}", self.key.as_str());
        let leasing = store.lease(&lease, &self.keeper.me, LEASE);
        if !self.keeper.ask(Operation::Lease, leasing).await? {
            return Ok(Turn::Theirs);
        }
        let held = self.hold(lease);
        // With the lease in hand: whoever had it before may have published meanwhile.
        let loading = store.load(&self.key);
        match self.keeper.ask(Operation::Load, loading).await? {
            Loaded::Absent | Loaded::Ended => return Ok(Turn::Ended),
            Loaded::Live(live) => self.adopt(session, &live).await?,
        }
        let current = session.leg();
        if current.at.generation > seen.at.generation {
            return Ok(Turn::Other(current));
        }
        Ok(Turn::Mine(Some(held)))
    }

    /// Renews a lease until the turn is dropped, however that comes about.
    fn hold(&self, lease: String) -> Held {
        let keeper = Arc::clone(&self.keeper);
        let over = CancellationToken::new();
        let held = Held(over.clone().drop_guard());
        self.keeper.tracker.spawn(async move {
            let renewing = async {
                loop {
                    tokio::time::sleep(LEASE / RENEWALS).await;
                    let leasing = keeper.store.lease(&lease, &keeper.me, LEASE);
                    if let Err(error) = keeper.ask(Operation::Lease, leasing).await {
                        tracing::debug!(%error, "a lease was not renewed");
                    }
                }
            };
            over.run_until_cancelled(renewing).await;
            let releasing = keeper.store.release(&lease, &keeper.me);
            if let Err(error) = keeper.ask(Operation::Release, releasing).await {
                tracing::debug!(%error, "a lease was not given back and runs out");
            }
        });
        held
    }

    /// Ends the session in the store. `None`: it had ended before. Otherwise this caller, and no
    /// other, ends it upstream: on this leg.
    pub(super) async fn end(&self, session: &Arc<Session>) -> Result<Option<Arc<Leg>>, Unsure> {
        let ending = self.keeper.store.end(&self.key, REMEMBERED);
        let replaced = self.keeper.ask(Operation::End, ending).await?;
        self.keeper.remember_end(&session.id);
        self.keeper.announce(News::Ended(session.id));
        self.last_leg(session, replaced).await
    }

    /// Lets the session go from the store if no gateway has used it for as long as it is kept. `None`:
    /// one has, or it is gone. Otherwise this caller, and no other, ends it upstream: on this leg.
    pub(super) async fn expire(&self, session: &Arc<Session>) -> Result<Option<Arc<Leg>>, Unsure> {
        let keeper = &self.keeper;
        let expired = keeper.store.expire(&self.key, keeper.left_of_unused());
        let replaced = keeper.ask(Operation::Expire, expired).await?;
        if replaced.is_some() {
            keeper.remember_end(&session.id);
            keeper.announce(News::Ended(session.id));
        }
        self.last_leg(session, replaced).await
    }

    /// The leg that a session had which was ended here.
    async fn last_leg(
        &self,
        session: &Arc<Session>,
        replaced: Option<Live>,
    ) -> Result<Option<Arc<Leg>>, Unsure> {
        let Some(live) = replaced else {
            return Ok(None);
        };
        if let Err(error) = self.adopt(session, &live).await {
            tracing::debug!(%error, "the newest generation of an ended session is not known here");
        }
        Ok(Some(session.leg()))
    }

    /// Does after a use what need not be waited for: begins the session's time anew, and writes the
    /// jar if it has changed.
    pub(super) fn after_use(&self, session: &Arc<Session>) {
        self.is_used(session);
        let leg = session.leg();
        if let Some(since) = self.jar_due(&leg) {
            let Ok(jar) = self.sealed_jar(&leg, since) else {
                return;
            };
            let (keeper, key) = (Arc::clone(&self.keeper), self.key.clone());
            self.keeper.tracker.spawn(async move {
                let putting = keeper.store.put_jar(&key, since, &jar);
                match keeper.ask(Operation::PutJar, putting).await {
                    Ok(true) => {}
                    // The record was written meanwhile; the next use knows for which version.
                    Ok(false) => leg.put_back_jar_change(),
                    Err(error) => tracing::debug!(%error, "a session's cookies were not written"),
                }
            });
        }
    }

    /// A number that is higher than any before, for whichever gateway; `None` if nobody else can be told
    /// of it.
    pub(super) async fn next_number(&self) -> Option<u64> {
        if !self.keeper.is_shared() || !self.keeper.is_reachable() {
            return None;
        }
        let numbering = self.keeper.store.next_number(&self.key);
        let number = self.keeper.ask(Operation::NextNumber, numbering).await;
        number.ok().flatten()
    }

    /// Begins the session's time anew, if some of it is over.
    pub(super) fn is_used(&self, session: &Arc<Session>) {
        let now = self.keeper.now();
        let touched = self.touched.load(Ordering::Relaxed);
        let every = self.keeper.touch_every().as_millis();
        let every = u64::try_from(every).unwrap_or(u64::MAX);
        if touched != 0 && now < touched.saturating_add(every) {
            return;
        }
        self.touched.store(now.max(1), Ordering::Relaxed);
        if self.has_old_seal.load(Ordering::Relaxed) {
            self.seal_anew(session);
        }
        let (keeper, key) = (Arc::clone(&self.keeper), self.key.clone());
        self.keeper.tracker.spawn(async move {
            let touching = keeper.store.touch(&key, keeper.ttl);
            if let Err(error) = keeper.ask(Operation::Touch, touching).await {
                tracing::debug!(%error, "a session's time was not begun anew");
            }
        });
    }

    /// Seals what an older key sealed with the newest one, so that the old key can be taken out once
    /// every session was used or has expired.
    fn seal_anew(&self, session: &Arc<Session>) {
        let session = Arc::clone(session);
        self.keeper.tracker.spawn(async move {
            if let Some(kept) = &session.kept
                && let Err(error) = kept.reseal(&session).await
            {
                tracing::debug!(%error, "a session was not sealed anew");
            }
        });
    }

    /// If somebody else writes meanwhile, the next time is soon enough.
    async fn reseal(&self, session: &Arc<Session>) -> Result<(), Unsure> {
        let store = &self.keeper.store;
        let Loaded::Live(live) = self
            .keeper
            .ask(Operation::Load, store.load(&self.key))
            .await?
        else {
            return Ok(());
        };
        self.adopt(session, &live).await?;
        // An older record that somebody put back is not made good.
        let is_current = self.place.lock().version == live.version;
        if !is_current || !self.has_old_seal.load(Ordering::Relaxed) {
            return Ok(());
        }
        let next = live.version.next();
        let anew = |part, since, sealed: &[u8]| {
            let plain = self
                .keeper
                .keys
                .open(&self.key.bound(part, since), sealed)?;
            self.sealed(part, next, &plain)
        };
        let record = anew(Part::Record, live.version, &live.record)?;
        let jar = match live.jar.is_empty() {
            true => Vec::new(),
            false => anew(Part::Jar, live.jar_since, &live.jar)?,
        };
        let updating = store.update(&self.key, live.version, &record, Some(&jar));
        if let Updated::Done(version) = self.keeper.ask(Operation::Update, updating).await? {
            {
                let mut place = self.place.lock();
                if version > place.version {
                    (place.version, place.jar_since) = (version, version);
                    place.jar_tag = tag(&jar);
                    self.has_old_seal.store(false, Ordering::Relaxed);
                }
            }
            self.keeper.announce(News::Changed(session.id));
        }
        Ok(())
    }

    /// The version whose jar is to be written, if it is time to.
    fn jar_due(&self, leg: &Leg) -> Option<Version> {
        if !leg.take_jar_change() {
            return None;
        }
        let mut place = self.place.lock();
        let names = leg.jar_names();
        if names == place.jar_names && place.jar_written.elapsed() < JAR_EVERY {
            leg.put_back_jar_change();
            return None;
        }
        place.jar_names = names;
        place.jar_written = Instant::now();
        Some(place.jar_since)
    }
}

/// What tells one sealed jar from another; `None` for no jar.
fn tag(jar: &[u8]) -> Option<JarTag> {
    jar.last_chunk().copied()
}
