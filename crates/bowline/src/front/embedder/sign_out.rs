//! Signing a caller out through the API, with its token: when a person leaves or a key is lost.

use http::request::Parts;
use http::{Method, Response, StatusCode};
use serde_json::json;

use crate::caller::Caller;
use crate::fault::Fault;
use crate::front::access::require_api_token;
use crate::front::query::Query;
use crate::front::response::{self, ReplyBody, no_store};
use crate::hub::Hub;
use crate::net::Peer;
use crate::oauth::SignOutOutcome;

/// The path of the route.
pub(super) const PATH: &str = "/api/mcp-oauth/sign-out";

/// Signs the caller `caller` out at the server `server`; without `caller`, the local one.
pub(super) async fn serve(
    hub: &Hub,
    head: &Parts,
    peer: Peer,
) -> Result<Response<ReplyBody>, Fault> {
    require_api_token(hub, &head.headers, peer)?;
    if head.method != Method::POST {
        return Err(Fault::Method { allow: "POST" });
    }
    let query = Query::of(&head.uri)?;
    let server = query.get("server").ok_or(Fault::NoSuchServer)?;
    let servers = hub.routes.all();
    let upstream = servers.iter().find(|(name, _)| name.as_ref() == server);
    let (_, upstream) = upstream.ok_or(Fault::NoSuchServer)?;
    // One that is no longer configured may still be signed in.
    let caller = match query.get("caller") {
        None if !hub.callers.now().is_empty() => return Err(Fault::NoSuchCaller),
        None => Caller::Local,
        Some(name) => {
            let name = name.parse().map_err(|_| Fault::NoSuchCaller)?;
            hub.flows.callers.named(name)
        }
    };
    let config = upstream.config();
    let url = config.target.urls().first().map(ToString::to_string);
    let url = url.unwrap_or_default();
    let out = hub.flows.sign_out(&caller, server, &url).await;
    let out = out.map_err(|error| Fault::Store(error.to_string().into()))?;
    hub.end_streams_of_signed_out();
    tracing::info!(
        server = %upstream.name, caller = caller.name().unwrap_or_default(),
        "caller signed out through the API"
    );
    let body = match out {
        SignOutOutcome::NotSignedIn => json!({"result": "not_signed_in"}),
        SignOutOutcome::Revoked => json!({"result": "signed_out", "revoked": true}),
        SignOutOutcome::NotOffered | SignOutOutcome::Failed(_) => {
            json!({"result": "signed_out", "revoked": false})
        }
    };
    Ok(no_store(response::json(StatusCode::OK, body.to_string())))
}
