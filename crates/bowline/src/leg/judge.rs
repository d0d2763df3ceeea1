//! Answers whose status says that something is wrong: whether they are the server's own answer to
//! the request, or speak of the session or of the way there.

use bowline_wire::message::{Kind, Message};
use http::StatusCode;

use super::outcome::{is_fingerprint, says_unknown_session};
use super::send::{MAX_HELD_ANSWER, Reply};
use crate::body::read_limited;
use crate::config::Recovery;
use crate::fault::codes;
use crate::upstream::{Answer, UpstreamError};

/// Whether an answer's body decides what it is.
pub(super) fn wants_judging(answer: &Answer) -> bool {
    answer.denies_session()
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
        answer.is(bowline_wire::media::JSON),
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

/// The same for what has no id that an answer could echo.
pub(super) async fn judge_notification(answer: Answer) -> Result<Reply, UpstreamError> {
    if is_about_the_way(answer.status) {
        return Err(UpstreamError::NotMcp(answer.status));
    }
    let named = answer.named_session();
    let reply = Reply::whole(answer).await?;
    if let Reply::Whole { body, .. } = &reply
        && named
        && Message::parse(body.clone()).is_ok_and(|message| says_unknown_session(&message))
    {
        return Err(UpstreamError::SessionLost);
    }
    Ok(reply)
}
