//! What `bowline serve` prints when it is ready: where each server is and, with the demo, what to
//! try. The commands must work when pasted into a shell; `tests/cli.rs` runs them.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use bowline::config::{ServerName, StoreKind};

use crate::demo::Demo;

/// The name under which health is shown beside the servers.
const HEALTH: &str = "health";

/// The name under which it is shown where sessions are kept.
const SESSIONS: &str = "sessions";

/// The text printed at the start.
#[derive(Debug)]
pub(crate) struct Greeting<'a> {
    pub(crate) listen: SocketAddr,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) servers: &'a [ServerName],
    pub(crate) store: &'a StoreKind,
    pub(crate) demo: bool,
}

impl fmt::Display for Greeting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = base_url(self.listen);
        let version = env!("CARGO_PKG_VERSION");
        writeln!(f, "Bowline {version} is listening on {base}")?;
        let names = self.servers.iter().map(AsRef::as_ref);
        let width = names.chain([SESSIONS]).map(str::len).max().unwrap_or(0);
        for name in self.servers {
            writeln!(f, "{name:>width$}  {base}/mcp/{name}")?;
        }
        if let Some(admin) = self.admin {
            writeln!(f, "{HEALTH:>width$}  {}/health", base_url(admin))?;
        }
        let fate = match self.store {
            StoreKind::Memory => ": they are lost when this process ends",
            StoreKind::File { .. } | StoreKind::Redis(_) => "",
        };
        writeln!(f, "{SESSIONS:>width$}  in {}{fate}", self.store)?;
        if self.demo {
            what_to_try(f, &format!("{base}/mcp/{}", Demo::NAME))?;
        }
        Ok(())
    }
}

/// An address as a client on this machine reaches it: nobody can connect to a wildcard.
fn base_url(mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    format!("http://{address}")
}

fn what_to_try(f: &mut fmt::Formatter<'_>, url: &str) -> fmt::Result {
    let name = Demo::NAME;
    write!(
        f,
        r#"
No server was given, so this is the built-in demo server, in two replicas. Its tools keep state in
the session. Put your own server behind Bowline with `--server NAME=URL`.

Open a session; its Mcp-Session-Id is in the response headers:

  curl -i '{url}' \
    -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
    -d '{INITIALIZE}'

Or let the shell keep the session, and call the tool `count` twice in it:

  mcp() {{ curl -s '{url}' -H 'Content-Type: application/json' \
    -H 'Accept: application/json, text/event-stream' "$@"; echo; }}
  session=$(mcp -D - -o /dev/null \
    -d '{INITIALIZE}' |
    tr -d '\r' | awk 'tolower($1) == "mcp-session-id:" {{ print $2 }}')
  mcp -H "Mcp-Session-Id: $session" -d '{CALL_COUNT}'
  mcp -H "Mcp-Session-Id: $session" -d '{CALL_COUNT_AGAIN}'

Or add it to an editor's MCP configuration:

  {{"mcpServers": {{"{name}": {{"type": "http", "url": "{url}"}}}}}}

Ctrl-C stops it.
"#
    )
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}"#;
const CALL_COUNT: &str =
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"count"}}"#;
const CALL_COUNT_AGAIN: &str =
    r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"count"}}"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(listen: &str, admin: Option<&str>, servers: &[&str], store: &StoreKind) -> String {
        let servers: Vec<ServerName> = servers.iter().map(|name| name.parse().unwrap()).collect();
        let greeting = Greeting {
            listen: listen.parse().unwrap(),
            admin: admin.map(|admin| admin.parse().unwrap()),
            servers: &servers,
            store,
            demo: false,
        };
        let text = greeting.to_string();
        text.replace(env!("CARGO_PKG_VERSION"), "1.2.3")
    }

    #[test]
    fn a_line_per_server() {
        let store = StoreKind::File {
            path: "/var/lib/bowline".into(),
        };
        let servers = ["files", "calendar"];
        let text = greeting("127.0.0.1:6270", Some("[::1]:6271"), &servers, &store);
        snapbox::assert_data_eq!(
            text,
            snapbox::str![[r#"
Bowline 1.2.3 is listening on http://127.0.0.1:6270
   files  http://127.0.0.1:6270/mcp/files
calendar  http://127.0.0.1:6270/mcp/calendar
  health  http://[::1]:6271/health
sessions  in /var/lib/bowline

"#]]
        );
    }

    #[test]
    fn a_wildcard_is_shown_as_an_address_to_connect_to() {
        for wildcard in ["0.0.0.0:1", "[::]:1"] {
            let text = greeting(wildcard, None, &["a"], &StoreKind::Memory);
            assert!(text.contains("http://127.0.0.1:1/mcp/a\n"), "{text}");
            assert!(!text.contains(wildcard), "{text}");
            assert!(!text.contains(HEALTH), "{text}");
        }
    }
}
