//! One session's conversation with one upstream.
//!
//! A leg knows the id that the upstream issued, the negotiated revision and the cookies, and puts
//! them on everything that it sends. It rewrites what must carry the leg's mark on its way to the
//! client, and nothing else.

pub(crate) mod array;
pub(crate) mod capabilities;
pub(crate) mod marks;
pub(crate) mod repeat_id;
pub(crate) mod rewrite;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bowline_egress::Jar;
use bowline_wire::id::UpstreamSessionId;
use bowline_wire::version::Agreed;

use crate::leg::capabilities::MissingLists;
use crate::oauth::Account;
use crate::upstream::budget::errand;
use crate::upstream::{Carried, Conversation, Link, Pin, Repeat, Upstream};

/// One session's conversation with one upstream. Small, and in the order of use: see [`Session`].
///
/// [`Session`]: crate::session::Session
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Leg {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) endpoint: Pin,
    pub(crate) generation: Generation,
    pub(crate) conversation: Conversation,
    pub(crate) version: Agreed,
    /// The caller, where the upstream wants its callers signed in, and the number of the sign-in
    /// that the upstream's session belongs to.
    pub(crate) account: Option<Arc<Account>>,
    pub(crate) sign_in: u64,
    /// Lists that the client was shown before anybody could ask, and the upstream does not have.
    pub(crate) missing_lists: MissingLists,
    /// The upstream no longer knows its session: nothing more is sent on it.
    lost: AtomicBool,
    /// For whoever waits for the end of this generation, if it was left for another.
    pub(crate) farewell: OnceLock<Farewell>,
}

/// Tells whoever waits for it that a generation's last exchange has ended: by being dropped with it.
pub(crate) type Farewell = tokio::sync::oneshot::Sender<std::convert::Infallible>;

/// What a leg has at its upstream.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) generation: Generation,
    pub(crate) conversation: Conversation,
    pub(crate) version: Agreed,
    /// The number of the sign-in that it belongs to; 0 for none.
    pub(crate) sign_in: u64,
    pub(crate) missing_lists: MissingLists,
}

/// Which leg of a session, and which life of it: what marks carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(crate) leg: u16,
    pub(crate) number: u32,
}

// === impl Leg ===

impl Leg {
    /// A leg to this endpoint.
    pub(crate) fn new(
        upstream: Arc<Upstream>,
        endpoint: Pin,
        account: Option<Arc<Account>>,
        life: Life,
    ) -> Self {
        Self {
            upstream,
            endpoint,
            generation: life.generation,
            conversation: life.conversation,
            version: life.version,
            account,
            sign_in: life.sign_in,
            missing_lists: life.missing_lists,
            lost: (life.generation == Generation::UNOPENED).into(),
            farewell: OnceLock::new(),
        }
    }

    /// What the upstream issued, for the session's record.
    pub(crate) fn upstream_session(&self) -> Option<&UpstreamSessionId> {
        self.conversation.session_id()
    }

    /// The cookies, for the session's record; `None` if there are none.
    pub(crate) fn jar_bytes(&self) -> Option<Result<Vec<u8>, serde_json::Error>> {
        let jar = self.conversation.jar().lock();
        (!jar.is_empty()).then(|| jar.to_bytes())
    }

    /// Which cookies there are.
    pub(crate) fn jar_names(&self) -> u64 {
        self.conversation.jar().lock().names()
    }

    /// Whether the cookies have changed since this was last asked.
    pub(crate) fn take_jar_change(&self) -> bool {
        std::mem::take(&mut self.conversation.jar().lock().has_changed)
    }

    /// The change was not dealt with.
    pub(crate) fn put_back_jar_change(&self) {
        self.conversation.jar().lock().has_changed = true;
    }

    /// Takes another gateway's cookies over. `false`: there are some here that it has not heard of.
    pub(crate) fn take_over_jar(&self, jar: Jar) -> bool {
        let mut own = self.conversation.jar().lock();
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
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Whether nothing more may be sent on it: the upstream forgot its session, or never had one, or
    /// the caller has signed in anew and may be somebody else there.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire) || self.is_somebody_elses()
    }

    fn is_somebody_elses(&self) -> bool {
        let account = self.account.as_ref();
        account.is_some_and(|account| account.is_another_than(self.sign_in))
    }

    /// Whether it is used in the name of somebody who has signed out, as far as it is known.
    pub(crate) fn is_signed_out(&self) -> bool {
        let account = self.account.as_ref().filter(|_| self.sign_in != 0);
        account.is_some_and(|account| account.is_signed_out())
    }

    /// Has it looked whether it is, if that was not done lately.
    pub(crate) fn look_if_signed_out(&self) {
        if let Some(account) = self.account.as_ref().filter(|_| self.sign_in != 0) {
            account.check_sign_out();
        }
    }

    /// Whether a new generation is no loss: the client has lost nothing.
    pub(crate) fn is_to_be_opened(&self) -> bool {
        self.generation == Generation::UNOPENED || self.is_somebody_elses()
    }

    /// What the client was shown and the upstream does not have.
    pub(crate) fn missing_lists(&self) -> MissingLists {
        self.missing_lists
    }

    /// The number of the sign-in that the upstream's session belongs to.
    pub(crate) fn sign_in(&self) -> u64 {
        self.sign_in
    }

    /// Whether the upstream issued an id, so that there is something to end.
    pub(crate) fn has_upstream_session(&self) -> bool {
        self.conversation.session_id().is_some()
    }

    /// What is needed to speak to the same upstream session, for who must not hold the leg itself.
    pub(crate) fn twin(&self) -> Self {
        let life = Life {
            generation: self.generation,
            conversation: self.conversation.twin(),
            version: self.version.clone(),
            sign_in: self.sign_in,
            missing_lists: self.missing_lists,
        };
        let (upstream, endpoint) = (Arc::clone(&self.upstream), self.endpoint.again());
        Self::new(upstream, endpoint, self.account.clone(), life)
    }

    /// Whether anything may tie it to one of several servers behind a balancer.
    pub(crate) fn has_cookies(&self) -> bool {
        !self.conversation.jar().lock().is_empty()
    }

    /// Ends the upstream's session, if there is one.
    pub(crate) async fn end(&self, carried: &Carried) {
        if !self.has_upstream_session() {
            return;
        }
        let deleting = self.upstream.end(self.link(carried));
        let limit = errand(&self.upstream.config().recovery);
        match tokio::time::timeout(limit, deleting).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "upstream session not deleted"),
            Err(_) => tracing::debug!("upstream session not deleted in time"),
        }
    }

    /// Ends an upstream session that nobody needs, as a courtesy that nobody waits for.
    pub(crate) fn discard(self: Arc<Self>, carried: Arc<Carried>) {
        let tracker = self.upstream.tracker().clone();
        tracker.spawn(async move { self.end(&carried).await });
    }

    /// What ties a request to the upstream's session.
    pub(crate) fn link<'a>(&'a self, carried: &'a Carried) -> Link<'a> {
        Link {
            endpoint: &self.endpoint,
            conversation: &self.conversation,
            version: Some(&self.version),
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
        let tls = bowline_egress::Tls::platform();
        let tracker = tokio_util::task::TaskTracker::new();
        let upstream = Upstream::new(
            "s".parse().unwrap(),
            server,
            &tls,
            crate::oauth::Flows::idle(),
            tracker,
            Arc::new(Metrics::new()),
            &crate::share::Share::common(1),
        );
        let endpoint = upstream.endpoints.pick().unwrap();
        let life = Life {
            generation: Generation::FIRST,
            conversation: Conversation::http(None, Jar::default()),
            version: Agreed::on("2025-11-25").unwrap(),
            sign_in: 0,
            missing_lists: MissingLists::default(),
        };
        Self::new(Arc::new(upstream), endpoint, None, life)
    }
}

// === impl Generation ===

impl Generation {
    const BYTES: usize = 6;

    /// A leg that waits for its caller to sign in, before its first life.
    pub(crate) const UNOPENED: Self = Self { leg: 0, number: 0 };

    /// Nobody's leg: what Bowline itself asks a client.
    pub(crate) const OWN: Self = Self {
        leg: u16::MAX,
        number: 0,
    };

    /// The first life of a session's only leg.
    pub(crate) const FIRST: Self = Self { leg: 0, number: 1 };

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..2].copy_from_slice(&self.leg.to_be_bytes());
        bytes[2..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Reads one from the front, and what follows it.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (leg, rest) = bytes.split_first_chunk::<2>()?;
        let (generation, rest) = rest.split_first_chunk::<4>()?;
        let generation = Self {
            leg: u16::from_be_bytes(*leg),
            number: u32::from_be_bytes(*generation),
        };
        Some((generation, rest))
    }
}
