//! A server over stdio, whose tools do what a test wants to see: run once, take their time, ask the client,
//! misbehave, die. What ran is written to a file, line by line, so that it outlives the process. The same server
//! speaks streamable HTTP, too ([`over_http`]).

pub mod counted;
pub mod over_http;
pub mod over_sse;
mod tools;

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use parking_lot::Mutex;
use serde_json::{Value, json};

/// The variable that names the file of what ran.
pub const TALLY: &str = "STDIO_TALLY";
/// The variable that says how the server starts: `exit` (with a last word on stderr), `silent` (it never
/// answers `initialize`), `young` (it exits once it is initialized), `held` (it answers once there is a file beside the tally that ends in `.go`), or well.
pub const START: &str = "STDIO_START";

/// The exit code of a server that does not start.
pub const EXIT_CODE: i32 = 3;

/// A running server.
pub struct Server {
    out: Mutex<Box<dyn Write + Send>>,
    tally: Option<PathBuf>,
    /// Requests of the server's that the client has not answered.
    asked: Mutex<HashMap<u64, mpsc::Sender<Value>>>,
    next_id: AtomicU64,
}

/// Serves until the input ends. The caller says how the server starts.
pub fn serve(
    input: impl BufRead,
    output: impl Write + Send + 'static,
    tally: Option<PathBuf>,
    start: &str,
) {
    let server = Server::new(output, tally);
    if start == "exit" {
        complain("cannot start: no licence");
        std::process::exit(EXIT_CODE);
    }
    complain("ready");
    for line in input.lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            complain("a line that is not JSON");
            continue;
        };
        if start == "silent" {
            complain("thinking");
            server.note("thinking");
            continue;
        }
        if start == "young" && message["method"] == "notifications/initialized" {
            complain("that was all");
            std::process::exit(EXIT_CODE);
        }
        if start == "held" {
            server.hold();
        }
        Server::take(&server, message);
    }
}

/// Says something on stderr.
fn complain(text: &str) {
    let written = writeln!(std::io::stderr(), "{text}");
    drop(written);
}

impl Server {
    fn new(output: impl Write + Send + 'static, tally: Option<PathBuf>) -> Arc<Self> {
        let server = Self {
            out: Mutex::new(Box::new(output)),
            tally,
            asked: Mutex::default(),
            next_id: AtomicU64::new(1),
        };
        server.note(&format!("start {}", std::process::id()));
        Arc::new(server)
    }

    fn take(server: &Arc<Self>, message: Value) {
        let id = message.get("id").cloned();
        match (message["method"].as_str(), id) {
            (Some(method), Some(id)) => {
                let (server, method) = (Arc::clone(server), method.to_owned());
                let params = message["params"].clone();
                // Side by side, as most servers do.
                thread::spawn(move || server.answer(&id, &method, &params));
            }
            (Some("notifications/cancelled"), None) => {
                server.note(&format!("cancelled {}", message["params"]["requestId"]));
            }
            (Some(method), None) => server.note(&format!("heard {method}")),
            (None, id) => {
                let asked = id.and_then(|id| server.asked.lock().remove(&id.as_u64()?));
                if let Some(asked) = asked {
                    drop(asked.send(message));
                }
            }
        }
    }

    fn answer(&self, id: &Value, method: &str, params: &Value) {
        let result = match method {
            "initialize" => initialized(params),
            "ping" => {
                self.note("ping");
                json!({})
            }
            "tools/list" => self.list_tools(params),
            "tools/call" => match self.call(id, params) {
                Some(result) => result,
                // It is not answered.
                None => return,
            },
            "logging/setLevel" => {
                self.note(&format!("level {}", params["level"]));
                json!({})
            }
            "resources/subscribe" => {
                self.note(&format!("subscribe {}", params["uri"]));
                json!({})
            }
            "resources/list" => json!({"resources": []}),
            _ => {
                let error = json!({"code": -32601, "message": "no such method"});
                self.say(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
                return;
            }
        };
        self.say(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    /// Waits until it may go on.
    fn hold(&self) {
        let go = self.tally.as_ref().map(|tally| tally.with_extension("go"));
        while go.as_ref().is_some_and(|go| !go.exists()) {
            thread::park_timeout(std::time::Duration::from_millis(5));
        }
    }

    /// Asks the client something; its answer.
    fn ask(&self, method: &str, params: &Value) -> Value {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = mpsc::channel();
        self.asked.lock().insert(id, sender);
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        answer.recv().unwrap_or(Value::Null)
    }

    fn say(&self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    fn write(&self, bytes: &[u8]) {
        let mut out = self.out.lock();
        if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
            std::process::exit(0);
        }
    }

    /// Writes down what happened.
    fn note(&self, what: &str) {
        let Some(tally) = &self.tally else { return };
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(tally);
        let written = file.and_then(|mut file| file.write_all(format!("{what}\n").as_bytes()));
        if let Err(error) = written {
            complain(&format!("the tally cannot be written: {error}"));
        }
    }

    /// Whether something is written down.
    fn is_noted(&self, what: &str) -> bool {
        let text = self.tally.as_ref().map(std::fs::read_to_string);
        text.and_then(Result::ok)
            .is_some_and(|text| text.lines().any(|line| line == what))
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

fn initialized(params: &Value) -> Value {
    json!({
        "protocolVersion": params["protocolVersion"],
        "capabilities": {
            "tools": {"listChanged": true},
            "resources": {"subscribe": true, "listChanged": true},
            "logging": {},
        },
        "serverInfo": {"name": "stdio fixture", "version": "1"},
    })
}
