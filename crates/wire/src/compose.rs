//! Writes Bowline's own JSON-RPC messages; no other module does. Forwarded messages are never written
//! here.
//!
//! Ids, parameters, results and errors are JSON text. An id has the form in which its request had it.

use std::fmt::Display;

/// A request.
pub fn request(id: impl Display, method: &str, params: impl Display) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// A request without parameters.
pub fn bare_request(id: impl Display, method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#)
}

/// A notification.
pub fn notification(method: &str, params: impl Display) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

/// A notification without parameters.
pub fn bare_notification(method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#)
}

/// `notifications/cancelled`, with a reason that needs no escapes.
pub fn cancelled(id: impl Display, reason: &str) -> String {
    let params = format!(r#"{{"requestId":{id},"reason":"{reason}"}}"#);
    notification("notifications/cancelled", params)
}

/// The result of a request.
pub fn result(id: impl Display, result: impl Display) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// The error of a request.
pub fn error(id: impl Display, error: impl Display) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::message::{Kind, Message};

    #[test]
    fn what_is_composed_can_be_read() {
        for (text, kind) in [
            (request(r#""a""#, "m", "{}"), Kind::Request),
            (bare_request(1, "ping"), Kind::Request),
            (notification("n", "{}"), Kind::Notification),
            (bare_notification("n"), Kind::Notification),
            (cancelled(7, "because"), Kind::Notification),
            (result(1, "{}"), Kind::Response),
            (error(1, r#"{"code":1,"message":""}"#), Kind::Response),
        ] {
            let message = Message::parse(Bytes::from(text.clone())).unwrap();
            assert_eq!(message.kind(), kind, "{text}");
        }
        let cancel = Message::parse(Bytes::from(cancelled(7, "because"))).unwrap();
        let span = cancel.cancelled_request().unwrap();
        assert_eq!(cancel.text(span), "7");
    }
}
