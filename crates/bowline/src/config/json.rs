//! JSON as a tree of values with their places.
//!
//! serde_json lends slices of the text (`RawValue`), keys included, and where a slice lies in the
//! text is its place. So the parser that everybody uses is used here too, and errors get a caret.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::mask::Mask;
use super::report::Findings;
use super::tree::{Member, Node, Value};

/// How deep values are looked into; each level reads the text below it once more.
const DEPTH: usize = 16;

const SYNTAX_HELP: &str =
    "correct the syntax, such as a missing comma or quote; JSON has no comments";

/// Reads JSON; `None` when it is not JSON, for then no value has a sure meaning.
pub(super) fn parse(text: &str, findings: &mut Findings) -> Option<Node> {
    let json = text.trim_start_matches('\u{feff}');
    match serde_json::from_str::<&RawValue>(json) {
        Ok(raw) => {
            let node = node(text, raw, 0, findings);
            findings.mask = Mask::of_tree(&node, text);
            Some(node)
        }
        Err(error) => {
            findings.mask = Mask::of_json_text(text);
            let at = text.len() - json.len() + place(json, &error);
            findings.add(at..at, not_json(&error), SYNTAX_HELP);
            None
        }
    }
}

/// What the parser says; its messages are fixed sentences with no part of the file in them.
fn not_json(error: &serde_json::Error) -> String {
    let said = error.to_string();
    let what = said.split(" at line ").next().unwrap_or_default();
    format!("this is not valid JSON: {what}")
}

fn place(json: &str, error: &serde_json::Error) -> usize {
    let lines = json.split_inclusive('\n');
    let before: usize = lines
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    json.floor_char_boundary(before + error.column().saturating_sub(1))
}

fn node(text: &str, raw: &RawValue, depth: usize, findings: &mut Findings) -> Node {
    let span = span(text, raw);
    let value = match raw.get().as_bytes() {
        [b'{', ..] if depth < DEPTH => table(text, raw, depth, findings),
        [b'[', ..] if depth < DEPTH => {
            let items: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
            let item = |item| node(text, item, depth + 1, findings);
            Value::Array(items.into_iter().map(item).collect())
        }
        [b'{', ..] => Value::Other("an object that deep"),
        [b'[', ..] => Value::Other("an array that deep"),
        [b'"', ..] => string(raw, &span, findings).map_or(Value::Broken, Value::Text),
        b"true" => Value::Flag(true),
        b"false" => Value::Flag(false),
        b"null" => Value::Other("null"),
        _ => match raw.get().parse() {
            Ok(integer) => Value::Integer(integer),
            Err(_) => Value::Other("a number that is not whole"),
        },
    };
    Node { span, value }
}

fn table(text: &str, raw: &RawValue, depth: usize, findings: &mut Findings) -> Value {
    let Ok(Pairs(pairs)) = serde_json::from_str(raw.get()) else {
        return Value::Broken;
    };
    let mut names = BTreeSet::new();
    let mut members = Vec::new();
    for (key, value) in pairs {
        let place = span(text, key);
        let Some(name) = string(key, &place, findings) else {
            continue;
        };
        let node = node(text, value, depth + 1, findings);
        if !names.insert(name.clone()) {
            let message = format!("the key `{}` is given twice", name.escape_debug());
            findings.add(place.clone(), message, "keep one of them");
        }
        members.push(Member {
            name,
            key: place,
            node,
        });
    }
    Value::Table(members)
}

/// The string that this slice writes; the parser has let pass half a surrogate pair, if any.
fn string(raw: &RawValue, span: &Range<usize>, findings: &mut Findings) -> Option<String> {
    let string = serde_json::from_str(raw.get());
    let report = |error: &_| findings.add(span.clone(), not_json(error), SYNTAX_HELP);
    string.inspect_err(report).ok()
}

/// Where a slice of the text lies in it.
fn span(text: &str, raw: &RawValue) -> Range<usize> {
    let start = raw.get().as_ptr().addr() - text.as_ptr().addr();
    start..start + raw.get().len()
}

/// The keys and values of an object, in the order of the text.
struct Pairs<'t>(Vec<(&'t RawValue, &'t RawValue)>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}
