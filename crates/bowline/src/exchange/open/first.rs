//! The first generation of a leg: the client's `initialize`, sent as it came, without any session id, at
//! whichever endpoint takes it.

use std::sync::Arc;
use std::time::Duration;

use bowline_egress::{EgressError, Jar, ReadError, Sent, WireError};
use bowline_wire::message::Message;
use tokio::time::Instant;

use crate::exchange::open_leg::{LegOpening, NotOpened, OpenedLeg};
use crate::exchange::reply::{Arriving, Reply};
use crate::leg::capabilities::Capabilities;
use crate::leg::marks::Seal;
use crate::leg::{Generation, Leg};
use crate::oauth::Account;
use crate::upstream::budget::{Budget, moment};
use crate::upstream::{Carried, Pin, StreamError, Upstream, UpstreamError};

/// How much of the budget an endpoint may be silent for before it is looked into.
const SILENCE: u32 = 6;

/// What came of `initialize`.
#[derive(Debug)]
pub(crate) struct First {
    /// The leg, unless the server declined.
    pub(crate) leg: Option<Arc<Leg>>,
    /// What the server offers.
    pub(crate) capabilities: Capabilities,
    /// The server's answer, for the client.
    pub(crate) reply: Reply<Arriving>,
}

/// What is sent, for whom, and where to.
#[derive(Debug)]
pub(crate) struct FirstLeg<'a> {
    pub(crate) upstream: &'a Arc<Upstream>,
    pub(crate) account: Option<&'a Arc<Account>>,
    pub(crate) message: &'a Message,
    pub(crate) carried: &'a Carried,
    pub(crate) seal: &'a Seal,
    pub(crate) sent: Sent,
}

/// Why an attempt failed.
enum Failed {
    /// Another may do better, after a time that the server may have asked for.
    ForNow(UpstreamError, Option<Duration>),
    /// No other will.
    ForGood(UpstreamError),
}

// === impl FirstLeg ===

impl FirstLeg<'_> {
    /// Sends `initialize` to a healthy endpoint and waits until the server's answer to it is known. Where
    /// its connection breaks, or somebody on the way answers in the server's place, it goes elsewhere, or
    /// there again: at worst a session is left at a server that nobody will use.
    pub(crate) async fn open(self) -> Result<First, UpstreamError> {
        let upstream = self.upstream;
        let server = upstream.config();
        let total = server.recovery.budget;
        let mut budget = Budget::new(total, total);
        let a_moment = Instant::now() + moment(&server);
        let mut failed: Option<(Pin, UpstreamError)> = None;
        let mut asked_for = None;
        while budget.next_attempt(asked_for.take()).await {
            let before = failed.as_ref().map(|(endpoint, _)| &**endpoint);
            let endpoint = match upstream.pick_but(before).await {
                Ok(endpoint) => endpoint,
                // Where somebody is there, a rest is short for those who need it.
                Err(UpstreamError::Unavailable(ailment))
                    if failed.is_some() || (ailment.is_passing() && Instant::now() < a_moment) =>
                {
                    upstream.endpoints.hurry();
                    continue;
                }
                Err(error) => return Err(error),
            };
            let error = match self.attempt_within(&endpoint, total / SILENCE).await {
                Ok(first) => return Ok(first),
                Err(Failed::ForGood(error)) => return Err(error),
                Err(Failed::ForNow(error, after)) => {
                    asked_for = after;
                    error
                }
            };
            if self.sent.client_left() {
                return Err(error);
            }
            // Where nobody was there from the beginning, and nobody is elsewhere, that is the answer.
            let is_absent = match &error {
                UpstreamError::NoAnswer(error) => error.nobody_there(),
                UpstreamError::Unavailable(_) => true,
                _ => false,
            };
            if is_absent && failed.is_none() && !upstream.has_well_endpoint() {
                return Err(error);
            }
            tracing::debug!(server = %upstream.name, endpoint = %endpoint.address, %error, "`initialize` failed");
            failed = Some((endpoint, error));
        }
        Err(match failed {
            Some((_, error)) => UpstreamError::NotOpenedInTime(error.to_string().into()),
            None => UpstreamError::NotOpenedInTime("there was no time for it".into()),
        })
    }

    /// One attempt. An endpoint that is silent for long is looked into, and is not waited for where
    /// another could do it.
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
        if upstream.has_well_endpoint_but(endpoint) {
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
            generation: Generation::FIRST,
            account: self.account,
            message: self.message,
            carried: self.carried,
            jar: Jar::default(),
            jar_sign_in: None,
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
                let (error, asked_for) = (declination.error(), declination.asked_for());
                let is_about_the_way = declination.is_about_the_way();
                let reply = declination.read().await.map(Reply::<Arriving>::from);
                return match reply {
                    Some(reply) if !is_about_the_way || reply.is_message() => {
                        Ok(First::declined(reply))
                    }
                    _ if is_about_the_way => Err(Failed::ForNow(error, asked_for)),
                    _ => Err(Failed::ForGood(error)),
                };
            }
        };
        let leg = newborn.stays();
        Ok(match answer.initialized() {
            None => First::declined(reply.into_held()),
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
    fn declined(reply: Reply<Arriving>) -> Self {
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
            // What is not HTTP/1.1 will not be the next time.
            UpstreamError::NoAnswer(EgressError::Broken(broken)) => {
                matches!(broken, WireError::Io(_) | WireError::Closed)
            }
            UpstreamError::NoAnswer(_) | UpstreamError::Unavailable(_) => true,
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
