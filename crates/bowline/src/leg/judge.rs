//! Answers whose status says that something is wrong: whether they are the server's own answer to
//! the request, or speak of the session or of the way there.

use std::time::Duration;

use bowline_wire::message::{Kind, Message, echoes_id};
use bowline_wire::sse::Decoder;
use bowline_wire::{batch, media};
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};

use super::rewrite::MAX_BATCH;
use super::send::{MAX_HELD_ANSWER, Reply};
use crate::body::read_limited;
use crate::config::Recovery;
use crate::fault::codes;
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::upstream::{Answer, Declined, UpstreamError, is_fingerprint, is_suspect};

/// The longest answer that can be an operator's fingerprint, and how long it may take to arrive
/// where nobody waits for it.
const MAX_FINGERPRINT: usize = 64 * 1024;
const FINGERPRINT_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether an answer's body decides what it is.
pub(super) fn wants_judging(answer: &Answer, recovery: &Recovery) -> bool {
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
pub(super) async fn judge(
    answer: Answer,
    request: &Message,
    recovery: &Recovery,
) -> Result<Reply, UpstreamError> {
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
    if refusal.denies_session && !(is_own && refusal.code() != Some(codes::SESSION_NOT_FOUND)) {
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
    Ok(Reply::Whole {
        status,
        content_type: Some(HeaderValue::from_static(media::JSON)),
        body: refusal.body,
    })
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
        refusal.body = read_limited(answer.body, MAX_HELD_ANSWER).await?;
        match is_fingerprint(&recovery.fingerprints, status, &refusal.body) {
            true => Err(UpstreamError::Fingerprint(status)),
            false => Ok(refusal),
        }
    }

    /// Whether the answer to the request with this id is in it.
    fn echoes(&self, id: &str) -> bool {
        if !batch::is_batch(&self.body) {
            return echoes_id(&self.body, id);
        }
        let members = batch::split(&self.body, MAX_BATCH).unwrap_or_default();
        members.iter().any(|member| echoes_id(member, id))
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

/// Whether a well-looking answer that nobody waits for is the operator's fingerprint.
pub(super) async fn says_lost(answer: Answer, recovery: &Recovery) -> bool {
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
pub(super) async fn judge_notification(
    answer: Answer,
    recovery: &Recovery,
) -> Result<Reply, UpstreamError> {
    let status = answer.status;
    if status.is_success() {
        return match says_lost(answer, recovery).await {
            true => Err(UpstreamError::Fingerprint(status)),
            false => Ok(Reply::Accepted),
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
    Ok(Reply::Whole {
        status,
        content_type: Some(HeaderValue::from_static(media::JSON)),
        body: refusal.body,
    })
}
