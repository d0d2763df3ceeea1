//! Tools, by what they exercise: kinds of content, a session's state, messages before the answer,
//! questions to the client, and schemas that must arrive unharmed.

mod content;
mod messages;
mod questions;
mod schema;
mod state;

use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::model::{CallToolResult, ContentBlock};

use super::handler::Everything;

pub(super) use messages::LogFilter;

impl Everything {
    /// Every tool but those of [`state`].
    pub(super) fn stateless_tools() -> ToolRouter<Self> {
        Self::content_tools()
            + Self::message_tools()
            + Self::question_tools()
            + Self::schema_tools()
    }
}

/// A result that is one text.
fn text(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// A failure that the caller may read.
fn failure(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}
