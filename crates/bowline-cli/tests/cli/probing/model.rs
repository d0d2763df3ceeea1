//! A server with the habits that a test gives it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bowline_testbed::answering::{Answering, Said, Seen};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The habits of a server.
#[derive(Clone)]
pub(crate) struct Habits {
    /// Whether it issues session ids.
    pub(crate) has_ids: bool,
    /// What it answers to an id that it does not know.
    pub(crate) lost: fn(&Seen) -> Said,
    /// The values of `Set-Cookie` in its answer to `initialize`.
    pub(crate) cookies: &'static [&'static str],
    /// What it answers to `tools/list`, by the cursor.
    pub(crate) tools: fn(&str) -> Value,
    /// Its name.
    pub(crate) name: fn(&Seen) -> String,
}

/// A server, and the sessions that it has.
pub(crate) struct Model {
    pub(crate) server: Answering,
    pub(crate) sessions: Arc<Mutex<Sessions>>,
}

#[derive(Default)]
pub(crate) struct Sessions {
    opened: usize,
    pub(crate) live: BTreeSet<String>,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            has_ids: true,
            lost: |_| Said::status(404),
            cookies: &[],
            tools: |_| {
                json!({"tools": [
                    {"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
                    {"name": "write", "inputSchema": {"type": "object"}},
                ]})
            },
            name: |_| "model".to_owned(),
        }
    }
}

impl Model {
    pub(crate) async fn start(habits: Habits) -> Self {
        let sessions = Arc::<Mutex<Sessions>>::default();
        let own = Arc::clone(&sessions);
        let rule = move |seen: &Seen| habits.answer(seen, &mut own.lock());
        let server = Answering::start(rule).await;
        Self { server, sessions }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.server.address())
    }

    /// The JSON-RPC methods that it got.
    pub(crate) fn methods(&self) -> BTreeSet<String> {
        let seen = self.server.seen();
        let methods = seen.iter().map(|it| it.json()["method"].clone());
        methods
            .filter_map(|it| it.as_str().map(str::to_owned))
            .collect()
    }
}

impl Habits {
    fn answer(&self, seen: &Seen, sessions: &mut Sessions) -> Said {
        let (message, id) = (seen.json(), seen.header("mcp-session-id"));
        if message["method"] == "initialize" {
            return self.initialized(seen, sessions);
        }
        if seen.header("mcp-protocol-version") == "2026-07-28" {
            return Said::json_text("no session").instead(400);
        }
        if self.has_ids && !sessions.live.contains(id) {
            return (self.lost)(seen);
        }
        match seen.method.as_str() {
            "DELETE" => Said::status(if sessions.live.remove(id) { 204 } else { 405 }),
            "GET" => Said::events().0,
            _ => match message["method"].as_str() {
                Some("tools/list") => {
                    let cursor = message["params"]["cursor"].as_str().unwrap_or_default();
                    as_events(seen, &(self.tools)(cursor))
                }
                _ => seen.result(&json!({})),
            },
        }
    }

    fn initialized(&self, seen: &Seen, sessions: &mut Sessions) -> Said {
        let version = &seen.json()["params"]["protocolVersion"];
        let mut said = seen.result(&json!({
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": (self.name)(seen), "version": "1.2"},
        }));
        if self.has_ids {
            sessions.opened += 1;
            let id = format!("1868a90c-cdef-4f09-a3b1-{:012}", sessions.opened);
            said = said.with("mcp-session-id", &id);
            sessions.live.insert(id);
        }
        let set = |said: Said, cookie: &&str| said.with("set-cookie", cookie);
        self.cookies.iter().fold(said, set)
    }
}

/// The result as one event with an id.
fn as_events(seen: &Seen, result: &Value) -> Said {
    let message = json!({"jsonrpc": "2.0", "id": seen.json()["id"], "result": result});
    let (said, mut pen) = Said::events();
    pen.write(format!("id: 1\ndata: {message}\n\n"));
    said
}
