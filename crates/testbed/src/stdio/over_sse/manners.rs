//! How the server over HTTP+SSE behaves.

use std::sync::Arc;

use tokio::sync::Notify;

/// How it behaves.
#[derive(Debug, Clone)]
pub struct Manners {
    /// What the `endpoint` event names, with `{id}` for the session's; `None`: there is no such event.
    pub endpoint: Option<String>,
    /// The answer to a GET of the stream, if it is not the stream.
    pub get: Option<u16>,
    /// The answer to a POST to the stream's URL.
    pub wrong_post: u16,
    /// The answer to a message, if it is not 202; whether the message is taken all the same.
    pub post: Option<(u16, bool)>,
    /// A message that is taken is refused only when this is notified.
    pub refuses_at: Option<Arc<Notify>>,
    /// A message is answered by HTTP only when the stream has brought something after it.
    pub answers_late: bool,
    /// The connection of a message is closed after its answer.
    pub closes: bool,
    /// The `Authorization` that it requires.
    pub authorization: Option<String>,
    /// `WWW-Authenticate` of its 401.
    pub challenge: Option<String>,
    /// Where a GET of the stream is redirected to, by 307.
    pub moved: Option<String>,
    /// `Set-Cookie` of the answer to a message.
    pub cookie: Option<String>,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            endpoint: Some("/messages?session_id={id}".to_owned()),
            get: None,
            wrong_post: 405,
            post: None,
            refuses_at: None,
            answers_late: false,
            closes: false,
            authorization: None,
            challenge: None,
            moved: None,
            cookie: None,
        }
    }
}
