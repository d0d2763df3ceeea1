//! The operator's listener: health, readiness, metrics, and the API of sessions.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::Value;

use crate::fault::Fault;
use crate::front::response::{ReplyBody, json, refuse, whole};
use crate::guard::Guard;
use crate::guard::callers::bearer_key;
use crate::hub::Hub;
use crate::registry::report;
use crate::session_store::health::Condition;
use crate::telemetry::{EndpointSnapshot, ServerSnapshot, Snapshot, StoreSnapshot};
use crate::upstream::{Endpoint, Upstream};

/// Serves one request of an operator.
pub(crate) fn serve(
    hub: &Arc<Hub>,
    guard: &Guard,
    request: &Request<Incoming>,
) -> Response<ReplyBody> {
    if let Err(fault) = guard.check(request.uri(), request.headers()) {
        return refuse(&fault, None);
    }
    let path = request.uri().path();
    if path.starts_with("/api/") && !may_use_api(hub, request.headers()) {
        return refuse(&Fault::ApiToken, None);
    }
    match (request.method(), path) {
        (&Method::GET | &Method::HEAD, "/health") => health(hub),
        (&Method::GET | &Method::HEAD, "/ready") => ready(hub),
        (&Method::GET | &Method::HEAD, "/metrics") => metrics(hub),
        (&Method::GET | &Method::HEAD, "/api/sessions") => sessions(hub),
        (&Method::GET | &Method::HEAD, _) if path.starts_with("/api/sessions/") => {
            one_session(hub, &path["/api/sessions/".len()..])
        }
        (_, "/health" | "/ready" | "/metrics" | "/api/sessions") => {
            refuse(&Fault::Method { allow: "GET, HEAD" }, None)
        }
        _ => refuse(&Fault::NoSuchPath, None),
    }
}

/// The health of each server: `ok` if it takes new sessions now.
fn health(hub: &Hub) -> Response<ReplyBody> {
    let upstreams = hub.routes.all();
    let servers = upstreams
        .values()
        .map(|upstream| (upstream.name.to_string(), server(hub, upstream)));
    let is_well = matches!(condition(hub), Condition::Well);
    let status = match (hub.drain.has_begun(), is_well) {
        (true, _) => "stopping",
        (false, true) => "ok",
        (false, false) => "degraded",
    };
    let body = serde_json::json!({
        "status": status,
        "version": env!("CARGO_PKG_VERSION"),
        "servers": servers.collect::<serde_json::Map<_, _>>(),
        "store": store(hub),
    });
    json(StatusCode::OK, body.to_string())
}

/// The condition of the store; memory is always available.
fn condition(hub: &Hub) -> Condition {
    let session_store = hub.registry.table.session_store();
    session_store.map_or(Condition::Well, |session_store| session_store.condition())
}

/// The session store, and the other gateways that use it.
fn store(hub: &Hub) -> Value {
    let Some(session_store) = hub.registry.table.session_store() else {
        return serde_json::json!({"kind": "memory", "status": "ok"});
    };
    let condition = session_store.condition();
    let mut report = serde_json::json!({
        "kind": session_store.store.kind(),
        "status": match condition {
            Condition::Well => "ok",
            Condition::Refuses { .. } => "refusing",
            Condition::Away { .. } | Condition::Unmet { .. } => "unavailable",
        },
        "gateway": &*session_store.me,
        "others": hub.other_gateways.told(),
        "unreadable_others": hub.other_gateways.unreadable(),
    });
    if let Some(trouble) = condition.trouble() {
        report["reason"] = trouble.into();
    }
    report
}

fn server(hub: &Hub, upstream: &Upstream) -> Value {
    let status = match (upstream.is_retired(), upstream.has_well_endpoint()) {
        (true, _) => "retired",
        (false, true) => "ok",
        (false, false) => "unavailable",
    };
    let endpoints = upstream.endpoints.all();
    let mut report = serde_json::json!({
        "status": status,
        "sessions": upstream.sessions(),
        "endpoints": endpoints.iter().map(|endpoint| self::endpoint(endpoint)).collect::<Vec<_>>(),
    });
    if let Some(processes) = upstream.processes_running() {
        report["processes"] = processes.into();
    }
    if let Some(absence) = hub.unions.absence(&upstream.name) {
        // It was missing from the last list that a client asked for.
        report["missing"] = serde_json::json!({
            "reason": absence.reason,
            "message": absence.message,
        });
    }
    let left_out = hub.unions.left_out(&upstream.name);
    if !left_out.is_empty() {
        // Clients could not read these.
        let lists = left_out.iter();
        let lists = lists.map(|(list, left_out)| (*list, &left_out.named));
        report["left_out"] = serde_json::json!(lists.collect::<BTreeMap<_, _>>());
    }
    report
}

fn endpoint(endpoint: &Endpoint) -> Value {
    let mut report = serde_json::json!({
        "address": endpoint.address.to_string(),
        "sessions": endpoint.sessions(),
        "status": if endpoint.is_draining() { "draining" } else { "ok" },
    });
    if let Some(ailment) = endpoint.health.ailment() {
        report["status"] = "ejected".into();
        report["reason"] = (*ailment.reason).into();
    }
    report
}

/// Whether this gateway should get clients: it is not stopping, at least one server takes new sessions, and
/// the store is available, or became unavailable so lately that cached sessions keep working. Gateways that
/// share a store lose it together: a balancer that dropped them all would help no client.
fn ready(hub: &Hub) -> Response<ReplyBody> {
    let condition = condition(hub);
    let upstreams = hub.routes.all();
    let mut configured = upstreams.values().filter(|upstream| !upstream.is_retired());
    let reason = if hub.drain.has_begun() {
        Some("the gateway is stopping".to_owned())
    } else if !condition.serves() {
        condition.trouble()
    } else if !configured.any(|upstream| upstream.has_well_endpoint()) {
        Some("no server takes new sessions".to_owned())
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

fn metrics(hub: &Hub) -> Response<ReplyBody> {
    let text = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let body = hub.metrics.scrape(&snapshot(hub));
    whole(
        StatusCode::OK,
        Some(HeaderValue::from_static(text)),
        body.into(),
    )
}

fn snapshot(hub: &Hub) -> Snapshot {
    let table = &hub.registry.table;
    let endpoint = |endpoint: &Endpoint| EndpointSnapshot {
        address: endpoint.address.to_string(),
        takes_sessions: endpoint.takes_sessions(),
        sessions: endpoint.sessions(),
    };
    let server = |upstream: &Upstream| ServerSnapshot {
        name: upstream.name.clone(),
        sessions: upstream.sessions(),
        endpoints: upstream
            .endpoints
            .all()
            .iter()
            .map(|it| endpoint(it))
            .collect(),
        processes: upstream.processes_running(),
    };
    Snapshot {
        streams: hub.streams.taken_by_all(),
        servers: hub.routes.all().values().map(|it| server(it)).collect(),
        store: table.session_store().map(|session_store| StoreSnapshot {
            kind: session_store.store.kind(),
            is_reachable: session_store.is_reachable(),
            cached_sessions: table.count(),
        }),
    }
}

/// Whether a request may use the API: always, unless a token is set.
fn may_use_api(hub: &Hub, headers: &HeaderMap) -> bool {
    let Some(token) = &hub.api_token else {
        return true;
    };
    bearer_key(headers).is_some_and(|key| token.is_of(key))
}

/// Every session, by its hash.
fn sessions(hub: &Hub) -> Response<ReplyBody> {
    let sessions: Vec<Value> = hub
        .registry
        .table
        .all()
        .iter()
        .map(|one| report::brief(one))
        .collect();
    json(
        StatusCode::OK,
        serde_json::json!({"sessions": sessions, "attachments": hub.unions.report()}).to_string(),
    )
}

/// One session and its timeline, also if it ended lately.
fn one_session(hub: &Hub, hash: &str) -> Response<ReplyBody> {
    let all = hub.registry.table.all();
    let found = all.iter().find(|session| session.hash.to_string() == hash);
    let report = found.map(|found| report::with_timeline(found));
    match report.or_else(|| hub.registry.recently_ended.find(hash)) {
        Some(report) => json(StatusCode::OK, report.to_string()),
        None => refuse(&Fault::NoSuchSession, None),
    }
}
