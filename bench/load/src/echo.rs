//! The tools, as text: what is asked and what must be answered.
//!
//! Both sides write JSON by hand, because a library's cost here would hide the proxies'.

use std::fmt::Write as _;
use std::net::SocketAddr;

use clap::ValueEnum;
use serde_json::Value;

use crate::client;

/// How the server answers a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// One JSON body.
    Json,
    /// A stream of one event.
    Sse,
    /// One JSON body or a stream, spelled as a bridge likes.
    Any,
}

/// What is called, and how large the answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tool {
    pub(crate) kind: Kind,
    /// What a gateway puts before the tool's name.
    pub(crate) prefix: &'static str,
    /// The bytes that the answer has besides the echo.
    pub(crate) filling: usize,
}

/// Length of the text that is sent and echoed.
pub(crate) const TEXT: usize = 64;

/// What a large answer is filled with: JSON text with the escapes that a file's text has.
const LINE: &str = r#"2026-11-16 09:30:00 worker=7 GET \"/orders/4711\" took 12 ms\n"#;

impl Kind {
    /// The tool that answers so.
    pub(crate) const fn tool(self) -> &'static str {
        match self {
            Self::Json | Self::Any => "echo",
            Self::Sse => "echo_sse",
        }
    }
}

/// A text that no other call of this run has, so that answers to others are noticed.
pub(crate) fn text(session: usize, call: u64) -> String {
    let mut text = format!("session {session} call {call} ");
    while text.len() < TEXT {
        text.push('.');
    }
    text
}

/// A `tools/call` request.
pub(crate) fn request(tool: Tool, id: u64, text: &str) -> String {
    let mut body = String::with_capacity(256);
    // Writing to a String cannot fail.
    _ = write!(
        body,
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{}{}","arguments":{{"text":"{text}","filling":{}}}}}}}"#,
        tool.prefix,
        tool.kind.tool(),
        tool.filling,
    );
    body
}

/// The answer to it. `id` and `text` are JSON, so the text comes with its quotes.
pub(crate) fn answer(id: &str, text: &str, filling: usize) -> String {
    let mut body = String::with_capacity(256 + filling);
    _ = write!(
        body,
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":{text}}}"#
    );
    if filling > 0 {
        body.push_str(r#",{"type":"text","text":""#);
        for _ in 0..filling / LINE.len() {
            body.push_str(LINE);
        }
        body.push_str(r#""}"#);
    }
    body.push_str("]}}");
    body
}

/// The answer to `initialize`.
pub(crate) fn initialized(id: &str) -> String {
    let version = client::VERSION;
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"{version}","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"bench","version":"1"}}}}}}"#
    )
}

/// The message with this id, in a body of JSON or of events.
pub(crate) fn message(body: &[u8], id: u64) -> Option<Value> {
    let lines = body.split(|byte| *byte == b'\n');
    let messages = lines.map(|line| line.strip_prefix(b"data:").unwrap_or(line));
    messages
        .filter_map(|line| serde_json::from_slice(line).ok())
        .find(|message: &Value| message["id"] == id)
}

/// Whether `body` is the answer to this very call.
pub(crate) fn is_answer(tool: Tool, body: &[u8], id: u64, text: &str) -> bool {
    let message = match tool.kind {
        Kind::Json => Some(body),
        Kind::Sse => body
            .split(|byte| *byte == b'\n')
            .find_map(|line| line.strip_prefix(b"data: ")),
        Kind::Any => {
            let answer = message(body, id);
            return answer.is_some_and(|answer| answer["result"]["content"][0]["text"] == text);
        }
    };
    let expected = answer(&id.to_string(), &format!("\"{text}\""), tool.filling);
    message == Some(expected.as_bytes())
}

/// The answer to `tools/list`, which also says who gives it. So many more tools are in it that nobody calls.
pub(crate) fn list(id: &str, by: SocketAddr, more: usize) -> String {
    let schema = r#"{"type":"object","properties":{"text":{"type":"string"}}}"#;
    let [json, sse] = [Kind::Json.tool(), Kind::Sse.tool()];
    let more: String = (0..more)
        .map(|number| {
            format!(r#",{{"name":"tool_{number}","description":"Searches the orders of a customer by their state and date.","inputSchema":{schema}}}"#)
        })
        .collect();
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{{"name":"{json}","inputSchema":{schema}}},{{"name":"{sse}","inputSchema":{schema}}}{more}],"_meta":{{"by":"{by}"}}}}}}"#
    )
}

/// How many tools a body lists as the answer to this request, and the cursor of the next page.
pub(crate) fn listed(body: &[u8], id: u64) -> Option<(usize, Option<String>)> {
    let answer = message(body, id)?;
    let tools = answer.pointer("/result/tools")?.as_array()?.len();
    let next = answer.pointer("/result/nextCursor");
    Some((tools, next.and_then(Value::as_str).map(str::to_owned)))
}

/// Who gave this answer to `tools/list`, if it is the one to this request.
pub(crate) fn listed_by(body: &[u8], id: u64) -> Option<SocketAddr> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let by = answer.pointer("/result/_meta/by")?.as_str()?;
    (answer["id"] == id).then(|| by.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let text = text(3, 7);
        assert_eq!(text.len(), TEXT);
        let body = answer("7", &format!("\"{text}\""), 0);
        let tool = |kind| Tool {
            kind,
            prefix: "",
            filling: 0,
        };
        let (json, sse) = (tool(Kind::Json), tool(Kind::Sse));
        assert!(is_answer(json, body.as_bytes(), 7, &text));
        assert!(!is_answer(json, body.as_bytes(), 8, &text));
        let event = format!("event: message\ndata: {body}\n\n");
        assert!(is_answer(sse, event.as_bytes(), 7, &text));
        assert!(!is_answer(sse, b": nothing\n\n", 7, &text));
        let any = tool(Kind::Any);
        let spelled = body.replace(':', ": ");
        assert!(is_answer(any, spelled.as_bytes(), 7, &text));
        assert!(is_answer(any, event.as_bytes(), 7, &text));
        assert!(!is_answer(any, event.as_bytes(), 8, &text));
    }

    #[test]
    fn a_large_answer_is_json_of_about_that_size() {
        let filling = 32 * 1024;
        let body = answer("7", "\"x\"", filling);
        assert!((filling - 100..filling + 200).contains(&body.len()));
        let parsed: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(parsed["result"]["content"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_list_says_whose_it_is() {
        let by = SocketAddr::from(([127, 0, 0, 1], 7));
        let body = list("3", by, 48);
        assert_eq!(listed(body.as_bytes(), 3), Some((50, None)));
        assert_eq!(listed_by(body.as_bytes(), 3), Some(by));
        assert_eq!(listed_by(body.as_bytes(), 4), None);
    }
}
