//! The configuration as written: which keys there are and of which type, values with their place.
//!
//! The first of two stages. It knows TOML and nothing of what the values mean; that is for
//! [`check`](super::check).

use toml::Spanned;
use toml::de::DeTable;

use super::mask::Mask;
use super::read::{Table, join};
use super::report::Findings;

/// The file; what is missing or of the wrong type is `None`.
#[derive(Default)]
pub(super) struct File {
    pub(super) listen: Option<Spanned<String>>,
    pub(super) admin: Option<Spanned<String>>,
    pub(super) store_kind: Option<Spanned<String>>,
    pub(super) limits: Limits,
    pub(super) servers: Vec<Server>,
}

/// The table `limits`.
#[derive(Default)]
pub(super) struct Limits {
    pub(super) sessions: Option<Spanned<i128>>,
    pub(super) streams: Option<Spanned<i128>>,
    pub(super) body_bytes: Option<Spanned<i128>>,
    pub(super) session_idle: Option<Spanned<String>>,
}

/// A table in `servers`.
pub(super) struct Server {
    pub(super) name: Spanned<String>,
    pub(super) url: Option<Spanned<String>>,
    pub(super) headers: Vec<Header>,
    pub(super) connect_timeout: Option<Spanned<String>>,
}

/// An entry of a server's `headers`; there is no `Debug`, because the value is secret.
pub(super) struct Header {
    pub(super) name: Spanned<String>,
    pub(super) value: String,
}

/// Reads the text; `None` when it is not TOML, for then no value has a sure meaning.
pub(super) fn read(text: &str, findings: &mut Findings) -> Option<File> {
    let (tree, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        findings.mask = Mask::of_tree(tree.get_ref());
        return Some(file(tree.get_ref(), text, findings));
    }
    findings.mask = Mask::of_text(text);
    for error in errors {
        // The parser's messages are fixed sentences; they have no part of the file in them.
        let message = error.message().trim_end_matches(", expected nothing");
        let help = match message {
            "duplicate key" => "keep one of them",
            _ => "correct the syntax, such as a missing quote; the values are checked after that",
        };
        findings.add(
            error.span().unwrap_or_default(),
            format!("this is not valid TOML: {message}"),
            help,
        );
    }
    None
}

fn file<'t>(tree: &'t DeTable<'t>, text: &str, findings: &mut Findings) -> File {
    let mut top = Table::new(tree, String::new(), findings);
    let mut file = File {
        listen: top.string("listen", r#"listen = "127.0.0.1:6270""#),
        admin: top.string("admin", r#"admin = "127.0.0.1:6271""#),
        ..File::default()
    };
    if let Some(mut store) = top.table("store", "[store]") {
        file.store_kind = store.string("kind", r#"kind = "memory""#);
        store.finish();
    }
    if let Some(mut limits) = top.table("limits", "[limits]") {
        file.limits = Limits {
            sessions: limits.integer("sessions", "sessions = 100000"),
            streams: limits.integer("streams", "streams = 20000"),
            body_bytes: limits.integer("body_bytes", "body_bytes = 8388608"),
            session_idle: limits.string("session_idle", r#"session_idle = "30m""#),
        };
        limits.finish();
    }
    if let Some(servers) = top.table("servers", "[servers.NAME]") {
        file.servers = read_servers(servers, text);
    }
    top.finish();
    file
}

fn read_servers(servers: Table<'_, '_>, text: &str) -> Vec<Server> {
    let (names, findings) = servers.names();
    let mut read = Vec::new();
    for (name, entry) in names {
        let name = Spanned::new(entry.key.clone(), name.to_owned());
        let path = join("servers", name.get_ref());
        if let Some(table) = entry.table(path, "[servers.NAME]", findings) {
            read.push(read_server(name, table, text));
        }
    }
    read
}

fn read_server(name: Spanned<String>, mut table: Table<'_, '_>, text: &str) -> Server {
    let url_example = r#"url = "https://mcp.example.com/mcp""#;
    let url = table.url("url", text, name.span(), url_example);
    let headers_example = r#"headers = { Authorization = "Bearer ..." }"#;
    let headers = table.table("headers", headers_example);
    let headers = headers.map(read_headers).unwrap_or_default();
    let connect_timeout = table.string("connect_timeout", r#"connect_timeout = "10s""#);
    table.finish();
    Server {
        name,
        url,
        headers,
        connect_timeout,
    }
}

fn read_headers(headers: Table<'_, '_>) -> Vec<Header> {
    let (names, findings) = headers.names();
    let mut read = Vec::new();
    for (name, entry) in names {
        let name = Spanned::new(entry.key.clone(), name.to_owned());
        let what = format!("the header `{}`", name.get_ref().escape_debug());
        if let Some(value) = entry.string(&what, r#"Authorization = "Bearer ...""#, findings) {
            let value = value.into_inner();
            read.push(Header { name, value });
        }
    }
    // Two spellings of one header are reported at the later one.
    read.sort_by_key(|header| header.name.span().start);
    read
}
