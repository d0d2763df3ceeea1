//! What `bowline serve` prints when it is ready: where each server is and, with the demo, what to
//! try. The commands must work when pasted into a shell; `tests/cli.rs` runs them.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use bowline::config::{ListenAddress, ServerName, StoreKind};

use crate::demo::Demo;

/// The name under which health is shown beside the servers.
const HEALTH: &str = "health";

/// The name under which all servers as one are shown.
const ALL: &str = "all";

/// The name under which it is shown where sessions are kept.
const SESSIONS: &str = "sessions";

/// The text printed at the start.
#[derive(Debug)]
pub(crate) struct Greeting<'a> {
    pub(crate) listen: &'a ListenAddress,
    /// How URLs of the listener begin: `http` or `https`.
    pub(crate) scheme: &'static str,
    pub(crate) admin: Option<&'a ListenAddress>,
    pub(crate) servers: &'a [ServerName],
    /// Unions with a name of their own.
    pub(crate) unions: &'a [ServerName],
    pub(crate) store: &'a StoreKind,
    pub(crate) demo: bool,
}

impl fmt::Display for Greeting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = base_url(self.scheme, self.listen);
        let version = env!("CARGO_PKG_VERSION");
        match self.listen {
            ListenAddress::Tcp(_) => writeln!(f, "Bowline {version} is listening on {base}")?,
            socket @ ListenAddress::Unix(_) => {
                writeln!(f, "Bowline {version} is listening on {socket}")?;
            }
        }
        let names = self.servers.iter().chain(self.unions).map(AsRef::as_ref);
        let width = names.chain([SESSIONS]).map(str::len).max().unwrap_or(0);
        if self.servers.len() > 1 {
            writeln!(f, "{ALL:>width$}  {base}/mcp")?;
        }
        for name in self.servers.iter().chain(self.unions) {
            writeln!(f, "{name:>width$}  {base}/mcp/{name}")?;
        }
        if let Some(admin) = self.admin {
            let place = match admin {
                ListenAddress::Tcp(_) => String::new(),
                socket @ ListenAddress::Unix(_) => format!(" on {socket}"),
            };
            writeln!(
                f,
                "{HEALTH:>width$}  {}/health{place}",
                base_url("http", admin)
            )?;
        }
        let fate = match self.store {
            StoreKind::Memory => ": they are lost when this process ends",
            StoreKind::File { .. } | StoreKind::Redis(_) => "",
        };
        writeln!(f, "{SESSIONS:>width$}  in {}{fate}", self.store)?;
        if self.demo {
            what_to_try(f, &format!("{base}/mcp/{}", Demo::NAME), self.listen)?;
        }
        Ok(())
    }
}

/// The start of an URL as a client on this machine writes it: nobody can connect to a wildcard, and a client that
/// connects to a socket needs a name all the same.
fn base_url(scheme: &str, address: &ListenAddress) -> String {
    match address {
        ListenAddress::Tcp(address) if address.ip().is_unspecified() => {
            let reachable = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()));
            format!("{scheme}://{reachable}")
        }
        ListenAddress::Tcp(address) => format!("{scheme}://{address}"),
        ListenAddress::Unix(_) => "http://localhost".to_owned(),
    }
}

/// How a shell calls curl for this listener.
fn curl(listen: &ListenAddress) -> String {
    match listen {
        ListenAddress::Tcp(_) => "curl".to_owned(),
        ListenAddress::Unix(path) => {
            let path = path.to_string_lossy().replace('\'', r"'\''");
            format!("curl --unix-socket '{path}'")
        }
    }
}

fn what_to_try(f: &mut fmt::Formatter<'_>, url: &str, listen: &ListenAddress) -> fmt::Result {
    let (name, curl) = (Demo::NAME, curl(listen));
    write!(
        f,
        r#"
No server was given, so this is the built-in demo server, in two replicas. Its tools keep state in
the session. Put your own server behind Bowline with `--server NAME=URL`.

Open a session; its Mcp-Session-Id is in the response headers:

  {curl} -i '{url}' \
    -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
    -d '{INITIALIZE}'

Or let the shell keep the session, and call the tool `count` twice in it:

  mcp() {{ {curl} -s '{url}' -H 'Content-Type: application/json' \
    -H 'Accept: application/json, text/event-stream' "$@"; echo; }}
  session=$(mcp -D - -o /dev/null \
    -d '{INITIALIZE}' |
    tr -d '\r' | awk 'tolower($1) == "mcp-session-id:" {{ print $2 }}')
  mcp -H "Mcp-Session-Id: $session" -d '{CALL_COUNT}'
  mcp -H "Mcp-Session-Id: $session" -d '{CALL_COUNT_AGAIN}'
"#
    )?;
    if listen.tcp().is_some() {
        write!(
            f,
            r#"
Or add it to an editor's MCP configuration:

  {{"mcpServers": {{"{name}": {{"type": "http", "url": "{url}"}}}}}}
"#
        )?;
    }
    writeln!(f, "\nCtrl-C stops it.")
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
        greeting_by("http", listen, admin, servers, store)
    }

    fn greeting_by(
        scheme: &'static str,
        listen: &str,
        admin: Option<&str>,
        servers: &[&str],
        store: &StoreKind,
    ) -> String {
        let servers: Vec<ServerName> = servers.iter().map(|name| name.parse().unwrap()).collect();
        let listen = listen.parse().unwrap();
        let admin: Option<ListenAddress> = admin.map(|admin| admin.parse().unwrap());
        let greeting = Greeting {
            listen: &listen,
            scheme,
            admin: admin.as_ref(),
            unions: &[],
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
     all  http://127.0.0.1:6270/mcp
   files  http://127.0.0.1:6270/mcp/files
calendar  http://127.0.0.1:6270/mcp/calendar
  health  http://[::1]:6271/health
sessions  in /var/lib/bowline

"#]]
        );
    }

    #[test]
    fn a_socket_is_named_and_paths_are_shown_as_urls() {
        let (listen, admin) = ("unix:/run/bowline.sock", Some("unix:/run/admin.sock"));
        let text = greeting(listen, admin, &["files"], &StoreKind::Memory);
        snapbox::assert_data_eq!(
            text,
            snapbox::str![[r#"
Bowline 1.2.3 is listening on unix:/run/bowline.sock
   files  http://localhost/mcp/files
  health  http://localhost/health on unix:/run/admin.sock
sessions  in memory: they are lost when this process ends

"#]]
        );
    }

    #[test]
    fn with_tls_clients_are_told_https_and_the_operator_is_not() {
        let admin = Some("127.0.0.1:6271");
        let text = greeting_by("https", "0.0.0.0:6270", admin, &["a"], &StoreKind::Memory);
        assert!(
            text.contains("listening on https://127.0.0.1:6270\n"),
            "{text}"
        );
        assert!(text.contains("https://127.0.0.1:6270/mcp/a\n"), "{text}");
        assert!(text.contains("http://127.0.0.1:6271/health\n"), "{text}");
    }

    #[test]
    fn a_path_is_quoted_for_the_shell() {
        let listen = "unix:/run/it's/b.sock".parse().unwrap();
        assert_eq!(curl(&listen), r"curl --unix-socket '/run/it'\''s/b.sock'");
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
