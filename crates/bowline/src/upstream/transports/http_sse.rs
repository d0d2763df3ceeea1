//! HTTP+SSE (2024-11-05) towards an upstream: a GET opens a stream whose first event names a URL; messages are POSTed
//! there, and everything that the server says comes on the stream.
//!
//! The stream is the session: it lives in this gateway, its end is the session's, and there are no event ids, so
//! nothing can be resumed. Whose a message is, its id or token says ([`live`](super::live)). Requests are built and
//! sent as over streamable HTTP.

mod message_url;
mod posting;

use std::sync::Arc;
use std::time::Duration;

use bowline_egress::Sent;
use bowline_wire::media;
use bowline_wire::message::{Kind, Message, RawId};
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use parking_lot::Mutex;

use self::posting::Posting;
use super::conversation::Issued;
use super::error::{SseError, UpstreamError};
use super::event_source::EventSource;
use super::judge::{is_about_credentials, is_gone};
use super::link::{HttpLink, SseLink};
use super::live::Incoming;
use super::opening::{Declination, InitializeAnswer, Initialized};
use super::outcome::{Listening, NotSaid, Outcome, Pulse, Whole};
use super::pair::{Events, Pair};
use super::streamable::Asking;
use crate::caller::Caller;
use crate::config::Server;
use crate::share::Permit;
use crate::upstream::Upstream;
use crate::upstream::policy::budget::{Budget, errand};

// === impl Upstream ===

impl Upstream {
    /// Opens a stream and sends an `initialize`.
    pub(super) async fn sse_initialize(
        &self,
        link: HttpLink<'_>,
        caller: &Caller,
        message: Bytes,
        sent: Sent,
    ) -> Result<Initialized, UpstreamError> {
        let request = Message::parse(message).map_err(|_| UpstreamError::BadInitialize)?;
        let server = self.config();
        let place = self.streams.of_caller(caller).take();
        let place = place.ok_or_else(|| SseError::TooMany(self.streams.exhausted()))?;
        let pair = match self.open_pair(link, &server, place).await? {
            Ok(pair) => pair,
            Err(declination) => return Ok(Initialized::Declined(declination)),
        };
        let incoming = Incoming::of_call(pair.routing(), &request, false)?;
        let posting = Posting {
            pair: &pair,
            message: request.raw().clone(),
            sent,
            begun: Arc::default(),
            call: Some(incoming.recipient()),
            opens: true,
        };
        let posted = tokio::select! {
            biased;
            posted = Box::pin(self.post_to(link, &server, posting)) => Some(posted?.granted()?),
            () = incoming.begun() => None,
        };
        match posted {
            Some(answer) if is_gone(answer.status) && pair.routing().ended().is_none() => {
                let declined = Declination::new(answer).held().await;
                return match declined.answers(request.raw()) {
                    true => Ok(Initialized::Declined(declined)),
                    false => Err(SseError::Stray(declined.status()).into()),
                };
            }
            Some(answer) if !answer.status.is_success() => {
                return Ok(Initialized::Declined(Declination::new(answer)));
            }
            Some(answer) => answer.read_out().await,
            None => {}
        }
        let body = incoming.answer().await?;
        Ok(Initialized::Answered {
            issued: Ok(Issued::Pair(pair)),
            answer: InitializeAnswer::Held(Whole::own(body)),
        })
    }

    /// Opens a stream, up to its `endpoint` event.
    async fn open_pair(
        &self,
        link: HttpLink<'_>,
        server: &Server,
        place: Permit,
    ) -> Result<Result<Arc<Pair>, Declination>, UpstreamError> {
        let landed = Mutex::new(link.target());
        let asking = Asking {
            method: Method::GET,
            accept: Some(HeaderValue::from_static(media::EVENT_STREAM)),
            last_event_id: None,
            message: None,
            landed: Some(&landed),
            aside: None,
        };
        let sent = Box::pin(self.send(link, server, &asking)).await?;
        let answer = sent.granted()?;
        if answer.status != StatusCode::OK {
            return Ok(Err(Declination::of_get(&answer)));
        }
        if !answer.is_events() {
            return Err(SseError::NotAStream(answer.status).into());
        }
        let limit = Budget::of(self).patient_attempt();
        let mut events = Events::of(answer.body);
        let named = tokio::time::timeout(limit, events.endpoint()).await;
        let named = named.map_err(|_| SseError::NoEndpoint(limit))?;
        let named = named.map_err(SseError::EndedEarly)?;
        let message_url = message_url::resolve(&named, link.url, &landed.into_inner())?;
        Ok(Ok(Pair::start(
            events,
            message_url,
            &self.name,
            &self.channels,
            place,
        )))
    }

    /// Sends a request. What answers it is one message, or a stream if anything else comes first.
    pub(super) async fn sse_request(
        &self,
        link: SseLink<'_>,
        message: &Message,
        sent: Sent,
    ) -> Result<Outcome, UpstreamError> {
        let pair = link.pair.get(self.owners())?;
        let incoming = Incoming::of_request(pair.routing(), message).await?;
        match self
            .call(link.to(pair), pair, message, sent, &incoming)
            .await?
        {
            Some(refusal) => Ok(Outcome::Message(refusal)),
            None => Outcome::of_live(incoming).await,
        }
    }

    /// Sends what has no answer.
    pub(super) async fn sse_notify(
        &self,
        link: SseLink<'_>,
        message: Bytes,
        sent: Sent,
    ) -> Result<Option<Whole>, UpstreamError> {
        let pair = link.pair.get(self.owners())?;
        let message = Message::parse(message).map_err(|_| UpstreamError::AnotherId)?;
        let server = self.config();
        let posting = Posting {
            pair,
            message: message.raw().clone(),
            sent,
            begun: Arc::default(),
            call: None,
            opens: false,
        };
        let heard = pair.routing().heard();
        pair.routing().tell();
        let answer = self.post_to(link.to(pair), &server, posting).await;
        let judged = match answer {
            Ok(answer) => Box::pin(self.notified(pair, answer, heard, &server)).await,
            Err(error) => Err(error),
        };
        let judged = judged.map_err(|error| pair.seen_with(error))?;
        if let Some(span) = message.cancelled_request() {
            pair.routing().cancel(RawId::new(message.text(span)));
        }
        Ok(judged)
    }

    /// Sends something of Bowline's own, and waits for its answer if it has one.
    pub(super) async fn sse_say(
        &self,
        link: SseLink<'_>,
        message: Bytes,
    ) -> Result<Result<(), NotSaid>, UpstreamError> {
        let request = Message::parse(message).map_err(|_| UpstreamError::AnotherId)?;
        let said = match request.kind() {
            Kind::Request => self.sse_ask(link, &request).await.map(drop),
            Kind::Notification | Kind::Response => {
                let raw = request.raw().clone();
                let told = self.sse_notify(link, raw, Sent::default()).await;
                told.map(drop)
            }
        };
        match said {
            Err(UpstreamError::Declined(declined)) if is_about_credentials(declined.status) => {
                Err(UpstreamError::Refused(declined.status))
            }
            // The client got the refusal the first time.
            Err(UpstreamError::Declined(_)) | Ok(()) => Ok(Ok(())),
            // Its stream lives, so somebody else was asked.
            Err(why @ UpstreamError::SessionLost) if self.is_open(link) => Ok(Err(NotSaid {
                why: why.to_string(),
                asked_for: None,
                denies_session: true,
            })),
            Err(error) => Err(error),
        }
    }

    /// Asks whether the server still answers on this stream. One that refuses a ping as it refused the request is of
    /// no use, whatever the stream does.
    pub(super) async fn sse_ping(&self, link: SseLink<'_>, ping: &Message) -> Pulse {
        link.pair.look(self.owners(), self.look_limit()).await;
        match self.sse_ask(link, ping).await {
            Err(UpstreamError::Declined(declined)) if declined.may_deny_session => Pulse::Refused,
            asked => Pulse::of_live(asked),
        }
    }

    /// A call got no answer in time: a stream on which nothing comes after a ping either is closed.
    pub(super) async fn sse_doubt(&self, link: SseLink<'_>, ping: &Message) {
        let Ok(pair) = link.pair.get(self.owners()) else {
            return;
        };
        if !pair.begin_doubt() {
            return;
        }
        let (heard, patience) = (pair.routing().heard(), self.sse_patience());
        let asked = tokio::time::timeout(patience, self.sse_ask(link, ping)).await;
        let is_silent = !matches!(asked, Ok(Ok(_))) && pair.routing().heard() == heard;
        let is_silent = is_silent && !pair.routing().is_held_up();
        if is_silent && pair.routing().ended().is_none() {
            let how =
                format!("it had no answer to a call in time, nor to a ping within {patience:?}");
            tracing::warn!(server = %self.name, how, "a session's stream hangs");
            pair.close(&how);
        }
        pair.end_doubt();
    }

    /// What the server says unasked. There are no event ids after which anything could be resumed.
    pub(super) async fn sse_listen(&self, link: SseLink<'_>) -> Result<Listening, UpstreamError> {
        let incoming = link.pair.get(self.owners())?.listen().await?;
        Ok(Listening::Events(EventSource::Live(incoming)))
    }

    /// Closes the stream.
    pub(super) fn sse_end(&self, link: SseLink<'_>) -> Result<(), UpstreamError> {
        link.pair.get(self.owners())?.close("the gateway closed it");
        Ok(())
    }

    /// Sends a request of Bowline's own: nothing but its answer comes in.
    async fn sse_ask(&self, link: SseLink<'_>, request: &Message) -> Result<Bytes, UpstreamError> {
        let pair = link.pair.get(self.owners())?;
        let incoming = Incoming::of_call(pair.routing(), request, false)?;
        let link = link.to(pair).safe();
        let calling = self.call(link, pair, request, Sent::default(), &incoming);
        match Box::pin(calling).await? {
            Some(refusal) => Ok(refusal.body),
            None => Ok(incoming.answer().await?),
        }
    }

    fn is_open(&self, link: SseLink<'_>) -> bool {
        let pair = link.pair.get(self.owners());
        pair.is_ok_and(|pair| pair.routing().ended().is_none())
    }

    /// How long a stream may be silent after a ping.
    fn sse_patience(&self) -> Duration {
        errand(&self.config().recovery)
    }
}
