//! What this gateway knows about one caller's grant at one server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use super::CachedBearer;
use crate::oauth::bearer::{Bearer, InvalidBearer};
use crate::oauth::grant::{Grant, GrantKey};
use crate::oauth::reason::RefusedGrant;
use crate::oauth::vault::SignIn;
use bowline_store::Version;
use bowline_system::clock;
use bowline_system::jitter::jittered;

/// The pause after a failed refresh: at most this long, and at least half of it.
const REST: Duration = Duration::from_secs(30);
/// How often the vault is touched for a grant in use: it keeps an unused grant for ninety days.
const TOLD_EVERY: Duration = Duration::from_secs(9 * 24 * 60 * 60);
/// How often the vault is read for a grant in use: somebody may have signed out elsewhere.
const LOOKED_EVERY: Duration = Duration::from_secs(30);
/// How long a token is not refreshed again if it came from a refresh after a refusal and the server never
/// accepted it either.
const IN_VAIN: Duration = Duration::from_secs(60);
/// The shortest time between two attempts, so that a lasting failure is not retried for every request.
const AT_MOST_EVERY: Duration = Duration::from_secs(1);

/// One caller's grant at one server.
#[derive(Debug)]
pub(super) struct CachedGrant {
    pub(super) caller: Box<str>,
    pub(super) server_url: Box<str>,
    state: RwLock<State>,
    /// Held by the task that improves the state. Never taken while `state` is locked.
    pub(super) flight: Arc<tokio::sync::Mutex<()>>,
    /// In milliseconds since 1970: when the grant needs attention, until when no refresh is tried, and when
    /// the vault was last touched.
    attend: AtomicU64,
    backoff_until: AtomicU64,
    told: AtomicU64,
    /// The last refresh that was made because the server refused a token.
    renewed: Mutex<Option<ForcedRefresh>>,
    /// Notified when the caller has signed out.
    sign_outs: Arc<Notify>,
    /// The newest record of the caller's sign-ins that this gateway saw or wrote.
    newest: Mutex<Option<SignIn>>,
}

/// A refresh that was made because the server refused a token.
#[derive(Debug)]
struct ForcedRefresh {
    bearer: Arc<Bearer>,
    /// In milliseconds since 1970.
    at: u64,
}

/// What this gateway knows.
#[derive(Debug)]
enum State {
    Unknown,
    SignedOut {
        /// A grant in the vault that cannot be used: the server refuses its token, and it cannot be
        /// refreshed.
        worthless: Option<Worthless>,
        /// Whether somebody signed the caller out. Otherwise the grant ended by itself.
        is_explicit: bool,
    },
    SignedIn(Arc<HeldGrant>),
}

/// Which grant cannot be used.
#[derive(Debug)]
struct Worthless {
    key: GrantKey,
    version: Version,
    refused: RefusedGrant,
}

/// A grant and the bearer made from it.
#[derive(Debug)]
pub(super) struct HeldGrant {
    pub(super) bearer: Arc<Bearer>,
    pub(super) grant: Grant,
    /// Its version in the vault, or the one that it is to replace there.
    pub(super) version: Version,
    pub(super) is_saved: bool,
}

/// What a request needs of a bearer.
#[derive(Clone, Debug)]
pub(super) enum BearerNeed {
    /// It is not due for a refresh yet.
    Ahead,
    /// It is the one in the vault.
    Known,
    /// It is not about to expire.
    Fresh,
    /// It is not about to expire, and is not this one, which the server refused.
    Other(Arc<Bearer>),
}

// === impl CachedGrant ===

impl CachedGrant {
    pub(super) fn new(caller: &str, server_url: &str, sign_outs: &Arc<Notify>) -> Self {
        Self {
            sign_outs: Arc::clone(sign_outs),
            caller: caller.into(),
            server_url: server_url.into(),
            state: RwLock::new(State::Unknown),
            flight: Arc::default(),
            attend: AtomicU64::new(0),
            backoff_until: AtomicU64::new(0),
            told: AtomicU64::new(0),
            renewed: Mutex::default(),
            newest: Mutex::default(),
        }
    }

    /// The newest record: this one, unless it is older than one that was seen before.
    pub(super) fn newest(&self, record: SignIn) -> SignIn {
        let mut newest = self.newest.lock();
        match &*newest {
            Some(newest) if record.is_before(newest) => newest.clone(),
            _ => newest.insert(record).clone(),
        }
    }

    /// The cached bearer, even if it has expired.
    pub(super) fn cached_bearer(&self) -> CachedBearer {
        match &*self.state.read() {
            State::Unknown => CachedBearer::Unknown,
            State::SignedOut { .. } => CachedBearer::SignedOut,
            State::SignedIn(held) => CachedBearer::Bearer(held.bearer()),
        }
    }

    pub(super) fn held(&self) -> Option<Arc<HeldGrant>> {
        match &*self.state.read() {
            State::SignedIn(held) => Some(Arc::clone(held)),
            State::Unknown | State::SignedOut { .. } => None,
        }
    }

    /// The number of the cached sign-in; 0 for none.
    pub(super) fn sign_in(&self) -> u64 {
        self.held().map_or(0, |held| held.grant.sign_in)
    }

    /// The cached bearer, if it meets the need.
    pub(super) fn if_meets(&self, need: &BearerNeed) -> Option<Arc<Bearer>> {
        let held = self.held()?;
        need.is_met_by(&held.bearer).then(|| held.bearer())
    }

    /// The cached bearer, if it has neither expired nor been refused: better than none.
    pub(super) fn still_valid(&self, need: &BearerNeed) -> Option<Arc<Bearer>> {
        let bearer = self.held()?.bearer();
        let is_refused = matches!(need, BearerNeed::Other(refused) if refused.is(&bearer));
        (!is_refused && clock::unix_millis() < bearer.expired).then_some(bearer)
    }

    /// Caches the grant of a new sign-in.
    pub(super) fn hold(&self, held: HeldGrant) {
        *self.state.write() = State::SignedIn(Arc::new(held));
        self.clear_backoff();
        self.schedule_attention();
    }

    /// The cached grant, if it is not the one that was seen before.
    pub(super) fn other_than(&self, seen: &Arc<HeldGrant>) -> Option<Arc<HeldGrant>> {
        self.state.read().other_than(Some(seen)).cloned()
    }

    /// Replaces the grant that was seen before, unless a sign-in has replaced it meanwhile. Returns the grant
    /// that is cached then.
    pub(super) fn replace(&self, seen: Option<&Arc<HeldGrant>>, by: HeldGrant) -> Arc<HeldGrant> {
        let mut state = self.state.write();
        if let Some(other) = state.other_than(seen) {
            return Arc::clone(other);
        }
        if !seen.is_some_and(|seen| seen.bearer.is(&by.bearer)) {
            self.clear_backoff();
        }
        let by = Arc::new(by);
        *state = State::SignedIn(Arc::clone(&by));
        drop(state);
        self.schedule_attention();
        by
    }

    /// Forgets the grant that was seen before, unless a sign-in has replaced it meanwhile.
    pub(super) fn mark_ended(&self, seen: Option<&Arc<HeldGrant>>) {
        self.end(seen, None);
    }

    /// The same, where the vault may still have it.
    pub(super) fn mark_worthless(&self, seen: &Arc<HeldGrant>) {
        let worthless = Worthless {
            key: seen.grant.key(),
            version: seen.version,
            refused: RefusedGrant {
                sign_in: seen.grant.sign_in,
                was_accepted: seen.bearer.was_accepted(),
            },
        };
        self.end(Some(seen), Some(worthless));
    }

    fn end(&self, seen: Option<&Arc<HeldGrant>>, worthless: Option<Worthless>) {
        let mut state = self.state.write();
        if state.other_than(seen).is_none() {
            let is_explicit = state.is_explicit();
            *state = State::SignedOut {
                worthless,
                is_explicit,
            };
        }
    }

    /// The same, because the caller was signed out.
    pub(super) fn mark_signed_out(&self, seen: Option<&Arc<HeldGrant>>) {
        let mut state = self.state.write();
        if state.other_than(seen).is_some() || state.is_explicit() {
            return;
        }
        *state = State::SignedOut {
            worthless: None,
            is_explicit: true,
        };
        drop(state);
        self.sign_outs.notify_one();
    }

    /// Whether the caller was signed out, as far as this gateway knows.
    pub(super) fn is_signed_out(&self) -> bool {
        self.state.read().is_explicit()
    }

    /// Whether it is time to check the vault for a sign-out.
    pub(super) fn should_check_sign_out(&self, now: u64) -> bool {
        match &*self.state.read() {
            State::Unknown => false,
            State::SignedIn(_) => self.needs_attention(now),
            // A sign-out removes the grant first, and writes its record after that.
            State::SignedOut { is_explicit, .. } => !is_explicit,
        }
    }

    pub(super) fn is_worthless(&self, key: &GrantKey, version: Version) -> bool {
        match &*self.state.read() {
            State::SignedOut {
                worthless: Some(known),
                ..
            } => known.key == *key && known.version == version,
            _ => false,
        }
    }

    /// The grant that cannot be used, if it is that.
    pub(super) fn worthless(&self) -> RefusedGrant {
        match &*self.state.read() {
            State::SignedOut {
                worthless: Some(known),
                ..
            } => known.refused,
            _ => RefusedGrant::default(),
        }
    }

    pub(super) fn needs_attention(&self, now: u64) -> bool {
        now >= self.attend.load(Ordering::Relaxed)
    }

    /// Sets when the grant needs attention next.
    pub(super) fn schedule_attention(&self) {
        let now = clock::unix_millis();
        let next = match self.held() {
            None => u64::MAX,
            Some(held) if !held.is_saved => now + millis(REST),
            Some(held) => held.bearer.due.min(now + millis(LOOKED_EVERY)),
        };
        let earliest =
            (now + millis(AT_MOST_EVERY)).max(self.backoff_until.load(Ordering::Relaxed));
        self.attend.store(next.max(earliest), Ordering::Relaxed);
    }

    /// How long no refresh is tried, because the last one failed.
    pub(super) fn backoff_left(&self, now: u64) -> Option<Duration> {
        let left = self
            .backoff_until
            .load(Ordering::Relaxed)
            .checked_sub(now)?;
        (left > 0).then_some(Duration::from_millis(left))
    }

    /// Starts a pause after a failed refresh.
    pub(super) fn back_off(&self) -> Duration {
        let rest = jittered(REST);
        let until = clock::unix_millis() + millis(rest);
        self.backoff_until.store(until, Ordering::Relaxed);
        rest
    }

    /// The same, but not beyond this time.
    pub(super) fn back_off_until(&self, at_most: u64) {
        self.back_off();
        self.backoff_until.fetch_min(at_most, Ordering::Relaxed);
    }

    /// Notes tokens that were refreshed because the server refused the old ones.
    pub(super) fn note_renewed_for_refusal(&self, bearer: Arc<Bearer>) {
        let at = clock::unix_millis();
        *self.renewed.lock() = Some(ForcedRefresh { bearer, at });
    }

    /// Whether another refresh would be in vain: this token is new, and the server never accepted it.
    pub(super) fn is_renewed_in_vain(&self, bearer: &Bearer) -> bool {
        let now = clock::unix_millis();
        self.renewed.lock().as_ref().is_some_and(|renewed| {
            let is_new = now < renewed.at.saturating_add(millis(IN_VAIN));
            is_new && renewed.bearer.is(bearer) && !bearer.was_accepted()
        })
    }

    /// Ends the pause: the failure was with older tokens.
    fn clear_backoff(&self) {
        self.backoff_until.store(0, Ordering::Relaxed);
    }

    /// Whether it is time to touch the vault's record; if so, it counts as touched.
    pub(super) fn take_touch_due(&self) -> bool {
        let now = clock::unix_millis();
        let told = self.told.load(Ordering::Relaxed);
        let is_time = now >= told.saturating_add(millis(TOLD_EVERY));
        if is_time {
            self.told.store(now, Ordering::Relaxed);
        }
        is_time
    }
}

// === impl State ===

impl State {
    fn is_explicit(&self) -> bool {
        matches!(
            self,
            Self::SignedOut {
                is_explicit: true,
                ..
            }
        )
    }

    /// The cached grant, if it is not the one that was seen.
    fn other_than(&self, seen: Option<&Arc<HeldGrant>>) -> Option<&Arc<HeldGrant>> {
        let Self::SignedIn(present) = self else {
            return None;
        };
        let is_seen = seen.is_some_and(|seen| Arc::ptr_eq(seen, present));
        (!is_seen).then_some(present)
    }
}

// === impl HeldGrant ===

impl HeldGrant {
    pub(super) fn new(
        grant: Grant,
        version: Version,
        is_saved: bool,
    ) -> Result<Self, InvalidBearer> {
        Ok(Self {
            bearer: Arc::new(Bearer::of(&grant)?),
            grant,
            version,
            is_saved,
        })
    }

    pub(super) fn bearer(&self) -> Arc<Bearer> {
        Arc::clone(&self.bearer)
    }

    /// The grant to cache instead, given what the vault has: the vault's, unless the cached one is newer.
    /// `None`: nothing changes.
    pub(super) fn after(
        &self,
        stored: Grant,
        version: Version,
    ) -> Result<Option<Self>, InvalidBearer> {
        let is_saved = stored == self.grant;
        if is_saved || stored.is_before(&self.grant) {
            let is_known = self.version == version && self.is_saved == is_saved;
            return Ok((!is_known).then(|| self.at(version, is_saved)));
        }
        Self::new(stored, version, true).map(Some)
    }

    /// The same grant, with its state in the vault.
    pub(super) fn at(&self, version: Version, is_saved: bool) -> Self {
        Self {
            bearer: self.bearer(),
            grant: self.grant.clone(),
            version,
            is_saved,
        }
    }
}

// === impl BearerNeed ===

impl BearerNeed {
    pub(super) fn is_met_by(&self, bearer: &Bearer) -> bool {
        let now = clock::unix_millis();
        match self {
            Self::Ahead => now < bearer.due,
            Self::Known => true,
            Self::Fresh => now < bearer.stale,
            Self::Other(refused) => now < bearer.stale && !refused.is(bearer),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
