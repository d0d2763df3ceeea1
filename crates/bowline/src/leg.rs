//! One session's conversation with one upstream.
//!
//! A leg holds the session id that the upstream issued, the negotiated revision and the cookies,
//! and adds them to everything that it sends. On the way to the client it rewrites only what must
//! carry a mark.

pub(crate) mod array;
pub(crate) mod capabilities;
pub(crate) mod marks;
pub(crate) mod repeat_id;
pub(crate) mod rewrite;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bowline_egress::Jar;
use bowline_wire::id::UpstreamSessionId;
use bowline_wire::version::Agreed;

use crate::leg::capabilities::MissingLists;
use crate::oauth::Account;
use crate::upstream::budget::errand;
use crate::upstream::{Carried, Conversation, Credentials, LegHints, Link, Pin, Repeat, Upstream};

/// One session's conversation with one upstream. The fields are few and ordered by use, as in
/// [`Session`].
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
    /// The caller's account, if the upstream requires sign-in.
    pub(crate) account: Option<Arc<Account>>,
    /// With whose credentials the upstream session was opened.
    pub(crate) credentials: Credentials,
    /// Lists that the client was promised before the upstream could be asked, and that it does not
    /// have.
    pub(crate) missing_lists: MissingLists,
    /// The upstream no longer knows its session: nothing more may be sent on it.
    lost: AtomicBool,
    /// Set when a newer generation replaces this one, to report its end.
    pub(crate) farewell: OnceLock<Farewell>,
    /// Which of the server's tools are safe to repeat.
    pub(crate) tool_hints: LegHints,
}

/// Reports that a generation's last exchange has ended, by being dropped together with the leg.
pub(crate) type Farewell = tokio::sync::oneshot::Sender<std::convert::Infallible>;

/// The part of a leg that each generation has of its own.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) generation: Generation,
    pub(crate) conversation: Conversation,
    pub(crate) version: Agreed,
    /// With whose credentials it was opened.
    pub(crate) credentials: Credentials,
    pub(crate) missing_lists: MissingLists,
}

/// Which leg, and which generation of it. Marks carry this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generation {
    /// The number of the session's leg among the members of its attachment; 0 if it belongs to none.
    pub(crate) leg: u16,
    pub(crate) number: u32,
}

// === impl Leg ===

impl Leg {
    pub(crate) fn new(
        upstream: Arc<Upstream>,
        endpoint: Pin,
        account: Option<Arc<Account>>,
        life: Life,
    ) -> Self {
        let is_lost = life.generation.is_unopened() || life.conversation.is_over();
        Self {
            upstream,
            endpoint,
            generation: life.generation,
            conversation: life.conversation,
            version: life.version,
            account,
            credentials: life.credentials,
            missing_lists: life.missing_lists,
            lost: is_lost.into(),
            farewell: OnceLock::new(),
            tool_hints: LegHints::default(),
        }
    }

    /// The session id that the upstream issued, for the session's record.
    pub(crate) fn upstream_session(&self) -> Option<&UpstreamSessionId> {
        self.conversation.session_id()
    }

    /// Where the server was reached, for the session's record; `None` if only one address is possible.
    pub(crate) fn home(&self) -> Option<IpAddr> {
        let url = self.endpoint.address.url()?;
        let is_open = url.origin.is_named() && url.origin.address().is_none();
        self.conversation.home().filter(|_| is_open)
    }

    /// The cookies, for the session's record; `None` if there are none.
    pub(crate) fn jar_bytes(&self) -> Option<Result<Vec<u8>, serde_json::Error>> {
        let jar = self.conversation.jar()?.lock();
        (!jar.is_empty()).then(|| jar.to_bytes())
    }

    /// A copy of the cookies.
    pub(crate) fn jar(&self) -> Jar {
        let jar = self.conversation.jar();
        jar.map(|jar| jar.lock().clone()).unwrap_or_default()
    }

    /// A hash of the cookies' names and paths, without their values.
    pub(crate) fn jar_names(&self) -> u64 {
        let jar = self.conversation.jar();
        jar.map_or(0, |jar| jar.lock().names())
    }

    /// Whether the cookies have changed since the last call.
    pub(crate) fn take_jar_change(&self) -> bool {
        let jar = self.conversation.jar();
        jar.is_some_and(|jar| std::mem::take(&mut jar.lock().has_changed))
    }

    /// Sets the flag again, because the change could not be stored.
    pub(crate) fn put_back_jar_change(&self) {
        if let Some(jar) = self.conversation.jar() {
            jar.lock().has_changed = true;
        }
    }

    /// Replaces the cookies by those of another gateway. `false` if there are changes here that are
    /// not stored yet.
    pub(crate) fn take_over_jar(&self, jar: Jar) -> bool {
        let Some(own) = self.conversation.jar() else {
            return true;
        };
        let mut own = own.lock();
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

    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Whether nothing more may be sent on it: the upstream lost its session or never had one, or
    /// the caller has signed in again, possibly to another account.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire) || self.belongs_to_other_sign_in()
    }

    fn belongs_to_other_sign_in(&self) -> bool {
        let account = self.account.as_ref();
        account.is_some_and(|account| account.is_another_than(self.credentials.sign_in()))
    }

    /// The caller's account, if the upstream session belongs to a sign-in.
    fn signed_in(&self) -> Option<&Account> {
        let account = self.account.as_deref();
        account.filter(|_| self.credentials.sign_in() != 0)
    }

    /// Whether the caller has signed out, as far as this gateway knows.
    pub(crate) fn is_signed_out(&self) -> bool {
        self.signed_in().is_some_and(Account::is_signed_out)
    }

    /// Whether the operator has removed the token that it was opened with, or exchanged a configured one for that of
    /// a caller, or the reverse.
    pub(crate) fn has_other_credentials(&self) -> bool {
        !self.credentials.continue_at(&self.upstream.config())
    }

    /// Checks for a sign-out in the background, unless that was done recently.
    pub(crate) fn look_if_signed_out(&self) {
        if let Some(account) = self.signed_in() {
            account.check_sign_out();
        }
    }

    /// Whether a new generation costs the client nothing.
    pub(crate) fn is_to_be_opened(&self) -> bool {
        self.generation.is_unopened() || self.belongs_to_other_sign_in()
    }

    pub(crate) fn missing_lists(&self) -> MissingLists {
        self.missing_lists
    }

    /// Whether it lives in this process, so that no other gateway could use it.
    pub(crate) fn is_live(&self) -> bool {
        self.conversation.is_live()
    }

    /// Ends what lives of it in this process, at once: another gateway has opened the next generation.
    pub(crate) fn abandon(&self) {
        self.conversation.abandon();
    }

    /// Sends nothing more on a stream that is a session, because a newer generation has been published.
    pub(crate) fn replace(&self) {
        self.conversation.replace();
    }

    /// Where it meets the same server as other legs do; `None` for a process, which is its own.
    pub(crate) fn shared_endpoint(&self) -> Option<&str> {
        let url = self.endpoint.address.url();
        url.map(|_| &*self.endpoint.id)
    }

    /// Whether there is an upstream session to end: one that has an id, or a process.
    pub(crate) fn has_upstream_session(&self) -> bool {
        self.conversation.can_be_ended()
    }

    /// A second leg to the same upstream session, for tasks that must not keep this one alive.
    pub(crate) fn twin(&self) -> Self {
        let life = Life {
            generation: self.generation,
            conversation: self.conversation.twin(),
            version: self.version.clone(),
            credentials: self.credentials,
            missing_lists: self.missing_lists,
        };
        let (upstream, endpoint) = (Arc::clone(&self.upstream), self.endpoint.again());
        Self::new(upstream, endpoint, self.account.clone(), life)
    }

    /// Whether cookies may tie it to one of several servers behind a load balancer.
    pub(crate) fn has_cookies(&self) -> bool {
        let jar = self.conversation.jar();
        jar.is_some_and(|jar| !jar.lock().is_empty())
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

    /// Ends an upstream session that is no longer needed, in the background.
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
            credentials: Some(self.credentials),
            repeat: Repeat::Unsafe,
        }
    }
}

#[cfg(test)]
impl Leg {
    /// A leg to a server that is never dialled.
    pub(crate) fn idle() -> Self {
        use crate::telemetry::Metrics;
        use crate::upstream::{LiveChannels, Surroundings};
        let server = crate::config::Server::from_url("http://127.0.0.1:9/").unwrap();
        let tls = bowline_egress::Tls::platform();
        let tracker = tokio_util::task::TaskTracker::new();
        let upstream = Upstream::new(
            "s".parse().unwrap(),
            server,
            Surroundings {
                tls: &tls,
                flows: &crate::oauth::Flows::idle(),
                tracker: &tracker,
                metrics: &Arc::new(Metrics::new()),
                streams: &crate::share::Share::common(1),
                channels: &Arc::new(LiveChannels::idle()),
                peers: None,
            },
        );
        let endpoint = upstream.endpoints.pick_avoiding(None).unwrap();
        let life = Life {
            generation: Generation::FIRST,
            conversation: Conversation::http(None, Jar::default()),
            version: Agreed::on("2025-11-25").unwrap(),
            credentials: Credentials::Nobody,
            missing_lists: MissingLists::default(),
        };
        Self::new(Arc::new(upstream), endpoint, None, life)
    }
}

// === impl Generation ===

impl Generation {
    const BYTES: usize = 6;

    /// The number of a leg that waits for its caller to sign in, before its first generation.
    const UNOPENED: u32 = 0;

    /// No generation: requests that Bowline itself sends to a client.
    const OWN: u32 = u32::MAX;

    /// The first generation of the leg of a session that belongs to no attachment.
    pub(crate) const FIRST: Self = Self { leg: 0, number: 1 };

    /// The first generation of the leg with this number.
    pub(crate) fn first_of(leg: u16) -> Self {
        Self { leg, ..Self::FIRST }
    }

    /// Before the first generation of the leg with this number.
    pub(crate) fn unopened(leg: u16) -> Self {
        Self {
            leg,
            number: Self::UNOPENED,
        }
    }

    /// Whether this leg waits for its caller to sign in.
    pub(crate) fn is_unopened(self) -> bool {
        self.number == Self::UNOPENED
    }

    /// Whether its client has several servers, each in a leg with a number of its own.
    pub(crate) fn is_of_member(self) -> bool {
        self.leg != 0
    }

    /// What marks the requests that Bowline itself sends to the client of this leg.
    pub(crate) fn own(self) -> Self {
        Self {
            number: Self::OWN,
            ..self
        }
    }

    /// Whether this marks a request of Bowline's own.
    pub(crate) fn is_own(self) -> bool {
        self.number == Self::OWN
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..2].copy_from_slice(&self.leg.to_be_bytes());
        bytes[2..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Reads a generation from the first bytes, and returns the rest.
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
