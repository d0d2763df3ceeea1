//! Prompts, and completion of their arguments.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CompleteRequestParams, CompleteResult, CompletionInfo, ContentBlock, PromptMessage, Reference,
    ResourceContents, Role,
};
use rmcp::{ErrorData, prompt, prompt_router};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::handler::Everything;
use super::samples;

/// What can be typed into a prompt's argument, in the order it is offered.
const WORDS: [&str; 4] = ["paris", "park", "party", "testing"];

/// What can be typed into the id of the resource template.
const IDS: [&str; 3] = ["1", "12", "123"];

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct TwoArguments {
    /// The first word
    arg1: String,
    /// The second word
    arg2: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ResourceArgument {
    /// The address the embedded resource shall have
    resource_uri: String,
}

#[prompt_router(router = "all_prompts", vis = "pub(super)")]
impl Everything {
    #[prompt(
        name = "test_simple_prompt",
        description = "A prompt without arguments"
    )]
    async fn simple_prompt(&self) -> Vec<PromptMessage> {
        vec![user_text("This is a simple prompt for testing.")]
    }

    #[prompt(
        name = "test_prompt_with_arguments",
        description = "A prompt that repeats its two arguments"
    )]
    async fn prompt_with_arguments(
        &self,
        Parameters(TwoArguments { arg1, arg2 }): Parameters<TwoArguments>,
    ) -> Vec<PromptMessage> {
        let text = format!("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'");
        vec![user_text(text)]
    }

    #[prompt(
        name = "test_prompt_with_embedded_resource",
        description = "A prompt that carries a resource at the address it is given"
    )]
    async fn prompt_with_resource(
        &self,
        Parameters(ResourceArgument { resource_uri }): Parameters<ResourceArgument>,
    ) -> Vec<PromptMessage> {
        let resource =
            ResourceContents::text("Embedded resource content for testing.", resource_uri)
                .with_mime_type("text/plain");
        vec![
            PromptMessage::new(Role::User, ContentBlock::resource(resource)),
            user_text("Please process the embedded resource above."),
        ]
    }

    #[prompt(
        name = "test_prompt_with_image",
        description = "A prompt that carries an image"
    )]
    async fn prompt_with_image(&self) -> Vec<PromptMessage> {
        let image = ContentBlock::image(samples::PNG, "image/png");
        vec![
            PromptMessage::new(Role::User, image),
            user_text("Please analyze the image above."),
        ]
    }
}

fn user_text(text: impl Into<String>) -> PromptMessage {
    PromptMessage::new_text(Role::User, text)
}

/// Offers the known values that begin with what has been typed.
pub(super) fn complete(request: &CompleteRequestParams) -> Result<CompleteResult, ErrorData> {
    let known: &[&str] = match &request.r#ref {
        Reference::Prompt(_) => &WORDS,
        Reference::Resource(_) => &IDS,
        _ => &[],
    };
    let values = known
        .iter()
        .filter(|value| value.starts_with(&request.argument.value))
        .map(ToString::to_string)
        .collect();
    let completion = CompletionInfo::with_all_values(values)
        .map_err(|error| ErrorData::internal_error(error, None))?;
    Ok(CompleteResult::new(completion))
}
