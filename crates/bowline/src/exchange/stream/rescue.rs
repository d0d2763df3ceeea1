//! Resumes streams that break, or ends them with an honest error.
//!
//! Each stream has its own budget, as long as a recovery's and with the same delays. It is full again
//! whenever the server has sent something new. Permanent errors are not retried.

use std::future::poll_fn;
use std::sync::{Arc, Weak};

use bowline_egress::Sent;
use bowline_wire::batch::is_batch;
use bowline_wire::message::{Message, RawIdBuf};
use bowline_wire::skip::MAX_MESSAGE;
use bowline_wire::sse::Event;
use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use crate::exchange::call_timeout::{CallTimeout, last_word};
use crate::exchange::listen::{listen_within, open};
use crate::exchange::replay::retry::{self, is_safe};
use crate::exchange::reply::{Arriving, Reply};
use crate::exchange::send::{Request, request_again};
use crate::exchange::stream::Source;
use crate::exchange::stream::relay::Relay;
use crate::leg::marks::StreamOrigin;
use crate::leg::{Generation, Leg};
use crate::session::{Call, Session};
use crate::upstream::budget::{Budget, until};
use crate::upstream::{Carried, StreamError, UpstreamError};

/// How to resume a stream.
#[derive(Debug)]
pub(crate) struct Rescue {
    /// Weak: the stream belongs to the session.
    session: Weak<Session>,
    carried: Carried,
    stream: Stream,
    /// The rest of the budget, once the stream has broken.
    budget: Option<Budget>,
}

#[derive(Debug)]
enum Stream {
    Standalone,
    Request {
        message: Message,
        leg: Arc<Leg>,
        /// It receives a cancel, also while the response streams.
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
    /// The progress of its request, as last reported.
    pub(crate) progress: Option<f64>,
    /// Whether any event was passed on to the client.
    pub(crate) has_told: bool,
    /// The rest of its call's timeout.
    pub(crate) timeout: Option<CallTimeout>,
}

/// A request whose response broke, while it is resumed.
struct Resumption {
    session: Arc<Session>,
    leg: Arc<Leg>,
    message: Message,
    call: Arc<Call>,
    carried: Carried,
    sent: Sent,
    /// The event after which the server can be asked for the rest.
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

    /// Bowline's own events for the client, which go to the standalone stream.
    pub(crate) fn news(&self) -> Vec<Event> {
        match self.stream {
            Stream::Standalone => {
                let Some(session) = self.session.upgrade() else {
                    return Vec::new();
                };
                let mut news = session.server_requests.take_untold();
                news.extend(session.take_news());
                news
            }
            Stream::Request { .. } => Vec::new(),
        }
    }

    /// Restarts the stream of a GET; `None` for any other, or if its session is gone.
    pub(crate) fn restart(&mut self) -> Option<Source> {
        match self.stream {
            Stream::Standalone => {
                let session = self.session.upgrade()?;
                let budget = self
                    .budget
                    .get_or_insert_with(|| Budget::of(&session.upstream));
                // A delay is needed if a server denies every new session.
                budget.over(budget.has_lasted());
                Some(self.listen_later(session, None))
            }
            Stream::Request { .. } => None,
        }
    }

    /// The next source after a break; `None` if the session is gone.
    pub(crate) fn go_on(&mut self, broken: Broken, error: &StreamError) -> Option<Source> {
        if matches!(error, StreamError::Cancelled) {
            // Nobody waits for the answer.
            return Some(Source::Ended);
        }
        let session = self.session.upgrade()?;
        if error.is_for_good() {
            return Some(self.give_up(&session, error.for_client()));
        }
        let budget = self
            .budget
            .get_or_insert_with(|| Budget::of(&session.upstream));
        budget.over(broken.has_told);
        let current = session.leg();
        // An event id is valid only in the generation that issued it.
        let last = broken
            .last
            .filter(|_| current.generation == broken.generation);
        Some(match &self.stream {
            Stream::Standalone => self.listen_later(session, last),
            Stream::Request { message, leg, call } => {
                let Some(at) = budget.next_at(None) else {
                    return Some(self.give_up(&session, broke_repeatedly()));
                };
                let sent = Sent::default();
                let resumption = Resumption {
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
                Source::sending(resumption.at(at), sent)
            }
        })
    }

    /// Opens the stream of a GET again, after the delay.
    fn listen_later(&mut self, session: Arc<Session>, last: Option<Bytes>) -> Source {
        let budget = self
            .budget
            .get_or_insert_with(|| Budget::of(&session.upstream));
        let Some(at) = budget.next_at(None) else {
            return self.give_up(&session, broke_repeatedly());
        };
        let (budget, carried) = (*budget, self.carried.clone());
        Source::opening(async move {
            until(at).await;
            listen_again(session, last, carried, budget).await
        })
    }

    /// Ends a stream that cannot be resumed.
    fn give_up(&self, session: &Session, error: UpstreamError) -> Source {
        match &self.stream {
            Stream::Standalone => {
                let (hash, server) = (session.hash, &session.upstream.name);
                tracing::info!(session = %hash, %server, why = %error, "GET stream ended; it could not be resumed");
                Source::Ended
            }
            Stream::Request { message, .. } => {
                let id = message.id().unwrap_or_default();
                last_word(session, id, error)
            }
        }
    }
}

fn broke_repeatedly() -> UpstreamError {
    UpstreamError::OutcomeUnknown("the server's stream broke repeatedly".into())
}

/// Opens the stream of a GET again. If that fails the stream ends, and the client may open another.
async fn listen_again(
    session: Arc<Session>,
    last: Option<Bytes>,
    carried: Carried,
    budget: Budget,
) -> Result<Source, UpstreamError> {
    let hash = session.hash;
    let listening = listen_within(session, StreamOrigin::Standalone, last, carried, budget).await;
    let source = listening.unwrap_or_else(|error| {
        tracing::info!(session = %hash, %error, "GET stream ended; it could not be resumed");
        Source::Ended
    });
    Ok(source.without_repeat())
}

// === impl Resumption ===

impl Resumption {
    /// Resumes at this time. A failure becomes the final error for the client.
    async fn at(self, at: Instant) -> Result<Source, UpstreamError> {
        let (session, id) = (Arc::clone(&self.session), self.id());
        let resumed = self.go_on(at).await;
        Ok(resumed.unwrap_or_else(|error| last_word(&session, id.as_id(), error)))
    }

    /// Asks for the rest of the response. If the server does not have it, the request is retried if that is
    /// safe; otherwise its outcome is unknown.
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
        Ok(source_of(reply).await?.beyond(self.progress))
    }

    /// The rest of the response, if the server kept it. For a request that is not safe to repeat, this asks
    /// until the budget is used up. Any other request is retried sooner.
    async fn rest(&mut self, mut at: Instant) -> Option<Source> {
        loop {
            tokio::select! {
                () = until(at) => {}
                () = self.call.cancelled() => {}
            }
            let (last, origin) = (self.last.as_ref()?, StreamOrigin::Request(self.id()));
            match open(&self.session, &self.leg, &origin, Some(last), &self.carried).await {
                Ok(rest @ Source::Relay(_)) => return Some(rest.without_repeat()),
                Err(error) if error.may_pass() => {}
                _ => return None,
            }
            let is_over =
                self.call.is_cancelled() || self.session.leg().generation != self.leg.generation;
            if is_over
                || is_safe(&self.session, &self.message, &self.leg, self.call.sent_in()).await
            {
                return None;
            }
            at = self.budget.next_at(None)?;
        }
    }

    fn id(&self) -> RawIdBuf {
        self.message.id().unwrap_or_default().to_buf()
    }
}

/// The source for a reply on a stream that has begun.
pub(crate) async fn source_of(reply: Reply<Arriving>) -> Result<Source, UpstreamError> {
    let body = match reply {
        Reply::Stream(Arriving {
            relay: relay @ Relay::Events(_),
            ..
        }) => return Ok(Source::Relay(relay)),
        Reply::Stream(Arriving { relay, .. }) => whole(relay).await?,
        Reply::Message { body, .. } => body,
        Reply::Events(events) => return Ok(Source::events(events)),
        Reply::Accepted | Reply::Batch(_) => return Err(StreamError::NoAnswer.into()),
    };
    let is_message = is_batch(&body) || Message::from_server(body.clone()).is_ok();
    match is_message {
        true => Ok(Source::last(Event::of_message(body))),
        false => Err(StreamError::NoAnswer.into()),
    }
}

/// Reads a body that arrives in pieces.
async fn whole(mut relay: Relay) -> Result<Bytes, StreamError> {
    let mut body = BytesMut::new();
    while let Some(piece) = poll_fn(|cx| relay.poll_next(cx)).await {
        body.extend_from_slice(&piece?.into_bytes());
        if body.len() > MAX_MESSAGE {
            return Err(StreamError::TooLarge);
        }
    }
    Ok(body.freeze())
}
