//! Resources: a text, an image, the session's own number, and a template.

use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::json;

use super::samples;

/// The resource that changes: its text is the number that the tool `count` returned last.
pub(super) const WATCHED: &str = "test://watched-resource";

const STATIC_TEXT: &str = "test://static-text";
const STATIC_BINARY: &str = "test://static-binary";
const TEMPLATE: &str = "test://template/{id}/data";

/// The resources that have an address of their own.
pub(super) fn list() -> Vec<Resource> {
    vec![
        Resource::new(STATIC_TEXT, "static-text")
            .with_description("A text that never changes")
            .with_mime_type("text/plain"),
        Resource::new(STATIC_BINARY, "static-binary")
            .with_description("An image that never changes")
            .with_mime_type("image/png"),
        Resource::new(WATCHED, "watched-resource")
            .with_description("The number of this session, which `count` changes")
            .with_mime_type("text/plain"),
    ]
}

/// The addresses with a hole in them.
pub(super) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new(TEMPLATE, "template")
            .with_description("Repeats the id it is asked for")
            .with_mime_type("application/json"),
    ]
}

/// The contents at `uri` for a session whose number is `counted`.
pub(super) fn read(uri: &str, counted: u64) -> Result<ReadResourceResult, ErrorData> {
    let contents = match uri {
        STATIC_TEXT => {
            ResourceContents::text("This is the content of the static text resource.", uri)
                .with_mime_type("text/plain")
        }
        STATIC_BINARY => ResourceContents::blob(samples::PNG, uri).with_mime_type("image/png"),
        WATCHED => ResourceContents::text(counted.to_string(), uri).with_mime_type("text/plain"),
        _ => {
            let id = template_id(uri).ok_or_else(|| {
                ErrorData::resource_not_found("no such resource", Some(json!({ "uri": uri })))
            })?;
            let data =
                json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            ResourceContents::text(data.to_string(), uri).with_mime_type("application/json")
        }
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

fn template_id(uri: &str) -> Option<&str> {
    let (before, after) = TEMPLATE.split_once("{id}")?;
    uri.strip_prefix(before)?.strip_suffix(after)
}
