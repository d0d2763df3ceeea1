//! The operator's listener: whether the gateway is up.

use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use crate::fault::Fault;
use crate::front::guard::Guard;
use crate::front::{ReplyBody, json, refuse};
use crate::gateway::Shared;

/// Serves one request of an operator.
pub(crate) fn serve(
    shared: &Arc<Shared>,
    guard: Guard,
    request: &Request<Incoming>,
) -> Response<ReplyBody> {
    if let Err(fault) = guard.check(request.uri(), request.headers()) {
        return refuse(&fault, None);
    }
    match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/health") => health(shared),
        (_, "/health") => refuse(&Fault::Method { allow: "GET, HEAD" }, None),
        _ => refuse(&Fault::NoSuchPath, None),
    }
}

fn health(shared: &Shared) -> Response<ReplyBody> {
    let servers: Vec<&str> = shared
        .routes
        .iter()
        .map(|upstream| upstream.name.as_ref())
        .collect();
    let body = serde_json::json!({
        "status": "ok",
        "version": env!("CARGO_PKG_VERSION"),
        "servers": servers,
    });
    json(StatusCode::OK, body.to_string())
}
