//! Posting a message to the URL of a pair, and what the answer to the POST means. The answer to a call comes on the
//! stream.

use std::sync::Arc;
use std::time::Duration;

use bowline_egress::{CookieUrl, Sent, read_limited};
use bowline_wire::media;
use bowline_wire::message::{Message, is_answer_to};
use bytes::Bytes;
#[cfg(feature = "planted")]
use http::StatusCode;
use http::{HeaderValue, Method};
use tokio::sync::Notify;

use crate::config::Server;
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::proof::{Ran, SessionState};
use crate::upstream::Upstream;
use crate::upstream::policy::budget::moment;
use crate::upstream::transports::answer::Answer;
#[cfg(feature = "planted")]
use crate::upstream::transports::error::Declined;
use crate::upstream::transports::error::{LiveError, UpstreamError};
use crate::upstream::transports::judge::Stream;
use crate::upstream::transports::limits::MAX_HELD_ANSWER;
use crate::upstream::transports::link::HttpLink;
use crate::upstream::transports::live::{Incoming, Recipient};
use crate::upstream::transports::outcome::Whole;
use crate::upstream::transports::pair::Pair;
use crate::upstream::transports::streamable::Asking;
use crate::upstream::transports::streamable::aside::Aside;
use crate::upstream::transports::streamable::refusal::{self, Judged, Refusal};

/// A message to a pair.
pub(super) struct Posting<'a> {
    pub(super) pair: &'a Pair,
    pub(super) message: Bytes,
    pub(super) sent: Sent,
    /// Notified when any byte of it was written.
    pub(super) begun: Arc<Notify>,
    /// The call that it makes.
    pub(super) call: Option<Recipient>,
    /// It opens the session.
    pub(super) opens: bool,
}

// === impl Upstream ===

impl Upstream {
    /// Posts a request, until the server has taken it or its stream says something. `Some` is the server's own error,
    /// as the answer to the POST.
    pub(super) async fn call(
        &self,
        link: HttpLink<'_>,
        pair: &Pair,
        request: &Message,
        sent: Sent,
        incoming: &Incoming,
    ) -> Result<Option<Whole>, UpstreamError> {
        let (server, written) = (self.config(), sent.clone());
        let begun = Arc::<Notify>::default();
        let posting = Posting {
            pair,
            message: request.raw().clone(),
            sent,
            begun: Arc::clone(&begun),
            call: Some(incoming.recipient()),
            opens: false,
        };
        let (heard, moment) = (pair.routing().heard(), moment(&server));
        let mut taking = Box::pin(async {
            let answer = self.post_to(link, &server, posting).await?;
            taken(answer, request, &server).await
        });
        let taken = tokio::select! {
            biased;
            taken = &mut taking => taken,
            () = incoming.begun() => match incoming.has_ended() {
                // A question, or another's message, may come before the request is written. Whoever does not wait
                // for that takes the request back.
                false => tokio::select! {
                    biased;
                    taken = taking => taken,
                    () = begun.notified() => return Ok(None),
                },
                // The answer to the POST may still say that the message did not run.
                true => match tokio::time::timeout(moment, taking).await {
                    Ok(taken) => taken,
                    Err(_) if written.get() => Ok(Taken::Yes),
                    Err(_) => Err(UpstreamError::SessionLost),
                },
            },
        };
        let refusal = match taken {
            Ok(Taken::Yes) => return Ok(None),
            Ok(Taken::Answered(answer)) => return Ok(Some(answer)),
            Ok(Taken::Refused(refusal)) => refusal,
            Err(error) => return Err(pair.seen_with(error)),
        };
        let listening = pair.listen_after(refusal, incoming, heard, moment);
        let judged = listening.await.map(Judged::into_whole).transpose();
        judged.map_err(|error| pair.seen_with(error))
    }

    /// What the answer to a message means to which the stream has no answer.
    pub(super) async fn notified(
        &self,
        pair: &Pair,
        answer: Answer,
        heard: u64,
        server: &Server,
    ) -> Result<Option<Whole>, UpstreamError> {
        let Some(refusal) = refusal::read_notified(answer, &server.recovery).await? else {
            return Ok(None);
        };
        let judged = match refusal.judged(pair.stream()) {
            Judged::Listen(refusal) => {
                tokio::time::sleep(moment(server)).await;
                refusal.judged(pair.stream_since(heard))
            }
            judged => judged,
        };
        judged.into_whole().map(Some)
    }

    /// Posts one message.
    pub(super) async fn post_to(
        &self,
        link: HttpLink<'_>,
        server: &Server,
        posting: Posting<'_>,
    ) -> Result<Answer, UpstreamError> {
        let Posting {
            pair,
            message,
            sent,
            begun,
            call,
            opens,
        } = posting;
        let url = CookieUrl {
            https: link.url.origin.https,
            host: link.url.origin.host(),
            path: pair.message_url().path(),
        };
        for cookies in pair.late().take() {
            link.http.jar.lock().store(&cookies, url);
        }
        let asking = Asking {
            method: Method::POST,
            accept: Some(HeaderValue::from_static(media::BOTH)),
            last_event_id: None,
            message: Some((message, sent.clone())),
            landed: None,
            aside: Some(Aside {
                tasks: self.channels.tasks(),
                closing: pair.closing(),
                channels: (!opens).then_some(&self.channels),
                is_replaced: pair.replaced(),
                routing: pair.routing(),
                late: pair.late(),
                sent,
                begun,
                call,
            }),
        };
        Box::pin(self.send(link.to(pair), server, &asking)).await
    }
}

// === impl Pair ===

impl Pair {
    /// A failure of a POST, with what the stream says: if that has ended, the session is lost whatever the POST
    /// proves.
    pub(super) fn seen_with(&self, error: UpstreamError) -> UpstreamError {
        let proof = error.proof();
        match self.routing().ended() {
            Some(end) if proof.session == SessionState::Unproven => {
                UpstreamError::Live(LiveError::Ended {
                    end,
                    was_written: proof.ran != Ran::No,
                })
            }
            _ => error,
        }
    }

    /// What a refusal means, once the stream was waited for where it may have the answer. `None`: it has.
    async fn listen_after(
        &self,
        refusal: Refusal,
        incoming: &Incoming,
        heard: u64,
        moment: Duration,
    ) -> Option<Judged> {
        let refusal = match refusal.judged(self.stream()) {
            Judged::Listen(refusal) => refusal,
            judged => return Some(judged),
        };
        let answering = tokio::time::timeout(moment, incoming.finished()).await;
        match answering.is_ok() && !incoming.has_ended() {
            true => None,
            // The server has begun with it, whatever it answered.
            false if incoming.has_begun() => Some(Judged::Failed(refusal.into_unknown())),
            false => Some(refusal.judged(self.stream_since(heard))),
        }
    }

    /// The stream, for which nobody has waited.
    fn stream(&self) -> Stream {
        match self.routing().ended() {
            Some(_) => Stream::Broke,
            None => Stream::Open,
        }
    }

    /// The stream, which was waited for after it had said so much.
    fn stream_since(&self, heard: u64) -> Stream {
        match self.routing().ended() {
            Some(_) => Stream::Broke,
            None if self.routing().heard() > heard => Stream::Spoke,
            None => Stream::Silent,
        }
    }
}

/// What the answer to the POST of a request says.
enum Taken {
    /// Nothing: the answer comes on the stream.
    Yes,
    Answered(Whole),
    Refused(Refusal),
}

async fn taken(answer: Answer, request: &Message, server: &Server) -> Result<Taken, UpstreamError> {
    #[cfg(feature = "planted")]
    if answer.status == StatusCode::NOT_FOUND && planted::has(Bug::MessageUrl404Passes) {
        return Err(UpstreamError::Declined(Box::new(Declined {
            status: answer.status,
            may_deny_session: false,
            retry_after: None,
            body: None,
            text: None,
        })));
    }
    #[cfg(feature = "planted")]
    if matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::GONE)
        && planted::has(Bug::Sse404IsLost)
    {
        return Err(UpstreamError::SessionLost);
    }
    if !answer.status.is_success() {
        let refusal = Refusal::read(answer, request.id(), &server.recovery);
        return Box::pin(refusal).await.map(Taken::Refused);
    }
    if !answer.is(media::JSON) {
        answer.read_out().await;
        return Ok(Taken::Yes);
    }
    // Servers say "Accepted" in any way they like; some answer right here.
    let sent_as = answer.sent_as();
    let id = request.id().unwrap_or_default();
    Ok(match read_limited(answer.body, MAX_HELD_ANSWER).await {
        Ok(body) if is_answer_to(&body, id) => Taken::Answered(Whole {
            body,
            sent_as,
            may_deny_session: false,
        }),
        Ok(_) | Err(_) => Taken::Yes,
    })
}
