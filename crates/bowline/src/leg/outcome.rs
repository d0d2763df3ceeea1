//! What a failed request tells: whether it ran, and whether the upstream still knows the session.
//!
//! Two questions, answered separately; `replay` and `mend` act on the answers and on nothing else.

use bowline_wire::message::Message;
use http::StatusCode;

use crate::egress::{EgressError, WireError};
use crate::fault::codes;
use crate::upstream::UpstreamError;

/// Whether a request ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ran {
    No,
    Unknown,
    Yes,
}

/// Whether the upstream still knows the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing speaks against it.
    Alive,
    Lost,
    /// Only asking can tell.
    Unproven,
}

/// Both answers.
pub(super) fn outcome(error: &UpstreamError) -> (Ran, Known) {
    match error {
        UpstreamError::SessionLost => (Ran::No, Known::Lost),
        UpstreamError::Fingerprint(_) => (Ran::Unknown, Known::Lost),
        // Trying again at once would not help, and says nothing of the session.
        UpstreamError::NoAnswer(
            EgressError::OutOfSockets(_) | EgressError::Broken(WireError::Http2),
        ) => (Ran::No, Known::Alive),
        UpstreamError::NoAnswer(EgressError::Broken(_)) => (Ran::Unknown, Known::Unproven),
        UpstreamError::Compressed(status, _) if !status.is_success() => {
            (Ran::Unknown, Known::Unproven)
        }
        UpstreamError::NoAnswer(_) | UpstreamError::Unavailable(_) => (Ran::No, Known::Unproven),
        UpstreamError::NotMcp(
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT,
        )
        | UpstreamError::BadBody(_)
        | UpstreamError::Stream(_) => (Ran::Unknown, Known::Unproven),
        // Refused, redirected, out of time, cancelled, or an answer that is none: trying again
        // would not change it.
        _ => (Ran::Yes, Known::Alive),
    }
}

/// Whether a 400 or 410 says, by its code and by its words, that the session is unknown.
pub(super) fn says_unknown_session(answer: &Message) -> bool {
    const CODES: [i64; 3] = [-32000, codes::SESSION_NOT_FOUND, codes::INVALID_REQUEST];
    const WORDS: [&str; 6] = [
        "not found",
        "unknown",
        "no valid",
        "invalid",
        "expired",
        "does not exist",
    ];
    let Some(text) = error_text(answer) else {
        return false;
    };
    let text = text.to_ascii_lowercase();
    answer
        .error_code()
        .is_some_and(|code| CODES.contains(&code))
        && text.contains("session")
        && WORDS.iter().any(|words| text.contains(words))
}

fn error_text(answer: &Message) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct ErrorObject {
        message: String,
    }
    let error: ErrorObject = serde_json::from_str(answer.error()?).ok()?;
    Some(error.message)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn says(code: i64, text: &str) -> bool {
        let body = format!(r#"{{"jsonrpc":"2.0","error":{{"code":{code},"message":"{text}"}}}}"#);
        says_unknown_session(&Message::parse(Bytes::from(body)).unwrap())
    }

    #[test]
    fn code_and_words_must_both_say_so() {
        assert!(says(-32000, "Bad Request: No valid session ID provided"));
        assert!(says(-32001, "Session not found"));
        assert!(says(-32600, "unknown session"));
        assert!(
            !says(-32602, "Session not found"),
            "a code that means something else"
        );
        assert!(!says(-32000, "no such file"));
        assert!(!says(-32000, "the session is busy"));
    }
}
