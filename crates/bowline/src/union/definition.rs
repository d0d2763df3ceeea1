//! Whether clients can read a definition. The official SDKs refuse a whole list for one definition that is not what the
//! protocol says; in a union that would take the tools of all servers away. So such a definition is left out, and that
//! is said.

use serde_json::{Map, Value};

use super::list::List;

/// What is wrong with a definition; `None` if clients can read it.
pub(super) fn fault_of(definition: &str, list: List) -> Option<&'static str> {
    // Also what is too deep, too large a number, or half a character.
    let Ok(Value::Object(definition)) = serde_json::from_str(definition) else {
        return Some("it is not an object that can be read");
    };
    let text = |name: &str| definition.get(name).is_none_or(Value::is_string);
    let object = |name: &str| definition.get(name).is_none_or(Value::is_object);
    let is_schema = |name: &str| definition.get(name).is_none_or(is_object_schema);
    let checks = [
        (text("title"), "`title` is no text"),
        (text("description"), "`description` is no text"),
        (text("mimeType"), "`mimeType` is no text"),
        (object("annotations"), "`annotations` is no object"),
        (object("_meta"), "`_meta` is no object"),
        (
            is_list_of_objects(&definition, "icons"),
            "`icons` is no list of objects",
        ),
        (
            is_schema("outputSchema"),
            "`outputSchema` is no schema of an object",
        ),
        (has_own(&definition, list), own_fault(list)),
    ];
    let wrong = checks.into_iter().find(|(is_good, _)| !is_good);
    wrong.map(|(_, why)| why)
}

/// What a list requires of its definitions besides the name or URI.
fn has_own(definition: &Map<String, Value>, list: List) -> bool {
    match list {
        List::Tools => definition.get("inputSchema").is_some_and(is_object_schema),
        List::Prompts => is_list_of_objects(definition, "arguments"),
        List::Resources | List::Templates => definition.get("name").is_some_and(Value::is_string),
    }
}

fn own_fault(list: List) -> &'static str {
    match list {
        List::Tools => "`inputSchema` is no schema of an object",
        List::Prompts => "`arguments` is no list of objects",
        List::Resources | List::Templates => "`name` is no text",
    }
}

fn is_object_schema(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "object")
}

fn is_list_of_objects(definition: &Map<String, Value>, name: &str) -> bool {
    let is_list = |value: &Value| {
        let list = value.as_array();
        list.is_some_and(|list| list.iter().all(Value::is_object))
    };
    definition.get(name).is_none_or(is_list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_refuse_is_found_and_all_else_passes() {
        let good = [
            r#"{"name":"t","inputSchema":{"type":"object"}}"#,
            r#"{"name":"t","title":"T","inputSchema":{"type":"object","x":[1]},"icons":[{}],"unknown":null,"_meta":{}}"#,
        ];
        for tool in good {
            assert_eq!(fault_of(tool, List::Tools), None, "{tool}");
        }
        for tool in [
            "[]",
            r#"{"name":"t"}"#,
            r#"{"name":"t","inputSchema":{}}"#,
            r#"{"name":"t","inputSchema":null}"#,
            r#"{"name":"t","inputSchema":{"type":"object"},"description":5}"#,
            r#"{"name":"t","inputSchema":{"type":"object"},"description":null}"#,
            r#"{"name":"t","inputSchema":{"type":"object"},"description":"\ud800"}"#,
            r#"{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"string"}}"#,
            r#"{"name":"t","inputSchema":{"type":"object"},"icons":{}}"#,
        ] {
            assert!(fault_of(tool, List::Tools).is_some(), "{tool}");
        }
        let deep = format!("{{\"x\":{}{}}}", "[".repeat(3000), "]".repeat(3000));
        assert!(fault_of(&deep, List::Prompts).is_some());
        assert_eq!(fault_of(r#"{"name":"p"}"#, List::Prompts), None);
        assert!(fault_of(r#"{"name":"p","arguments":[1]}"#, List::Prompts).is_some());
        assert!(fault_of(r#"{"uri":"u"}"#, List::Resources).is_some());
        assert_eq!(fault_of(r#"{"uri":"u","name":"n"}"#, List::Resources), None);
    }
}
