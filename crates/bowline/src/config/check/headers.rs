//! The headers that an operator adds for a server or passes on to it. Those that
//! [`header_policy`](bowline_wire::header_policy) keeps back are errors here, each with its reason.

use bowline_wire::header_policy::{unforwardable, unsettable};
use http::{HeaderMap, HeaderName, HeaderValue};
use toml::Spanned;

use crate::config::read::Secret;
use crate::config::report::Findings;

/// The headers as meant; what is wrong goes to `findings`, always at the name: a value is secret.
pub(super) fn check(written: Vec<Secret>, findings: &mut Findings) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for header in written {
        if let Err(problem) = add(&mut headers, header.name.get_ref(), &header.value) {
            findings.add(header.name.span(), problem.what, problem.help);
        }
    }
    headers
}

/// Why a header cannot be set.
pub(in crate::config) struct HeaderError {
    pub(in crate::config) what: String,
    pub(in crate::config) help: &'static str,
}

/// Adds a header that every request to a server has.
pub(in crate::config) fn add(
    headers: &mut HeaderMap,
    name: &str,
    value: &str,
) -> Result<(), HeaderError> {
    let shown = name.escape_debug();
    let error = |what, help| HeaderError { what, help };
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
        let what = format!("`{shown}` is not the name of a header");
        let help = "use only ASCII letters, digits and `-`, such as `X-Api-Key`";
        error(what, help)
    })?;
    if let Some(reason) = unsettable(&name) {
        let what = format!("the header `{shown}` is set by Bowline: {reason}");
        return Err(error(what, "remove it"));
    }
    let mut value = HeaderValue::from_str(value).map_err(|_| {
        let what =
            format!("the value of the header `{shown}` has a character that headers cannot have");
        let help = "remove line breaks and other control characters; one is easily copied along";
        error(what, help)
    })?;
    value.set_sensitive(true);
    // TOML tells `Authorization` from `authorization`; HTTP does not.
    if headers.insert(name, value).is_some() {
        let what =
            format!("the header `{shown}` is given twice; capital letters make no difference");
        return Err(error(what, "keep one of them"));
    }
    Ok(())
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
        if let Some(reason) = unforwardable(&name) {
            let message = format!("this header cannot be forwarded: {reason}");
            refuse(message, "remove it; set what the server needs in `headers`");
        } else if set.contains_key(&name) {
            let message = "this header is also set in `headers`".to_owned();
            refuse(
                message,
                "keep it in one place; `headers` takes precedence over the client",
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
