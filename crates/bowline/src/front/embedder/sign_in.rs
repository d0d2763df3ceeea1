//! The sign-ins of callers for the programs that run their clients' dialogs: which wait, and an authorization server's
//! response, which such a program passes on.

use http::request::Parts;
use http::{Method, Response, StatusCode};
use serde_json::json;

use crate::caller::Caller;
use crate::fault::Fault;
use crate::front::access::{count_unless_known, identify_caller, require_host};
use crate::front::query::Query;
use crate::front::response::{self, ReplyBody, no_store};
use crate::hub::Hub;
use crate::net::Peer;
use crate::oauth::{DeliveryError, DeliveryRoute};

const CALLBACK: &str = "/api/mcp-oauth/callback";
const PENDING: &str = "/api/mcp-oauth/pending";

/// Serves a path about sign-ins.
pub(super) async fn serve(
    hub: &Hub,
    head: &Parts,
    peer: Peer,
) -> Result<Response<ReplyBody>, Fault> {
    let path = head.uri.path();
    // Access is checked first, so that known callers are not counted.
    let caller = match path {
        CALLBACK => require_host(hub, &head.headers, peer).map(|()| None)?,
        PENDING => Some(identify_caller(hub, head, peer)?),
        _ => count_unless_known(hub, head, peer).map(|()| None)?,
    };
    let query = Query::of(&head.uri)?;
    match (path, &head.method, caller) {
        (CALLBACK, &Method::POST, _) => deliver(hub, query).await,
        (PENDING, &Method::GET, Some(caller)) => pending(hub, &caller).await,
        (CALLBACK, ..) => Err(Fault::Method { allow: "POST" }),
        (PENDING, ..) => Err(Fault::Method { allow: "GET" }),
        _ => Err(Fault::NoSuchPath),
    }
}

/// A program passes an authorization server's response on.
async fn deliver(hub: &Hub, query: Query) -> Result<Response<ReplyBody>, Fault> {
    let (state, delivery) = query.into_delivery()?;
    let delivered = hub
        .flows
        .deliver(&state, delivery, DeliveryRoute::Forwarded)
        .await;
    match delivered {
        Ok(end) => Ok(no_store(response::json(
            StatusCode::OK,
            json!({"result": end.name()}).to_string(),
        ))),
        Err(DeliveryError::UnknownFlow) => Err(Fault::NoSuchFlow),
        Err(DeliveryError::IssuerMismatch) => Err(Fault::WrongIssuer),
        Err(DeliveryError::Store(error)) => Err(error.into()),
        Err(DeliveryError::Aborted) => Err(Fault::Stopping),
    }
}

/// The sign-ins that wait for the caller who asks.
async fn pending(hub: &Hub, caller: &Caller) -> Result<Response<ReplyBody>, Fault> {
    let (mut waiting, mut ids) = (Vec::new(), Vec::new());
    for upstream in hub.routes.all().values() {
        let Some(account) = upstream.account(caller) else {
            continue;
        };
        // Servers with the same URL have one flow.
        if let Some(flow) = account.current_flow().await?
            && !ids.contains(&flow.id)
        {
            waiting.push(json!({
                "server": flow.server,
                "elicitation_id": flow.id.as_str(),
                "url": flow.link(),
                "ends": flow.ends,
            }));
            ids.push(flow.id);
        }
    }
    Ok(no_store(response::json(
        StatusCode::OK,
        json!({"pending": waiting}).to_string(),
    )))
}
