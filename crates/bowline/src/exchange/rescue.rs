//! Resumes streams that break, or ends them with an honest error.
//!
//! Each stream has its own budget, as long as a recovery's and with the same delays. It is full again
//! whenever the server has sent something new. Permanent errors are not retried.

use std::sync::Arc;

use bowline_egress::Sent;
use bowline_wire::message::{Message, RawId, RawIdBuf};
use bowline_wire::sse::Event;
use bytes::Bytes;
use tokio::time::Instant;

use crate::exchange::call::answer_again;
use crate::exchange::call_timeout::{CallTimeout, count};
use crate::exchange::listen::open;
use crate::exchange::listening::listen_within;
use crate::exchange::recovery;
use crate::exchange::replay::retry::{self, is_safe};
use crate::exchange::send::Request;
use crate::exchange::stream::{Broken, Source};
use crate::fault::Fault;
use crate::leg::Leg;
use crate::leg::marks::StreamOrigin;
use crate::session::{Call, Session};
use crate::upstream::budget::{Budget, until};
use crate::upstream::{Carried, StreamError, UpstreamError};

/// How to resume a stream.
#[derive(Debug)]
pub(crate) struct Rescue {
    session: Arc<Session>,
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
        /// It receives a cancel, also while the response streams.
        call: Arc<Call>,
    },
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

// === impl Rescue ===

impl Rescue {
    /// For the stream of a GET.
    pub(crate) fn standalone(session: &Arc<Session>, carried: Carried) -> Self {
        Self::of(session, carried, Stream::Standalone)
    }

    /// For the stream that answers a request.
    pub(crate) fn request(
        session: &Arc<Session>,
        carried: Carried,
        message: Message,
        call: Arc<Call>,
    ) -> Self {
        Self::of(session, carried, Stream::Request { message, call })
    }

    fn of(session: &Arc<Session>, carried: Carried, stream: Stream) -> Self {
        Self {
            session: Arc::clone(session),
            carried,
            stream,
            budget: None,
        }
    }

    /// Whether Bowline's own events for the client go to this stream.
    pub(crate) fn is_standalone(&self) -> bool {
        matches!(self.stream, Stream::Standalone)
    }

    /// Bowline's own events for the client that were not told yet.
    pub(crate) fn news(&self) -> Vec<Event> {
        let mut news = self.session.server_requests.take_untold();
        news.extend(self.session.take_news());
        news
    }

    /// The next source if the session has another generation: the stream of a GET is opened there.
    pub(crate) fn restart(&mut self) -> Source {
        let budget = self.budget();
        // A delay is needed if a server denies every new session.
        budget.over(budget.has_lasted());
        self.listen_later(None)
    }

    /// The next source after a break.
    pub(crate) fn go_on(&mut self, broken: Broken) -> Source {
        let error = &broken.error;
        if matches!(error, StreamError::Cancelled) {
            // Nobody waits for the answer.
            return Source::Ended;
        }
        if error.is_for_good() {
            return self.give_up(error.for_client());
        }
        self.budget().over(broken.has_told);
        let current = self.session.leg();
        let is_current = current.generation == broken.leg.generation;
        // An event id is valid only in the generation that issued it.
        let last = broken.last.filter(|_| is_current);
        let Stream::Request { message, call } = &self.stream else {
            return self.listen_later(last);
        };
        let (message, call) = (message.clone(), Arc::clone(call));
        let budget = self.budget();
        let Some(at) = budget.next_at(None) else {
            return self.give_up(broke_repeatedly());
        };
        let (budget, sent) = (*budget, Sent::default());
        let resumption = Resumption {
            session: Arc::clone(&self.session),
            leg: match is_current {
                true => current,
                false => broken.leg,
            },
            message,
            call,
            carried: self.carried.clone(),
            sent: sent.clone(),
            last,
            progress: broken.progress,
            timeout: broken.timeout,
            budget,
        };
        Source::sending(resumption.at(at), sent)
    }

    fn budget(&mut self) -> &mut Budget {
        self.budget
            .get_or_insert_with(|| Budget::of(&self.session.upstream))
    }

    /// Opens the stream of a GET again, after the delay.
    fn listen_later(&mut self, last: Option<Bytes>) -> Source {
        let budget = self.budget();
        let Some(at) = budget.next_at(None) else {
            return self.give_up(broke_repeatedly());
        };
        let (budget, carried) = (*budget, self.carried.clone());
        let session = Arc::clone(&self.session);
        Source::opening(async move {
            until(at).await;
            listen_again(session, last, carried, budget).await
        })
    }

    /// Ends a stream that cannot be resumed.
    fn give_up(&self, error: UpstreamError) -> Source {
        let session = &self.session;
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

/// The final error for the request with this id, on the stream of its response. The HTTP status was sent
/// already, so the error is counted here.
fn last_word(session: &Session, id: RawId<'_>, error: UpstreamError) -> Source {
    let fault = Fault::on(&session.leg(), error);
    count(session, &fault);
    Source::fault(&fault, Some(id))
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
            return Ok(rest.with_events(|events| {
                events.skip_progress(self.progress);
                events.set_timeout(timeout);
            }));
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
        let recovering = recovery::within(&mut timeout, &self.session, leg, &self.carried, after);
        let recovered = recovering.await?;
        let reply = answer_again(request, leg, recovered, timeout).await?;
        let source = reply.into_source().await?;
        Ok(source.with_events(|events| events.skip_progress(self.progress)))
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
                Ok(rest @ Source::Events(_)) => return Some(rest.without_repeat()),
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
