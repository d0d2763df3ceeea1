//! rmcp's in-memory sessions, plus the one thing they keep to themselves: which SSE stream answers
//! which request.
//!
//! A tool that needs its own stream closed during the call (`test_reconnection`) needs the
//! stream's number, and rmcp gives it to the session's worker only. The worker numbers streams 0,
//! 1, 2 ... in the order they are opened, so [`Sessions`] opens them one at a time within a session
//! and counts along. All else is passed on to [`LocalSessionManager`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{ClientJsonRpcMessage, GetExtensions, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, SessionTransport,
};
use rmcp::transport::streamable_http_server::session::{EventStream, SessionId, SessionManager};
use tokio::sync::broadcast;

/// How many resumptions a slow listener may fall behind before it misses one.
const RESUMPTIONS_KEPT: usize = 16;

/// The session manager of one replica.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    local: LocalSessionManager,
    streams: Mutex<HashMap<SessionId, Arc<Streams>>>,
}

/// The request streams of one session.
#[derive(Debug)]
struct Streams {
    /// The number the session's next stream will get. Held while a stream is being opened.
    next: tokio::sync::Mutex<u64>,
    /// Numbers of streams that a client has come back to.
    resumed: broadcast::Sender<u64>,
}

/// The SSE stream that will carry the answer to a request; travels in the request's extensions.
#[derive(Debug, Clone)]
pub(super) struct AnswerStream {
    session: SessionId,
    number: u64,
}

// === impl Sessions ===

impl Sessions {
    /// Ends sessions that nobody uses for this time.
    pub(super) fn with_idle_limit(limit: Duration) -> Self {
        let mut sessions = Self::default();
        sessions.local.session_config.keep_alive = Some(limit);
        sessions
    }

    /// Whether a session with this id is alive here.
    pub(super) async fn holds(&self, id: &str) -> bool {
        self.local.sessions.read().await.contains_key(id)
    }

    /// How many sessions are alive.
    pub(super) async fn count(&self) -> usize {
        self.local.sessions.read().await.len()
    }

    /// Ends every session.
    pub(super) async fn close_all(&self) {
        let ids: Vec<SessionId> = self.local.sessions.read().await.keys().cloned().collect();
        for id in ids {
            if let Err(error) = self.close_session(&id).await {
                tracing::debug!(%error, session = %id, "session did not close cleanly");
            }
        }
    }

    /// Ends the HTTP response that carries `stream`, tells the client to return after `retry`, and waits
    /// until it has returned. The request itself continues.
    pub(super) async fn interrupt(
        &self,
        stream: &AnswerStream,
        retry: Duration,
    ) -> Result<(), LocalSessionManagerError> {
        let not_found = || LocalSessionManagerError::SessionNotFound(stream.session.clone());
        let handle = self
            .local
            .sessions
            .read()
            .await
            .get(&stream.session)
            .cloned();
        let handle = handle.ok_or_else(not_found)?;
        let streams = self.streams.lock().get(&stream.session).cloned();
        // Listening must start before the client can come back.
        let mut resumed = streams.ok_or_else(not_found)?.resumed.subscribe();
        handle.close_sse_stream(stream.number, Some(retry)).await?;
        loop {
            match resumed.recv().await {
                Ok(number) if number == stream.number => return Ok(()),
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return Err(not_found()),
            }
        }
    }
}

#[expect(
    refining_impl_trait,
    reason = "the trait returns an opaque stream; a boxed one is simpler to pass on"
)]
impl SessionManager for Sessions {
    type Error = LocalSessionManagerError;
    type Transport = SessionTransport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (id, transport) = self.local.create_session().await?;
        let streams = Arc::new(Streams::new());
        self.streams.lock().insert(id.clone(), streams);
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.local.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.local.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.streams.lock().remove(id);
        self.local.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<EventStream, Self::Error> {
        let streams = self.streams.lock().get(id).cloned();
        let streams =
            streams.ok_or_else(|| LocalSessionManagerError::SessionNotFound(id.clone()))?;
        let mut next = streams.next.lock().await;
        if let ClientJsonRpcMessage::Request(request) = &mut message {
            request.request.extensions_mut().insert(AnswerStream {
                session: id.clone(),
                number: *next,
            });
        }
        let stream = self.local.create_stream(id, message).await?;
        *next += 1;
        Ok(Box::pin(stream))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        self.local.accept_message(id, message).await
    }

    async fn create_standalone_stream(&self, id: &SessionId) -> Result<EventStream, Self::Error> {
        Ok(Box::pin(self.local.create_standalone_stream(id).await?))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<EventStream, Self::Error> {
        let number = stream_number(&last_event_id);
        let stream = self.local.resume(id, last_event_id).await?;
        let streams = self.streams.lock().get(id).cloned();
        if let (Some(streams), Some(number)) = (streams, number) {
            // An error only says that no tool is waiting.
            streams.resumed.send(number).ok();
        }
        Ok(Box::pin(stream))
    }
}

/// The stream that an event id of rmcp belongs to: `index/stream`, or only `index` on the
/// standalone stream.
fn stream_number(event_id: &str) -> Option<u64> {
    let (_, number) = event_id.split_once('/')?;
    number.parse().ok()
}

// === impl Streams ===

impl Streams {
    fn new() -> Self {
        Self {
            next: tokio::sync::Mutex::new(0),
            resumed: broadcast::Sender::new(RESUMPTIONS_KEPT),
        }
    }
}
