//! Messages over Streamable HTTP. Statuses, media types and bodies are interpreted here and go no
//! further.

use bowline_wire::message::{Message, RawId, is_answer_to};
use bowline_wire::{batch, media};
use bytes::Bytes;
use http::StatusCode;

use super::fingerprint::{is_fingerprint, is_suspect};
use super::held::{Held, Holding};
use super::refusal::{self, is_readable};
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::proof::SessionState;
use crate::upstream::Upstream;
use crate::upstream::transports::error::{StreamError, UpstreamError};
use crate::upstream::transports::event_source::EventSource;
use crate::upstream::transports::limits::SMALL_ANSWER;
use crate::upstream::transports::link::HttpLink;
use crate::upstream::transports::outcome::{Frames, NotSaid, Outcome, Pulse, Reading, Whole};
use bowline_egress::Sent;

// === impl Upstream ===

impl Upstream {
    /// Sends a request and reads its answer as far as it is buffered.
    pub(in crate::upstream::transports) async fn http_request(
        &self,
        link: HttpLink<'_>,
        message: &Message,
        reading: Reading<'_>,
        sent: Sent,
    ) -> Result<Outcome, UpstreamError> {
        let server = self.config();
        let posting = self.post(link, &server, message.raw().clone(), sent);
        #[cfg(feature = "planted")]
        let posting = planted::impatient(Bug::HangIsDeath, posting, || UpstreamError::SessionLost);
        let mut answer = posting.await?;
        let recovery = &server.recovery;
        if refusal::wants_judging(&answer, recovery) {
            let judged = Box::pin(refusal::judge(answer, message, recovery)).await;
            return judged.map(Outcome::Message);
        }
        let status = answer.status;
        if status == StatusCode::ACCEPTED && !answer.is(media::JSON) {
            let why = "the server answered 202, which does not answer a request";
            return Err(UpstreamError::OutcomeUnknown(why.into()));
        }
        // One lookup of the header for all uses.
        let sent_as = answer.sent_as();
        if sent_as.is(media::EVENT_STREAM) && status == StatusCode::OK {
            return Ok(Outcome::Events(EventSource::http(answer.body)));
        }
        if !sent_as.is(media::JSON) {
            return Err(UpstreamError::NotMcp(status));
        }
        let asked = message.id().unwrap_or_default();
        let Reading { limit, own } = reading;
        let ends_with_connection = answer.body.ends_with_connection();
        let held = Holding { limit, asked, own }.hold(&mut answer.body).await?;
        let body = match held {
            Held::Whole(body) => body,
            Held::Begun(passing) => {
                return Ok(Outcome::Frames(Frames {
                    passing,
                    sent_as,
                    body: answer.body,
                }));
            }
        };
        let prints = &recovery.fingerprints;
        let is_small = body.len() <= SMALL_ANSWER;
        if is_small && is_suspect(prints, status) && is_fingerprint(prints, status, &body) {
            return Err(UpstreamError::Fingerprint(status));
        }
        check_whole(&body, asked, ends_with_connection)?;
        Ok(Outcome::Message(Whole {
            body,
            sent_as,
            may_deny_session: false,
        }))
    }

    /// Sends a message that gets no answer. `Some` is the server's own error, for the client.
    pub(in crate::upstream::transports) async fn http_notify(
        &self,
        link: HttpLink<'_>,
        message: Bytes,
        sent: Sent,
    ) -> Result<Option<Whole>, UpstreamError> {
        let server = self.config();
        let answer = self.post(link, &server, message, sent).await?;
        let recovery = &server.recovery;
        if !answer.status.is_success() || is_suspect(&recovery.fingerprints, answer.status) {
            return Box::pin(refusal::judge_notification(answer, recovery)).await;
        }
        answer.read_out().await;
        Ok(None)
    }

    /// Pings the upstream to find out whether it still knows the session. The answer is discarded.
    pub(in crate::upstream::transports) async fn http_ping(
        &self,
        link: HttpLink<'_>,
        ping: &Message,
    ) -> Pulse {
        let server = self.config();
        let posted = self
            .post(link.safe(), &server, ping.raw().clone(), Sent::default())
            .await;
        let recovery = &server.recovery;
        let mut asked_for = None;
        if let Ok(answer) = &posted {
            asked_for = answer.retry_after();
        }
        let judged = match posted {
            Ok(answer) if refusal::wants_judging(&answer, recovery) => {
                refusal::judge(answer, ping, recovery).await
            }
            Ok(answer) => {
                return match refusal::says_lost(answer, recovery).await {
                    true => Pulse::Lost,
                    false => Pulse::Alive,
                };
            }
            Err(error) => Err(error),
        };
        match judged {
            Ok(_) => Pulse::Alive,
            Err(UpstreamError::Declined(declined)) if declined.may_deny_session => Pulse::Refused,
            Err(error) => match error.proof().session {
                SessionState::Lost => Pulse::Lost,
                SessionState::Alive => Pulse::Alive,
                SessionState::Unproven => Pulse::Unproven(error.to_string().into(), asked_for),
            },
        }
    }

    /// Sends a message of Bowline's own, whose answer is discarded.
    pub(in crate::upstream::transports) async fn http_say(
        &self,
        link: HttpLink<'_>,
        message: Bytes,
    ) -> Result<Result<(), NotSaid>, UpstreamError> {
        let server = self.config();
        let posted = self.post(link, &server, message, Sent::default()).await?;
        let answer = posted.granted()?;
        if answer.denies_session() || answer.status.is_server_error() {
            let status = answer.status;
            return Ok(Err(NotSaid {
                why: format!("it answered {status} while its session was restored"),
                asked_for: answer.retry_after(),
                denies_session: answer.denies_session(),
            }));
        }
        answer.read_out().await;
        Ok(Ok(()))
    }
}

/// Checks that a buffered answer is the answer to the request with this id. Arrays are checked
/// later.
fn check_whole(
    body: &Bytes,
    id: RawId<'_>,
    ends_with_connection: bool,
) -> Result<(), UpstreamError> {
    #[cfg(feature = "planted")]
    if planted::lacks_text(body, id) {
        return Err(UpstreamError::AnotherId);
    }
    if batch::is_batch(body) {
        return Ok(());
    }
    if ends_with_connection && !is_readable(body) {
        return Err(StreamError::Cut.into());
    }
    match is_answer_to(body, id) {
        true => Ok(()),
        false => Err(UpstreamError::AnotherId),
    }
}
