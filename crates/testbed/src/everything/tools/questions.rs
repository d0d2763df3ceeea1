//! Tools that ask the client something before they answer: sampling and elicitation.
#![expect(
    deprecated,
    reason = "sampling belongs to the protocol versions this server speaks"
)]

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CallToolResult, CreateMessageRequestParams, ElicitRequestParams, SamplingMessage,
};
use rmcp::{ErrorData, Peer, RoleServer, tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{failure, text};
use crate::everything::handler::Everything;

const MAX_TOKENS: u32 = 100;

#[derive(Debug, Deserialize, JsonSchema)]
struct Sampling {
    /// What to ask the model
    prompt: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Elicitation {
    /// What to ask the user
    message: String,
}

#[tool_router(router = question_tools, vis = "pub(super)")]
impl Everything {
    #[tool(
        name = "test_sampling",
        description = "Asks the client's model and returns what it said"
    )]
    async fn sampling(
        &self,
        Parameters(Sampling { prompt }): Parameters<Sampling>,
        peer: Peer<RoleServer>,
    ) -> CallToolResult {
        let request =
            CreateMessageRequestParams::new(vec![SamplingMessage::user_text(prompt)], MAX_TOKENS);
        match peer.create_message(request).await {
            Ok(result) => {
                let said = result.message.content.first().and_then(|c| c.as_text());
                let said = said.map_or("(no text)", |content| content.text.as_str());
                text(format!("LLM response: {said}"))
            }
            Err(error) => failure(format!("Sampling failed: {error}")),
        }
    }

    #[tool(
        name = "test_elicitation",
        description = "Asks the user for a name and an address"
    )]
    async fn elicitation(
        &self,
        Parameters(Elicitation { message }): Parameters<Elicitation>,
        peer: Peer<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let schema = json!({
            "type": "object",
            "properties": {
                "username": { "type": "string", "description": "User's response" },
                "email": { "type": "string", "description": "User's email address" }
            },
            "required": ["username", "email"]
        });
        ask(&peer, "User response", message, schema).await
    }

    #[tool(
        name = "test_elicitation_sep1034_defaults",
        description = "Asks the user for one value of each type, each with a default"
    )]
    async fn elicitation_defaults(
        &self,
        peer: Peer<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "default": "John Doe" },
                "age": { "type": "integer", "default": 30 },
                "score": { "type": "number", "default": 95.5 },
                "status": {
                    "type": "string",
                    "enum": ["active", "inactive", "pending"],
                    "default": "active"
                },
                "verified": { "type": "boolean", "default": true }
            }
        });
        let message = "Please correct what is wrong".to_owned();
        ask(&peer, "Elicitation completed", message, schema).await
    }

    #[tool(
        name = "test_elicitation_sep1330_enums",
        description = "Asks the user to choose, in each of the five ways a choice can be written"
    )]
    async fn elicitation_enums(&self, peer: Peer<RoleServer>) -> Result<CallToolResult, ErrorData> {
        let options = json!(["option1", "option2", "option3"]);
        let titled = json!([
            { "const": "value1", "title": "First" },
            { "const": "value2", "title": "Second" },
            { "const": "value3", "title": "Third" }
        ]);
        let schema = json!({
            "type": "object",
            "properties": {
                "untitledSingle": { "type": "string", "enum": options },
                "titledSingle": { "type": "string", "oneOf": titled },
                "legacyEnum": {
                    "type": "string",
                    "enum": ["opt1", "opt2", "opt3"],
                    "enumNames": ["Option One", "Option Two", "Option Three"]
                },
                "untitledMulti": {
                    "type": "array",
                    "items": { "type": "string", "enum": options }
                },
                "titledMulti": { "type": "array", "items": { "anyOf": titled } }
            }
        });
        let message = "Please choose".to_owned();
        ask(&peer, "Elicitation completed", message, schema).await
    }
}

/// Shows a form to the user and returns the result, after `heading`.
async fn ask(
    peer: &Peer<RoleServer>,
    heading: &str,
    message: String,
    schema: Value,
) -> Result<CallToolResult, ErrorData> {
    let requested_schema = serde_json::from_value(schema)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let form = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message,
        requested_schema,
    };
    Ok(match peer.create_elicitation(form).await {
        Ok(result) => {
            let action = json!(result.action);
            let action = action.as_str().unwrap_or_default();
            let content = result.content.unwrap_or(Value::Null);
            text(format!("{heading}: action={action}, content={content}"))
        }
        Err(error) => failure(format!("Elicitation failed: {error}")),
    })
}
