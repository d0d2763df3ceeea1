//! The JSON in which editors keep MCP servers, `{"mcpServers": {NAME: {"url": ...}}}`, as written.
//!
//! It takes the place of [`file`](super::file) for such a file, so that a list of servers that
//! works in an editor works here unchanged. What it cannot say keeps its default.

use toml::Spanned;

use super::file::{self, File, Health, Recovery, Server};
use super::keys;
use super::read::Table;
use super::report::Findings;
use super::tree::Node;

/// Keys that editors put beside a server for themselves; they mean nothing to a gateway.
const IGNORED: [&str; 9] = [
    "alwaysAllow",
    "autoApprove",
    "description",
    "disabledTools",
    "env",
    "icon",
    "name",
    "timeout",
    "trust",
];

/// What some editors call `url`.
const OTHER_URLS: [&str; 2] = ["serverUrl", "httpUrl"];

/// Whether a file is of this kind: no TOML file begins like that.
pub(super) fn is_json(text: &str) -> bool {
    let text = text.trim_start_matches('\u{feff}');
    text.trim_start().starts_with('{')
}

/// Reads the values of an editor's file.
pub(super) fn read(root: &Node, text: &str, findings: &mut Findings) -> File {
    let mut top = Table::top(root, &keys::EDITOR, text, findings);
    top.exactly_one(root.span.start..root.span.start + 1);
    let file = File {
        servers: top.named("mcpServers", read_server),
        ..File::default()
    };
    top.finish();
    file
}

fn read_server(name: Spanned<String>, mut table: Table<'_, '_>) -> Option<Server> {
    if table.flag("disabled") == Some(true) {
        return None;
    }
    if let Some(place) = table.find("command") {
        let message = "servers that are started as a command (stdio) are not supported yet";
        let help = "run the server with Streamable HTTP and give its `url`, or take it out or set \
                    `\"disabled\": true`";
        table.findings.add(place, message, help);
        return None;
    }
    let transport = table.text("type");
    if let Some((message, help)) = transport.as_ref().and_then(|text| refused(text.get_ref())) {
        let place = transport.map(|text| text.span()).unwrap_or_default();
        table.findings.add(place, message, help);
        return None;
    }
    match OTHER_URLS.iter().find_map(|name| table.find(name)) {
        Some(place) if table.find("url").is_none() => {
            let message = "the server's address must be called `url`";
            let help = "rename the key to `url`; it must be a Streamable HTTP endpoint";
            table.findings.add(place, message, help);
            table.ignore(&OTHER_URLS);
        }
        _ => table.exactly_one(name.span()),
    }
    let server = Server {
        name,
        url: table.text("url"),
        endpoints: None,
        headers: table.secrets("headers"),
        forward_headers: None,
        ca_file: None,
        connect_timeout: None,
        call_timeout: None,
        health: Health::default(),
        recovery: Recovery::default(),
        oauth: file::read_oauth(&mut table),
    };
    table.ignore(&IGNORED);
    table.finish();
    Some(server)
}

/// Why a server of this type cannot be used, and what to do; `None` when it can.
fn refused(transport: &str) -> Option<(&'static str, &'static str)> {
    match transport {
        "http" | "streamable-http" | "streamableHttp" => None,
        "sse" => Some((
            "servers with the older HTTP+SSE transport are not supported yet",
            "most of them also have a Streamable HTTP endpoint, often at `/mcp`: give its `url` and \
             `\"type\": \"http\"`",
        )),
        "stdio" => Some((
            "servers that are started as a command (stdio) are not supported yet",
            "run the server with Streamable HTTP and give its `url` and `\"type\": \"http\"`",
        )),
        _ => Some((
            "unknown `type` of server",
            "write `\"type\": \"http\"`, or leave it out",
        )),
    }
}
