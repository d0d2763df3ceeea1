//! Signing a caller out for it: for whoever holds the API token, when a person leaves or a key is lost.

use std::net::IpAddr;

use http::request::Parts;
use http::{Method, Response, StatusCode};
use serde_json::json;

use super::oauth::{Query, no_store};
use super::reply::{self, ReplyBody};
use super::visitor::token_holder;
use crate::fault::Fault;
use crate::gateway::Shared;
use crate::oauth::Out;
use crate::session::Caller;

/// Where.
pub(super) const PATH: &str = "/api/mcp-oauth/sign-out";

/// Signs the caller `caller` out at the server `server`; without `caller`, the local one.
pub(super) async fn serve(
    shared: &Shared,
    head: &Parts,
    address: IpAddr,
) -> Result<Response<ReplyBody>, Fault> {
    token_holder(shared, &head.headers, address)?;
    if head.method != Method::POST {
        return Err(Fault::Method { allow: "POST" });
    }
    let query = Query::of(&head.uri)?;
    let server = query.get("server").ok_or(Fault::NoSuchServer)?;
    let servers = shared.routes.all();
    let upstream = servers.iter().find(|(name, _)| name.as_ref() == server);
    let (_, upstream) = upstream.ok_or(Fault::NoSuchServer)?;
    // One that is no longer configured may still be signed in.
    let caller = match query.get("caller") {
        None if shared.callers.are_asked_for_keys() => return Err(Fault::NoSuchCaller),
        None => Caller::Local,
        Some(name) => {
            let name = name.parse().map_err(|_| Fault::NoSuchCaller)?;
            shared.sign_ins.identities.named(name)
        }
    };
    let server = upstream.server();
    let url = server.way.urls().first().map(ToString::to_string);
    let url = url.unwrap_or_default();
    let out = shared.sign_ins.sign_out(&caller, &url).await;
    let out = out.map_err(|error| Fault::Store(error.to_string().into()))?;
    shared.end_streams_of_signed_out();
    tracing::info!(
        server = %upstream.name, caller = caller.name().unwrap_or_default(),
        "signed out by the holder of the API token"
    );
    let told = match out {
        Out::Already => json!({"result": "not_signed_in"}),
        Out::Revoked => json!({"result": "signed_out", "revoked": true}),
        Out::NotOffered | Out::Failed(_) => json!({"result": "signed_out", "revoked": false}),
    };
    Ok(no_store(reply::json(StatusCode::OK, told.to_string())))
}
