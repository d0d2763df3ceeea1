//! Which features a server has. A union of servers that have one part each offers what one server with all of them
//! does.
#![expect(
    deprecated,
    reason = "logging belongs to the protocol versions this server speaks"
)]

use std::str::FromStr;

use anyhow::bail;
use rmcp::handler::server::router::prompt::PromptRouter;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::model::ServerCapabilities;

use super::handler::Everything;

/// What a server has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Part {
    /// Everything.
    #[default]
    All,
    /// Tools, but not those that show a session's state.
    Tools,
    /// Prompts, and completion of their arguments.
    Prompts,
    /// Resources, and the tools that show and change the state of a session.
    Resources,
}

// === impl Part ===

impl Part {
    pub(super) fn has_prompts(self) -> bool {
        matches!(self, Self::All | Self::Prompts)
    }

    pub(super) fn has_resources(self) -> bool {
        matches!(self, Self::All | Self::Resources)
    }

    pub(super) fn tools(self) -> ToolRouter<Everything> {
        match self {
            Self::All => Everything::stateless_tools() + Everything::state_tools(),
            Self::Tools => Everything::stateless_tools(),
            Self::Prompts => ToolRouter::new(),
            Self::Resources => Everything::state_tools(),
        }
    }

    pub(super) fn prompts(self) -> PromptRouter<Everything> {
        match self.has_prompts() {
            true => Everything::all_prompts(),
            false => PromptRouter::new(),
        }
    }

    pub(super) fn capabilities(self) -> ServerCapabilities {
        let builder = ServerCapabilities::builder();
        match self {
            Self::All => builder
                .enable_logging()
                .enable_completions()
                .enable_prompts()
                .enable_resources()
                .enable_resources_subscribe()
                .enable_tools()
                .build(),
            Self::Tools => builder.enable_logging().enable_tools().build(),
            Self::Prompts => builder.enable_completions().enable_prompts().build(),
            Self::Resources => builder
                .enable_completions()
                .enable_resources()
                .enable_resources_subscribe()
                .enable_tools()
                .build(),
        }
    }
}

impl FromStr for Part {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "tools" => Ok(Self::Tools),
            "prompts" => Ok(Self::Prompts),
            "resources" => Ok(Self::Resources),
            _ => bail!("{name}: no part; known are tools, prompts and resources"),
        }
    }
}
