//! The headers an operator adds for a server, and the names that are not theirs to set.
//!
//! A gateway that let a file set `Content-Length` or `Mcp-Session-Id` would break messages or mix
//! up sessions, so those names are refused here, each with the reason.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::file;
use super::report::Findings;

/// The headers as meant; what is wrong goes to `findings`, always at the name: a value is secret.
pub(super) fn check(written: Vec<file::Header>, findings: &mut Findings) -> HeaderMap {
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
