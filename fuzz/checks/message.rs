//! What must hold of any bytes that are read as a message or a batch: the peek agrees with a full
//! parse, a splice changes one value and nothing else, a batch's members are its values, and a scan in
//! pieces finds the id that the peek finds.

use std::fmt;

use bowline_wire::batch::{self, BadBatch};
use bowline_wire::message::{Kind, Malformed, Message};
use bowline_wire::names::{plain, reads_as};
use bowline_wire::scan::{IdScan, Stop};
use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

const ENVELOPE: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// Small, so that short inputs pass it.
const MAX_BATCH: usize = 3;

/// Panics where the input shows a bug.
pub(crate) fn check(input: &[u8]) {
    alone(input);
    if batch::is_batch(input) {
        together(input);
    }
}

/// What is read as a batch.
fn together(input: &[u8]) {
    let full = serde_json::from_slice::<Vec<Value>>(input).ok();
    match batch::split(&Bytes::copy_from_slice(input), MAX_BATCH) {
        Err(BadBatch::NotJson(_)) => assert_eq!(full, None, "this is JSON"),
        Err(BadBatch::TooMany { max }) => {
            assert!(full.is_none_or(|full| full.len() > max));
        }
        Ok(members) => {
            assert!(members.len() <= MAX_BATCH);
            members.iter().for_each(|member| alone(member));
            let read = members.iter().map(|member| serde_json::from_slice(member));
            if let Some(full) = full {
                assert_eq!(read.collect::<Result<Vec<Value>, _>>().ok(), Some(full));
            }
        }
    }
}

/// What is read as one message.
fn alone(input: &[u8]) {
    let parsed = Message::parse(Bytes::copy_from_slice(input));
    // A full parse is stricter in what a gateway only passes on: numbers out of range, nesting,
    // lone surrogates. Where it refuses, there is nothing to compare with.
    let full = serde_json::from_slice::<Value>(input).ok();
    match &parsed {
        Err(malformed) => refused(input, malformed, full.as_ref()),
        Ok(message) => {
            assert_eq!(message.raw(), input);
            look_everywhere(message);
            scanned(message);
            if let Some(full) = &full {
                agrees(message, full, input);
            }
        }
    }
}

/// A scan finds the id of an answer, wherever the bytes are cut.
fn scanned(message: &Message) {
    if message.method().is_some() {
        return;
    }
    for piece in [1, 7, message.raw().len()] {
        let mut scan = IdScan::default();
        let (mut ids, mut id, mut ended) = (Vec::new(), None::<Vec<u8>>, false);
        for mut bytes in message.raw().chunks(piece) {
            while !bytes.is_empty() && !ended {
                let (read, stop) = scan.read(bytes);
                if let Some(id) = &mut id {
                    id.extend_from_slice(&bytes[..read]);
                }
                bytes = &bytes[read..];
                match stop {
                    Stop::More => assert!(bytes.is_empty()),
                    Stop::IdBegins => id = Some(Vec::new()),
                    Stop::IdEnds => ids.extend(id.take()),
                    Stop::End => ended = true,
                    Stop::AnswerBegins => assert!(scan.has_answer()),
                    // A member that only a forgiving reader takes for a method.
                    Stop::NotAnAnswer => return,
                }
            }
        }
        let expected: Vec<_> = message
            .id_span()
            .map(|span| message.text(span).as_bytes().to_vec())
            .into_iter()
            .collect();
        assert_eq!((ids, ended), (expected, true));
    }
}

/// A refusal has a reason that a full parse confirms.
fn refused(input: &[u8], malformed: &Malformed, full: Option<&Value>) {
    assert!(!malformed.to_string().is_empty());
    match malformed {
        Malformed::NotJson(_) => assert_eq!(full, None, "this is JSON"),
        Malformed::Batch => assert!(full.is_none_or(Value::is_array)),
        Malformed::Ambiguous => {
            let names = full.and_then(Value::as_object).into_iter().flatten();
            let mut names = names.map(|(name, _)| name);
            let has_method = names.any(|name| reads_as(name, "method"));
            assert!(full.is_none() || has_method, "this has no method");
        }
        Malformed::OddName(known) => {
            let names = full.and_then(Value::as_object).into_iter().flatten();
            let mut names = names.map(|(name, _)| name);
            let is_odd = names.any(|name| name != known && reads_as(name, known));
            assert!(full.is_none() || is_odd, "every name is plain");
        }
        // A full parse keeps one of two equal members, and refuses half a character.
        Malformed::TwoReadings { what, .. } => {
            let text = plain(&String::from_utf8_lossy(input));
            let is_there = text.contains(&what.to_lowercase());
            assert!(full.is_none() || is_there, "nothing is called so");
        }
        Malformed::NotJsonRpc(_) => {
            if let Some(full) = full {
                assert_eq!(kind_of(full, input), None, "this is a JSON-RPC message");
            }
        }
    }
}

/// Nothing may panic, and every place is a JSON value of the text.
fn look_everywhere(message: &Message) {
    let places = [message.id_span(), message.cancelled_request()];
    for place in places.into_iter().flatten() {
        let text = message.text(place);
        assert!(!text.is_empty());
        assert_eq!(message.splice(place, text), message.raw());
        let grown = message.splice(place, "\"another\"");
        assert_eq!(grown.len() + text.len(), message.raw().len() + 9);
        assert!(Message::parse(grown).is_ok(), "a splice broke the message");
    }
    drop(message.initialized());
    assert!(message.id().is_none_or(|id| id.as_str() != "null"));
    assert_eq!(message.method().is_some(), message.kind() != Kind::Response);
    assert!(message.error_code().is_none() || message.kind() == Kind::Response);
}

fn agrees(message: &Message, full: &Value, input: &[u8]) {
    assert_eq!(Some(message.kind()), kind_of(full, input));
    assert_eq!(message.method(), full.get("method").and_then(Value::as_str));
    let id = message
        .id()
        .and_then(|id| serde_json::from_str::<Value>(id.as_str()).ok());
    assert_eq!(id.as_ref(), full.get("id").filter(|id| **id != Value::Null));
    if let Some(span) = message.id_span() {
        let mut expected = full.clone();
        expected["id"] = Value::from("another");
        let spliced = message.splice(span, "\"another\"");
        assert_eq!(serde_json::from_slice(&spliced).ok(), Some(expected));
    }
    inside(message, full);
}

/// What is looked for deeper in. A full parse keeps the last of a repeated key, the peek refuses to
/// choose, so only what the peek finds is compared.
fn inside(message: &Message, full: &Value) {
    let (result, error, params) = (&full["result"], &full["error"], &full["params"]);
    if let Some(version) = message.initialized().map(|result| result.version) {
        assert_eq!(*version, result["protocolVersion"]);
    }
    if let Some(code) = message.error_code() {
        assert_eq!(code, error["code"]);
    }
    if let Some(span) = message.cancelled_request() {
        assert_eq!(full["method"], "notifications/cancelled");
        let named = serde_json::from_str::<Value>(message.text(span)).ok();
        assert_eq!(named.as_ref(), params.get("requestId"));
    }
}

/// What a message is, told by a full parse; `None` if it is none.
fn kind_of(full: &Value, input: &[u8]) -> Option<Kind> {
    let object = full.as_object()?;
    let has = |key| object.contains_key(key);
    let id = object.get("id");
    let names_one = id.is_some_and(|id| id.is_string() || id.is_number());
    if object.get("jsonrpc")? != "2.0" || repeats_a_key(input) {
        return None;
    }
    match (object.get("method"), has("result"), has("error")) {
        (Some(Value::String(_)), false, false) if id.is_none() => Some(Kind::Notification),
        (Some(Value::String(_)), false, false) if names_one => Some(Kind::Request),
        (None, true, false) | (None, false, true) => match id {
            None | Some(Value::Null) => Some(Kind::Response),
            Some(_) => names_one.then_some(Kind::Response),
        },
        _ => None,
    }
}

fn repeats_a_key(input: &[u8]) -> bool {
    let keys = serde_json::from_slice::<Keys>(input).map_or_else(|_| Vec::new(), |keys| keys.0);
    let times = |wanted: &str| keys.iter().filter(|key| *key == wanted).count();
    ENVELOPE.iter().any(|key| times(key) > 1)
}

/// The keys of an object, as often as they are there.
struct Keys(Vec<String>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_map(KeysVisitor)
    }
}

struct KeysVisitor;

impl<'de> Visitor<'de> for KeysVisitor {
    type Value = Keys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
        let mut keys = Vec::new();
        while let Some((key, IgnoredAny)) = map.next_entry()? {
            keys.push(key);
        }
        Ok(Keys(keys))
    }
}
