//! The headers an operator adds for a server or passes on to it, and the names that are not theirs.
//!
//! A gateway that let a file set `Content-Length` or `Mcp-Session-Id` would break messages or mix
//! up sessions, and one that passed on `Authorization` would hand a client's key to a server that
//! it is not for. So those names are refused here, each with the reason.

use http::{HeaderMap, HeaderName, HeaderValue};

use toml::Spanned;

use crate::config::read::Secret;
use crate::config::report::Findings;

/// The headers as meant; what is wrong goes to `findings`, always at the name: a value is secret.
pub(super) fn check(written: Vec<Secret>, findings: &mut Findings) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for header in written {
        let shown = header.name.get_ref().escape_debug();
        let Ok(name) = HeaderName::from_bytes(header.name.get_ref().as_bytes()) else {
            findings.add(
                header.name.span(),
                format!("`{shown}` is not the name of a header"),
                "use only ASCII letters, digits and `-`, such as `X-Api-Key`",
            );
            continue;
        };
        if let Some(reason) = owned(name.as_str()) {
            findings.add(
                header.name.span(),
                format!("the header `{shown}` is set by Bowline: {reason}"),
                "remove it",
            );
            continue;
        }
        let Ok(mut value) = HeaderValue::from_str(&header.value) else {
            findings.add(
                header.name.span(),
                format!(
                    "the value of the header `{shown}` has a character that headers cannot have"
                ),
                "remove line ends and other control characters; one is easily copied along",
            );
            continue;
        };
        value.set_sensitive(true);
        // TOML tells `Authorization` from `authorization`; HTTP does not.
        if headers.insert(name, value).is_some() {
            findings.add(
                header.name.span(),
                format!("the header `{shown}` is given twice; capital letters make no difference"),
                "keep one of them",
            );
        }
    }
    headers
}

/// The client's headers that are passed on; what is wrong goes to `findings`.
pub(super) fn check_forwarded(
    written: Option<Vec<Spanned<String>>>,
    set: &HeaderMap,
    findings: &mut Findings,
) -> Vec<HeaderName> {
    let mut names: Vec<HeaderName> = Vec::new();
    for one in written.unwrap_or_default() {
        // The line shows the name, unless it came from a variable; so no message needs it.
        let mut refuse = |message: String, help| findings.add(one.span(), message, help);
        let Ok(name) = HeaderName::from_bytes(one.get_ref().as_bytes()) else {
            refuse(
                "this is not the name of a header".to_owned(),
                "use only ASCII letters, digits and `-`, such as `x-tenant`",
            );
            continue;
        };
        if let Some(reason) = kept(name.as_str()) {
            let message = format!("this header cannot be passed on: {reason}");
            refuse(
                message,
                "remove it; what the server needs can go in `headers`",
            );
        } else if set.contains_key(&name) {
            let message = "this header is also set in `headers`".to_owned();
            refuse(
                message,
                "keep it in one place; `headers` would win over the client",
            );
        } else if names.contains(&name) {
            let message = "this header is given twice; capital letters make no difference";
            refuse(message.to_owned(), "keep one of them");
        } else {
            names.push(name);
        }
    }
    names
}

/// Why a client's header is not passed on; `None` when it may be. `name` is in lower case.
fn kept(name: &str) -> Option<&'static str> {
    Some(match name {
        "authorization" | "proxy-authorization" => {
            "it carries the client's credentials, which are for Bowline"
        }
        "cookie" | "cookie2" => "it carries the client's credentials; cookies are kept per session",
        "origin" | "referer" => "it was checked here and means nothing to the server",
        "accept-encoding" => "Bowline has to read the answers",
        "expect" => "it belongs to each connection",
        "forwarded" | "via" | "x-real-ip" => "clients could lie about where they come from",
        _ if name.starts_with("x-forwarded-") => "clients could lie about where they come from",
        _ if name.starts_with("content-") => "it follows from each message's body",
        _ if name.starts_with("mcp-") => "it belongs to the session with Bowline",
        _ => return owned(name),
    })
}

/// Why Bowline sets this header itself; `None` when the operator may set it. `name` is in lower case.
fn owned(name: &str) -> Option<&'static str> {
    Some(match name {
        "host" => "it follows from the URL",
        "content-length" | "transfer-encoding" => "it follows from each message's body",
        "connection" | "keep-alive" | "te" | "trailer" | "upgrade" => {
            "it belongs to each connection"
        }
        _ if name.starts_with("proxy-") => "it belongs to each connection",
        "accept" | "content-type" => "MCP fixes its value",
        "cookie" => "cookies are kept per session",
        "mcp-session-id" => "the server's own id is used",
        "mcp-protocol-version" => "it is agreed on per session",
        "last-event-id" => "it is kept per stream",
        _ => return None,
    })
}
