//! Why the server did not answer a request of the probe as it should.

use std::time::Duration;

use bowline_wire::codes::SESSION_NOT_FOUND;
use bowline_wire::message::Message;
use http::StatusCode;
use serde::Deserialize;
use thiserror::Error;

use crate::upstream::UpstreamError;

/// How much of a server's text is kept.
const MAX_TEXT: usize = 160;

/// Why there is no result.
#[derive(Debug, Error)]
pub(super) enum Trouble {
    #[error("{0}")]
    Failed(#[from] UpstreamError),
    #[error("the server answered {0}")]
    Refused(Refusal),
    #[error("the server answered {} with {}, which is not MCP", .0.as_u16(), .1.as_deref().unwrap_or("no content type"))]
    NotMcp(StatusCode, Option<String>),
    #[error("the server {0}")]
    Malformed(&'static str),
    #[error("the server sent too much")]
    TooLarge,
    #[error("the server did not answer within {0:?}")]
    Silent(Duration),
}

/// An error of the server's: an HTTP status, a JSON-RPC error, or both.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    /// 200 for a JSON-RPC error without an HTTP error.
    pub(super) status: StatusCode,
    pub(super) code: Option<i64>,
    pub(super) text: Option<String>,
}

/// The `error` of a JSON-RPC response.
#[derive(Deserialize)]
struct RpcError {
    #[serde(default)]
    message: String,
}

impl Refusal {
    pub(super) fn new(
        status: StatusCode,
        response: Option<&Message>,
        body: &[u8],
        content_type: Option<String>,
    ) -> Self {
        let Some(response) = response else {
            let is_plain = content_type.is_some_and(|it| it.starts_with("text/plain"));
            let text = is_plain.then(|| shortened(&String::from_utf8_lossy(body)));
            return Self {
                status,
                text: text.filter(|it| !it.is_empty()),
                ..Self::default()
            };
        };
        Self {
            status,
            ..Self::of_message(response)
        }
    }

    pub(super) fn of_message(message: &Message) -> Self {
        let error = message.error().map(serde_json::from_str::<RpcError>);
        let error = error.and_then(Result::ok);
        let text = error.as_ref().map(|it| shortened(&it.message));
        Self {
            status: StatusCode::OK,
            code: message.error_code(),
            text: text.filter(|it| !it.is_empty()),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.code, self.status) {
            (Some(code), StatusCode::OK) => write!(f, "with the error {code}")?,
            (Some(code), status) => write!(f, "{} with the error {code}", status.as_u16())?,
            (None, status) => write!(f, "{status}")?,
        }
        match &self.text {
            Some(text) => write!(f, ": {text}"),
            None => Ok(()),
        }
    }
}

impl Trouble {
    /// Whether the server said that it does not know the session.
    pub(super) fn denies_session(&self) -> bool {
        match self {
            Self::Failed(error) => matches!(error, UpstreamError::SessionLost),
            Self::Refused(refusal) => {
                refusal.status == StatusCode::NOT_FOUND
                    && matches!(refusal.code, None | Some(SESSION_NOT_FOUND))
            }
            Self::NotMcp(status, _) => *status == StatusCode::NOT_FOUND,
            Self::Malformed(_) | Self::TooLarge | Self::Silent(_) => false,
        }
    }

    /// The HTTP status of the answer, if there was one.
    pub(super) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Failed(UpstreamError::SignIn(_)) => Some(StatusCode::UNAUTHORIZED),
            Self::Failed(
                UpstreamError::Refused(status)
                | UpstreamError::RefusedOverSse(status, _)
                | UpstreamError::Redirected(status)
                | UpstreamError::NotMcp(status)
                | UpstreamError::Compressed(status, _),
            ) => Some(*status),
            Self::Refused(refusal) => Some(refusal.status),
            Self::NotMcp(status, _) => Some(*status),
            Self::Failed(_) | Self::Malformed(_) | Self::TooLarge | Self::Silent(_) => None,
        }
    }
}

/// The beginning of a server's text.
pub(super) fn shortened(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
