//! A tool that is only its input schema: every keyword that a careless relay drops or rewrites.

use std::sync::Arc;

use rmcp::model::{CallToolResult, JsonObject};
use rmcp::{tool, tool_router};
use serde_json::{Value, json};

use super::text;
use crate::everything::handler::Everything;

#[tool_router(router = schema_tools, vis = "pub(super)")]
impl Everything {
    #[tool(
        name = "json_schema_2020_12_tool",
        description = "Tool with JSON Schema 2020-12 features",
        input_schema = contact_schema()
    )]
    async fn json_schema_2020_12(&self, arguments: JsonObject) -> CallToolResult {
        text(Value::Object(arguments).to_string())
    }
}

/// A person with an address who can be reached by telephone or by post.
fn contact_schema() -> Arc<JsonObject> {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {
                    "street": { "type": "string" },
                    "city": { "type": "string" }
                }
            }
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" }
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": {
            "properties": { "contactMethod": { "const": "phone" } },
            "required": ["contactMethod"]
        },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false
    });
    let Value::Object(schema) = schema else {
        return Arc::default();
    };
    Arc::new(schema)
}
