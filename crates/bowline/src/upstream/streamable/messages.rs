//! Messages over streamable HTTP: what a status, a media type and a body mean ends here.

use std::time::Duration;

use bowline_wire::message::{Message, is_answer_to};
use bowline_wire::{batch, media};
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use super::fingerprint::{is_fingerprint, is_suspect};
use super::held::{Held, Holding};
use super::refusal::{self, is_readable};
#[cfg(feature = "planted")]
use crate::planted;
use crate::upstream::outcome::{Frames, NotSaid, Outcome, Pulse, Reading, SMALL_ANSWER, Whole};
use crate::upstream::{Link, SessionState, StreamError, Upstream, UpstreamError};
use bowline_egress::Sent;

// === impl Upstream ===

impl Upstream {
    /// Sends a request and reads its answer as far as it is held.
    pub(in crate::upstream) async fn http_request(
        &self,
        link: Link<'_>,
        message: &Message,
        reading: Reading<'_>,
        sent: Sent,
    ) -> Result<Outcome, UpstreamError> {
        let server = self.config();
        let posting = self.post(link, &server, message.raw().clone(), sent);
        #[cfg(feature = "planted")]
        let posting = planted::impatient(posting, || UpstreamError::SessionLost);
        let mut answer = posting.await?;
        let recovery = &server.recovery;
        if refusal::wants_judging(&answer, recovery) {
            let judged = Box::pin(refusal::judge(answer, message, recovery)).await;
            return judged.map(Outcome::Message);
        }
        let status = answer.status;
        if status == StatusCode::ACCEPTED {
            let why = "the server answered 202, which is no answer to a request";
            return Err(UpstreamError::OutcomeUnknown(why.into()));
        }
        if answer.is_events() {
            return Ok(Outcome::Events(answer.body));
        }
        if !answer.is(media::JSON) {
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
                    sent_as: answer.sent_as(),
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
            sent_as: answer.sent_as(),
            may_deny_session: false,
        }))
    }

    /// Sends what nobody answers. `Some`: the server's own error, for the client.
    pub(in crate::upstream) async fn http_notify(
        &self,
        link: Link<'_>,
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

    /// Asks whether the session is still known. The answer goes to nobody.
    pub(in crate::upstream) async fn http_ping(&self, link: Link<'_>, ping: &Message) -> Pulse {
        let server = self.config();
        let posted = self
            .post(link.safe(), &server, ping.raw().clone(), Sent::default())
            .await;
        let recovery = &server.recovery;
        let mut asked_for = None;
        if let Ok(answer) = &posted {
            asked_for = retry_after(&answer.headers);
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
            Err(UpstreamError::Declined(declined)) if declined.may_deny_session => Pulse::Lost,
            Err(error) => match error.proof().session {
                SessionState::Lost => Pulse::Lost,
                SessionState::Alive => Pulse::Alive,
                SessionState::Unproven => Pulse::Unproven(error.to_string().into(), asked_for),
            },
        }
    }

    /// Sends something of our own whose answer goes to nobody.
    pub(in crate::upstream) async fn http_say(
        &self,
        link: Link<'_>,
        message: Bytes,
    ) -> Result<Result<(), NotSaid>, UpstreamError> {
        let server = self.config();
        let answer = self.post(link, &server, message, Sent::default()).await?;
        if answer.denies_session() || answer.status.is_server_error() {
            let status = answer.status;
            return Ok(Err(NotSaid {
                why: format!("it answered {status} while its session was restored"),
                asked_for: retry_after(&answer.headers),
            }));
        }
        answer.read_out().await;
        Ok(Ok(()))
    }
}

/// Whether an answer that is held whole is one to the request with this id. An array is looked into later.
fn check_whole(body: &Bytes, id: &str, ends_with_connection: bool) -> Result<(), UpstreamError> {
    #[cfg(feature = "planted")]
    if planted::lacks_text(body, Some(id)) {
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

/// The seconds that a server asks to be left alone.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}
