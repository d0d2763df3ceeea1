//! The operator's listener: whether the gateway is up, how its servers feel, and its sessions.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::Value;

use crate::fault::Fault;
use crate::front::caller::bearer_key;
use crate::front::guard::Guard;
use crate::front::{ReplyBody, json, refuse, whole};
use crate::gateway::Shared;
use crate::session::{Condition, Session};
use crate::upstream::{Endpoint, Upstream};

/// Serves one request of an operator.
pub(crate) fn serve(
    shared: &Arc<Shared>,
    guard: &Guard,
    request: &Request<Incoming>,
) -> Response<ReplyBody> {
    if let Err(fault) = guard.check(request.uri(), request.headers()) {
        return refuse(&fault, None);
    }
    let path = request.uri().path();
    if path.starts_with("/api/") && !may_use_api(shared, request.headers()) {
        return refuse(&Fault::ApiToken, None);
    }
    match (request.method(), path) {
        (&Method::GET | &Method::HEAD, "/health") => health(shared),
        (&Method::GET | &Method::HEAD, "/ready") => ready(shared),
        (&Method::GET | &Method::HEAD, "/metrics") => metrics(shared),
        (&Method::GET | &Method::HEAD, "/api/sessions") => sessions(shared),
        (&Method::GET | &Method::HEAD, _) if path.starts_with("/api/sessions/") => {
            one_session(shared, &path["/api/sessions/".len()..])
        }
        (_, "/health" | "/ready" | "/metrics" | "/api/sessions") => {
            refuse(&Fault::Method { allow: "GET, HEAD" }, None)
        }
        _ => refuse(&Fault::NoSuchPath, None),
    }
}

/// The truth about each server: `ok` if it would take a session now.
fn health(shared: &Shared) -> Response<ReplyBody> {
    let upstreams = shared.routes.all();
    let servers = upstreams
        .values()
        .map(|upstream| (upstream.name.to_string(), server(upstream)));
    let is_well = matches!(condition(shared), Condition::Well);
    let status = match (shared.drain.has_begun(), is_well) {
        (true, _) => "stopping",
        (false, true) => "ok",
        (false, false) => "degraded",
    };
    let body = serde_json::json!({
        "status": status,
        "version": env!("CARGO_PKG_VERSION"),
        "servers": servers.collect::<serde_json::Map<_, _>>(),
        "store": store(shared),
    });
    json(StatusCode::OK, body.to_string())
}

/// How the store stands; what is only in memory is always there.
fn condition(shared: &Shared) -> Condition {
    let keeper = shared.table.keeper();
    keeper.map_or(Condition::Well, |keeper| keeper.condition())
}

/// Where sessions are kept, and who else keeps some there.
fn store(shared: &Shared) -> Value {
    let Some(keeper) = shared.table.keeper() else {
        return serde_json::json!({"kind": "memory", "status": "ok"});
    };
    let condition = keeper.condition();
    let mut told = serde_json::json!({
        "kind": keeper.store.kind(),
        "status": match condition {
            Condition::Well => "ok",
            Condition::Refuses { .. } => "refusing",
            Condition::Away { .. } | Condition::Unmet { .. } => "unavailable",
        },
        "gateway": &*keeper.me,
        "others": shared.neighbours.told(),
        "unreadable_others": shared.neighbours.unreadable(),
    });
    if let Some(trouble) = condition.trouble() {
        told["reason"] = trouble.into();
    }
    told
}

fn server(upstream: &Upstream) -> Value {
    let status = match (upstream.is_retired(), upstream.has_well_endpoint()) {
        (true, _) => "retired",
        (false, true) => "ok",
        (false, false) => "unavailable",
    };
    let endpoints = upstream.endpoints.all();
    serde_json::json!({
        "status": status,
        "sessions": upstream.sessions(),
        "endpoints": endpoints.iter().map(|endpoint| self::endpoint(endpoint)).collect::<Vec<_>>(),
    })
}

fn endpoint(endpoint: &Endpoint) -> Value {
    let mut told = serde_json::json!({
        "address": endpoint.origin.to_string(),
        "sessions": endpoint.sessions(),
        "status": if endpoint.is_draining() { "draining" } else { "ok" },
    });
    if let Some(ailment) = endpoint.health.ailment() {
        told["status"] = "ejected".into();
        told["reason"] = (*ailment.reason).into();
    }
    told
}

/// Whether this gateway should be sent clients: it is not stopping, at least one server would take a
/// session, and the store is there, or went away so lately that known sessions go on. Gateways that
/// share a store lose it together: a balancer that dropped them all would help nobody.
fn ready(shared: &Shared) -> Response<ReplyBody> {
    let condition = condition(shared);
    let upstreams = shared.routes.all();
    let mut configured = upstreams.values().filter(|upstream| !upstream.is_retired());
    let reason = if shared.drain.has_begun() {
        Some("the gateway is stopping".to_owned())
    } else if !condition.serves() {
        condition.trouble()
    } else if !configured.any(|upstream| upstream.has_well_endpoint()) {
        Some("no server would take a session".to_owned())
    } else {
        None
    };
    let (status, body) = match (reason, condition.trouble()) {
        (Some(reason), _) => (
            StatusCode::SERVICE_UNAVAILABLE,
            serde_json::json!({"status": "not ready", "reason": reason}),
        ),
        (None, Some(trouble)) => (
            StatusCode::OK,
            serde_json::json!({"status": "ready", "degraded": trouble}),
        ),
        (None, None) => (StatusCode::OK, serde_json::json!({"status": "ready"})),
    };
    json(status, body.to_string())
}

fn metrics(shared: &Shared) -> Response<ReplyBody> {
    let text = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let body = shared.metrics.scrape(shared);
    whole(
        StatusCode::OK,
        Some(HeaderValue::from_static(text)),
        body.into(),
    )
}

/// Whether a request may use the API: always, unless a token is set.
fn may_use_api(shared: &Shared, headers: &HeaderMap) -> bool {
    let Some(token) = &shared.api_token else {
        return true;
    };
    bearer_key(headers).is_some_and(|key| token.is_of(key))
}

/// Every session, by its hash.
fn sessions(shared: &Shared) -> Response<ReplyBody> {
    let sessions: Vec<Value> = shared.table.all().iter().map(|one| session(one)).collect();
    json(
        StatusCode::OK,
        serde_json::json!({"sessions": sessions}).to_string(),
    )
}

/// One session and what became of it, also if it ended lately.
fn one_session(shared: &Shared, hash: &str) -> Response<ReplyBody> {
    let all = shared.table.all();
    let found = all.iter().find(|session| session.hash.to_string() == hash);
    let told = found.map(|found| told(found));
    match told.or_else(|| shared.departed.find(hash)) {
        Some(told) => json(StatusCode::OK, told.to_string()),
        None => refuse(&Fault::NoSuchSession, None),
    }
}

/// A session with its timeline.
pub(crate) fn told(session: &Session) -> Value {
    let mut told = self::session(session);
    told["timeline"] = session.timeline().into();
    told
}

fn session(session: &Session) -> Value {
    let leg = session.leg();
    serde_json::json!({
        "session": session.hash.to_string(),
        "caller": session.caller.name(),
        "server": leg.upstream.name.to_string(),
        "endpoint": leg.endpoint.origin.to_string(),
        "version": leg.version(),
        "generation": leg.at.generation,
        "streams": session.live_streams(),
        "age_seconds": session.age().as_secs(),
        "idle_seconds": session.idle_for().as_secs(),
    })
}
