//! Fingerprints: answers that the operator configured as signs of a lost session, for servers that
//! do not report it by the protocol.

use bowline_wire::message::Message;
use bytes::Bytes;
use http::StatusCode;

use crate::config::Fingerprint;

/// Whether an answer with this status may be a fingerprint. Its body decides.
pub(crate) fn is_suspect(fingerprints: &[Fingerprint], status: StatusCode) -> bool {
    fingerprints.iter().any(|print| print.status == status)
}

/// Whether an answer with status 200 may be a fingerprint.
pub(crate) fn may_lie(fingerprints: &[Fingerprint]) -> bool {
    is_suspect(fingerprints, StatusCode::OK)
}

/// Whether an answer with status 200 is a fingerprint.
pub(crate) fn is_lie(fingerprints: &[Fingerprint], body: &Bytes) -> bool {
    is_fingerprint(fingerprints, StatusCode::OK, body)
}

/// Whether an answer is a fingerprint.
pub(crate) fn is_fingerprint(
    fingerprints: &[Fingerprint],
    status: StatusCode,
    body: &Bytes,
) -> bool {
    let message = Message::from_server(body.clone()).ok();
    if message.as_ref().is_some_and(is_good_news) {
        return false;
    }
    let code = message.as_ref().and_then(Message::error_code);
    let text = String::from_utf8_lossy(body);
    fingerprints.iter().any(|print| {
        print.status == status
            && print.code.is_none_or(|wanted| code == Some(wanted))
            && print
                .text
                .as_ref()
                .is_none_or(|wanted| text.contains(wanted))
    })
}

/// Whether the message is a successful result. Its text may contain anything, so it is never a
/// fingerprint.
fn is_good_news(message: &Message) -> bool {
    let is_error = message
        .result_member("isError")
        .is_some_and(|span| message.text(span) == "true");
    message.result().is_some() && !is_error
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;

    fn print(code: Option<i64>, text: Option<&str>) -> Fingerprint {
        Fingerprint {
            status: STATUS,
            code,
            text: text.map(str::to_owned),
        }
    }

    #[test]
    fn a_fingerprint_is_everything_that_it_names() {
        let body =
            Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"error":{"code":-7,"message":"gone"}}"#);
        let is = |print, status| is_fingerprint(&[print], status, &body);
        assert!(is(print(Some(-7), Some("gone")), STATUS));
        assert!(is(print(None, Some("gone")), STATUS));
        assert!(!is(print(Some(-8), Some("gone")), STATUS));
        assert!(!is(print(Some(-7), Some("lost")), STATUS));
        assert!(!is(print(Some(-7), None), StatusCode::OK));
    }

    #[test]
    fn a_result_is_one_only_if_it_is_an_error() {
        let is = |result: &str| {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            is_fingerprint(&[print(None, Some("gone"))], STATUS, &body.into())
        };
        assert!(is(r#"{"isError":true,"text":"gone"}"#));
        assert!(!is(r#"{"isError":false,"text":"gone"}"#));
        assert!(!is(r#"{"text":"gone"}"#));
    }
}
