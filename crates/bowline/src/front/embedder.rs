//! The way in for a program that runs its clients' dialogs itself: it learns a session's hash when the
//! session opens, and answers what that session was asked. It holds the API token, always.

use std::net::IpAddr;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;

use super::elicited::{Effect, Elicited};
use super::oauth::no_store;
use super::reply::{self, ReplyBody};
use super::streamable::whole_body;
use super::visitor::token_holder;
use crate::fault::Fault;
use crate::gateway::Shared;
use crate::oauth::{FlowId, NotDelivered};
use crate::telemetry::SessionHash;

/// What asks for a session's hash on `initialize`, with the value `?`, and what tells it.
const SESSION: HeaderName = HeaderName::from_static("bowline-session");

/// The largest answer that is read.
const MAX_ANSWER: usize = 256 * 1024;

/// An answer as it is posted.
#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(flatten)]
    elicited: Elicited,
    elicitation_id: Option<String>,
}

/// Whether the client of an `initialize` wants to know its session's hash.
pub(super) fn wants_hash(headers: &HeaderMap) -> bool {
    headers.get(&SESSION).is_some_and(|value| value == "?")
}

/// The header that tells it. The hash opens nothing: it is how operators name a session.
pub(super) fn told_hash(hash: SessionHash) -> Option<(HeaderName, HeaderValue)> {
    let value = HeaderValue::try_from(hash.to_string()).ok()?;
    Some((SESSION, value))
}

/// The hash of the session whose question is answered at this path.
pub(super) fn route(path: &str) -> Option<&str> {
    let hash = path.strip_prefix("/api/sessions/")?;
    hash.strip_suffix("/elicitation")
}

/// Answers a question that a session was asked.
pub(super) async fn answer(
    shared: &Shared,
    head: &Parts,
    address: IpAddr,
    (hash, body): (&str, Incoming),
) -> Result<Response<ReplyBody>, Fault> {
    token_holder(shared, &head.headers, address)?;
    if head.method != Method::POST {
        return Err(Fault::Method { allow: "POST" });
    }
    let body = whole_body(body, MAX_ANSWER).await?;
    let Answer {
        elicited,
        elicitation_id,
    } = serde_json::from_slice(&body).map_err(|_| Fault::NoAnswer)?;
    let all = shared.table.all();
    let session = all.iter().find(|session| session.hash.to_string() == hash);
    let session = session.ok_or(Fault::NoSuchSession)?;
    let account = session.upstream.account(&session.caller);
    let account = account.ok_or(Fault::NoSuchQuestion)?;
    let flow = match &elicitation_id {
        Some(id) => FlowId::parse(id),
        None => {
            let waiting = account.waiting().await.map_err(Fault::from)?;
            waiting.map(|flow| flow.id)
        }
    };
    let flow = flow.ok_or(Fault::NoSuchQuestion)?;
    let effect = elicited.take(session, &account, &flow).await;
    let result = match effect {
        Ok(Effect::Ended(end)) => end.name(),
        Ok(Effect::GoesOn) => "waiting",
        Err(NotDelivered::Unknown) => return Err(Fault::NoSuchQuestion),
        Err(NotDelivered::Issuer) => return Err(Fault::WrongIssuer),
        Err(NotDelivered::Pending(error)) => return Err(error.into()),
        Err(NotDelivered::GivenUp) => return Err(Fault::Stopping),
    };
    let told = json!({"result": result}).to_string();
    Ok(no_store(reply::json(StatusCode::OK, told)))
}
