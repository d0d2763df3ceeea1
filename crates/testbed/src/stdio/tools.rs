//! The tools of the stdio fixture.

use std::time::Duration;

use serde_json::{Value, json};

use super::Server;

/// Tools and whether each only reads.
const TOOLS: [(&str, bool); 15] = [
    // Writes its `key` down, `then` may die before it answers, the first time.
    ("bump", false),
    // The same, and may run twice.
    ("peek", true),
    // Writes its `key` down and never answers; it may tell `progress`.
    ("hang", false),
    // The same, and may run twice: the second time it answers.
    ("hang_once", true),
    // Tells its progress in so many `steps`.
    ("progress", true),
    // Asks the client by `method` with `params`; the text is the answer.
    ("ask", false),
    // Sends a notification of `method`, so many `times`.
    ("notify", true),
    // Answers with a text of so many `bytes`.
    ("large", true),
    // Echoes `text`.
    ("echo", true),
    // Writes the `lines` as they are, or `filling` without a line's end, before it answers.
    ("write", true),
    // Reads nothing more: the whole process is stopped, but for `seconds`.
    ("stop", false),
    // Writes its `key` down, and its answer is `cut` or not UTF-8 (`latin`).
    ("garble", false),
    // The same, and may run twice: the second time it can be read.
    ("garble_once", true),
    // Writes its `key` down and waits for leave to go on; it may tell `progress` before and after, and answers
    // with a text of so many `bytes`.
    ("wait", false),
    // The same, and may run twice.
    ("wait_safely", true),
];

/// The listing, in two pages.
fn list(params: &Value) -> Value {
    let (first, second) = TOOLS.split_at(6);
    let is_first = params["cursor"].is_null();
    let page = if is_first { first } else { second };
    let tools: Vec<Value> = page
        .iter()
        .map(|(name, reads)| {
            json!({
                "name": name,
                "inputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": reads},
            })
        })
        .collect();
    match is_first {
        true => json!({"tools": tools, "nextCursor": "second"}),
        false => json!({"tools": tools}),
    }
}

impl Server {
    /// A page of the listing; the last one is noted.
    pub(super) fn list_tools(&self, params: &Value) -> Value {
        let page = list(params);
        if page["nextCursor"].is_null() {
            self.note("listed");
        }
        page
    }

    /// Calls a tool. `None`: it does not answer.
    pub(super) fn call(&self, id: &Value, params: &Value) -> Option<Value> {
        let arguments = &params["arguments"];
        let key = arguments["key"].as_str().unwrap_or_default();
        let number = |name: &str| arguments[name].as_u64().unwrap_or(1);
        let text = match params["name"].as_str().unwrap_or_default() {
            tool @ ("bump" | "peek") => {
                let line = format!("{tool} {key}");
                let is_first = !self.is_noted(&line);
                self.note(&line);
                if is_first {
                    die(arguments["then"].as_str().unwrap_or_default());
                }
                std::process::id().to_string()
            }
            "hang" => {
                self.note(&format!("hang {key}"));
                if arguments["progress"] == true {
                    self.progress(params, 1, 2);
                }
                return None;
            }
            "hang_once" => {
                let line = format!("hang_once {key}");
                let is_first = !self.is_noted(&line);
                self.note(&line);
                if is_first {
                    return None;
                }
                "answered".to_owned()
            }
            "progress" => {
                for step in 1..=number("steps") {
                    self.progress(params, step, number("steps"));
                }
                format!("done {id}")
            }
            "ask" => {
                let method = arguments["method"].as_str().unwrap_or_default();
                self.ask(method, &arguments["params"]).to_string()
            }
            "notify" => {
                for number in 0..number("times") {
                    self.say(
                        &json!({"jsonrpc": "2.0", "method": arguments["method"], "params":
                        {"level": "info", "data": number}}),
                    );
                }
                "notified".to_owned()
            }
            "large" => "x".repeat(usize::try_from(number("bytes")).unwrap_or(0)),
            "echo" => arguments["text"].as_str().unwrap_or_default().to_owned(),
            "write" => {
                self.note("write");
                self.misbehave(arguments);
                "written".to_owned()
            }
            "stop" => {
                self.note(&format!("stop {key}"));
                // Nobody else gets the lock either: all that the process can do is to be read from.
                let out = self.out.lock();
                let seconds = Duration::from_secs(number("seconds"));
                std::thread::park_timeout(seconds);
                drop(out);
                "went on".to_owned()
            }
            tool @ ("wait" | "wait_safely") => {
                self.note(&format!("{tool} {key}"));
                let tells = arguments["progress"] == true;
                if tells {
                    self.progress(params, 1, 2);
                }
                self.hold();
                if tells {
                    self.progress(params, 2, 2);
                }
                "x".repeat(usize::try_from(number("bytes")).unwrap_or(0))
            }
            tool @ ("garble" | "garble_once") => {
                let line = format!("{tool} {key}");
                let is_first = !self.is_noted(&line);
                self.note(&line);
                if is_first {
                    self.garble(id, arguments["how"].as_str().unwrap_or_default());
                    return None;
                }
                "answered".to_owned()
            }
            _ => {
                return Some(json!({"isError": true, "content":
                    [{"type": "text", "text": "no such tool"}]}));
            }
        };
        Some(json!({"content": [{"type": "text", "text": text}]}))
    }

    fn progress(&self, params: &Value, step: u64, total: u64) {
        let token = &params["_meta"]["progressToken"];
        self.say(
            &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params":
            {"progressToken": token, "progress": step, "total": total}}),
        );
    }

    fn garble(&self, id: &Value, how: &str) {
        let mut answer =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"x":"?"}}}}"#)
                .into_bytes();
        match how {
            "cut" => answer.truncate(answer.len() - 3),
            _ => answer
                .iter_mut()
                .filter(|byte| **byte == b'?')
                .for_each(|byte| *byte = 0xe9),
        }
        answer.push(b'\n');
        self.write(&answer);
    }

    fn misbehave(&self, arguments: &Value) {
        let lines = arguments["lines"].as_array().cloned().unwrap_or_default();
        for _ in 0..arguments["times"].as_u64().unwrap_or(1) {
            for line in lines.iter().filter_map(Value::as_str) {
                self.write(format!("{line}\n").as_bytes());
            }
        }
        if arguments["binary"] == true {
            self.write(b"\xff\xfe{\"jsonrpc\"\n");
        }
        let text = |name: &str| arguments[name].as_str().map(str::to_owned);
        if let Some(head) = text("head") {
            self.write(head.as_bytes());
        }
        let filling = arguments["filling"].as_u64().unwrap_or(0);
        let block = vec![b'x'; 1 << 20];
        for _ in 0..filling {
            self.write(&block);
        }
        if let Some(tail) = text("tail") {
            self.write(format!("{tail}\n").as_bytes());
        }
    }
}

fn die(how: &str) {
    match how {
        "exit" => std::process::exit(7),
        "abort" => std::process::abort(),
        _ => {}
    }
}
