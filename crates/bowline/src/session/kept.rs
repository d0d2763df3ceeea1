//! One kept session: written before its client hears of it, looked at again before it is believed,
//! moved to a new generation by one gateway at a time, and ended once.

mod cookies;
mod reseal;
mod restored;
#[cfg(test)]
mod tests;
mod turn;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bowline_wire::id::SessionId;
use parking_lot::Mutex;
use tokio::time::Instant;

use self::cookies::tag;
pub(crate) use self::turn::{Held, Turn};
use super::keeper::{Keeper, Unsure};
use super::news::News;
use super::record::Put;
use super::shown::Shown;
use super::written::{BadRecord, Written};
use super::{Caller, Session};
use crate::clock;
use crate::leg::{Leg, LegRef, Life};
use crate::store::{Key, Live, Loaded, Operation, Part, StoreError, Updated, Version};
use crate::upstream::Upstream;

/// How often a write is tried that meets another gateway's.
const MAX_CONFLICTS: usize = 16;
/// How long an end is remembered: longer than anything that was under way could still write, and than a
/// gateway believes what it saw without asking.
const REMEMBERED: Duration = Duration::from_secs(60);

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
    /// What is in the store does not say with which key its caller came.
    lacks_key: AtomicBool,
    /// The generation up to which the client was told what may have changed.
    told: AtomicU32,
}

/// Where a session is in the store, as far as this gateway knows.
#[derive(Debug)]
struct Place {
    version: Version,
    jar_since: Version,
    /// The tag of the record of that version, once one was read or written: with any other one the store
    /// was put back, and has come to the same version by another way.
    record_tag: Option<Tag>,
    /// The tag of the jar that was last read there: any other one was written since.
    jar_tag: Option<Tag>,
    jar_names: u64,
    jar_written: Instant,
    /// The store was put back to an older state: what is known here is to be written on top of it.
    is_behind: bool,
}

type Tag = [u8; 16];

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
                record_tag: None,
                jar_tag: None,
                jar_names: 0,
                jar_written: Instant::now(),
                is_behind: false,
            }),
            seen: now.into(),
            touched: now.into(),
            has_old_seal: false.into(),
            lacks_key: false.into(),
            told: LegRef::FIRST.generation.into(),
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
        kept.lacks_key = written.lacks_key().into();
        let caller = written.caller(upstream.identities())?;
        let leg = kept.leg((upstream, &caller), &written, &live).await?;
        let believed = written.believed();
        let told = written.told.max(LegRef::FIRST.generation);
        kept.told = told.into();
        if written.generation > told {
            believed.lists_changed();
        }
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
        let knew = self.known();
        let loading = self.keeper.store.load(&self.key);
        match self.keeper.ask(Operation::Load, loading).await {
            Ok(Loaded::Live(live)) => {
                self.adopt(session, &live, knew).await?;
                let is_behind = self.place.lock().is_behind;
                if is_behind && let Err(error) = Box::pin(self.save(session, || {})).await {
                    tracing::debug!(%error, "a session that was put back is still older there");
                }
                Ok(true)
            }
            Ok(Loaded::Absent) => Box::pin(self.put_back(session)).await,
            Ok(Loaded::Ended) => Ok(false),
            Err(_) if self.is_within_grace() => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    fn known(&self) -> Version {
        self.place.lock().version
    }

    /// Takes over what another gateway has written. `knew` is the version that was known before the store
    /// was asked: if it has an older one, it was put back to an older state.
    async fn adopt(
        &self,
        session: &Arc<Session>,
        live: &Live,
        knew: Version,
    ) -> Result<(), Unsure> {
        if live.version < knew {
            return self.fall_back(session, live, knew).await;
        }
        if self.is_another(live) {
            return self.fall_back(session, live, live.version).await;
        }
        let seen = self.keeper.now();
        let known = self.known();
        if live.version < known {
            return Ok(());
        }
        self.note_seal(live);
        if live.version > known {
            let written = self.open(live)?;
            let newer = self.newer_leg(session, &written, live).await?;
            let put = {
                // Only if nothing newer came meanwhile: whoever writes next writes what was said
                // here, on this generation, under this version.
                let mut place = self.place.lock();
                let is_news = live.version > place.version;
                if is_news {
                    written.said_to(&session.believed);
                    (place.version, place.jar_since) = (live.version, live.jar_since);
                    place.record_tag = tag(&live.record);
                    place.is_behind = false;
                }
                newer.filter(|_| is_news).map(|leg| session.put(&leg))
            };
            if let Some(put) = put {
                session.goes_on(put);
            }
        }
        self.adopt_jar(&session.leg(), live)?;
        // Not now: finding its endpoint may have taken a while.
        self.was_seen(seen);
        Ok(())
    }

    /// The session as it is written, on this leg.
    fn written(&self, session: &Session, leg: &Leg) -> Result<Written, BadRecord> {
        let mut written = Written::of(session, leg, self.opened)?;
        written.told = self.told.load(Ordering::Relaxed);
        Ok(written)
    }

    /// The client was told what may have changed up to this generation: no other gateway needs to, nor
    /// this one once it has let the session go.
    pub(super) fn was_told(&self, session: &Arc<Session>) {
        let generation = session.leg().at.generation;
        if self.told.fetch_max(generation, Ordering::Relaxed) >= generation {
            return;
        }
        self.write_down(session, "what a client was told is not in the store");
    }

    /// Writes the session as it is, without anybody waiting for it.
    fn write_down(&self, session: &Arc<Session>, if_not: &'static str) {
        let session = Arc::clone(session);
        self.keeper.tracker.spawn(async move {
            if let Some(kept) = &session.kept
                && let Err(error) = kept.save(&session, || {}).await
            {
                tracing::debug!(%error, "{if_not}");
            }
        });
    }

    /// The leg that a record speaks of. Where its endpoint is unknown here, even after another look
    /// at the names, the upstream's session counts as lost.
    async fn leg(
        &self,
        (upstream, caller): (&Arc<Upstream>, &Caller),
        written: &Written,
        live: &Live,
    ) -> Result<Leg, Unsure> {
        let found = match upstream.endpoints.by_id(written.endpoint()) {
            Some(endpoint) => Some(endpoint),
            None => upstream.look_for(written.endpoint()).await,
        };
        let account = upstream.account(caller);
        // One that the server has left is not shown what the caller was granted at the server's new place.
        let found = found.filter(|found| account.is_none() || upstream.is_configured(found));
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

    fn note_place(&self, live: &Live) {
        let mut place = self.place.lock();
        place.version = live.version;
        place.jar_since = live.jar_since;
        place.record_tag = tag(&live.record);
        place.jar_tag = tag(&live.jar);
    }

    fn sealed(&self, part: Part, version: Version, bytes: &[u8]) -> Result<Vec<u8>, Unsure> {
        Ok(self
            .keeper
            .keys
            .seal(&self.key.bound(part, version), bytes)?)
    }

    /// Writes a new session, before anybody hears of it.
    pub(super) async fn create(&self, session: &Session) -> Result<(), Unsure> {
        let leg = session.leg();
        let record = self.written(session, &leg)?.to_bytes()?;
        let record = self.sealed(Part::Record, Version::FIRST, &record)?;
        let jar = self.sealed_jar(&leg, Version::FIRST)?;
        {
            let mut place = self.place.lock();
            place.jar_names = leg.jar_names();
            place.record_tag = tag(&record);
        }
        let store = &self.keeper.store;
        let creating = store.create(&self.key, &record, &jar, self.keeper.ttl);
        match self.keeper.ask(Operation::Create, creating).await? {
            true => {
                self.keeper.note_opened();
                Ok(())
            }
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
                (place.version, self.written(session, leg)?)
            };
            let record = self.sealed(Part::Record, version.next(), &written.to_bytes()?)?;
            let jar = self.sealed_jar(leg, version.next())?;
            let store = &self.keeper.store;
            let updating = store.update(&self.key, version, &record, Some(&jar));
            match self.keeper.ask(Operation::Update, updating).await? {
                Updated::Done(version) => {
                    let put = {
                        // In one step for whoever writes next: under this version, this generation.
                        let mut place = self.place.lock();
                        if version > place.version {
                            (place.version, place.jar_since) = (version, version);
                            place.record_tag = tag(&record);
                            place.jar_names = leg.jar_names();
                            place.is_behind = false;
                        }
                        session.put(leg)
                    };
                    session.goes_on(put);
                    self.was_seen(self.keeper.now());
                    self.keeper.announce(News::Changed(session.id));
                    return Ok(match put {
                        Put::Ended => Published::Ended,
                        Put::New | Put::Known => Published::Done,
                    });
                }
                // Lost by a store that was emptied meanwhile is not ended.
                Updated::Gone if Box::pin(self.put_back(session)).await? => {}
                Updated::Gone => return Ok(Published::Ended),
                Updated::Conflict(live) => self.adopt(session, &live, version).await?,
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
            let (version, leg, written, is_behind) = {
                // What is believed belongs to the version, see `adopt`.
                let place = self.place.lock();
                said();
                let leg = session.leg();
                let written = self.written(session, &leg)?;
                (place.version, leg, written, place.is_behind)
            };
            let record = self.sealed(Part::Record, version.next(), &written.to_bytes()?)?;
            let jar = match is_behind {
                true => Some(self.sealed_jar(&leg, version.next())?),
                false => None,
            };
            let store = &self.keeper.store;
            let updating = store.update(&self.key, version, &record, jar.as_deref());
            match self.keeper.ask(Operation::Update, updating).await? {
                Updated::Done(version) => {
                    {
                        let mut place = self.place.lock();
                        if version > place.version {
                            place.version = version;
                            place.record_tag = tag(&record);
                            if let Some(jar) = &jar {
                                (place.jar_since, place.jar_tag) = (version, tag(jar));
                                place.is_behind = false;
                            }
                        }
                    }
                    self.was_seen(self.keeper.now());
                    self.keeper.announce(News::Changed(session.id));
                    return Ok(leg);
                }
                // Its end is found by whoever asks next.
                Updated::Gone => return Ok(leg),
                Updated::Conflict(live) => self.adopt(session, &live, version).await?,
            }
        }
        Err(Unsure::Contended)
    }

    /// Ends the session in the store. `None`: it had ended before. Otherwise this caller, and no
    /// other, ends it upstream: on this leg.
    pub(super) async fn end(&self, session: &Arc<Session>) -> Result<Option<Arc<Leg>>, Unsure> {
        let ending = self.keeper.store.end(&self.key, REMEMBERED);
        let replaced = self.keeper.ask(Operation::End, ending).await?;
        if replaced.is_some() {
            self.keeper.note_ended();
        }
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
            keeper.note_ended();
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
        if let Err(error) = self.adopt(session, &live, Version(0)).await {
            tracing::debug!(%error, "the newest generation of an ended session is not known here");
        }
        Ok(Some(session.leg()))
    }

    /// Does after a use what need not be waited for: begins the session's time anew, and writes the
    /// jar if it has changed.
    pub(super) fn after_use(&self, session: &Arc<Session>) {
        self.is_used(session);
        self.keep_jar(session);
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

    /// The last of these numbers; `None` if it has ended.
    pub(super) async fn last_number(&self) -> Result<Option<u64>, StoreError> {
        let asking = self.keeper.store.last_number(&self.key);
        self.keeper.ask(Operation::LastNumber, asking).await
    }

    /// Begins the session's time anew, if some of it is over.
    pub(super) fn is_used(&self, session: &Arc<Session>) {
        let now = self.keeper.now();
        let touched = self.touched.load(Ordering::Relaxed);
        let every = self.keeper.touch_every().as_millis();
        let every = u64::try_from(every).unwrap_or(u64::MAX);
        let is_due = touched == 0 || now >= touched.saturating_add(every);
        if !is_due || !self.keeper.is_reachable() {
            return;
        }
        self.touched.store(now.max(1), Ordering::Relaxed);
        if self.has_old_seal.load(Ordering::Relaxed) {
            self.seal_anew(session);
        }
        // From now on it is this key's, whoever is given the name.
        if self.lacks_key.swap(false, Ordering::Relaxed) {
            self.write_down(
                session,
                "a session's record does not say whose key is its own",
            );
        }
        let session = Arc::clone(session);
        self.keeper.tracker.spawn(async move {
            let Some(kept) = &session.kept else { return };
            let touching = kept.keeper.store.touch(&kept.key, kept.keeper.ttl);
            if let Err(error) = kept.keeper.ask(Operation::Touch, touching).await {
                // The next use tries again.
                kept.touched.store(touched, Ordering::Relaxed);
                tracing::debug!(%error, "a session's time was not begun anew");
            }
        });
    }
}
