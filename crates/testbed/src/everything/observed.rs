//! What one replica has received, counted outside rmcp so that refused requests count too.
//!
//! A test of stickiness asserts on [`Observed::strays`]: a 404 alone would miss a DELETE, which
//! rmcp accepts for any session id, known or not.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode};
use serde::Deserialize;

use super::replica::Replica;

/// More than any message of a test; the same limit as rmcp's for a body.
const MAX_BODY: usize = 4 * 1024 * 1024;

const SESSION_HEADER: &str = "mcp-session-id";

/// Counters of one replica. They only grow.
#[derive(Debug, Default)]
pub struct Observed {
    requests: AtomicU64,
    initializes: AtomicU64,
    pings: AtomicU64,
    not_found: AtomicU64,
    strays: AtomicU64,
}

/// The only field of a message that is read.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
}

// === impl Observed ===

impl Observed {
    /// HTTP requests of any method and any outcome.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// `initialize` requests, refused ones included.
    #[must_use]
    pub fn initializes(&self) -> u64 {
        self.initializes.load(Ordering::Relaxed)
    }

    /// `ping` requests, refused ones included.
    #[must_use]
    pub fn pings(&self) -> u64 {
        self.pings.load(Ordering::Relaxed)
    }

    /// Responses with status 404.
    #[must_use]
    pub fn not_found(&self) -> u64 {
        self.not_found.load(Ordering::Relaxed)
    }

    /// Requests that named a session this replica did not hold when they arrived: another
    /// replica's, or one that has ended.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.strays.load(Ordering::Relaxed)
    }
}

/// Counts a request and its response on behalf of `replica`.
pub(super) async fn observe(
    State(replica): State<Replica>,
    request: Request,
    next: Next,
) -> Response {
    let observed = replica.observed();
    increment(&observed.requests);
    if let Some(id) = session_id(&request)
        && !replica.sessions().holds(id).await
    {
        increment(&observed.strays);
    }
    let request = match peek(request).await {
        Ok((request, method)) => {
            match method.as_deref() {
                Some("initialize") => increment(&observed.initializes),
                Some("ping") => increment(&observed.pings),
                _ => {}
            }
            request
        }
        Err(refusal) => return refusal,
    };
    let response = next.run(request).await;
    if response.status() == StatusCode::NOT_FOUND {
        increment(&observed.not_found);
    }
    response
}

fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn session_id(request: &Request) -> Option<&str> {
    request.headers().get(SESSION_HEADER)?.to_str().ok()
}

/// Reads the body of a POST and puts it back; returns the method of its message.
async fn peek(request: Request) -> Result<(Request, Option<String>), Response> {
    if request.method() != Method::POST {
        return Ok((request, None));
    }
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, MAX_BODY)
        .await
        .map_err(|error| (StatusCode::PAYLOAD_TOO_LARGE, error.to_string()).into_response())?;
    let envelope = serde_json::from_slice::<Envelope<'_>>(&bytes).ok();
    let method = envelope.and_then(|envelope| Some(envelope.method?.into_owned()));
    Ok((Request::from_parts(parts, Body::from(bytes)), method))
}
