//! The demo's tools: what they are called, what they take, and what they do to a session.

use serde_json::{Value, json};

use super::sessions::Session;

/// The most notes of a session, and the longest, in bytes: all sessions together stay small.
const MOST_NOTES: usize = 50;
const LONGEST_NOTE: usize = 1000;

/// The answer to `tools/list`.
pub(super) fn list() -> Value {
    let nothing = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let text = |description: &str| {
        json!({
            "type": "object",
            "properties": {"text": {"type": "string", "description": description}},
            "required": ["text"],
            "additionalProperties": false,
        })
    };
    // None of them reaches beyond its session, and none destroys what is there.
    let reads = json!({"readOnlyHint": true, "openWorldHint": false});
    let adds = json!({
        "readOnlyHint": false,
        "destructiveHint": false,
        "idempotentHint": false,
        "openWorldHint": false,
    });
    json!({"tools": [
        {
            "name": "count",
            "title": "Count",
            "description": "Counts how often it was called in this session.",
            "inputSchema": nothing,
            "annotations": adds,
        },
        {
            "name": "echo",
            "title": "Echo",
            "description": "Answers with the text it is given.",
            "inputSchema": text("The text to answer with."),
            "annotations": reads,
        },
        {
            "name": "recall",
            "title": "Recall",
            "description": "Lists what this session was asked to remember.",
            "inputSchema": nothing,
            "annotations": reads,
        },
        {
            "name": "remember",
            "title": "Remember",
            "description": "Keeps a note for as long as this session lasts.",
            "inputSchema": text("The note to keep, up to 1000 bytes."),
            "annotations": adds,
        },
    ]})
}

/// Calls a tool; `None` if there is none of this name. Arguments that do not fit are told in the
/// result, where a model can read it and try again.
pub(super) fn call(session: &mut Session, name: &str, arguments: &Value) -> Option<Value> {
    let text = || {
        let text = arguments.get("text").and_then(Value::as_str);
        text.ok_or("`text` is missing or not a string")
    };
    let said = match name {
        "count" => count(session, arguments),
        "echo" => text().map(str::to_owned),
        "recall" => Ok(recall(session)),
        "remember" => text().and_then(|text| remember(session, text)),
        _ => return None,
    };
    let is_error = said.is_err();
    let text = said.unwrap_or_else(str::to_owned);
    Some(json!({"content": [{"type": "text", "text": text}], "isError": is_error}))
}

/// The next number. From a ledger it comes with the replica that wrote it.
fn count(session: &mut Session, arguments: &Value) -> Result<String, &'static str> {
    let Some(ledger) = &session.ledger else {
        session.count += 1;
        return Ok(session.count.to_string());
    };
    let conversation = arguments.get("conversation").and_then(Value::as_str);
    let number = ledger.count(conversation.ok_or("`conversation` is missing")?)?;
    Ok(format!("{number} by {}", ledger.replica()))
}

fn recall(session: &Session) -> String {
    if session.notes.is_empty() {
        return "Nothing was remembered in this session.".to_owned();
    }
    session.notes.join("\n")
}

fn remember(session: &mut Session, text: &str) -> Result<String, &'static str> {
    if text.len() > LONGEST_NOTE {
        return Err("the note is too long, 1000 bytes is the most");
    }
    if session.notes.len() >= MOST_NOTES {
        return Err("this session remembers 50 notes already, which is the most");
    }
    session.notes.push(text.to_owned());
    Ok("Remembered for this session.".to_owned())
}
