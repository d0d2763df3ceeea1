//! The host names of the gateway, and the origins of the pages that may use it.

use crate::config::read::Texts;
use crate::config::report::Findings;
use crate::net;

const HOST: &str = "write a name without scheme, port and path, such as `gw.internal`";
const ORIGIN: &str =
    "write scheme, host and, if it is not the usual one, port, such as `https://app.example`";

/// The names in `hosts`.
pub(super) fn hosts(written: Option<&Texts>, findings: &mut Findings) -> Vec<String> {
    let mut hosts = Vec::new();
    for text in written.map_or(&[][..], |written| written.get_ref()) {
        let name = text.get_ref();
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(allowed) {
            let what = "`hosts` has something in it that is not the name of a host";
            findings.add(text.span(), what, HOST);
        }
        hosts.push(name.to_ascii_lowercase());
    }
    hosts
}

/// The origins in `origins`, as browsers write them.
pub(super) fn origins(written: Option<&Texts>, findings: &mut Findings) -> Vec<String> {
    let mut origins = Vec::new();
    for text in written.map_or(&[][..], |written| written.get_ref()) {
        match origin(text.get_ref()) {
            Some(origin) => origins.push(origin.into_string()),
            None => {
                let what = "`origins` has something in it that is not an origin";
                findings.add(text.span(), what, ORIGIN);
            }
        }
    }
    origins
}

fn origin(text: &str) -> Option<Box<str>> {
    let (scheme, authority) = text.split_once("://")?;
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let is_authority = |c: char| c.is_ascii_alphanumeric() || "-_.:[]".contains(c);
    let is_one = !scheme.is_empty()
        && scheme.chars().all(is_scheme)
        && !authority.is_empty()
        && authority.chars().all(is_authority);
    is_one.then(|| net::origin(&scheme.to_ascii_lowercase(), authority))
}
