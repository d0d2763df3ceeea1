//! Answers with an error status: decides whether one is the server's own answer to the request, or
//! is about the session or comes from an intermediary.

use std::time::Duration;

use bowline_egress::read_limited;
use bowline_wire::codes::SESSION_NOT_FOUND;
use bowline_wire::message::{Kind, Message, RawId, echoes_id};
use bowline_wire::sse::Decoder;
use bowline_wire::{batch, media};
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use serde::de::IgnoredAny;

use super::{Answer, is_fingerprint, is_suspect};
use crate::config::Recovery;
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::upstream::budget::errand;
use crate::upstream::{Declined, MAX_HELD_ANSWER, SentAs, StreamError, UpstreamError, Whole};

/// The largest number of messages in a server's batch.
pub(crate) const MAX_BATCH: usize = 10_000;

/// The largest answer that can be a fingerprint, and how long it may take to arrive when no client
/// waits for it.
const MAX_FINGERPRINT: usize = 64 * 1024;
const FINGERPRINT_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether an answer must be judged by its body.
pub(crate) fn wants_judging(answer: &Answer, recovery: &Recovery) -> bool {
    !answer.status.is_success()
        || (answer.status != StatusCode::OK && is_suspect(&recovery.fingerprints, answer.status))
}

fn is_about_the_way(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    )
}

/// Reads an answer and decides whether it is the server's own, for the client, or a failure. An
/// answer that cannot be read completely proves nothing.
pub(crate) async fn judge(
    answer: Answer,
    request: &Message,
    recovery: &Recovery,
) -> Result<Whole, UpstreamError> {
    let refusal = Refusal::read(answer, recovery).await?;
    let id = request.id().unwrap_or_default();
    let is_own = refusal.echoes(id);
    #[cfg(feature = "planted")]
    match (refusal.status.as_u16(), is_own) {
        (404, true) if planted::has(Bug::Own404IsLost) => return Err(UpstreamError::SessionLost),
        (400 | 410, true) if planted::has(Bug::Own400IsLost) => {
            return Err(UpstreamError::SessionLost);
        }
        (400, false) if planted::has(Bug::Plain400IsLost) => {
            return Err(UpstreamError::SessionLost);
        }
        (404, false) if planted::has(Bug::Page404Passes) => return Err(refusal.into_error()),
        _ => {}
    }
    if refusal.denies_session && !(is_own && refusal.code() != Some(SESSION_NOT_FOUND)) {
        return Err(UpstreamError::SessionLost);
    }
    let status = refusal.status;
    let is_passed_on = match status {
        _ if status.is_client_error() => is_own && refusal.retry_after.is_none(),
        _ if is_about_the_way(status) => is_own,
        _ => is_own || (refusal.is_json && refusal.is_json_rpc()),
    };
    if !is_passed_on {
        return Err(refusal.into_error());
    }
    Ok(Whole::refusal(status, refusal.into_answer(id)))
}

impl Whole {
    /// A server's own answer with an error status. A 404 may be the application's, or that of a
    /// server that lost the session and does not report it by the protocol. It is passed on as 200,
    /// because a client would take a 404 for a lost session.
    fn refusal(status: StatusCode, body: Bytes) -> Self {
        let may_deny_session = status == StatusCode::NOT_FOUND;
        let own = SentAs::own();
        Self {
            body,
            sent_as: match may_deny_session {
                true => own,
                false => SentAs { status, ..own },
            },
            may_deny_session,
        }
    }
}

/// An answer with an error status, read completely.
struct Refusal {
    status: StatusCode,
    /// By the protocol, its status says that the session is lost.
    denies_session: bool,
    named_session: bool,
    is_json: bool,
    retry_after: Option<HeaderValue>,
    body: Bytes,
}

impl Refusal {
    async fn read(answer: Answer, recovery: &Recovery) -> Result<Self, UpstreamError> {
        let status = answer.status;
        let mut refusal = Self {
            status,
            denies_session: answer.denies_session(),
            named_session: answer.named_session(),
            is_json: answer.is(media::JSON),
            retry_after: answer.headers.get(RETRY_AFTER).cloned(),
            body: Bytes::new(),
        };
        let is_events = answer.is(media::EVENT_STREAM);
        let ends_with_connection = answer.body.ends_with_connection();
        let reading = read_limited(answer.body, MAX_HELD_ANSWER);
        let read = tokio::time::timeout(errand(recovery), reading).await;
        let body = read.map_err(|_| StreamError::CallTimeout)??;
        if is_fingerprint(&recovery.fingerprints, status, &body) {
            return Err(UpstreamError::Fingerprint(status));
        }
        let is_whole = !(ends_with_connection && body.is_empty());
        let readable = match is_events {
            true => joined_events(body),
            false => Some(body).filter(is_readable),
        };
        // It may be incomplete, or in a format that only the client can read.
        refusal.body = readable
            .filter(|_| is_whole)
            .ok_or(UpstreamError::NotMcp(status))?;
        Ok(refusal)
    }

    /// Whether it contains the answer to the request with this id.
    fn echoes(&self, id: RawId<'_>) -> bool {
        if !batch::is_batch(&self.body) {
            return echoes_id(&self.body, id);
        }
        let members = batch::split(&self.body, MAX_BATCH).unwrap_or_default();
        members.iter().any(|member| echoes_id(member, id))
    }

    /// What the client gets: of several messages only the answer, because a server's request among
    /// them would lack its mark.
    fn into_answer(self, id: RawId<'_>) -> Bytes {
        let members = match batch::is_batch(&self.body) {
            true => batch::split(&self.body, MAX_BATCH).unwrap_or_default(),
            false => Vec::new(),
        };
        let answer = members.into_iter().find(|member| echoes_id(member, id));
        answer.unwrap_or(self.body)
    }

    fn message(&self) -> Option<Message> {
        let message = Message::parse(self.body.clone()).ok();
        message.filter(|message| message.kind() == Kind::Response)
    }

    fn code(&self) -> Option<i64> {
        self.message()?.error_code()
    }

    fn is_json_rpc(&self) -> bool {
        self.message().is_some()
    }

    /// The error, if it is not the answer to the request.
    fn into_error(self) -> UpstreamError {
        if !self.status.is_client_error() {
            return UpstreamError::NotMcp(self.status);
        }
        let is_suspect = matches!(self.status, StatusCode::BAD_REQUEST | StatusCode::GONE);
        UpstreamError::Declined(Box::new(Declined {
            status: self.status,
            may_deny_session: self.named_session && is_suspect,
            body: self.is_json_rpc().then(|| self.body.clone()),
            retry_after: self.retry_after,
        }))
    }
}

/// Whether a body can be a complete answer: valid JSON, or not JSON at all. A truncated JSON body
/// is neither.
pub(crate) fn is_readable(body: &Bytes) -> bool {
    let text = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body);
    match text.trim_ascii_start().first() {
        Some(b'{' | b'[') => serde_json::from_slice::<IgnoredAny>(text).is_ok(),
        // NUL bytes are a sign of UTF-16.
        _ => !body.contains(&0),
    }
}

/// The messages of a stream of events: one message, or an array of all. `None` if the stream is
/// truncated or cannot be parsed.
fn joined_events(body: Bytes) -> Option<Bytes> {
    let mut events = Decoder::new(MAX_HELD_ANSWER);
    events.push(body);
    let mut messages = Vec::new();
    while let Some(event) = events.next_event().ok()? {
        let data = event.data().filter(|data| !data.is_empty());
        messages.extend(data.map(|data| Bytes::from(data.into_owned())));
    }
    if !events.is_between_events() || !messages.iter().all(is_readable) {
        return None;
    }
    Some(match messages.len() {
        1 => messages.remove(0),
        _ => [&b"["[..], &messages.join(&b","[..]), b"]"].concat().into(),
    })
}

/// Whether an answer with a success status, which no client waits for, is a fingerprint.
pub(crate) async fn says_lost(answer: Answer, recovery: &Recovery) -> bool {
    let status = answer.status;
    if !is_suspect(&recovery.fingerprints, status) {
        answer.read_out().await;
        return false;
    }
    let is_events = answer.is(media::EVENT_STREAM);
    let reading = read_limited(answer.body, MAX_FINGERPRINT);
    let Ok(Ok(body)) = tokio::time::timeout(FINGERPRINT_TIMEOUT, reading).await else {
        return false;
    };
    let is_one = |body: &Bytes| is_fingerprint(&recovery.fingerprints, status, body);
    if !is_events {
        return is_one(&body);
    }
    let mut events = Decoder::new(MAX_FINGERPRINT);
    events.push(body);
    while let Ok(Some(event)) = events.next_event() {
        let data = event.data().map(|data| Bytes::from(data.into_owned()));
        if data.as_ref().is_some_and(is_one) {
            return true;
        }
    }
    false
}

/// Judges the answer to a message without an id, which no answer could echo.
pub(crate) async fn judge_notification(
    answer: Answer,
    recovery: &Recovery,
) -> Result<Option<Whole>, UpstreamError> {
    let status = answer.status;
    if status.is_success() {
        return match says_lost(answer, recovery).await {
            true => Err(UpstreamError::Fingerprint(status)),
            false => Ok(None),
        };
    }
    let refusal = Refusal::read(answer, recovery).await?;
    if refusal.denies_session {
        return Err(UpstreamError::SessionLost);
    }
    let is_passed_on =
        status.is_server_error() && !is_about_the_way(status) && refusal.is_json_rpc();
    if !is_passed_on {
        return Err(refusal.into_error());
    }
    Ok(Some(Whole::refusal(status, refusal.body)))
}
