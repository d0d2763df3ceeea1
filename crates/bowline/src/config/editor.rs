//! The JSON in which editors keep MCP servers, `{"mcpServers": {NAME: {"url": ...}}}` or with
//! `"command"`, as written.
//!
//! It takes the place of [`file`](super::file) for such a file, so that a list of servers that
//! works in an editor works here unchanged. What it cannot say keeps its default.

use toml::Spanned;

use super::file::{self, Command, File, Health, Recovery, Server};
use super::keys;
use super::read::Table;
use super::report::Findings;
use super::tree::Node;

/// Keys that editors put beside a server for themselves; they mean nothing to a gateway.
const IGNORED: [&str; 8] = [
    "alwaysAllow",
    "autoApprove",
    "description",
    "disabledTools",
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
    let is_process = table.find("command").is_some();
    if !is_process {
        // Editors write an empty one beside a `url`.
        table.ignore(&["args", "env", "cwd"]);
    }
    let transport = table.text("type");
    let refused = transport
        .as_ref()
        .and_then(|text| refused(text.get_ref(), is_process));
    if let Some((message, help)) = refused {
        let place = transport.map(|text| text.span()).unwrap_or_default();
        table.findings.add(place, message, help);
        return None;
    }
    let transport = transport.and_then(|text| {
        let name = transport_of(text.get_ref())?;
        Some(Spanned::new(text.span(), name.to_owned()))
    });
    match OTHER_URLS.iter().find_map(|name| table.find(name)) {
        Some(place) if table.find("url").is_none() => {
            let message = "the server's address must be called `url`";
            let help = "rename the key to `url`";
            table.findings.add(place, message, help);
            table.ignore(&OTHER_URLS);
        }
        _ => table.exactly_one(name.span()),
    }
    let server = Server {
        name,
        misplaced: file::misplaced(&table),
        url: table.text("url"),
        endpoints: None,
        transport,
        command: read_command(&mut table),
        headers: table.secrets("headers"),
        forward_headers: None,
        ca_file: None,
        connect_timeout: None,
        call_timeout: None,
        health: Health::default(),
        keep_alive: None,
        recovery: Recovery::default(),
        oauth: file::read_oauth(&mut table),
        prefix: None,
        required: None,
        list_timeout: None,
        tools: None,
    };
    table.ignore(&IGNORED);
    table.finish();
    Some(server)
}

fn read_command(table: &mut Table<'_, '_>) -> Option<Command> {
    let (program, args) = (table.text("command"), table.texts("args"));
    let (env, cwd) = (table.secrets("env"), table.text("cwd"));
    let program = program?;
    let place = program.span();
    let args = args.map(Spanned::into_inner).unwrap_or_default();
    Some(Command {
        place,
        words: [program].into_iter().chain(args).collect(),
        env,
        cwd,
    })
}

/// The `transport` that a type means. `http` is whichever of the two the server speaks: editors fall back, too.
fn transport_of(name: &str) -> Option<&'static str> {
    match name {
        "streamable-http" | "streamableHttp" => Some("streamable-http"),
        "sse" => Some("sse"),
        _ => None,
    }
}

/// Why a server of this type cannot be used, and what to do; `None` when it can.
fn refused(transport: &str, is_process: bool) -> Option<(&'static str, &'static str)> {
    match transport {
        "stdio" | "local" if is_process => None,
        "http" | "streamable-http" | "streamableHttp" | "sse" if !is_process => None,
        _ if is_process => Some((
            "a server with a `command` speaks stdio",
            "write `\"type\": \"stdio\"`, or leave it out",
        )),
        "stdio" | "local" => Some((
            "a server that speaks stdio needs a `command`",
            "add a line such as `\"command\": \"npx\"`",
        )),
        _ => Some((
            "unknown `type` of server",
            "write `\"type\": \"http\"`, `\"type\": \"sse\"` or `\"type\": \"stdio\"`, or leave it out",
        )),
    }
}
