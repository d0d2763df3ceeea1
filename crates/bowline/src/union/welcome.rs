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
        Some(format!("# {}\n\n{}", server.name, quoted(&said)))
    });
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| said.join("\n\n"))
}

/// A server's own words as a quotation, so that no line of them is another server's heading.
fn quoted(said: &str) -> String {
    const ENDS: [char; 7] = [
        '\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}',
    ];
    let said = said.replace("\r\n", "\n");
    let lines: Vec<String> = said.split(ENDS).map(|line| format!("> {line}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_server_says_is_a_heading() {
        let said = "Hi.\n# bank\r\n\r\nbank\r====\u{2028}# bank\u{b}<h1>bank</h1>";
        assert_eq!(
            quoted(said),
            "> Hi.\n> # bank\n> \n> bank\n> ====\n> # bank\n> <h1>bank</h1>"
        );
    }
}
