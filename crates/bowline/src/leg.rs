//! One session's conversation with one upstream.
//!
//! A leg knows the id that the upstream issued, the negotiated revision and the cookies, and puts
//! them on everything that it sends. It rewrites what must carry the leg's mark on its way to the
//! client, and nothing else.

mod again;
mod array;
mod budget;
mod cancel;
mod held;
mod judge;
mod lesson;
mod listen;
mod memory;
mod mend;
mod moves;
mod newborn;
mod open;
mod outcome;
mod overtime;
mod part;
mod passing;
mod relay;
mod renamed;
mod replay;
mod rescue;
mod reserved;
mod restore;
mod rewrite;
mod send;
mod unopened;

pub(crate) use budget::{Budget, moment};
pub(crate) use cancel::cancelled_elsewhere;
pub(crate) use listen::{listen, lost};
pub(crate) use mend::Mending;
pub(crate) use moves::{Moves, move_drained};
pub(crate) use open::{First, open};
pub(crate) use overtime::Overtime;
pub(crate) use relay::{EventRelay, MAX_EVENT, Relay, StreamError};
pub(crate) use rescue::Rescue;
pub(crate) use reserved::Reserved;
pub(crate) use restore::{discard, end};
pub(crate) use send::{MAX_HELD_ANSWER, Reply, notify, request};
pub(crate) use unopened::unopened;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bowline_wire::id::UpstreamSessionId;
use bowline_wire::version::Agreed;
use parking_lot::Mutex;

use crate::egress::Jar;
use crate::fault::Fault;
use crate::oauth::Account;
use crate::session::Lacks;
use crate::upstream::{Carried, Link, Pin, Repeat, Upstream, UpstreamError};

/// One session's conversation with one upstream. Small, and in the order of use: see [`Session`].
///
/// [`Session`]: crate::session::Session
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Leg {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) endpoint: Pin,
    pub(crate) at: LegRef,
    session_id: Option<UpstreamSessionId>,
    version: Agreed,
    jar: Mutex<Jar>,
    /// The caller, where the upstream wants its callers signed in, and the number of the sign-in
    /// that the upstream's session belongs to.
    account: Option<Arc<Account>>,
    sign_in: u64,
    /// Lists that the client was shown before anybody could ask, and the upstream does not have.
    lacks: Lacks,
    /// The upstream no longer knows its session: nothing more is sent on it.
    lost: AtomicBool,
    /// For whoever waits for the end of this generation, if it was left for another.
    farewell: OnceLock<part::Farewell>,
}

/// What a leg has at its upstream.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) at: LegRef,
    pub(crate) session_id: Option<UpstreamSessionId>,
    pub(crate) version: Agreed,
    /// The number of the sign-in that it belongs to; 0 for none.
    pub(crate) sign_in: u64,
    pub(crate) lacks: Lacks,
}

/// Which leg of a session, and which life of it: what marks carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LegRef {
    pub(crate) leg: u16,
    pub(crate) generation: u32,
}

// === impl Leg ===

impl Leg {
    /// A leg that was opened by another gateway, or before a restart.
    pub(crate) fn revived(
        upstream: Arc<Upstream>,
        endpoint: Pin,
        life: Life,
        jar: Jar,
        (account, is_lost): (Option<Arc<Account>>, bool),
    ) -> Self {
        Self {
            upstream,
            endpoint,
            at: life.at,
            session_id: life.session_id,
            version: life.version,
            jar: Mutex::new(jar),
            account,
            sign_in: life.sign_in,
            lacks: life.lacks,
            lost: (is_lost || life.at == LegRef::UNOPENED).into(),
            farewell: OnceLock::new(),
        }
    }

    /// What the upstream issued, for the session's record.
    pub(crate) fn upstream_session(&self) -> Option<&UpstreamSessionId> {
        self.session_id.as_ref()
    }

    /// The cookies, for the session's record; `None` if there are none.
    pub(crate) fn jar_bytes(&self) -> Option<Result<Vec<u8>, serde_json::Error>> {
        let jar = self.jar.lock();
        (!jar.is_empty()).then(|| jar.to_bytes())
    }

    /// Which cookies there are.
    pub(crate) fn jar_names(&self) -> u64 {
        self.jar.lock().names()
    }

    /// Whether the cookies have changed since this was last asked.
    pub(crate) fn take_jar_change(&self) -> bool {
        std::mem::take(&mut self.jar.lock().has_changed)
    }

    /// The change was not dealt with.
    pub(crate) fn put_back_jar_change(&self) {
        self.jar.lock().has_changed = true;
    }

    /// Takes another gateway's cookies over. `false`: there are some here that it has not heard of.
    pub(crate) fn take_over_jar(&self, jar: Jar) -> bool {
        let mut own = self.jar.lock();
        if own.has_changed {
            return false;
        }
        *own = jar;
        true
    }

    /// The protocol revision that client and upstream agreed on.
    pub(crate) fn version(&self) -> &str {
        self.version.as_str()
    }

    /// The upstream no longer knows the session.
    fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Whether nothing more may be sent on it: the upstream forgot its session, or never had one, or
    /// the caller has signed in anew and may be somebody else there.
    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire) || self.is_somebody_elses()
    }

    fn is_somebody_elses(&self) -> bool {
        let account = self.account.as_ref();
        account.is_some_and(|account| account.is_another_than(self.sign_in))
    }

    /// Whether it is used in the name of somebody who has signed out, as far as it is known.
    pub(crate) fn is_signed_out(&self) -> bool {
        let account = self.account.as_ref().filter(|_| self.sign_in != 0);
        account.is_some_and(|account| account.is_out())
    }

    /// Has it looked whether it is, if that was not done lately.
    pub(crate) fn look_if_signed_out(&self) {
        if let Some(account) = self.account.as_ref().filter(|_| self.sign_in != 0) {
            account.look_if_out();
        }
    }

    /// Whether a new generation is no loss: the client has lost nothing.
    fn is_to_be_opened(&self) -> bool {
        self.at == LegRef::UNOPENED || self.is_somebody_elses()
    }

    /// What the client was shown and the upstream does not have.
    pub(crate) fn lacks(&self) -> Lacks {
        self.lacks
    }

    /// The number of the sign-in that the upstream's session belongs to.
    pub(crate) fn sign_in(&self) -> u64 {
        self.sign_in
    }

    /// Whether the upstream issued an id, so that there is something to end.
    pub(crate) fn has_upstream_session(&self) -> bool {
        self.session_id.is_some()
    }

    /// What is needed to speak to the same upstream session, for who must not hold the leg itself.
    fn twin(&self) -> Self {
        Self {
            upstream: Arc::clone(&self.upstream),
            endpoint: self.endpoint.again(),
            at: self.at,
            session_id: self.session_id.clone(),
            version: self.version.clone(),
            jar: Mutex::new(self.jar.lock().clone()),
            account: self.account.clone(),
            sign_in: self.sign_in,
            lacks: self.lacks,
            lost: AtomicBool::new(false),
            farewell: OnceLock::new(),
        }
    }

    /// Whether anything may tie it to one of several servers behind a balancer.
    fn has_cookies(&self) -> bool {
        !self.jar.lock().is_empty()
    }

    /// What a failure on this leg is to the client.
    pub(crate) fn fault(&self, error: UpstreamError) -> Fault {
        Fault::Upstream {
            server: self.upstream.name.clone(),
            generation: self.at.generation,
            error,
        }
    }

    /// What ties a request to the upstream's session.
    pub(crate) fn link<'a>(&'a self, carried: &'a Carried) -> Link<'a> {
        Link {
            endpoint: &self.endpoint,
            session_id: self.session_id.as_ref(),
            version: Some(&self.version),
            jar: &self.jar,
            carried,
            account: self.account.as_deref(),
            sign_in: Some(self.sign_in),
            repeat: Repeat::Unsafe,
        }
    }
}

#[cfg(test)]
impl Leg {
    /// A leg to a server that nobody dials.
    pub(crate) fn idle() -> Self {
        use crate::telemetry::Metrics;
        let server = crate::config::Server::from_url("http://127.0.0.1:9/").unwrap();
        let tls = crate::egress::Tls::platform();
        let tracker = tokio_util::task::TaskTracker::new();
        let upstream = Upstream::new(
            "s".parse().unwrap(),
            server,
            &tls,
            crate::oauth::SignIns::idle(),
            tracker,
            Arc::new(Metrics::new()),
            &crate::share::Share::common(1),
        );
        Self {
            endpoint: upstream.endpoints.pick().unwrap(),
            upstream: Arc::new(upstream),
            at: LegRef::FIRST,
            session_id: None,
            version: Agreed::on("2025-11-25").unwrap(),
            jar: Mutex::default(),
            account: None,
            sign_in: 0,
            lacks: Lacks::default(),
            lost: AtomicBool::new(false),
            farewell: OnceLock::new(),
        }
    }
}

// === impl LegRef ===

impl LegRef {
    const BYTES: usize = 6;

    /// A leg that waits for its caller to sign in, before its first life.
    pub(crate) const UNOPENED: Self = Self {
        leg: 0,
        generation: 0,
    };

    /// Nobody's leg: what Bowline itself asks a client.
    pub(crate) const OWN: Self = Self {
        leg: u16::MAX,
        generation: 0,
    };

    /// The first life of a session's only leg.
    pub(crate) const FIRST: Self = Self {
        leg: 0,
        generation: 1,
    };

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..2].copy_from_slice(&self.leg.to_be_bytes());
        bytes[2..].copy_from_slice(&self.generation.to_be_bytes());
        bytes
    }

    /// Reads one from the front, and what follows it.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (leg, rest) = bytes.split_first_chunk::<2>()?;
        let (generation, rest) = rest.split_first_chunk::<4>()?;
        let at = Self {
            leg: u16::from_be_bytes(*leg),
            generation: u32::from_be_bytes(*generation),
        };
        Some((at, rest))
    }
}
