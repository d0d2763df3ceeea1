//! One tool for each kind of content a result can have, and one that fails.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use rmcp::{tool, tool_router};

use super::{failure, text};
use crate::everything::handler::Everything;
use crate::everything::samples;

#[tool_router(router = content_tools, vis = "pub(super)")]
impl Everything {
    #[tool(name = "test_simple_text", description = "Returns a text")]
    async fn simple_text(&self) -> CallToolResult {
        text("This is a simple text response for testing.")
    }

    #[tool(name = "test_image_content", description = "Returns an image")]
    async fn image_content(&self) -> CallToolResult {
        CallToolResult::success(vec![image()])
    }

    #[tool(name = "test_audio_content", description = "Returns a sound")]
    async fn audio_content(&self) -> CallToolResult {
        CallToolResult::success(vec![ContentBlock::audio(samples::WAV, "audio/wav")])
    }

    #[tool(
        name = "test_embedded_resource",
        description = "Returns a resource inside its result"
    )]
    async fn embedded_resource(&self) -> CallToolResult {
        let resource = ResourceContents::text(
            "This is an embedded resource content.",
            "test://embedded-resource",
        )
        .with_mime_type("text/plain");
        CallToolResult::success(vec![ContentBlock::resource(resource)])
    }

    #[tool(
        name = "test_multiple_content_types",
        description = "Returns a text, an image and a resource"
    )]
    async fn multiple_content_types(&self) -> CallToolResult {
        let resource = ResourceContents::text(
            r#"{"test":"data","value":123}"#,
            "test://mixed-content-resource",
        )
        .with_mime_type("application/json");
        CallToolResult::success(vec![
            ContentBlock::text("Multiple content types test:"),
            image(),
            ContentBlock::resource(resource),
        ])
    }

    #[tool(name = "test_error_handling", description = "Always fails")]
    async fn error_handling(&self) -> CallToolResult {
        failure("This tool intentionally returns an error for testing")
    }
}

fn image() -> ContentBlock {
    ContentBlock::image(samples::PNG, "image/png")
}
