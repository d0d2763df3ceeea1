//! The answer to `initialize`. It waits for no server: the capabilities are all that a member may have.

use serde_json::{Value, json};

use super::Attached;
use super::known::Audience;

/// The result of `initialize`, as JSON text.
pub(super) fn result(attached: &Attached) -> String {
    let attachment = attached.attachment();
    let mut result = json!({
        "protocolVersion": attachment.version.as_str(),
        "capabilities": {
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"listChanged": true, "subscribe": true},
            "logging": {},
            "completions": {},
        },
        "serverInfo": {
            "name": "bowline",
            "title": "Bowline",
            "version": env!("CARGO_PKG_VERSION"),
        },
    });
    if let Some(instructions) = instructions(attached) {
        result["instructions"] = Value::from(instructions);
    }
    result.to_string()
}

/// What the servers said of themselves to this caller the last time, each under its name.
fn instructions(attached: &Attached) -> Option<String> {
    let servers = attached.servers();
    let said = servers.iter().filter_map(|server| {
        let audience = Audience::of(attached, server);
        let said = attached.unions.known.instructions(audience)?;
        Some(format!("# {}\n\n{said}", server.name))
    });
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| said.join("\n\n"))
}
