//! The MCP side of a session: what the server says it can do, and which module does it.
//!
//! rmcp makes one [`Everything`] for each session, and one more for each `tools/call` to look up
//! the tool's schema, so what is costly to build is in [`Shared`].
#![expect(
    deprecated,
    reason = "subscriptions and logging levels belong to the protocol versions this server speaks"
)]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rmcp::handler::server::router::prompt::PromptRouter;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::model::{
    CompleteRequestMethod, CompleteRequestParams, CompleteResult, ConstString, Implementation,
    ListResourceTemplatesRequestMethod, ListResourceTemplatesResult, ListResourcesRequestMethod,
    ListResourcesResult, PaginatedRequestParams, ReadResourceRequestMethod,
    ReadResourceRequestParams, ReadResourceResponse, ServerConfig, SetLevelRequestParams,
    SubscribeRequestMethod, SubscribeRequestParams, UnsubscribeRequestMethod,
    UnsubscribeRequestParams,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, prompt_handler, tool_handler};

use super::part::Part;
use super::sessions::Sessions;
use super::tools::LogFilter;
use super::{prompts, resources};

/// What all sessions of a replica have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) replica: Arc<str>,
    part: Part,
    pub(super) sessions: Arc<Sessions>,
    tools: ToolRouter<Everything>,
    prompts: PromptRouter<Everything>,
}

/// The handler of one session, with that session's state.
#[derive(Debug)]
pub(super) struct Everything {
    pub(super) shared: Arc<Shared>,
    pub(super) log_filter: LogFilter,
    counter: AtomicU64,
    subscriptions: Mutex<HashSet<String>>,
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(replica: Arc<str>, part: Part, sessions: Arc<Sessions>) -> Self {
        Self {
            replica,
            part,
            sessions,
            tools: part.tools(),
            prompts: part.prompts(),
        }
    }
}

// === impl Everything ===

impl Everything {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            log_filter: LogFilter::default(),
            counter: AtomicU64::new(0),
            subscriptions: Mutex::default(),
        }
    }

    /// The session's number, as it stands.
    pub(super) fn counted(&self) -> u64 {
        self.counter.load(Ordering::Relaxed)
    }

    /// Adds one to the session's number.
    pub(super) fn count_up(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Refuses a method that a server without resources does not have.
    fn with_resources<M: ConstString>(&self) -> Result<(), ErrorData> {
        match self.shared.part.has_resources() {
            true => Ok(()),
            false => Err(ErrorData::method_not_found::<M>()),
        }
    }

    /// Whether the session asked to hear about changes of the resource at `uri`.
    pub(super) fn is_subscribed(&self, uri: &str) -> bool {
        self.subscriptions.lock().contains(uri)
    }
}

#[tool_handler(router = self.shared.tools)]
#[prompt_handler(router = self.shared.prompts)]
impl ServerHandler for Everything {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(self.shared.part.capabilities())
            .with_server_info(Implementation::new(
                "bowline-fixture",
                env!("CARGO_PKG_VERSION"),
            ))
            .with_instructions("A server for tests: it does nothing useful, in every way MCP has.")
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        match self.shared.part {
            Part::Tools => Err(ErrorData::method_not_found::<CompleteRequestMethod>()),
            _ => prompts::complete(&request),
        }
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.log_filter.set(request.level);
        Ok(())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.with_resources::<ListResourcesRequestMethod>()?;
        Ok(ListResourcesResult::with_all_items(resources::list()))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.with_resources::<ListResourceTemplatesRequestMethod>()?;
        Ok(ListResourceTemplatesResult::with_all_items(
            resources::templates(),
        ))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.with_resources::<ReadResourceRequestMethod>()?;
        resources::read(&request.uri, self.counted()).map(Into::into)
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.with_resources::<SubscribeRequestMethod>()?;
        self.subscriptions.lock().insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.with_resources::<UnsubscribeRequestMethod>()?;
        self.subscriptions.lock().remove(&request.uri);
        Ok(())
    }
}
