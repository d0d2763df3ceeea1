//! Answers whose status says that something is wrong: whether they are the server's own answer to
//! the request, or speak of the session or of the way there.

use std::time::Duration;

use bowline_egress::read_limited;
use bowline_wire::message::{Kind, Message, echoes_id};
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

/// The code of an answer by which a server says that a session is unknown.
const SESSION_NOT_FOUND: i64 = -32001;

/// The most messages of one batch of a server's.
pub(crate) const MAX_BATCH: usize = 10_000;

/// The longest answer that can be an operator's fingerprint, and how long it may take to arrive
/// where nobody waits for it.
const MAX_FINGERPRINT: usize = 64 * 1024;
const FINGERPRINT_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether an answer's body decides what it is.
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

/// Reads an answer and says what it is: the server's own, for the client, or a failure. What cannot be
/// read whole proves nothing.
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
    /// A server's own answer, whose status says that something is wrong. A 404 may be the application's own,
    /// or that of a server that has lost the session and says it badly. A client would take the status for
    /// a lost session.
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

/// An answer that by its status is none, read whole.
struct Refusal {
    status: StatusCode,
    /// It is the one by which the protocol says that the session is gone.
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
        // It may be half of an answer, or one that others can read.
        refusal.body = readable
            .filter(|_| is_whole)
            .ok_or(UpstreamError::NotMcp(status))?;
        Ok(refusal)
    }

    /// Whether the answer to the request with this id is in it.
    fn echoes(&self, id: &str) -> bool {
        if !batch::is_batch(&self.body) {
            return echoes_id(&self.body, id);
        }
        let members = batch::split(&self.body, MAX_BATCH).unwrap_or_default();
        members.iter().any(|member| echoes_id(member, id))
    }

    /// What the client gets of it: of several messages the answer alone, as a request among them would
    /// be without its mark.
    fn into_answer(self, id: &str) -> Bytes {
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

    /// What it is where it is not the answer.
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

/// Whether a body is JSON that can be read, or none at all: half of an answer is neither.
pub(crate) fn is_readable(body: &Bytes) -> bool {
    let text = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body);
    match text.trim_ascii_start().first() {
        Some(b'{' | b'[') => serde_json::from_slice::<IgnoredAny>(text).is_ok(),
        // Text in UTF-16 has them.
        _ => !body.contains(&0),
    }
}

/// What events say: one message, or an array of all. `None` if they break off, or cannot be read.
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

/// Whether a well-looking answer that nobody waits for is the operator's fingerprint.
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

/// Judges what has no id that an answer could echo.
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
