//! A server that knows one session, with an odd id, and complains about everything else.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::serve::ListenerExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

const SESSION_ID: &str = "mcp-session-id";

/// A server that answers 400 to any session id but the one that it issued.
#[derive(Debug)]
pub struct Strict {
    url: String,
    shared: Shared,
    _serving: AbortOnDropHandle<()>,
}

/// What the server received, in order.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// The JSON-RPC method of every POST, and the HTTP method of everything else.
    pub methods: Vec<String>,
    /// Every value of the session header, on any request.
    pub session_ids: Vec<HeaderValue>,
    /// Every other header, on any request.
    pub other_headers: Vec<(HeaderName, HeaderValue)>,
    /// What should not have happened.
    pub complaints: Vec<String>,
}

#[derive(Debug, Clone)]
struct Shared {
    ids: Arc<Mutex<Ids>>,
    tools: Value,
    observed: Arc<Mutex<Observed>>,
}

/// The session ids that the server issued.
#[derive(Debug, Clone)]
struct Ids {
    /// The one that it knows.
    now: Option<HeaderValue>,
    /// Those from before a restart: wrong, and not to complain about.
    before: Vec<HeaderValue>,
}

// === impl Strict ===

impl Strict {
    /// Starts on a free port. `id`: the session id to issue, or none at all.
    ///
    /// # Panics
    ///
    /// When there is no port, or the id is not a valid header value.
    pub async fn start(id: Option<&str>) -> Self {
        Self::with_tools(id, &[]).await
    }

    /// The same with tools of these names.
    ///
    /// # Panics
    ///
    /// As [`Strict::start`].
    #[expect(clippy::expect_used, reason = "a test without a server cannot go on")]
    pub async fn with_tools(id: Option<&str>, names: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
        let tool = |name| json!({"name": name, "inputSchema": {"type": "object"}});
        let shared = Shared {
            ids: Arc::new(Mutex::new(Ids {
                now: id.map(value),
                before: Vec::new(),
            })),
            tools: names.iter().map(tool).collect(),
            observed: Arc::default(),
        };
        let router = Router::new().fallback(serve).with_state(shared.clone());
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        let serving = TaskTracker::new().spawn(async move {
            drop(axum::serve(listener, router).await);
        });
        Self {
            url,
            shared,
            _serving: AbortOnDropHandle::new(serving),
        }
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What was received so far.
    pub fn observed(&self) -> Observed {
        self.shared.observed.lock().clone()
    }

    /// Forgets its session, as by a restart, and issues this id from now on.
    ///
    /// # Panics
    ///
    /// When the id is not a valid header value.
    pub fn restart(&self, id: &str) {
        let mut ids = self.shared.ids.lock();
        let before = ids.now.replace(value(id));
        ids.before.extend(before);
    }
}

#[expect(clippy::expect_used, reason = "a mistake in the test itself")]
fn value(id: &str) -> HeaderValue {
    HeaderValue::from_str(id).expect("a header value")
}

async fn serve(
    State(shared): State<Shared>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let name = match method {
        Method::POST => message["method"].as_str().unwrap_or("a response"),
        _ => method.as_str(),
    };
    let known = shared.ids.lock().clone();
    let expected = known.now.as_ref().filter(|_| name != "initialize");
    let ids: Vec<_> = headers.get_all(SESSION_ID).iter().collect();
    let right = ids == expected.into_iter().collect::<Vec<_>>();
    {
        let was_right = !ids.is_empty() && ids.iter().all(|id| known.before.contains(id));
        let mut observed = shared.observed.lock();
        observed.methods.push(name.to_owned());
        observed.session_ids.extend(ids.into_iter().cloned());
        let others = headers.iter().filter(|(name, _)| *name != SESSION_ID);
        observed
            .other_headers
            .extend(others.map(|(name, value)| (name.clone(), value.clone())));
        if !right && !was_right {
            observed
                .complaints
                .push(format!("{name}: wrong session id"));
        }
    }
    if !right {
        return StatusCode::BAD_REQUEST.into_response();
    }
    let result = match name {
        "initialize" => crate::scripted::initialize_result(),
        "ping" => json!({}),
        "tools/list" => json!({"tools": shared.tools}),
        "tools/call" => json!({"content": [{"type": "text", "text": "done"}]}),
        "notifications/initialized" | "notifications/cancelled" | "a response" => {
            return StatusCode::ACCEPTED.into_response();
        }
        "GET" => return StatusCode::METHOD_NOT_ALLOWED.into_response(),
        "DELETE" => return StatusCode::NO_CONTENT.into_response(),
        unexpected => {
            shared
                .observed
                .lock()
                .complaints
                .push(format!("{unexpected}: not expected"));
            return StatusCode::BAD_REQUEST.into_response();
        }
    };
    let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    let mut response = answer.to_string().into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    if let Some(id) = known.now.filter(|_| name == "initialize") {
        response.headers_mut().insert(SESSION_ID, id);
    }
    response
}
