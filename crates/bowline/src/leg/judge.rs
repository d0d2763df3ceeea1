//! Answers whose status says that something is wrong: whether they are the server's own answer to
//! the request, or speak of the session or of the way there.

use std::future::poll_fn;
use std::time::Duration;

use bowline_wire::media;
use bowline_wire::message::{Kind, Message};
use bowline_wire::sse::Decoder;
use bytes::{Bytes, BytesMut};
use http::StatusCode;

use super::outcome::says_unknown_session;
use super::relay::{StreamError, poll_data};
use super::send::{MAX_HELD_ANSWER, Reply};
use crate::body::read_limited;
use crate::config::Recovery;
use crate::fault::codes;
use crate::upstream::{Answer, UpstreamError, is_fingerprint, is_suspect};

/// The longest answer that can be an operator's fingerprint, and how long it may take to arrive
/// where nobody waits for it.
const MAX_FINGERPRINT: usize = 64 * 1024;
const FINGERPRINT_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether an answer's body decides what it is.
pub(super) fn wants_judging(answer: &Answer, recovery: &Recovery) -> bool {
    answer.denies_session()
        || (answer.status != StatusCode::OK && is_suspect(&recovery.fingerprints, answer.status))
        || (answer.named_session()
            && matches!(answer.status, StatusCode::BAD_REQUEST | StatusCode::GONE))
        || is_about_the_way(answer.status)
}

fn is_about_the_way(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    )
}

/// Reads an answer and says what it is: the server's own, for the client, or a failure.
pub(super) async fn judge(
    answer: Answer,
    request: &Message,
    recovery: &Recovery,
) -> Result<Reply, UpstreamError> {
    let (status, content_type) = (answer.status, answer.content_type().cloned());
    let (denies, named, is_json) = (
        answer.denies_session(),
        answer.named_session(),
        answer.is(media::JSON),
    );
    let read = read_limited(answer.body, MAX_HELD_ANSWER).await;
    let body = match read {
        Ok(body) => body,
        Err(_) if denies => return Err(UpstreamError::SessionLost),
        Err(error) => return Err(error.into()),
    };
    if is_fingerprint(&recovery.fingerprints, status, &body) {
        return Err(UpstreamError::Fingerprint(status));
    }
    let message = Message::parse(body.clone())
        .ok()
        .filter(|message| message.kind() == Kind::Response);
    let is_own = message.as_ref().is_some_and(|message| {
        message.id() == request.id() && message.error_code() != Some(codes::SESSION_NOT_FOUND)
    });
    let is_lost = match status {
        _ if denies => !is_own,
        StatusCode::BAD_REQUEST | StatusCode::GONE => {
            named && message.as_ref().is_some_and(says_unknown_session)
        }
        _ => false,
    };
    if is_lost {
        return Err(UpstreamError::SessionLost);
    }
    if (is_about_the_way(status) && !is_own) || !is_json {
        return Err(UpstreamError::NotMcp(status));
    }
    Ok(Reply::Whole {
        status,
        content_type,
        body,
    })
}

/// What has arrived of a well-looking answer when it is clear that it is not the operator's
/// fingerprint: all of it, or more than such an answer could have. The rest is still to be read.
pub(super) async fn begin(
    answer: &mut Answer,
    recovery: &Recovery,
) -> Result<Bytes, UpstreamError> {
    let mut arrived = BytesMut::new();
    while arrived.len() <= MAX_FINGERPRINT {
        match poll_fn(|cx| poll_data(&mut answer.body, cx)).await {
            Some(data) => arrived.extend_from_slice(&data.map_err(StreamError::Broken)?),
            None => {
                let arrived = arrived.freeze();
                let prints = &recovery.fingerprints;
                return match is_fingerprint(prints, answer.status, &arrived) {
                    true => Err(UpstreamError::Fingerprint(answer.status)),
                    false => Ok(arrived),
                };
            }
        }
    }
    Ok(arrived.freeze())
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
    let (status, named) = (answer.status, answer.named_session());
    if status.is_success() {
        return match says_lost(answer, recovery).await {
            true => Err(UpstreamError::Fingerprint(status)),
            false => Ok(Reply::Accepted),
        };
    }
    let (is_json, content_type) = (answer.is(media::JSON), answer.content_type().cloned());
    let body = match read_limited(answer.body, MAX_HELD_ANSWER).await {
        Ok(body) => body,
        Err(_) if is_about_the_way(status) => return Err(UpstreamError::NotMcp(status)),
        Err(error) => return Err(error.into()),
    };
    if is_fingerprint(&recovery.fingerprints, status, &body) {
        return Err(UpstreamError::Fingerprint(status));
    }
    if is_about_the_way(status) || !is_json {
        return Err(UpstreamError::NotMcp(status));
    }
    if named && Message::parse(body.clone()).is_ok_and(|message| says_unknown_session(&message)) {
        return Err(UpstreamError::SessionLost);
    }
    Ok(Reply::Whole {
        status,
        content_type,
        body,
    })
}
