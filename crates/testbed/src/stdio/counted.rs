//! A server over stdio with tools of the [counting](crate::counting) one: some may run twice, some may not. What
//! ran is written to a file that all its processes share, so that it outlives them.

use std::fs::OpenOptions;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::counting::listing;

/// The variable that names the file of what ran.
pub const NOTES: &str = "STDIO_NOTES";
/// The variable that names a file; while it exists, the server exits when it starts.
pub const CLOSED: &str = "STDIO_CLOSED";

/// How long a tool takes between running and answering, so that a kill can come between.
const ANSWER_TAKES: Duration = Duration::from_millis(15);

/// Something that happened in a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// When.
    pub at: SystemTime,
    /// In which process.
    pub pid: u32,
    /// What.
    pub what: Noted,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Noted {
    /// A session was opened.
    Opened,
    /// A tool, or something else with a key, ran.
    Ran {
        /// The key.
        key: String,
    },
}

struct Server {
    out: Mutex<Box<dyn Write + Send>>,
    notes: PathBuf,
}

/// Serves until the input ends.
pub fn serve(input: impl BufRead, output: impl Write + Send + 'static, notes: PathBuf) {
    let server = Arc::new(Server {
        out: Mutex::new(Box::new(output)),
        notes,
    });
    for line in input.lines().map_while(Result::ok) {
        let message: Value = serde_json::from_str(&line).unwrap_or_default();
        if message.get("id").is_some() {
            let server = Arc::clone(&server);
            // Side by side, as most servers do.
            thread::spawn(move || server.answer(&message));
        }
    }
}

/// What happened so far, in the order of the file.
///
/// # Errors
///
/// When it cannot be read.
pub fn read(notes: &Path) -> io::Result<Vec<Note>> {
    let text = match std::fs::read_to_string(notes) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    Ok(text.lines().filter_map(Note::parse).collect())
}

impl Note {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let nanoseconds = words.next()?.parse().ok()?;
        let pid = words.next()?.parse().ok()?;
        let what = match words.next()? {
            "opened" => Noted::Opened,
            _ => Noted::Ran {
                key: words.next()?.to_owned(),
            },
        };
        Some(Self {
            at: SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds),
            pid,
            what,
        })
    }
}

impl Server {
    fn answer(&self, message: &Value) {
        let params = &message["params"];
        if let Some(key) = params["_meta"]["key"].as_str() {
            self.note(&format!("ran {key}"));
        }
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                self.note("opened");
                json!({
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {}, "resources": {}},
                    "serverInfo": {"name": "counted", "version": "1"},
                })
            }
            "ping" => json!({}),
            "tools/list" => listing(true, false),
            "resources/read" => {
                json!({"contents": [{"uri": params["uri"], "text": params["uri"]}]})
            }
            "tools/call" => self.call(params),
            _ => {
                let error = json!({"code": -32601, "message": "no such method"});
                self.say(&json!({"jsonrpc": "2.0", "id": message["id"], "error": error}));
                return;
            }
        };
        self.say(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
    }

    /// Runs a tool; those that take their time tell their progress.
    fn call(&self, params: &Value) -> Value {
        let (arguments, token) = (&params["arguments"], &params["_meta"]["progressToken"]);
        let key = arguments["key"].as_str().unwrap_or_default();
        self.note(&format!("ran {key}"));
        let (steps, step) = match params["name"].as_str() {
            Some("slow" | "stream_read") => (
                arguments["steps"].as_u64().unwrap_or(3),
                Duration::from_millis(arguments["ms"].as_u64().unwrap_or(10)),
            ),
            _ => (0, ANSWER_TAKES),
        };
        for number in 1..=steps {
            thread::park_timeout(step);
            self.say(
                &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params":
                {"progressToken": token, "progress": number, "total": steps}}),
            );
        }
        thread::park_timeout(ANSWER_TAKES);
        json!({"content": [{"type": "text", "text": key}], "structuredContent": {"key": key}})
    }

    fn say(&self, message: &Value) {
        let mut out = self.out.lock();
        let text = format!("{message}\n");
        if out
            .write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .is_err()
        {
            std::process::exit(0);
        }
    }

    /// Writes down what happened, in one piece. What cannot be written down must not happen.
    fn note(&self, what: &str) {
        #[expect(
            clippy::disallowed_methods,
            reason = "the only clock that processes share"
        )]
        let now = SystemTime::now();
        let at = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos();
        let line = format!("{at} {} {what}\n", std::process::id());
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(&self.notes);
        if file
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .is_err()
        {
            std::process::exit(1);
        }
    }
}
