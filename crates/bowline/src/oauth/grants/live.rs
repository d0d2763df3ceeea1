//! What this gateway knows of one caller's grant at one server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use super::AtHand;
use crate::clock;
use crate::oauth::bearer::{Bearer, NotAHeader};
use crate::oauth::grant::{Grant, GrantKey};
use crate::store::Version;
use crate::upstream::jittered;

/// How long after a failed refresh there is no other one: this at most, and half of it at least.
const REST: Duration = Duration::from_secs(30);
/// How often a vault hears that something is in use: it keeps what is not for ninety days.
const TOLD_EVERY: Duration = Duration::from_secs(9 * 24 * 60 * 60);
/// How often it is looked what is in the vault, when somebody uses a grant: others may have signed out.
const LOOKED_EVERY: Duration = Duration::from_secs(30);
/// How long a token that was renewed because the server refused the one before, and that it never took
/// either, is not renewed again.
const IN_VAIN: Duration = Duration::from_secs(60);
/// What nothing could be done about is not tried for every request.
const AT_MOST_EVERY: Duration = Duration::from_secs(1);

/// One caller's grant at one server.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) caller: Box<str>,
    pub(super) server_url: Box<str>,
    state: RwLock<State>,
    /// Held by whoever improves on the state. Never while the state itself is locked.
    pub(super) flight: Arc<tokio::sync::Mutex<()>>,
    /// In milliseconds since 1970: when somebody should look after it, before when no refresh is
    /// tried, and when the vault was last told that it is in use.
    attend: AtomicU64,
    rests_until: AtomicU64,
    told: AtomicU64,
    /// The last token that there is because the server refused the one before.
    renewed: Mutex<Option<Renewed>>,
    /// Told when the caller has signed out.
    outs: Arc<Notify>,
}

/// A token that there is because the server refused the one before.
#[derive(Debug)]
struct Renewed {
    bearer: Arc<Bearer>,
    /// In milliseconds since 1970.
    at: u64,
}

/// What is known.
#[derive(Debug)]
enum State {
    Unknown,
    SignedOut {
        /// What is in the vault but worth nothing: the server refuses it, and it cannot be renewed.
        worthless: Option<(GrantKey, Version)>,
        /// Somebody said so. Otherwise the grant came to nothing by itself.
        is_said: bool,
    },
    SignedIn(Arc<Holding>),
}

/// A grant at hand.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) bearer: Arc<Bearer>,
    pub(super) grant: Grant,
    /// Its version in the vault, or the one that it is to replace there.
    pub(super) version: Version,
    pub(super) is_saved: bool,
}

/// What somebody wants of a bearer.
#[derive(Clone, Debug)]
pub(super) enum Want {
    /// It need not be renewed yet.
    Ahead,
    /// It is what the vault has.
    Known,
    /// It can be sent.
    Fresh,
    /// It can be sent, and is not this one, which the server refused.
    Other(Arc<Bearer>),
}

// === impl Live ===

impl Live {
    pub(super) fn new(caller: &str, server_url: &str, outs: &Arc<Notify>) -> Self {
        Self {
            outs: Arc::clone(outs),
            caller: caller.into(),
            server_url: server_url.into(),
            state: RwLock::new(State::Unknown),
            flight: Arc::default(),
            attend: AtomicU64::new(0),
            rests_until: AtomicU64::new(0),
            told: AtomicU64::new(0),
            renewed: Mutex::default(),
        }
    }

    /// What is known, whatever it is worth by now.
    pub(super) fn at_hand(&self) -> AtHand {
        match &*self.state.read() {
            State::Unknown => AtHand::Unknown,
            State::SignedOut { .. } => AtHand::SignedOut,
            State::SignedIn(holding) => AtHand::Bearer(holding.bearer()),
        }
    }

    pub(super) fn holding(&self) -> Option<Arc<Holding>> {
        match &*self.state.read() {
            State::SignedIn(holding) => Some(Arc::clone(holding)),
            State::Unknown | State::SignedOut { .. } => None,
        }
    }

    /// The number of the sign-in at hand; 0 for none.
    pub(super) fn sign_in(&self) -> u64 {
        self.holding().map_or(0, |holding| holding.grant.sign_in)
    }

    /// The bearer at hand, if it is what is wanted.
    pub(super) fn good(&self, want: &Want) -> Option<Arc<Bearer>> {
        let holding = self.holding()?;
        want.is_met_by(&holding.bearer).then(|| holding.bearer())
    }

    /// The bearer at hand, if it is worth something yet, for want of a better one.
    pub(super) fn make_do(&self, want: &Want) -> Option<Arc<Bearer>> {
        let bearer = self.holding()?.bearer();
        let is_refused = matches!(want, Want::Other(refused) if refused.is(&bearer));
        (!is_refused && clock::unix_millis() < bearer.expired).then_some(bearer)
    }

    /// From now on this is at hand, which somebody signed in for.
    pub(super) fn hold(&self, holding: Holding) {
        *self.state.write() = State::SignedIn(Arc::new(holding));
        self.rested();
        self.attended();
    }

    /// What is at hand, if it is not what was seen before.
    pub(super) fn other_than(&self, seen: &Arc<Holding>) -> Option<Arc<Holding>> {
        self.state.read().other_than(Some(seen)).cloned()
    }

    /// From now on this is at hand instead of what was seen before; unless something else came
    /// meanwhile, which only a sign-in does. Returns what is at hand.
    pub(super) fn replace(&self, seen: Option<&Arc<Holding>>, by: Holding) -> Arc<Holding> {
        let mut state = self.state.write();
        if let Some(other) = state.other_than(seen) {
            return Arc::clone(other);
        }
        if !seen.is_some_and(|seen| seen.bearer.is(&by.bearer)) {
            self.rested();
        }
        let by = Arc::new(by);
        *state = State::SignedIn(Arc::clone(&by));
        drop(state);
        self.attended();
        by
    }

    /// From now on nothing is at hand instead of what was seen before; unless something else came
    /// meanwhile, which only a sign-in does.
    pub(super) fn is_signed_out(
        &self,
        seen: Option<&Arc<Holding>>,
        worthless: Option<(GrantKey, Version)>,
    ) {
        let mut state = self.state.write();
        if state.other_than(seen).is_none() {
            let is_said = state.is_said();
            *state = State::SignedOut { worthless, is_said };
        }
    }

    /// The same, because somebody signed the caller out.
    pub(super) fn has_signed_out(&self, seen: Option<&Arc<Holding>>) {
        let mut state = self.state.write();
        if state.other_than(seen).is_some() || state.is_said() {
            return;
        }
        *state = State::SignedOut {
            worthless: None,
            is_said: true,
        };
        drop(state);
        self.outs.notify_one();
    }

    /// Whether somebody signed the caller out, as far as it is known.
    pub(super) fn is_said_to_be_out(&self) -> bool {
        self.state.read().is_said()
    }

    /// Whether the vault should be asked if somebody signed the caller out.
    pub(super) fn may_be_out(&self, now: u64) -> bool {
        match &*self.state.read() {
            State::Unknown => false,
            State::SignedIn(_) => self.needs_attention(now),
            // Of two that are taken out the grant goes first.
            State::SignedOut { is_said, .. } => !is_said,
        }
    }

    pub(super) fn is_worthless(&self, key: &GrantKey, version: Version) -> bool {
        match &*self.state.read() {
            State::SignedOut {
                worthless: Some((known, at)),
                ..
            } => known == key && *at == version,
            _ => false,
        }
    }

    pub(super) fn needs_attention(&self, now: u64) -> bool {
        now >= self.attend.load(Ordering::Relaxed)
    }

    /// Somebody has looked after it: when is it time again?
    pub(super) fn attended(&self) {
        let now = clock::unix_millis();
        let next = match self.holding() {
            None => u64::MAX,
            Some(holding) if !holding.is_saved => now + millis(REST),
            Some(holding) => holding.bearer.due.min(now + millis(LOOKED_EVERY)),
        };
        let earliest = (now + millis(AT_MOST_EVERY)).max(self.rests_until.load(Ordering::Relaxed));
        self.attend.store(next.max(earliest), Ordering::Relaxed);
    }

    /// How long no refresh is tried yet, because one failed.
    pub(super) fn waits(&self, now: u64) -> Option<Duration> {
        let left = self.rests_until.load(Ordering::Relaxed).checked_sub(now)?;
        (left > 0).then_some(Duration::from_millis(left))
    }

    /// A refresh failed.
    pub(super) fn rest(&self) -> Duration {
        let rest = jittered(REST);
        let until = clock::unix_millis() + millis(rest);
        self.rests_until.store(until, Ordering::Relaxed);
        rest
    }

    /// A refresh failed, and another would fail until then.
    pub(super) fn rest_until(&self, at_most: u64) {
        self.rest();
        self.rests_until.fetch_min(at_most, Ordering::Relaxed);
    }

    /// There are new tokens, because the server refused the ones before.
    pub(super) fn is_renewed_for_refusal(&self, bearer: Arc<Bearer>) {
        let at = clock::unix_millis();
        *self.renewed.lock() = Some(Renewed { bearer, at });
    }

    /// Whether the server refuses this whatever is done: it is new, and was never taken.
    pub(super) fn is_renewed_in_vain(&self, bearer: &Bearer) -> bool {
        let now = clock::unix_millis();
        self.renewed.lock().as_ref().is_some_and(|renewed| {
            let is_new = now < renewed.at.saturating_add(millis(IN_VAIN));
            is_new && renewed.bearer.is(bearer) && !bearer.was_accepted()
        })
    }

    /// There are new tokens: whatever failed before did so with others.
    fn rested(&self) {
        self.rests_until.store(0, Ordering::Relaxed);
    }

    /// Whether it is time to tell the vault that this is in use; if so, it counts as told.
    pub(super) fn is_to_be_told(&self) -> bool {
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
    fn is_said(&self) -> bool {
        matches!(self, Self::SignedOut { is_said: true, .. })
    }

    /// What is held, if it is not what was seen.
    fn other_than(&self, seen: Option<&Arc<Holding>>) -> Option<&Arc<Holding>> {
        let Self::SignedIn(present) = self else {
            return None;
        };
        let is_seen = seen.is_some_and(|seen| Arc::ptr_eq(seen, present));
        (!is_seen).then_some(present)
    }
}

// === impl Holding ===

impl Holding {
    pub(super) fn new(grant: Grant, version: Version, is_saved: bool) -> Result<Self, NotAHeader> {
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

    /// What is to be held instead, now that this is in the vault: that, unless what is at hand came
    /// later. `None`: nothing is different.
    pub(super) fn after(
        &self,
        stored: Grant,
        version: Version,
    ) -> Result<Option<Self>, NotAHeader> {
        let is_saved = stored == self.grant;
        if is_saved || stored.is_before(&self.grant) {
            let is_known = self.version == version && self.is_saved == is_saved;
            return Ok((!is_known).then(|| self.at(version, is_saved)));
        }
        Self::new(stored, version, true).map(Some)
    }

    /// The same, as the vault has it or does not.
    pub(super) fn at(&self, version: Version, is_saved: bool) -> Self {
        Self {
            bearer: self.bearer(),
            grant: self.grant.clone(),
            version,
            is_saved,
        }
    }
}

// === impl Want ===

impl Want {
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
