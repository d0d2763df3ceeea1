//! Whether the official clients can use a JSON Schema. They demand little of an `inputSchema`, but the TypeScript client
//! compiles each `outputSchema` of a list and refuses the list if one of them does not compile.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::pattern::is_regular;

/// How many references may follow one another.
const MAX_HOPS: usize = 32;

/// The most values of a schema, with what references are replaced by. A client compiles so many in about a third of a
/// second.
const MAX_VALUES: usize = 4000;

/// The most schemas of one list. The time that a client takes grows with their square.
const MAX_SCHEMAS: usize = 200;

/// The longest reference: each is read some times.
const MAX_REFERENCE: usize = 256;

/// How deep all schemas to which references lead may be, together: a client compiles one within the other.
const MAX_DEPTH: usize = 300;

/// Makes a schema one of an object whose properties are schemas, for a client that knows no other. `Ok(true)`: it was
/// changed, and means the same.
pub(super) fn fit(schema: &mut Map<String, Value>) -> Result<bool, &'static str> {
    let mut is_changed = false;
    match schema.get("type") {
        Some(Value::String(kind)) if kind == "object" => {}
        None | Some(Value::Null) => {
            schema.insert("type".to_owned(), "object".into());
            is_changed = true;
        }
        // What is described is an object in any case.
        Some(Value::Array(kinds)) if kinds.iter().any(|kind| kind == "object") => {
            schema.insert("type".to_owned(), "object".into());
            is_changed = true;
        }
        Some(_) => return Err("it is no schema of an object"),
    }
    for name in ["properties", "required", "$schema"] {
        is_changed |= schema.get(name).is_some_and(Value::is_null);
        if schema.get(name).is_some_and(Value::is_null) {
            schema.remove(name);
        }
    }
    if schema.get("$schema").is_some_and(|it| !it.is_string()) {
        schema.remove("$schema");
        is_changed = true;
    }
    if schema
        .get("required")
        .is_some_and(|names| !are_texts(names))
    {
        return Err("its `required` is no list of texts");
    }
    match schema.get_mut("properties") {
        None => {}
        // As PHP writes an empty object.
        Some(properties) if *properties == json!([]) => {
            *properties = json!({});
            is_changed = true;
        }
        Some(Value::Object(properties)) => {
            for property in properties.values_mut() {
                *property = match property {
                    Value::Object(_) => continue,
                    Value::Bool(true) => json!({}),
                    Value::Bool(false) => json!({"not": {}}),
                    _ => return Err("one of its `properties` is no schema"),
                };
                is_changed = true;
            }
        }
        Some(_) => return Err("its `properties` are no object"),
    }
    Ok(is_changed)
}

fn are_texts(value: &Value) -> bool {
    let list = value.as_array();
    list.is_some_and(|list| list.iter().all(Value::is_string))
}

/// Cuts from a schema what means nothing to clients or to the rest of it, but may keep it from being compiled.
/// `true`: it was changed.
pub(super) fn cut(schema: &mut Map<String, Value>) -> bool {
    // It names the whole schema, to which references lead without it. Clients take another schema of this name for it.
    let had_id = schema.remove("$id").is_some();
    cut_unknown(schema) || had_id
}

fn cut_unknown(schema: &mut Map<String, Value>) -> bool {
    let all = schema.len();
    schema.retain(|keyword, value| is_known(keyword, value));
    let mut is_changed = schema.len() < all;
    for (keyword, value) in schema {
        let inner: Vec<&mut Value> = match (Holds::of(keyword, value), value) {
            (Holds::Schema, value) => vec![value],
            (Holds::Schemas, Value::Array(list)) => list.iter_mut().collect(),
            (Holds::NamedSchemas, Value::Object(named)) => named.values_mut().collect(),
            _ => continue,
        };
        for schema in inner.into_iter().filter_map(Value::as_object_mut) {
            is_changed |= cut_unknown(schema);
        }
    }
    is_changed
}

fn is_known(keyword: &str, value: &Value) -> bool {
    let is_own = |name: &str| {
        let mut bytes = name.bytes();
        bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    Holds::of(keyword, value) != Holds::NoSchema
        || KEYWORDS.contains(&keyword)
        || NOTES.contains(&keyword)
        || UNSURE.contains(&keyword)
        || keyword.strip_prefix("x-").is_some_and(is_own)
}

/// The keywords that demand something of a value.
const KEYWORDS: &[&str] = &[
    "$ref",
    "$schema",
    "format",
    "type",
    "nullable",
    "maximum",
    "minimum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "multipleOf",
    "maxLength",
    "minLength",
    "maxItems",
    "minItems",
    "maxProperties",
    "minProperties",
    "maxContains",
    "minContains",
    "uniqueItems",
    "enum",
    "required",
    "pattern",
    "const",
    "default",
    "dependencies",
    "dependentRequired",
];

/// The keywords that only say something.
const NOTES: &[&str] = &[
    "title",
    "description",
    "examples",
    "example",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
    "contentMediaType",
    "contentEncoding",
    "contentSchema",
    "discriminator",
    "enumNames",
    "enumDescriptions",
];

/// The keywords that change what a schema means, but not for all clients: the names of schemas, and what only some
/// dialects know.
const UNSURE: &[&str] = &[
    "id",
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$async",
    "$recursiveRef",
    "$recursiveAnchor",
    "$dynamicRef",
    "formatMaximum",
    "formatMinimum",
    "formatExclusiveMaximum",
    "formatExclusiveMinimum",
];

/// Whether a schema compiles. What is rare is taken for what does not.
pub(super) fn compiles(schema: Map<String, Value>) -> Result<(), &'static str> {
    let whole = Value::Object(schema);
    let mut values = count(&whole);
    if values > MAX_VALUES {
        return Err(LARGE);
    }
    let mut references = BTreeMap::new();
    check(&whole, &mut references)?;
    let mut depth = 0;
    for (reference, times) in references {
        let target = found(&whole, reference).ok_or("a `$ref` leads nowhere")?;
        depth += deepness(target);
        // Clients write it in place of the reference.
        values += times * count(target);
        if depth > MAX_DEPTH || values > MAX_VALUES {
            return Err(LARGE);
        }
        let mut next = target.get("$ref").and_then(Value::as_str);
        let mut hops = 1;
        while let Some(reference) = next {
            let target = found(&whole, reference).ok_or("a `$ref` leads nowhere")?;
            next = target.get("$ref").and_then(Value::as_str);
            hops += 1;
            if hops > MAX_HOPS {
                return Err("its `$ref`s lead in a circle");
            }
        }
    }
    Ok(())
}

const LARGE: &str = "it is too large to be compiled";

/// A name that some clients drop from an object, so that a reference through it leads nowhere.
const LOST: &str = "__proto__";

/// How many values a value is.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(values) => values.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        _ => 0,
    }
}

/// How deep values are in it.
fn deepness(value: &Value) -> usize {
    let inner = match value {
        Value::Array(values) => values.iter().map(deepness).max(),
        Value::Object(members) => members.values().map(deepness).max(),
        _ => None,
    };
    1 + inner.unwrap_or_default()
}

/// What a keyword of a schema has as its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Schema,
    Schemas,
    NamedSchemas,
    NoSchema,
}

impl Holds {
    fn of(keyword: &str, value: &Value) -> Self {
        match keyword {
            "items" if value.is_array() => Self::Schemas,
            "items"
            | "additionalItems"
            | "contains"
            | "additionalProperties"
            | "propertyNames"
            | "not"
            | "if"
            | "then"
            | "else"
            | "unevaluatedItems"
            | "unevaluatedProperties" => Self::Schema,
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => Self::Schemas,
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                Self::NamedSchemas
            }
            _ => Self::NoSchema,
        }
    }
}

/// Checks a schema and all within it. It notes where they refer to.
fn check<'s>(
    schema: &'s Value,
    references: &mut BTreeMap<&'s str, usize>,
) -> Result<(), &'static str> {
    let members = match schema {
        Value::Bool(_) => return Ok(()),
        Value::Object(members) => members,
        _ => return Err("something in it is no schema"),
    };
    for (keyword, value) in members {
        match Holds::of(keyword, value) {
            Holds::Schema => check(value, references)?,
            Holds::Schemas => {
                let list = value.as_array().filter(|list| !list.is_empty());
                let list = list.ok_or("something in it is no list of schemas")?;
                if list.len() > MAX_SCHEMAS {
                    return Err(LARGE);
                }
                list.iter().try_for_each(|one| check(one, references))?;
            }
            Holds::NamedSchemas => {
                let named = value.as_object();
                let named = named.ok_or("something in it is no object of schemas")?;
                if named.contains_key(LOST) {
                    return Err("a name in it is one that clients lose");
                }
                if keyword == "patternProperties" && !named.keys().all(|it| is_regular(it)) {
                    return Err("a pattern in it is none");
                }
                named.values().try_for_each(|one| check(one, references))?;
            }
            Holds::NoSchema if keyword == "$ref" => {
                let reference = value.as_str().filter(|reference| is_plain(reference));
                let reference = reference.ok_or("a `$ref` leads elsewhere")?;
                *references.entry(reference).or_default() += 1;
            }
            Holds::NoSchema => check_keyword(keyword, value, members)?,
        }
    }
    Ok(())
}

fn check_keyword(
    keyword: &str,
    value: &Value,
    schema: &Map<String, Value>,
) -> Result<(), &'static str> {
    let is_good = match keyword {
        "$schema" | "format" => value.is_string(),
        "type" => is_type(value),
        "nullable" => *value == true && schema.contains_key("type"),
        "maximum" | "minimum" | "exclusiveMaximum" | "exclusiveMinimum" | "multipleOf"
        | "maxLength" | "minLength" | "maxItems" | "minItems" | "maxProperties"
        | "minProperties" | "maxContains" | "minContains" => value.is_number(),
        "uniqueItems" => value.is_boolean(),
        "enum" => value.as_array().is_some_and(|values| !values.is_empty()),
        "required" => are_texts(value),
        "pattern" => match value.as_str().is_some_and(is_regular) {
            true => true,
            false => return Err("a pattern in it is none"),
        },
        "const" | "default" => true,
        "dependencies" | "dependentRequired" => {
            let lists = value.as_object();
            lists.is_some_and(|lists| lists.values().all(are_texts))
        }
        _ => !UNSURE.contains(&keyword) && !has_names(keyword, value),
    };
    match is_good {
        true => Ok(()),
        false => Err("a keyword in it has a value that it cannot have"),
    }
}

/// The schema to which a reference leads.
fn found<'s>(whole: &'s Value, reference: &str) -> Option<&'s Value> {
    let (mut at, mut holds) = (whole, Holds::Schema);
    for step in reference.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        let next = match at {
            Value::Array(list) => list.get(index(&step)?)?,
            other => other.get(&step)?,
        };
        holds = match holds {
            Holds::Schema => Holds::of(&step, next),
            Holds::Schemas | Holds::NamedSchemas => Holds::Schema,
            Holds::NoSchema => return None,
        };
        at = next;
    }
    (holds == Holds::Schema).then_some(at)
}

fn index(step: &str) -> Option<usize> {
    let index: usize = step.parse().ok()?;
    (index.to_string() == step).then_some(index)
}

/// Whether a reference is written in one way only.
fn is_plain(reference: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.$~/".contains(&byte);
    let path = reference.strip_prefix('#');
    reference.len() <= MAX_REFERENCE
        && path.is_some_and(|path| {
            (path.is_empty() || path.starts_with('/')) && path.bytes().all(is_plain)
        })
}

fn is_type(value: &Value) -> bool {
    let is_one = |value: &Value| {
        let known = [
            "object", "array", "string", "number", "integer", "boolean", "null",
        ];
        value.as_str().is_some_and(|kind| known.contains(&kind))
    };
    match value {
        Value::Array(kinds) => !kinds.is_empty() && kinds.iter().all(is_one),
        one => is_one(one),
    }
}

/// Whether a keyword that clients do not know names a schema, or has such a name in it.
fn has_names(name: &str, value: &Value) -> bool {
    matches!(name, "$id" | "$anchor" | "$dynamicAnchor")
        || match value {
            Value::Object(members) => members.iter().any(|(name, value)| has_names(name, value)),
            Value::Array(values) => values.iter().any(|value| has_names("", value)),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(schema: &Value) -> Map<String, Value> {
        schema.as_object().unwrap().clone()
    }

    #[test]
    fn what_means_the_same_is_written_as_clients_read_it() {
        let object_of_x = json!({"type": "object", "properties": {"x": {}}});
        for (written, read) in [
            (json!({}), json!({"type": "object"})),
            (
                json!({"type": ["null", "object"], "x": 1}),
                json!({"type": "object", "x": 1}),
            ),
            (
                json!({"type": "object", "properties": {"x": true}}),
                object_of_x.clone(),
            ),
            (
                json!({"properties": {"x": false}}),
                json!({"type": "object", "properties": {"x": {"not": {}}}}),
            ),
            (
                json!({"type": null, "properties": [], "required": null, "$schema": 5}),
                json!({"type": "object", "properties": {}}),
            ),
        ] {
            let mut fitted = object(&written);
            assert_eq!(fit(&mut fitted), Ok(true), "{written}");
            assert_eq!(Value::from(fitted), read);
        }
        assert_eq!(fit(&mut object(&object_of_x)), Ok(false));
        for odd in [
            json!({"type": "string"}),
            json!({"type": "object", "properties": {"x": 5}}),
            json!({"properties": ["x"]}),
            json!({"required": true}),
            json!({"required": [1]}),
        ] {
            assert!(fit(&mut object(&odd)).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_schema_compiles_if_all_within_it_does() {
        let compiles = |schema: &Value| {
            let mut schema = object(schema);
            cut(&mut schema);
            compiles(schema)
        };
        for good in [
            json!({"type": "object", "$id": "x", "$schema": "https://json-schema.org/draft/2020-12/schema",
                "properties": {"a": {"$ref": "#/$defs/a~1b"}, "b": true, "$id": {"type": ["string", "null"]}},
                "$defs": {"a/b": {"anyOf": [{"$ref": "#"}, {"items": {"$ref": "#/properties/b"}}]}},
                "x-own": {"a": 1}, "default": {"$id": "x"}}),
            json!({"patternProperties": {"^a": {"pattern": "^(?=a)", "format": "own", "nullable": true, "type": "string"}}}),
        ] {
            assert_eq!(compiles(&good), Ok(()), "{good}");
        }
        for bad in [
            json!({"properties": {"a": {"type": "banana"}}}),
            json!({"properties": {"a": {"minimum": 1, "exclusiveMinimum": true}}}),
            json!({"properties": {"a": 1}}),
            json!({"properties": {"a": {"pattern": "["}}}),
            json!({"patternProperties": {"[": {}}}),
            json!({"$ref": "#/$defs/none"}),
            json!({"$ref": "#/enum/0", "enum": [{}]}),
            json!({"$ref": "https://example.com/schema"}),
            // One client does not have it, and one reads `#/$defs/a`.
            json!({"properties": {"__proto__": {"properties": {"a": {}}}, "b": {"$ref": "#/properties/__proto__/properties/a"}}}),
            json!({"$defs": {"a#": {}}, "properties": {"b": {"$ref": "#/$defs/a#"}}}),
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
            json!({"anyOf": []}),
            json!({"enum": []}),
            json!({"items": {"$id": "x"}}),
            json!({"x-own": [{"$anchor": "x"}]}),
            json!({"properties": {"a": {"id": 5}}}),
            json!({"nullable": true}),
            json!({"properties": {"a": {"format": "date", "formatMaximum": 5}}}),
            json!({"properties": {"a": {"pattern": "()".repeat(66_000)}}}),
            json!({"oneOf": vec![json!({"properties": {"a": {"const": 1}}}); 201]}),
            json!({"required": vec!["a"; 4001]}),
            json!({"$id": "urn:a", "$ref": "urn:a#/$defs/a", "$defs": {"a": {}}}),
        ] {
            assert!(compiles(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_means_nothing_is_cut() {
        for id in [json!(5), json!({}), json!(true), json!("urn:receipt")] {
            let mut schema = object(&json!({"$id": id, "x-own": 1, "constructor": 1,
                "properties": {"constructor": {"__proto__": {}, "unit": "m", "title": "T"}}}));
            assert!(cut(&mut schema));
            let left = json!({"x-own": 1, "properties": {"constructor": {"title": "T"}}});
            assert_eq!(Value::from(schema.clone()), left);
            assert!(!cut(&mut schema));
        }
    }

    #[test]
    fn references_may_not_make_a_schema_large() {
        let chain = |length: usize| {
            let links = (0..length).map(|at| {
                let next = format!("#/$defs/{}", (at + 1) % length);
                (at.to_string(), json!({"not": {"$ref": next}}))
            });
            compiles(object(&json!({"$defs": Map::from_iter(links)})))
        };
        let named = |length: usize| {
            let (name, reference) = (
                "a".repeat(length),
                format!("#/$defs/{}", "a".repeat(length)),
            );
            compiles(object(&json!({"$defs": {name: {}}, "$ref": reference})))
        };
        assert_eq!(named(200), Ok(()));
        assert!(named(300).is_err());
        assert_eq!(chain(50), Ok(()));
        assert_eq!(chain(200), Err(LARGE));
        let copies = |times: usize| {
            let reference = json!({"$ref": "#/$defs/large"});
            compiles(object(&json!({"$defs": {"large": {"enum": vec![1; 100]}},
                "allOf": vec![reference; times]})))
        };
        assert_eq!(copies(10), Ok(()));
        assert_eq!(copies(100), Err(LARGE));
    }
}
