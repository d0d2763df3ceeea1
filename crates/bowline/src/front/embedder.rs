//! The API for a program that runs its clients' dialogs itself: it answers the elicitations of sessions, passes on what
//! authorization servers answer, and signs callers out. Which key or token a path needs is in `front/access.rs`.

pub(super) mod elicitation;
mod sign_in;
mod sign_out;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use hyper::body::Incoming;

use super::response::ReplyBody;
use crate::fault::Fault;
use crate::hub::Hub;
use crate::net::Peer;
use crate::telemetry::SessionHash;

/// Asks for a session's hash on `initialize`, with the value `?`, and has it in the response.
const SESSION: HeaderName = HeaderName::from_static("bowline-session");

/// Serves a path of the API.
pub(super) async fn serve(
    hub: &Hub,
    head: &Parts,
    body: Incoming,
    peer: Peer,
) -> Result<Response<ReplyBody>, Fault> {
    let path = head.uri.path();
    match elicitation::session_of(path) {
        Some(session) => elicitation::answer(hub, head, body, peer, session).await,
        None if path == sign_out::PATH => sign_out::serve(hub, head, peer).await,
        None if path.starts_with("/api/mcp-oauth/") => sign_in::serve(hub, head, peer).await,
        None => Err(Fault::NoSuchPath),
    }
}

/// Whether the client of an `initialize` wants to know its session's hash.
pub(super) fn wants_hash(headers: &HeaderMap) -> bool {
    headers.get(&SESSION).is_some_and(|value| value == "?")
}

/// The header of the response. The hash is no credential: it is how operators name a session.
pub(super) fn hash_header(hash: SessionHash) -> Option<(HeaderName, HeaderValue)> {
    let value = HeaderValue::try_from(hash.to_string()).ok()?;
    Some((SESSION, value))
}
