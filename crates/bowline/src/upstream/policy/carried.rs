//! What is forwarded from a client's request along with its message: the query, and allowed
//! headers.

mod query;

use std::borrow::Cow;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_wire::header_policy::{Passage, passes};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde::{Deserialize, Serialize};

use self::query::left_of;
use crate::config::Server;
use bowline_egress::Head;

/// What is forwarded along with one message; may be empty.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub(crate) struct Carried {
    query: Option<Box<str>>,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The `Via` header of an `initialize`. It is not stored.
    pub(crate) via: Option<HeaderValue>,
}

/// The format in a session's record. Header values are bytes, so they are base64.
#[derive(Serialize, Deserialize)]
struct Written {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    query: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
}

/// The longest query that is forwarded. A URL cannot exceed 64 KiB altogether.
pub(crate) const MAX_QUERY: usize = 16 * 1024;

/// The headers that a client may send to a server: those that the operator allows, unless the
/// operator sets them or they must never be forwarded. A client's credentials for this gateway and
/// its session id are never forwarded, even if they are listed.
fn allowed(server: &Server) -> impl Iterator<Item = &HeaderName> {
    let configured = server.forward_headers.iter();
    configured
        .filter(|name| !server.headers.contains_key(*name) && passes(name, Passage::Forwarded))
}

/// The headers that a client may send to any of these servers, each once.
pub(crate) fn names_for_all<'s>(servers: impl Iterator<Item = &'s Server>) -> Vec<HeaderName> {
    let mut names: Vec<HeaderName> = Vec::new();
    for name in servers.flat_map(allowed) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

// === impl Carried ===

impl Carried {
    /// Selects the query of a request and the headers that the operator allows.
    pub(crate) fn of(query: Option<&str>, headers: &HeaderMap, server: &Server) -> Self {
        let query = query.filter(|query| !query.is_empty());
        Self::named(query, headers, allowed(server))
    }

    /// The same for several servers: the headers that any of them may get ([`names_for_all`]).
    /// [`Carried::for_server`] selects those of one.
    pub(crate) fn of_all(query: Option<&str>, headers: &HeaderMap, names: &[HeaderName]) -> Self {
        let query = query.filter(|query| !query.is_empty());
        Self::named(query, headers, names.iter())
    }

    fn named<'n>(
        query: Option<&str>,
        headers: &HeaderMap,
        names: impl Iterator<Item = &'n HeaderName>,
    ) -> Self {
        let mut carried = Vec::new();
        for name in names {
            for value in headers.get_all(name) {
                let mut value = value.clone();
                value.set_sensitive(true);
                carried.push((name.clone(), value));
            }
        }
        Self {
            query: query.map(Into::into),
            headers: carried,
            via: None,
        }
    }

    /// What of it may go to this server. Nothing says that it came by another way.
    pub(crate) fn for_server(&self, server: &Server) -> Self {
        let headers = self.headers.iter();
        let headers = headers.filter(|(name, _)| allowed(server).any(|allowed| allowed == name));
        Self {
            query: self.query.clone(),
            headers: headers.cloned().collect(),
            via: None,
        }
    }

    /// The same with this query.
    pub(crate) fn with_query(self, query: Option<&str>) -> Self {
        Self {
            query: query.map(Into::into),
            ..self
        }
    }

    /// Whether it is the same, whichever way it came.
    pub(crate) fn says_as(&self, other: &Self) -> bool {
        (&self.query, &self.headers) == (&other.query, &other.headers)
    }

    /// A hash that distinguishes it from others and does not disclose its contents.
    pub(crate) fn fingerprint(&self) -> Box<str> {
        let mut hash = digest::Context::new(&digest::SHA256);
        hash.update(self.query.as_deref().unwrap_or_default().as_bytes());
        for (name, value) in &self.headers {
            for part in [&b"\n"[..], name.as_str().as_bytes(), b":", value.as_bytes()] {
                hash.update(part);
            }
        }
        URL_SAFE_NO_PAD.encode(&hash.finish().as_ref()[..12]).into()
    }

    /// How many bytes of the client's it holds.
    pub(crate) fn len(&self) -> usize {
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| name.as_str().len() + value.len());
        self.query.as_ref().map_or(0, |query| query.len()) + headers.sum::<usize>()
    }

    /// A copy for the session, if there is anything to keep. The values of a request point into the
    /// read buffer of its connection, which a copy must not hold.
    pub(crate) fn to_keep(&self) -> Option<Box<Self>> {
        if self.is_empty() {
            return None;
        }
        let headers = self.headers.iter().filter_map(|(name, value)| {
            let mut copy = HeaderValue::from_bytes(value.as_bytes()).ok()?;
            copy.set_sensitive(true);
            Some((name.clone(), copy))
        });
        Some(Box::new(Self {
            query: self.query.clone(),
            headers: headers.collect(),
            via: None,
        }))
    }

    /// Completes this by what was forwarded when the session was opened, as far as the operator
    /// still allows it.
    pub(crate) fn or(&self, opening: &Self, server: &Server) -> Self {
        let mut both = self.clone();
        if both.query.is_none() {
            both.query.clone_from(&opening.query);
        }
        let is_missing = |name: &HeaderName| self.headers.iter().all(|(own, _)| own != name);
        for name in allowed(server).filter(|name| is_missing(name)) {
            let kept = opening.headers.iter().filter(|(kept, _)| kept == name);
            both.headers.extend(kept.cloned());
        }
        both
    }

    pub(crate) fn add_to(&self, head: &mut Head) {
        for (name, value) in &self.headers {
            head.add(name, value);
        }
        if let Some(via) = &self.via {
            head.add(&header::VIA, via);
        }
    }

    /// Whether nothing is forwarded.
    pub(crate) fn is_empty(&self) -> bool {
        self.query.is_none() && self.headers.is_empty()
    }

    /// The target that a server named for messages, with the client's query. A client cannot override what the
    /// server set there, nor what the operator set in the configured target.
    pub(crate) fn message_target(
        &self,
        named: &PathAndQuery,
        configured: &PathAndQuery,
    ) -> PathAndQuery {
        let (Some(query), Some(set)) = (&self.query, configured.query()) else {
            return self.target(named);
        };
        let left = left_of(query, set);
        let left = Self {
            query: (!left.is_empty()).then(|| left.into()),
            ..Self::default()
        };
        left.target(named)
    }

    /// The configured target with the client's query after its own, both unchanged. A client cannot
    /// override or repeat parameters that the operator set: servers differ on which of two counts.
    pub(crate) fn target(&self, configured: &PathAndQuery) -> PathAndQuery {
        let Some(query) = &self.query else {
            return configured.clone();
        };
        let query = match configured.query() {
            None | Some("") => Cow::Borrowed(&**query),
            Some(set) => Cow::Owned(left_of(query, set)),
        };
        if query.is_empty() {
            return configured.clone();
        }
        let between = match configured.query() {
            None => "?",
            Some("") => "",
            Some(_) => "&",
        };
        let joined = format!("{configured}{between}{query}");
        // Both are valid. Together they can be too long only if the configured one nearly is.
        PathAndQuery::try_from(joined).unwrap_or_else(|_| configured.clone())
    }
}

impl From<Carried> for Written {
    fn from(carried: Carried) -> Self {
        let headers = carried.headers.iter();
        Self {
            headers: headers
                .map(|(name, value)| (name.to_string(), URL_SAFE_NO_PAD.encode(value)))
                .collect(),
            query: carried.query,
        }
    }
}

impl TryFrom<Written> for Carried {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let headers = written.headers.iter().map(|(name, value)| {
            let name = name.parse().map_err(|_| "invalid header name")?;
            let value = URL_SAFE_NO_PAD.decode(value);
            let value = value.map_err(|_| "invalid header value")?;
            let mut value = HeaderValue::try_from(value).map_err(|_| "invalid header value")?;
            value.set_sensitive(true);
            Ok((name, value))
        });
        Ok(Self {
            headers: headers.collect::<Result<_, Self::Error>>()?,
            query: written.query,
            via: None,
        })
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
        assert_eq!(joined("/?a", Some("b=%2F+&&=?/é")), "/?a&b=%2F+&&=?/é");
    }

    #[test]
    fn what_the_operator_set_is_neither_overridden_nor_repeated() {
        let configured = PathAndQuery::from_static("/mcp?project_ref=alpha&read%5Fonly=true&key");
        let server = Server::from_url("http://localhost/").unwrap();
        for (query, left) in [
            ("project_ref=beta", ""),
            ("x=1&read_only=false&y", "&x=1&y"),
            ("project%5Fref=beta&x=%26read_only", "&x=%26read_only"),
            ("Project_Ref=beta&READ_ONLY", ""),
            ("read_only[]=false&read_only%5B0%5D=false", ""),
            ("read.only=0&read+only=0&%20read_only=0&read_only%00x=0", ""),
            ("x=1;read_only=false&key", ""),
            (
                "[key]=1&%5Bkey%5D=1&key]=1&[key=1&]key=1&[[key]]=1&read[only=0",
                "",
            ),
            (
                "%u006bey=1&%U006Bey=1&k%u0065y=1&%6b%u0065%u0079=1&%u005Bkey%u005d=1&read%u005fonly=0&key%u0000x=1",
                "",
            ),
            (
                "keys=1&akey=2&%u006=1&%uzzzz=1&%ud800=1&%u&%25=1",
                "&keys=1&akey=2&%u006=1&%uzzzz=1&%ud800=1&%u&%25=1",
            ),
        ] {
            let carried = Carried::of(Some(query), &HeaderMap::new(), &server);
            let expected = format!("{configured}{left}");
            assert_eq!(carried.target(&configured).as_str(), expected, "{query}");
        }
    }

    #[test]
    fn a_message_url_is_neither_overridden_by_the_client_nor_are_the_operators_parameters() {
        let server = Server::from_url("http://localhost/").unwrap();
        let named = PathAndQuery::from_static("/messages?session_id=1");
        let target = |query, configured| {
            let carried = Carried::of(query, &HeaderMap::new(), &server);
            let configured = PathAndQuery::from_static(configured);
            carried.message_target(&named, &configured).to_string()
        };
        assert_eq!(target(None, "/sse?key=a"), "/messages?session_id=1");
        let query = Some("session_id=2&key=b&x=1");
        assert_eq!(target(query, "/sse?key=a"), "/messages?session_id=1&x=1");
        assert_eq!(target(query, "/sse"), "/messages?session_id=1&key=b&x=1");
        assert_eq!(
            target(Some("key=b"), "/sse?key=a"),
            "/messages?session_id=1"
        );
    }

    #[test]
    fn what_a_request_lacks_comes_from_the_opening_if_it_is_still_allowed() {
        let mut server = Server::from_url("http://localhost/").unwrap();
        server.forward_headers = ["x-tenant", "x-trace", "x-gone"]
            .map(HeaderName::from_static)
            .to_vec();
        let carried = |query, headers: &[(&'static str, &[u8])]| {
            let headers = headers.iter().map(|(name, value)| {
                let value = HeaderValue::from_bytes(value).unwrap();
                (HeaderName::from_static(name), value)
            });
            Carried::of(query, &headers.collect(), &server)
        };
        let opening = carried(
            Some("t=1"),
            &[("x-tenant", b"a\xff"), ("x-trace", b"1"), ("x-gone", b"1")],
        );
        let mut now = server.clone();
        now.forward_headers.pop();
        let kept = opening.to_keep().unwrap();
        let met = carried(None, &[("x-trace", b"2")]).or(&kept, &now);
        let wanted = carried(Some("t=1"), &[("x-trace", b"2"), ("x-tenant", b"a\xff")]);
        let mut wanted = wanted;
        wanted.headers.reverse();
        assert!(met == wanted);
        assert!(carried(Some("t=2"), &[]).or(&kept, &now).query.as_deref() == Some("t=2"));
        assert!(Carried::default().to_keep().is_none());
        let written = serde_json::to_string(&*kept).unwrap();
        assert!(serde_json::from_str::<Carried>(&written).unwrap() == opening);
        assert_eq!(opening.len(), 3 + 8 + 2 + 7 + 1 + 6 + 1);
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
