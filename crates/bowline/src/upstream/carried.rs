//! What of a client's request goes along with its message: the query, and headers on a list.

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::config::Server;
use crate::egress::Head;

/// What is carried along with one message, or nothing.
#[derive(Clone, Default)]
pub(crate) struct Carried {
    query: Option<Box<str>>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// The longest query that is carried. A URL cannot have more than 64 KiB altogether.
pub(crate) const MAX_QUERY: usize = 16 * 1024;

/// The headers that a client may send through to a server: those that the operator allows, unless
/// they are the operator's to set, or never anybody's. Whatever a list says, a client's
/// credentials for this gateway stay here, and session ids are never the client's.
fn allowed(server: &Server) -> impl Iterator<Item = &HeaderName> {
    let configured = server.forward_headers.iter();
    configured.filter(|name| !server.headers.contains_key(*name) && !is_ours(name))
}

/// Whether a header is never a client's.
fn is_ours(name: &HeaderName) -> bool {
    *name == header::AUTHORIZATION || *name == header::USER_AGENT || is_fixed(name)
}

/// Whether a header is Bowline's own in every request, or belongs to one connection: whatever a
/// configuration made by a program says, it is not in a request twice.
pub(super) fn is_fixed(name: &HeaderName) -> bool {
    use bowline_wire::header as mcp;
    let protocol = [mcp::SESSION_ID, mcp::PROTOCOL_VERSION, mcp::LAST_EVENT_ID];
    let http = [
        header::ACCEPT,
        header::ACCEPT_ENCODING,
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::COOKIE,
        header::EXPECT,
        header::HOST,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    protocol.contains(name)
        || http.contains(name)
        || name == "keep-alive"
        || name.as_str().starts_with("proxy-")
}

// === impl Carried ===

impl Carried {
    /// Takes the query of a request, and the headers that the operator allows.
    pub(crate) fn of(query: Option<&str>, headers: &HeaderMap, server: &Server) -> Self {
        let mut carried = Vec::new();
        for name in allowed(server) {
            for value in headers.get_all(name) {
                let mut value = value.clone();
                value.set_sensitive(true);
                carried.push((name.clone(), value));
            }
        }
        Self {
            query: query.filter(|query| !query.is_empty()).map(Into::into),
            headers: carried,
        }
    }

    /// Adds the headers.
    pub(super) fn add_to(&self, head: &mut Head) {
        for (name, value) in &self.headers {
            head.add(name, value);
        }
    }

    /// Whether nothing goes along.
    pub(super) fn is_empty(&self) -> bool {
        self.query.is_none() && self.headers.is_empty()
    }

    /// The configured target with the client's query after its own, both byte for byte.
    pub(super) fn target(&self, configured: &PathAndQuery) -> PathAndQuery {
        let Some(query) = &self.query else {
            return configured.clone();
        };
        let between = match configured.query() {
            None => "?",
            Some("") => "",
            Some(_) => "&",
        };
        let joined = format!("{configured}{between}{query}");
        // Both are valid, and together too long only if the configured one nearly is by itself.
        PathAndQuery::try_from(joined).unwrap_or_else(|_| configured.clone())
    }
}

impl std::fmt::Debug for Carried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Carried(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_joined_byte_for_byte() {
        let joined = |configured: &'static str, query| {
            let carried = Carried::of(
                query,
                &HeaderMap::new(),
                &Server::from_url("http://localhost/").unwrap(),
            );
            let target = carried.target(&PathAndQuery::from_static(configured));
            target.as_str().to_owned()
        };
        assert_eq!(joined("/mcp", None), "/mcp");
        assert_eq!(joined("/mcp", Some("")), "/mcp");
        assert_eq!(joined("/mcp", Some("x=1")), "/mcp?x=1");
        assert_eq!(joined("/mcp?a=b", Some("x=1")), "/mcp?a=b&x=1");
        assert_eq!(joined("/mcp?a=b", None), "/mcp?a=b");
        assert_eq!(joined("/mcp?", Some("x=1")), "/mcp?x=1");
        assert_eq!(joined("/?a", Some("a=%2F+&&=?/é")), "/?a&a=%2F+&&=?/é");
    }

    #[test]
    fn what_is_bowlines_own_is_on_no_list() {
        let mut server = Server::from_url("http://localhost/").unwrap();
        server
            .headers
            .insert("x-tenant", HeaderValue::from_static("t"));
        let names = [
            "x-tenant",
            "x-trace",
            "authorization",
            "cookie",
            "mcp-session-id",
            "host",
            "proxy-authorization",
            "connection",
        ];
        server.forward_headers = names.map(HeaderName::from_static).to_vec();
        assert_eq!(allowed(&server).collect::<Vec<_>>(), ["x-trace"]);
    }
}
