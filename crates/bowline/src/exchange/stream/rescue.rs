//! Streams that break: gone on with where they broke, or told honestly.
//!
//! Each stream has a budget of its own, as long as that of a recovery and with the same delays, which is
//! whole again whenever the server has said something new. What cannot get better is not tried again.

use std::future::poll_fn;
use std::sync::{Arc, Weak};

use bowline_egress::Sent;
use bowline_wire::batch::is_batch;
use bowline_wire::message::Message;
use bowline_wire::sse::{EventTooLarge, event_of};
use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use crate::exchange::call_timeout::{CallTimeout, last_word};
use crate::exchange::listen::{listen_within, open};
use crate::exchange::replay::retry::{self, is_safe};
use crate::exchange::reply::{Arriving, Reply};
use crate::exchange::send::{Request, request_again};
use crate::exchange::stream::Source;
use crate::exchange::stream::relay::{MAX_EVENT, Relay};
use crate::leg::marks::Born;
use crate::leg::{Generation, Leg};
use crate::session::{Call, Session};
use crate::upstream::budget::{Budget, until};
use crate::upstream::{Carried, StreamError, UpstreamError};

const AGAIN_AND_AGAIN: &str = "the server's stream broke off again and again";

/// How to go on with a stream.
#[derive(Debug)]
pub(crate) struct Rescue {
    /// Weak: the stream belongs to the session.
    session: Weak<Session>,
    carried: Carried,
    stream: Stream,
    /// What is left for it, once it has broken.
    budget: Option<Budget>,
}

#[derive(Debug)]
enum Stream {
    Standalone,
    Request {
        message: Message,
        leg: Arc<Leg>,
        /// A cancel is known here also while the answer streams.
        call: Arc<Call>,
    },
}

/// Where a stream broke.
#[derive(Debug)]
pub(crate) struct Broken {
    /// The generation that it was read from.
    pub(crate) generation: Generation,
    /// The server's last event id.
    pub(crate) last: Option<Bytes>,
    /// How far its request said it had got.
    pub(crate) progress: Option<f64>,
    /// Whether the client heard anything on it.
    pub(crate) has_told: bool,
    /// What is left of its call's patience.
    pub(crate) timeout: Option<CallTimeout>,
}

/// A request whose answer broke off, on its way to another one.
struct GoingOn {
    session: Arc<Session>,
    leg: Arc<Leg>,
    message: Message,
    call: Arc<Call>,
    carried: Carried,
    sent: Sent,
    /// The event after which the server may be asked for the rest.
    last: Option<Bytes>,
    progress: Option<f64>,
    timeout: Option<CallTimeout>,
    budget: Budget,
}

impl Rescue {
    /// For the stream of a GET.
    pub(crate) fn standalone(session: &Arc<Session>, carried: Carried) -> Self {
        Self {
            session: Arc::downgrade(session),
            carried,
            stream: Stream::Standalone,
            budget: None,
        }
    }

    /// For the stream that answers a request.
    pub(crate) fn request(request: &Request<'_>, leg: &Arc<Leg>) -> Self {
        Self {
            session: Arc::downgrade(request.session),
            carried: request.carried.clone(),
            stream: Stream::Request {
                message: request.message.clone(),
                leg: Arc::clone(leg),
                call: Arc::clone(&request.call),
            },
            budget: None,
        }
    }

    /// What Bowline itself has to tell the client, on the stream that is for it.
    pub(crate) fn news(&self) -> Option<Bytes> {
        match self.stream {
            Stream::Standalone => {
                let session = self.session.upgrade()?;
                let untold = session.server_requests.take_untold();
                untold.or_else(|| session.take_news())
            }
            Stream::Request { .. } => None,
        }
    }

    /// The stream of a GET, read anew; `None` for any other, or if its session is gone.
    pub(crate) fn restart(&mut self) -> Option<Source> {
        match self.stream {
            Stream::Standalone => {
                let session = self.session.upgrade()?;
                let budget = self
                    .budget
                    .get_or_insert_with(|| Budget::of(&session.upstream));
                // A server that denies every new session must not be asked for them without a pause.
                budget.over(budget.has_lasted());
                Some(self.listen_later(session, None))
            }
            Stream::Request { .. } => None,
        }
    }

    /// What to read instead of a stream that broke; `None` if its session is gone.
    pub(crate) fn go_on(&mut self, broken: Broken, error: &StreamError) -> Option<Source> {
        let session = self.session.upgrade()?;
        if error.is_for_good() {
            return Some(self.give_up(&session, &error.to_string()));
        }
        let budget = self
            .budget
            .get_or_insert_with(|| Budget::of(&session.upstream));
        budget.over(broken.has_told);
        let current = session.leg();
        // An event id means something to the generation that issued it, and to no other.
        let last = broken
            .last
            .filter(|_| current.generation == broken.generation);
        Some(match &self.stream {
            Stream::Standalone => self.listen_later(session, last),
            Stream::Request { message, leg, call } => {
                let Some(at) = budget.next_at(None) else {
                    return Some(self.give_up(&session, AGAIN_AND_AGAIN));
                };
                let sent = Sent::default();
                let going_on = GoingOn {
                    session,
                    leg: match current.generation == broken.generation {
                        true => current,
                        false => Arc::clone(leg),
                    },
                    message: message.clone(),
                    call: Arc::clone(call),
                    carried: self.carried.clone(),
                    sent: sent.clone(),
                    last,
                    progress: broken.progress,
                    timeout: broken.timeout,
                    budget: *budget,
                };
                Source::sending(going_on.at(at), sent)
            }
        })
    }

    /// The stream of a GET, opened again when it is time to.
    fn listen_later(&mut self, session: Arc<Session>, last: Option<Bytes>) -> Source {
        let budget = self
            .budget
            .get_or_insert_with(|| Budget::of(&session.upstream));
        let Some(at) = budget.next_at(None) else {
            return self.give_up(&session, AGAIN_AND_AGAIN);
        };
        let (budget, carried) = (*budget, self.carried.clone());
        Source::opening(async move {
            until(at).await;
            listen_again(session, last, carried, budget).await
        })
    }

    /// The end of a stream that cannot be gone on with.
    fn give_up(&self, session: &Session, why: &str) -> Source {
        match &self.stream {
            Stream::Standalone => {
                let (hash, server) = (session.hash, &session.upstream.name);
                tracing::info!(session = %hash, %server, why, "the stream of a GET was given up");
                Source::Ended
            }
            Stream::Request { message, .. } => {
                let error = UpstreamError::OutcomeUnknown(why.into());
                let id = message.id().unwrap_or_default();
                Source::Last(last_word(session, id, error))
            }
        }
    }
}

/// The stream of a GET, opened again. If that cannot be it ends, and its client may ask for another.
async fn listen_again(
    session: Arc<Session>,
    last: Option<Bytes>,
    carried: Carried,
    budget: Budget,
) -> Result<Source, UpstreamError> {
    let hash = session.hash;
    let listening = listen_within(session, Born::Standalone, last, carried, budget).await;
    let source = listening.unwrap_or_else(|error| {
        tracing::info!(session = %hash, %error, "the stream of a GET was given up");
        Source::Ended
    });
    Ok(source.without_repeat())
}

// === impl GoingOn ===

impl GoingOn {
    /// Goes on when it is time to. Whatever becomes of it is told.
    async fn at(self, at: Instant) -> Result<Source, UpstreamError> {
        let (session, id) = (Arc::clone(&self.session), self.id());
        let gone_on = self.go_on(at).await;
        Ok(gone_on.unwrap_or_else(|error| Source::Last(last_word(&session, &id, error))))
    }

    /// Asks for the rest of the answer; if that cannot be had, the request goes again if it may, and
    /// otherwise nobody knows.
    async fn go_on(mut self, at: Instant) -> Result<Source, UpstreamError> {
        let mut timeout = self.timeout.take();
        let resuming = async { Ok(self.rest(at).await) };
        if let Some(rest) = CallTimeout::within(&mut timeout, resuming).await? {
            return Ok(rest.beyond(self.progress).with_timeout(timeout));
        }
        let request = Request {
            session: &self.session,
            message: self.message,
            call: self.call,
            carried: &self.carried,
            sent: self.sent,
        };
        let leg = &self.leg;
        let after = retry::after(&request, leg, StreamError::Cut.into());
        let recovered = CallTimeout::within_recovery(&mut timeout, &request, leg, after).await?;
        let reply = request_again(request, leg, recovered, timeout).await?;
        Ok(shown(reply).await?.beyond(self.progress))
    }

    /// The rest of the answer, where the server kept it. What may not go again is asked for until there
    /// is no time left; anything else goes again sooner than a server comes back.
    async fn rest(&mut self, mut at: Instant) -> Option<Source> {
        loop {
            tokio::select! {
                () = until(at) => {}
                () = self.call.cancelled() => {}
            }
            let (last, born) = (self.last.as_ref()?, Born::Request(self.id()));
            match open(&self.session, &self.leg, &born, Some(last), &self.carried).await {
                Ok(rest @ Source::Relay(_)) => return Some(rest.without_repeat()),
                Err(error) if error.may_pass() => {}
                _ => return None,
            }
            let is_over =
                self.call.is_cancelled() || self.session.leg().generation != self.leg.generation;
            if is_over || is_safe(&self.session, &self.message, self.call.sent_in()).await {
                return None;
            }
            at = self.budget.next_at(None)?;
        }
    }

    fn id(&self) -> Box<str> {
        self.message.id().unwrap_or_default().into()
    }
}

/// What answers a request on a stream that has begun.
async fn shown(reply: Reply<Arriving>) -> Result<Source, UpstreamError> {
    let body = match reply {
        Reply::Stream(Arriving {
            relay: relay @ Relay::Events(_),
            ..
        }) => return Ok(Source::Relay(relay)),
        Reply::Stream(Arriving { relay, .. }) => whole(relay).await?,
        Reply::Message { body, .. } => body,
        Reply::Events(events) => return Ok(Source::Last(events)),
        Reply::Accepted | Reply::Batch(_) => return Err(StreamError::NoAnswer.into()),
    };
    let is_message = is_batch(&body) || Message::from_server(body.clone()).is_ok();
    match is_message {
        true => Ok(Source::Last(event_of(&body))),
        false => Err(StreamError::NoAnswer.into()),
    }
}

/// A body that arrives in pieces, once it is there.
pub(crate) async fn whole(mut relay: Relay) -> Result<Bytes, StreamError> {
    let mut body = BytesMut::new();
    while let Some(piece) = poll_fn(|cx| relay.poll_next(cx)).await {
        body.extend_from_slice(&piece?);
        if body.len() > MAX_EVENT {
            let max_event = MAX_EVENT;
            return Err(EventTooLarge { max_event }.into());
        }
    }
    Ok(body.freeze())
}
