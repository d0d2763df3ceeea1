//! Tools that show where a request has landed: in which session, on which replica.

use rmcp::model::{CallToolResult, ResourceUpdatedNotificationParam};
use rmcp::{Peer, RoleServer, tool, tool_router};

use super::text;
use crate::everything::handler::Everything;
use crate::everything::resources;

#[tool_router(router = state_tools, vis = "pub(in crate::everything)")]
impl Everything {
    #[tool(
        name = "count",
        description = "Adds one to the number of this session and returns it"
    )]
    async fn count(&self, peer: Peer<RoleServer>) -> CallToolResult {
        let number = self.count_up();
        if self.is_subscribed(resources::WATCHED) {
            let update = ResourceUpdatedNotificationParam::new(resources::WATCHED);
            if let Err(error) = peer.notify_resource_updated(update).await {
                tracing::debug!(%error, "the client did not hear of the update");
            }
        }
        text(number.to_string())
    }

    #[tool(
        name = "whoami",
        description = "Returns the name of the replica that answers"
    )]
    async fn whoami(&self) -> CallToolResult {
        text(&*self.shared.replica)
    }
}
