//! Access to the routes of sign-ins: whoever shows a key, a certificate or the API token is known; requests of everybody
//! else are anonymous, and are counted.

use http::HeaderMap;
use http::request::Parts;

use crate::caller::Caller;
use crate::fault::Fault;
use crate::guard::callers::{bearer_key, identify};
use crate::hub::Hub;
use crate::net::Peer;

/// Counts an anonymous request. A Unix socket is out of reach for strangers, so nothing is counted there.
pub(crate) fn count_anonymous(hub: &Hub, peer: Peer) -> Result<(), Fault> {
    match peer.ip() {
        Some(address) if !hub.sign_in_rate.admit(address) => Err(Fault::TooManyVisits),
        _ => Ok(()),
    }
}

/// The same, unless the request shows a caller's key or certificate, or the API token.
pub(crate) fn count_unless_known(hub: &Hub, head: &Parts, peer: Peer) -> Result<(), Fault> {
    let is_known = shows_api_token(hub, &head.headers)
        || matches!(identify(&hub.callers, head), Ok(Caller::Named(..)));
    match is_known {
        true => Ok(()),
        false => count_anonymous(hub, peer),
    }
}

/// Whether a request carries the API token; never where none is set.
fn shows_api_token(hub: &Hub, headers: &HeaderMap) -> bool {
    let token = hub.api_token.as_ref();
    token.is_some_and(|token| bearer_key(headers).is_some_and(|shown| token.is_of(shown)))
}

/// Requires the API token; where none is set, nobody gets in.
pub(crate) fn require_api_token(hub: &Hub, headers: &HeaderMap, peer: Peer) -> Result<(), Fault> {
    if shows_api_token(hub, headers) {
        return Ok(());
    }
    count_anonymous(hub, peer)?;
    Err(match &hub.api_token {
        Some(_) => Fault::ApiToken,
        None => Fault::NoApiToken,
    })
}

/// Requires what a program needs to pass answers on: the API token or, where none is set, nothing.
pub(crate) fn require_host(hub: &Hub, headers: &HeaderMap, peer: Peer) -> Result<(), Fault> {
    match require_api_token(hub, headers, peer) {
        Err(Fault::NoApiToken) => Ok(()),
        known => known,
    }
}

/// The caller of a request. Where callers have no keys, anybody on this machine is the local one: there the
/// API token, where one is set, is required, because links of the flow `drive` have their state.
pub(crate) fn identify_caller(hub: &Hub, head: &Parts, peer: Peer) -> Result<Caller, Fault> {
    match identify(&hub.callers, head) {
        Ok(caller @ Caller::Named(..)) => Ok(caller),
        Ok(caller @ Caller::Local) => require_host(hub, &head.headers, peer).map(|()| caller),
        Err(fault) => Err(count_anonymous(hub, peer).err().unwrap_or(fault)),
    }
}

/// Whether a browser fetches this for a part of some page, or ahead of a person who may never open it.
/// Pages of others would use up a person's rate limit with it.
pub(crate) fn is_subresource(headers: &HeaderMap) -> bool {
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
