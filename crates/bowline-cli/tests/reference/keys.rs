//! The keys of the configuration file, as tables made from its JSON Schema.

use serde_json::{Map, Value};

use crate::page::{head, row};

type Object = Map<String, Value>;

/// A table for each table of the file.
pub(crate) fn tables() -> String {
    let schema = bowline::config::schema();
    let mut text = String::new();
    table(&mut text, "", "", schema.as_object().unwrap());
    text
}

/// The keys of one table, then those of the tables in it. `path` is what is written before its keys.
fn table(text: &mut String, path: &str, needed: &str, schema: &Object) {
    let properties = schema["properties"].as_object().unwrap();
    // The order of a JSON object depends on how serde_json was built.
    let mut keys: Vec<_> = properties.iter().collect();
    keys.sort_by_key(|(name, _)| name.as_str());
    let (plain, inner): (Vec<_>, Vec<_>) =
        keys.into_iter().partition(|(_, key)| below(key).is_none());
    text.push_str(&match path {
        "" => "### The file itself\n\n".to_owned(),
        path => format!("### `{path}`\n\n"),
    });
    text.push_str(needed);
    text.push_str(&head(["key", "type", "default", "meaning"]));
    for (name, key) in plain {
        let default = key
            .get("default")
            .map_or_else(String::new, |it| format!("`{it}`"));
        let name = format!("`{name}`");
        text.push_str(&row([&name, &kind(key), &default, about(key)]));
    }
    text.push('\n');
    for (name, key) in inner {
        let (dots, schema) = below(key).unwrap();
        let bare = path.trim_matches(['[', ']']);
        let inside = [bare, name, dots]
            .into_iter()
            .filter(|part| !part.is_empty());
        let inside = inside.collect::<Vec<_>>().join(".");
        let path = match key["type"].as_str() {
            Some("array") => format!("[[{inside}]]"),
            _ => format!("[{inside}]"),
        };
        table(text, &path, &needs(schema), schema);
    }
}

/// Which keys a table needs, as a sentence.
fn needs(schema: &Object) -> String {
    let names = |key: &str| -> Vec<String> {
        let all = schema.get(key).and_then(Value::as_array);
        let all = all.into_iter().flatten();
        all.map(|one| one["required"][0].as_str().unwrap().to_owned())
            .collect()
    };
    match (&names("oneOf")[..], &names("anyOf")[..]) {
        ([one], _) => format!("`{one}` is needed.\n\n"),
        (all @ [_, ..], _) => format!("Exactly one of `{}` is needed.\n\n", all.join("` and `")),
        ([], any @ [_, ..]) => {
            let not = schema["not"]["required"].as_array().unwrap();
            let not: Vec<_> = not.iter().map(|name| name.as_str().unwrap()).collect();
            let (any, not) = (any.join("`, `"), not.join("` and `"));
            format!("At least one of `{any}` is needed, and not both of `{not}`.\n\n")
        }
        ([], []) => String::new(),
    }
}

/// The table that a key holds, or that each of its names or members does, and what is written for the name.
fn below(key: &Value) -> Option<(&'static str, &Object)> {
    let is_table = |schema: &Value| schema.get("properties").is_some();
    if is_table(key) {
        return Some(("", key.as_object()?));
    }
    for (member, dots) in [("additionalProperties", "NAME"), ("items", "")] {
        if let Some(schema) = key.get(member).filter(|schema| is_table(schema)) {
            return Some((dots, schema.as_object()?));
        }
    }
    None
}

fn about(key: &Value) -> &str {
    key["description"].as_str().unwrap()
}

/// What may be written behind a key, in words.
fn kind(key: &Value) -> String {
    if let Some(choices) = choices(key) {
        return choices;
    }
    if let Some(either) = key.get("anyOf").and_then(Value::as_array) {
        let either = either.iter().map(kind);
        return either.collect::<Vec<_>>().join(", or ");
    }
    match key["type"].as_str().unwrap() {
        "string" if is_duration(key) => "duration".to_owned(),
        "array" => "list of strings".to_owned(),
        "object" => "table of strings".to_owned(),
        "integer" => match (key.get("minimum"), key.get("maximum")) {
            (Some(least), Some(most)) => format!("integer, {least} to {most}"),
            (Some(least), None) => format!("integer, at least {least}"),
            _ => "integer".to_owned(),
        },
        other => other.to_owned(),
    }
}

/// One of these words; the schema allows a variable in their place.
fn choices(key: &Value) -> Option<String> {
    let either = key.get("anyOf")?.as_array()?;
    let choices = either.iter().find_map(|one| one.get("enum"))?.as_array()?;
    let choices = choices.iter().map(|choice| format!("`{choice}`"));
    Some(choices.collect::<Vec<_>>().join(" or "))
}

/// Whether a string is a time: the schema does not say so, but its default or its example does.
fn is_duration(key: &Value) -> bool {
    let example = key.get("default").or_else(|| key["examples"].get(0));
    let example = example.and_then(Value::as_str);
    example.is_some_and(|example| humantime::parse_duration(example).is_ok())
}
