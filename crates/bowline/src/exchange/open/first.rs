//! The first generation of a leg: the client's `initialize`, unchanged and without a session id, at the first
//! endpoint that accepts it.

use std::sync::Arc;
use std::time::Duration;

use bowline_egress::{EgressError, Jar, ReadError, Sent, WireError};
use bowline_wire::message::Message;
use tokio::time::Instant;

use crate::caller::Caller;
use crate::exchange::open_leg::{LegOpening, NotOpened, OpenedLeg};
use crate::exchange::reply::Reply;
use crate::exchange::strays::Strays;
use crate::exchange::stream::relay::Relay;
use crate::leg::capabilities::Capabilities;
use crate::leg::marks::Seal;
use crate::leg::{Generation, Leg};
use crate::oauth::Account;
use crate::upstream::budget::{Budget, moment};
use crate::upstream::{Carried, LiveError, Pin, StreamError, Upstream, UpstreamError};

/// The share of the budget (1/n) that an endpoint may be silent for before its health is checked.
const SILENCE: u32 = 6;

/// The outcome of `initialize`.
#[derive(Debug)]
pub(crate) struct First {
    /// The leg, unless the server declined.
    pub(crate) leg: Option<Arc<Leg>>,
    /// What the server offers.
    pub(crate) capabilities: Capabilities,
    /// The server's answer, for the client.
    pub(crate) reply: Reply<Relay>,
}

/// An `initialize`, and where and for whom it is sent.
#[derive(Debug)]
pub(crate) struct FirstLeg<'a> {
    pub(crate) upstream: &'a Arc<Upstream>,
    pub(crate) caller: &'a Caller,
    pub(crate) account: Option<&'a Arc<Account>>,
    pub(crate) message: &'a Message,
    pub(crate) carried: &'a Carried,
    pub(crate) seal: &'a Seal,
    /// The number of the leg.
    pub(crate) number: u16,
    pub(crate) sent: Sent,
}

/// Why an attempt failed.
enum Failed {
    /// A retry may succeed, after the delay that the server may have asked for.
    ForNow(UpstreamError, Option<Duration>),
    /// A retry would not help.
    ForGood(UpstreamError),
}

// === impl FirstLeg ===

impl FirstLeg<'_> {
    /// Sends `initialize` to a healthy endpoint and waits for the server's answer. If the connection breaks,
    /// or a proxy answers instead of the server, it is retried at another endpoint or at the same one. At
    /// worst that leaves an unused session at a server. All of it has as long as a recovery: the client waits for
    /// the same server, and the opening counts towards the session limit.
    pub(crate) async fn open(self) -> Result<First, UpstreamError> {
        let upstream = self.upstream;
        let server = upstream.config();
        let total = server.recovery.budget;
        let mut budget = Budget::new(total, total);
        let short_wait_end = Instant::now() + moment(&server);
        let mut failed: Option<(Pin, UpstreamError)> = None;
        let mut retry_after = None;
        let mut strays = Strays::default();
        while budget.next_attempt(retry_after.take()).await {
            let failed_endpoint = failed.as_ref().map(|(endpoint, _)| &**endpoint);
            let endpoint = match upstream.pick_avoiding(failed_endpoint).await {
                Ok(endpoint) => endpoint,
                // Ejections are shortened while a client waits, so a retry is worthwhile if a server was
                // reached before or may be back soon.
                Err(ailment)
                    if failed.is_some()
                        || (ailment.is_passing() && Instant::now() < short_wait_end) =>
                {
                    upstream.endpoints.hurry();
                    continue;
                }
                Err(ailment) => return Err(ailment.into()),
            };
            let _turn = upstream.turn(&endpoint, budget.turn()).await?;
            let attempt = self.attempt_within(&endpoint, total / SILENCE);
            let Ok(attempted) = tokio::time::timeout(budget.left(), attempt).await else {
                // What failed before says more than silence.
                match failed {
                    Some(_) => break,
                    None => return Err(UpstreamError::InitializeTimeout(total)),
                }
            };
            let error = match attempted {
                Ok(first) => return Ok(first),
                Err(Failed::ForGood(error)) => return Err(error),
                Err(Failed::ForNow(error, after)) => {
                    retry_after = after;
                    error
                }
            };
            if self.sent.client_left() {
                return Err(error);
            }
            if error.is_stray() && !strays.may_go_on() {
                return Err(UpstreamError::NotSticky);
            }
            // If no server was reachable from the start, and no other endpoint is healthy, waiting does not
            // help.
            let is_absent = error.is_absence();
            if is_absent && failed.is_none() && !upstream.has_well_endpoint() {
                return Err(error);
            }
            tracing::debug!(server = %upstream.name, endpoint = %endpoint.address, %error, "`initialize` failed");
            failed = Some((endpoint, error));
        }
        Err(match failed {
            Some((_, error)) => UpstreamError::NotOpenedInTime(error.to_string().into()),
            None => UpstreamError::NotOpenedInTime("the recovery budget is used up".into()),
        })
    }

    /// One attempt. If the endpoint is silent for long, its health is checked, and another healthy endpoint
    /// is used instead.
    async fn attempt_within(&self, endpoint: &Pin, silence: Duration) -> Result<First, Failed> {
        let answers = endpoint.health.answers();
        let mut attempt = Box::pin(self.attempt(endpoint));
        tokio::select! {
            biased;
            opened = &mut attempt => return opened,
            () = tokio::time::sleep(silence) => {}
        }
        let upstream = self.upstream;
        if endpoint.health.answers() == answers {
            let (looking, endpoint) = (Arc::clone(upstream), endpoint.again());
            upstream.tracker().spawn(async move {
                looking.look_into_silence(&endpoint, silence).await;
            });
        }
        if upstream.has_healthy_endpoint_besides(endpoint) {
            upstream.note_silence(endpoint, "it did not answer `initialize` in time");
            let error = UpstreamError::InitializeTimeout(silence);
            return Err(Failed::ForNow(error, None));
        }
        attempt.await
    }

    async fn attempt(&self, endpoint: &Pin) -> Result<First, Failed> {
        let opening = LegOpening {
            upstream: self.upstream,
            endpoint,
            generation: Generation::first_of(self.number),
            caller: self.caller,
            account: self.account,
            message: self.message,
            carried: self.carried,
            jar: Jar::default(),
            jar_credentials: None,
            seal: self.seal,
            sent: self.sent.clone(),
        };
        let OpenedLeg {
            newborn,
            answer,
            reply,
        } = match opening.open().await {
            Ok(opened) => opened,
            Err(NotOpened::Failed(error)) => return Err(Failed::of(error)),
            Err(NotOpened::Declined(declination)) => {
                let (error, retry_after) = (declination.error(), declination.asked_for());
                let is_from_proxy = declination.is_about_the_way();
                let reply = declination.read().await.map(Reply::<Relay>::from);
                return match reply {
                    Some(reply) if !is_from_proxy || reply.is_message() => {
                        Ok(First::declined(reply))
                    }
                    _ if is_from_proxy => Err(Failed::ForNow(error, retry_after)),
                    _ => Err(Failed::ForGood(error)),
                };
            }
        };
        let leg = newborn.stays();
        Ok(match answer.initialized() {
            None => First::declined(reply.into_whole()),
            Some(result) => First {
                leg: Some(leg),
                capabilities: Capabilities::of(result.capabilities()),
                reply,
            },
        })
    }
}

// === impl First ===

impl First {
    fn declined(reply: Reply<Relay>) -> Self {
        Self {
            leg: None,
            capabilities: Capabilities::default(),
            reply,
        }
    }
}

// === impl Failed ===

impl Failed {
    fn of(error: UpstreamError) -> Self {
        let may_pass = match &error {
            UpstreamError::NoAnswer(EgressError::OutOfSockets(_)) => false,
            // A response that is not HTTP/1.1 will not be HTTP/1.1 after a retry.
            UpstreamError::NoAnswer(EgressError::Broken(broken)) => {
                matches!(broken, WireError::Io(_) | WireError::Closed)
            }
            UpstreamError::NoAnswer(_) | UpstreamError::Unavailable(_) => true,
            UpstreamError::Process(error) => error.is_absence(),
            UpstreamError::HttpSse(error) => error.may_pass(),
            UpstreamError::Live(LiveError::Ended { .. }) => true,
            UpstreamError::BadBody(ReadError::Broken(_)) => true,
            UpstreamError::Stream(error) => matches!(
                error,
                StreamError::Broken(_) | StreamError::Cut | StreamError::NoAnswer
            ),
            _ => false,
        };
        match may_pass {
            true => Self::ForNow(error, None),
            false => Self::ForGood(error),
        }
    }
}
