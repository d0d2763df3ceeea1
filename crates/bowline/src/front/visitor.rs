//! Who comes to the routes of sign-ins: whoever shows a key or the API token is known, and everybody
//! else is a stranger, who is counted.

use std::net::IpAddr;

use http::HeaderMap;

use super::caller::bearer_key;
use crate::fault::Fault;
use crate::gateway::Shared;
use crate::session::Caller;

/// Counts somebody of whom nothing is known.
pub(super) fn stranger(shared: &Shared, address: IpAddr) -> Result<(), Fault> {
    match shared.oauth_visits.admits(address) {
        true => Ok(()),
        false => Err(Fault::TooManyVisits),
    }
}

/// Whether a request carries the API token. Where none is set nothing is one.
fn shows_api_token(shared: &Shared, headers: &HeaderMap) -> bool {
    let token = shared.api_token.as_ref();
    token.is_some_and(|token| bearer_key(headers).is_some_and(|shown| token.is_of(shown)))
}

/// Whoever has the API token; where none is set, nobody.
pub(super) fn token_holder(
    shared: &Shared,
    headers: &HeaderMap,
    address: IpAddr,
) -> Result<(), Fault> {
    if shows_api_token(shared, headers) {
        return Ok(());
    }
    stranger(shared, address)?;
    Err(match &shared.api_token {
        Some(_) => Fault::ApiToken,
        None => Fault::NoApiToken,
    })
}

/// Somebody who may pass answers on: whoever has the API token or, where none is set, anybody.
pub(super) fn known_host(
    shared: &Shared,
    headers: &HeaderMap,
    address: IpAddr,
) -> Result<(), Fault> {
    match token_holder(shared, headers, address) {
        Err(Fault::NoApiToken) => Ok(()),
        known => known,
    }
}

/// Who asks what waits for them. Where callers have no keys, anybody on this machine is the local one:
/// there the API token, where one is set, is asked for, because links of drive-flow have their state.
pub(super) fn known_caller(
    shared: &Shared,
    headers: &HeaderMap,
    address: IpAddr,
) -> Result<Caller, Fault> {
    match shared.callers.identify(headers) {
        Ok(caller @ Caller::Named(..)) => Ok(caller),
        Ok(caller @ Caller::Local) => known_host(shared, headers, address).map(|()| caller),
        Err(fault) => Err(stranger(shared, address).err().unwrap_or(fault)),
    }
}

/// Whether a browser fetches this for a part of some page, or ahead of a person who may never go here.
/// Pages of others would use up a person's visits with it.
pub(super) fn is_for_a_page(headers: &HeaderMap) -> bool {
    let is_other = |name, than| headers.get(name).is_some_and(|value| value != than);
    let is_ahead = |name| {
        let mut values = headers.get_all(name).iter();
        values.any(|value| {
            let value = value.as_bytes().to_ascii_lowercase();
            value
                .split(|byte| matches!(byte, b';' | b','))
                .any(|part| matches!(part.trim_ascii(), b"prefetch" | b"prerender" | b"preview"))
        })
    };
    // Programs send a mode, too (Node's `fetch`), but only browsers say where a request comes from.
    let is_browser = headers.contains_key("sec-fetch-site");
    is_other("sec-fetch-dest", "document")
        || is_browser && is_other("sec-fetch-mode", "navigate")
        || ["sec-purpose", "purpose", "x-purpose", "x-moz"]
            .into_iter()
            .any(is_ahead)
}
