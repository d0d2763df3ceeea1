//! A server over stdio with tools of the [counting](crate::counting) one: some may run twice, some may not. What
//! ran is written to a file that all its processes share, so that it outlives them.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::counting::{TURN, list_changed, listing, turning};

/// The variable that names the file of what ran.
pub const NOTES: &str = "STDIO_NOTES";
/// The variable that names a file; while it exists, the server exits when it starts, or right after it has answered
/// `initialize` if the file says [`YOUNG`].
pub const CLOSED: &str = "STDIO_CLOSED";
/// What the file says for a server that dies young.
pub const YOUNG: &str = "young";
/// The variable that is set for a server that also logs to its stdout, in JSON.
pub const LOGS: &str = "STDIO_LOGS";

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
    Opened {
        /// The number at the end of its client's name.
        client: Option<usize>,
    },
    /// A tool, or something else with a key, ran.
    Ran {
        /// The key.
        key: String,
        /// Whether it was the tool that turns after that had become destructive.
        destructive: bool,
    },
}

/// How a server behaves.
#[derive(Debug, Clone, Default)]
pub struct Manner {
    /// The file of what ran.
    pub notes: PathBuf,
    /// The file that closes it.
    pub closed: Option<PathBuf>,
    /// Whether it logs to its stdout.
    pub logs: bool,
}

struct Server {
    out: Mutex<Box<dyn Write + Send>>,
    manner: Manner,
    /// The keys of calls after which it was told that the tool that turns has become destructive.
    turned: Mutex<BTreeSet<String>>,
    /// The parameters of `initialize`.
    parameters: Mutex<Value>,
}

/// Serves until the input ends.
pub fn serve(input: impl BufRead, output: impl Write + Send + 'static, manner: Manner) {
    let server = Arc::new(Server {
        out: Mutex::new(Box::new(output)),
        manner,
        turned: Mutex::default(),
        parameters: Mutex::default(),
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
            "opened" => Noted::Opened {
                client: words.next_back().and_then(|number| number.parse().ok()),
            },
            what => Noted::Ran {
                key: words.next()?.to_owned(),
                destructive: what == "turned",
            },
        };
        Some(Self {
            at: SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds),
            pid,
            what,
        })
    }
}

impl Manner {
    /// Whether a server that starts now dies young.
    fn dies_young(&self) -> bool {
        let text = self.closed.as_ref().map(std::fs::read_to_string);
        text.and_then(Result::ok).is_some_and(|text| text == YOUNG)
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
                let name = params["clientInfo"]["name"].as_str().unwrap_or_default();
                self.note(&format!("opened {name}"));
                *self.parameters.lock() = params.clone();
                Ok(json!({
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": true}, "resources": {}},
                    "serverInfo": {"name": "counted", "version": "1"},
                }))
            }
            "ping" => Ok(json!({})),
            "tools/list" => {
                let turning = turning(&self.parameters.lock());
                Ok(listing(
                    true,
                    false,
                    &turning,
                    !self.turned.lock().is_empty(),
                ))
            }
            "resources/read" => {
                Ok(json!({"contents": [{"uri": params["uri"], "text": params["uri"]}]}))
            }
            "tools/call" => {
                let result = self.call(params);
                self.log(&message["id"]);
                result
            }
            _ => Err(json!({"code": -32601, "message": "no such method"})),
        };
        let (member, said) = match result {
            Ok(result) => ("result", result),
            Err(error) => ("error", error),
        };
        let said = json!({"jsonrpc": "2.0", "id": message["id"], member: said});
        if params["arguments"]["changes"] != true {
            self.say(&said);
        } else {
            // Before it is told: a list that comes afterwards says it.
            let key = params["arguments"]["key"].as_str().unwrap_or_default();
            self.turned.lock().insert(key.to_owned());
            // With nothing in between.
            self.write(&format!("{said}\n{}", list_changed()));
        }
        if message["method"] == "initialize" && self.manner.dies_young() {
            std::process::exit(1);
        }
    }

    /// Runs a tool; those that take their time tell their progress.
    fn call(&self, params: &Value) -> Result<Value, Value> {
        let (arguments, token) = (&params["arguments"], &params["_meta"]["progressToken"]);
        let key = arguments["key"].as_str().unwrap_or_default();
        let tool = params["name"].as_str();
        if tool.is_some_and(|tool| tool.starts_with(TURN)) {
            self.turn(key, arguments);
        } else {
            self.note(&format!("ran {key}"));
        }
        for forged in arguments["forged"].as_array().into_iter().flatten() {
            self.write(forged.as_str().unwrap_or_default());
        }
        let (steps, step) = match tool {
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
        if tool == Some("refuse") {
            let (code, text) = (&arguments["code"], &arguments["message"]);
            return Err(json!({"code": code, "message": text, "data": {"key": key}}));
        }
        Ok(json!({"content": [{"type": "text", "text": key}], "structuredContent": {"key": key}}))
    }

    /// Runs the tool and dies, the first time that this happens; unless it is only about to become destructive.
    fn turn(&self, key: &str, arguments: &Value) {
        let after = arguments["after"].as_str().unwrap_or_default();
        let what = match self.turned.lock().contains(after) {
            true => "turned",
            false => "ran",
        };
        self.note(&format!("{what} {key}"));
        let notes = read(&self.manner.notes).unwrap_or_default();
        let is_it = |note: &&Note| matches!(&note.what, Noted::Ran { key: one, .. } if one == key);
        if arguments["changes"] != true && notes.iter().filter(is_it).count() == 1 {
            std::process::exit(1);
        }
    }

    /// Logs that a call is done, as some loggers do: each line is JSON, and none is a message.
    fn log(&self, id: &Value) {
        if !self.manner.logs {
            return;
        }
        self.say(&json!({"level": "info", "id": id, "msg": "done"}));
        self.say(&json!({"level": "debug", "id": id, "result": {"rows": 1}}));
        self.say(
            &json!({"level": "warn", "id": id, "error": {"code": 1, "message": "slow query"}}),
        );
    }

    fn say(&self, message: &Value) {
        self.write(&message.to_string());
    }

    fn write(&self, line: &str) {
        let mut out = self.out.lock();
        let text = format!("{line}\n");
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
        let file = options.create(true).append(true).open(&self.manner.notes);
        if file
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .is_err()
        {
            std::process::exit(1);
        }
    }
}
