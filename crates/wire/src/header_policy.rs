//! The one table of headers that the gateway does not pass from one side to the other.
//!
//! If a configuration could set `Content-Length` or `Mcp-Session-Id`, it would break messages or mix up
//! sessions; if `Authorization` were forwarded, a server would get a key that is not meant for it. Each
//! place where headers pass has a column here, so that no place needs a list of its own.

use http::HeaderName;

/// A place where headers enter a request to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// A header of the configuration is written into a message to a server. A header that Bowline writes
    /// itself must not appear twice, even if a generated configuration asks for it.
    Configured,
    /// A client's header is forwarded with its message.
    Forwarded,
    /// A header is written into a request of Bowline's own: discovery, registration, tokens. `Accept` and
    /// `Content-Type` pass there, because each such request has its own.
    Fetched,
}

/// The rule for one header.
struct Rule {
    name: Name,
    /// Why the configuration cannot set it in `headers`.
    unsettable: Option<&'static str>,
    /// Why the configuration cannot list it in `forward_headers`.
    unforwardable: Option<&'static str>,
    /// Where it never passes, independent of the configuration.
    stops: &'static [Passage],
}

enum Name {
    Is(&'static str),
    StartsWith(&'static str),
}

use Name::{Is, StartsWith};
use Passage::{Configured, Fetched, Forwarded};

const URL: Option<&str> = Some("it is derived from the URL");
const BODY: Option<&str> = Some("it is derived from each message's body");
const CONNECTION: Option<&str> = Some("it belongs to each connection");
const PROTOCOL: Option<&str> = Some("MCP fixes its value");
const CREDENTIALS: Option<&str> =
    Some("it carries the client's credentials, which are for Bowline");
const COOKIES: Option<&str> = Some("cookies are kept per session");
const CLIENT_COOKIES: Option<&str> =
    Some("it carries the client's credentials; cookies are kept per session");
const SESSION: Option<&str> = Some("it belongs to the session with Bowline");
const STREAM: Option<&str> = Some("it is kept per stream");
const CHECKED: Option<&str> = Some("it was checked here and means nothing to the server");
const SPOOFED: Option<&str> = Some("clients could forge where they come from");
const READ: Option<&str> = Some("Bowline must be able to read the responses");

const EVERYWHERE: &[Passage] = &[Configured, Forwarded, Fetched];
const MESSAGES: &[Passage] = &[Configured, Forwarded];

/// The first rule that matches applies.
#[rustfmt::skip]
const RULES: &[Rule] = &[
    rule(Is("host"),                   URL,        URL,            EVERYWHERE),
    rule(Is("content-length"),         BODY,       BODY,           EVERYWHERE),
    rule(Is("transfer-encoding"),      BODY,       BODY,           EVERYWHERE),
    rule(Is("connection"),             CONNECTION, CONNECTION,     EVERYWHERE),
    rule(Is("te"),                     CONNECTION, CONNECTION,     EVERYWHERE),
    rule(Is("trailer"),                CONNECTION, CONNECTION,     EVERYWHERE),
    rule(Is("upgrade"),                CONNECTION, CONNECTION,     EVERYWHERE),
    rule(Is("keep-alive"),             CONNECTION, CONNECTION,     MESSAGES),
    rule(Is("proxy-authorization"),    CONNECTION, CREDENTIALS,    MESSAGES),
    rule(StartsWith("proxy-"),         CONNECTION, CONNECTION,     MESSAGES),
    rule(Is("accept"),                 PROTOCOL,   PROTOCOL,       MESSAGES),
    rule(Is("content-type"),           PROTOCOL,   BODY,           MESSAGES),
    rule(StartsWith("content-"),       None,       BODY,           &[]),
    rule(Is("cookie"),                 COOKIES,    CLIENT_COOKIES, EVERYWHERE),
    rule(Is("cookie2"),                None,       CLIENT_COOKIES, &[]),
    rule(Is("mcp-session-id"),         Some("the server's own id is used"), SESSION, MESSAGES),
    rule(Is("mcp-protocol-version"),   Some("it is negotiated per session"), SESSION, MESSAGES),
    rule(StartsWith("mcp-"),           None,       SESSION,        &[]),
    rule(Is("last-event-id"),          STREAM,     STREAM,         MESSAGES),
    // An operator may set these two, but Bowline replaces the value: it could not read the responses
    // otherwise.
    rule(Is("accept-encoding"),        None,       READ,           EVERYWHERE),
    rule(Is("expect"),                 None,       CONNECTION,     EVERYWHERE),
    rule(Is("authorization"),          None,       CREDENTIALS,    &[Forwarded]),
    rule(Is("user-agent"),             None,       None,           &[Forwarded, Fetched]),
    rule(Is("via"),                    None,       SPOOFED,        &[Forwarded]),
    rule(Is("forwarded"),              None,       SPOOFED,        &[]),
    rule(Is("x-real-ip"),              None,       SPOOFED,        &[]),
    rule(StartsWith("x-forwarded-"),   None,       SPOOFED,        &[]),
    rule(Is("origin"),                 None,       CHECKED,        &[]),
    rule(Is("referer"),                None,       CHECKED,        &[]),
];

const fn rule(
    name: Name,
    unsettable: Option<&'static str>,
    unforwardable: Option<&'static str>,
    stops: &'static [Passage],
) -> Rule {
    Rule {
        name,
        unsettable,
        unforwardable,
        stops,
    }
}

/// Whether a header passes at this place.
pub fn passes(name: &HeaderName, passage: Passage) -> bool {
    rule_of(name).is_none_or(|rule| !rule.stops.contains(&passage))
}

/// Why the configuration cannot set this header for a server; `None` if it can.
pub fn unsettable(name: &HeaderName) -> Option<&'static str> {
    rule_of(name)?.unsettable
}

/// Why the configuration cannot forward this header of a client; `None` if it can.
pub fn unforwardable(name: &HeaderName) -> Option<&'static str> {
    rule_of(name)?.unforwardable
}

fn rule_of(name: &HeaderName) -> Option<&'static Rule> {
    let name = name.as_str();
    RULES.iter().find(|rule| match rule.name {
        Is(known) => name == known,
        StartsWith(prefix) => name.starts_with(prefix),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &'static str) -> HeaderName {
        HeaderName::from_static(name)
    }

    #[test]
    fn a_rule_for_one_name_comes_before_the_one_for_its_prefix() {
        for (at, rule) in RULES.iter().enumerate() {
            let Is(exact) = rule.name else { continue };
            let hidden = RULES[..at]
                .iter()
                .any(|one| matches!(one.name, StartsWith(prefix) if exact.starts_with(prefix)));
            assert!(!hidden, "{exact}");
        }
    }

    #[test]
    fn credentials_for_the_gateway_stay_here_and_an_operators_pass() {
        let authorization = name("authorization");
        assert!(!passes(&authorization, Forwarded));
        assert!(passes(&authorization, Configured));
        assert!(passes(&authorization, Fetched));
        assert_eq!(unsettable(&authorization), None);
        assert!(unforwardable(&authorization).is_some());
    }

    #[test]
    fn session_ids_pass_nowhere_in_messages() {
        let id = crate::header::SESSION_ID;
        assert!(!passes(&id, Forwarded) && !passes(&id, Configured));
        assert!(unsettable(&id).is_some() && unforwardable(&id).is_some());
    }

    #[test]
    fn what_no_rule_names_passes() {
        for passage in EVERYWHERE {
            assert!(passes(&name("x-tenant"), *passage));
        }
    }
}
