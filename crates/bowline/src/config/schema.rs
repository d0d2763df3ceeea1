//! The JSON Schema of the TOML file, made from the declaration that the reader uses.
//!
//! Editors check and complete a file with it. It says which keys there are and of which type;
//! what a string must look like inside is left to `bowline check`, because any string may have a
//! `${VARIABLE}` in it.

use serde_json::{Map, Value, json};

use super::keys::{FILE, Key, Kind, Shape};

/// What a server or a caller may be called.
const NAME: &str = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$";

/// The JSON Schema (draft 2020-12) of the TOML file.
pub fn schema() -> Value {
    let mut schema = table(&FILE);
    schema.insert(
        "$schema".to_owned(),
        "https://json-schema.org/draft/2020-12/schema".into(),
    );
    schema.insert("title".to_owned(), "Bowline's configuration".into());
    schema.into()
}

fn table(shape: &Shape) -> Map<String, Value> {
    let keys = shape.keys.iter();
    let properties: Map<_, _> = keys
        .map(|key| (key.name.to_owned(), property(key).into()))
        .collect();
    let mut schema = object(json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    }));
    let one = |name: &&str| json!({ "required": [name] });
    let one_of = shape.one_of.iter().map(one);
    if !shape.or.is_empty() {
        let any_of = one_of.chain(shape.or.iter().map(one)).collect();
        schema.insert("anyOf".to_owned(), Value::Array(any_of));
        schema.insert("not".to_owned(), json!({ "required": shape.one_of }));
    } else if !shape.one_of.is_empty() {
        schema.insert("oneOf".to_owned(), Value::Array(one_of.collect()));
    }
    schema
}

fn property(key: &Key) -> Map<String, Value> {
    let mut schema = match &key.kind {
        Kind::Text | Kind::Url => object(json!({ "type": "string" })),
        Kind::Choice(choices) => choice(choices),
        Kind::ChoiceOrTexts(choices) => {
            object(json!({ "anyOf": [choice(choices), some_strings()] }))
        }
        Kind::TextOrTexts => object(json!({ "anyOf": [{ "type": "string" }, some_strings()] })),
        Kind::Urls => some_strings(),
        Kind::Texts => {
            object(json!({ "type": "array", "items": { "type": "string" }, "uniqueItems": true }))
        }
        Kind::Words => {
            object(json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 }))
        }
        Kind::Integer(least) => object(json!({ "type": "integer", "minimum": least })),
        Kind::Within(from, to) => {
            object(json!({ "type": "integer", "minimum": from, "maximum": to }))
        }
        Kind::Signed => object(json!({ "type": "integer" })),
        Kind::Flag => object(json!({ "type": "boolean" })),
        Kind::Secrets => {
            object(json!({ "type": "object", "additionalProperties": { "type": "string" } }))
        }
        Kind::Table(shape) => table(shape),
        Kind::Named(shape) => object(json!({
            "type": "object",
            "propertyNames": { "pattern": NAME },
            "additionalProperties": table(shape),
        })),
        Kind::List(shape) => object(json!({ "type": "array", "items": table(shape) })),
    };
    schema.insert("description".to_owned(), key.about.into());
    if let Some(default) = key.default.and_then(literal) {
        schema.insert("default".to_owned(), default);
    }
    if let Some(example) = literal(key.example) {
        schema.insert("examples".to_owned(), json!([example]));
    }
    schema
}

/// One of these, or what a variable makes of it.
fn choice(choices: &[&str]) -> Map<String, Value> {
    object(json!({
        "type": "string",
        "anyOf": [{ "enum": choices }, { "pattern": r"\$\{" }],
    }))
}

/// Strings, at least one and each once.
fn some_strings() -> Map<String, Value> {
    object(json!({
        "type": "array",
        "items": { "type": "string" },
        "minItems": 1,
        "uniqueItems": true,
    }))
}

/// A value that TOML and JSON write alike.
fn literal(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}
