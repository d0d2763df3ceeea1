//! Tools whose answer comes late: after log messages, after progress, or on another HTTP response
//! than the one that was waiting for it.
#![expect(
    deprecated,
    reason = "log messages belong to the protocol versions this server speaks"
)]

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rmcp::handler::server::common::Extension;
use rmcp::model::{
    CallToolResult, LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam,
    RequestMetaObject,
};
use rmcp::{ErrorData, Peer, RoleServer, ServiceError, tool, tool_router};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::{failure, text};
use crate::everything::handler::Everything;
use crate::everything::sessions::AnswerStream;

/// The pause between two messages, which reveals a proxy that buffers them.
const PAUSE: Duration = Duration::from_millis(50);

/// How soon a client should resume a stream that was closed.
const RECONNECT_AFTER: Duration = Duration::from_millis(100);

/// How long `test_reconnection` waits for that.
const RECONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// The minimum level of log messages for a session; all messages until one is set.
#[derive(Debug, Default)]
pub(in crate::everything) struct LogFilter(AtomicU8);

// === impl LogFilter ===

impl LogFilter {
    /// Lets through messages of `level` and above.
    pub(in crate::everything) fn set(&self, level: LoggingLevel) {
        self.0.store(level as u8, Ordering::Relaxed);
    }

    fn passes(&self, level: LoggingLevel) -> bool {
        level as u8 >= self.0.load(Ordering::Relaxed)
    }
}

// === impl Everything ===

#[tool_router(router = message_tools, vis = "pub(super)")]
impl Everything {
    #[tool(
        name = "test_tool_with_logging",
        description = "Sends three log messages before it answers"
    )]
    async fn tool_with_logging(&self, peer: Peer<RoleServer>) -> Result<CallToolResult, ErrorData> {
        for step in [
            "Tool execution started",
            "Tool processing data",
            "Tool execution completed",
        ] {
            if self.log_filter.passes(LoggingLevel::Info) {
                let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(step))
                    .with_logger("fixture");
                peer.notify_logging_message(message)
                    .await
                    .map_err(|error| unsent(&error))?;
            }
            sleep(PAUSE).await;
        }
        Ok(text("Logged three messages."))
    }

    #[tool(
        name = "test_tool_with_progress",
        description = "Reports progress three times before it answers, if it was given a token"
    )]
    async fn tool_with_progress(
        &self,
        meta: RequestMetaObject,
        peer: Peer<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let token = meta.get_progress_token();
        for done in [0.0, 50.0, 100.0] {
            if let Some(token) = &token {
                let progress =
                    ProgressNotificationParam::new(token.clone(), done).with_total(100.0);
                peer.notify_progress(progress)
                    .await
                    .map_err(|error| unsent(&error))?;
            }
            sleep(PAUSE).await;
        }
        Ok(text("Made progress three times."))
    }

    #[tool(
        name = "test_reconnection",
        description = "Closes the stream of its own call, and answers when the client has resumed it"
    )]
    async fn reconnection(&self, Extension(stream): Extension<AnswerStream>) -> CallToolResult {
        sleep(PAUSE).await;
        let interrupted = self.shared.sessions.interrupt(&stream, RECONNECT_AFTER);
        // rmcp drops a response without a stream, so the tool waits for the client.
        match timeout(RECONNECT_PATIENCE, interrupted).await {
            Ok(Ok(())) => text("The stream was closed and resumed."),
            Ok(Err(error)) => failure(format!("The stream could not be closed: {error}")),
            Err(_) => failure("Nobody came back to the stream."),
        }
    }
}

fn unsent(error: &ServiceError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
