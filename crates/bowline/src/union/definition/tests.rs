use serde_json::json;

use super::*;

fn tool(with: &str) -> String {
    format!(r#"{{"name":"t","inputSchema":{{"type":"object"}}{with}}}"#)
}

#[cfg(target_os = "linux")]
#[test]
fn a_deep_schema_takes_no_longer_than_a_flat_one() {
    /// How long this thread ran.
    fn ran() -> u64 {
        let ran = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        ran.split(' ').next().unwrap().parse().unwrap()
    }
    let took = |depth: usize| {
        let text = r"\n".repeat(500_000);
        let schema = format!(r#"{{"unit":1,"description":"{text}"}}"#);
        let (open, close) = (r#"{"not":"#.repeat(depth), "}".repeat(depth - 1));
        let text = tool(&format!(
            r#","outputSchema":{open}{schema}{close},"type":"object"}}"#
        ));
        let before = ran();
        let readable = readable(&text, List::Tools).unwrap();
        assert_eq!(readable.without, []);
        assert!(!readable.text.contains("unit"));
        ran() - before
    };
    let (flat, deep) = (took(1), took(115));
    assert!(deep < 10 * flat, "{deep} {flat}");
}

/// What a client gets of a definition, and the fields that it does not get.
fn read(definition: &str, list: List) -> (Value, Vec<String>) {
    let readable = readable(definition, list).unwrap();
    let without = readable.without.iter().map(|(field, _)| field.clone());
    (
        serde_json::from_str(&readable.text).unwrap(),
        without.collect(),
    )
}

#[test]
fn what_clients_can_read_stays_as_it_is_written() {
    for good in [
        tool(""),
        tool(
            r#", "title":"T" ,"icons":[{"src":"s","sizes":["1x1"],"theme":"dark"}],"x":null,"_meta":{"a":1}"#,
        ),
        tool(
            r#","annotations":{"readOnlyHint":true,"x":[1]},"execution":{"taskSupport":"optional"}"#,
        ),
        tool(r#","outputSchema":{"type":"object","properties":{"a":{"type":"string"}}}"#),
        tool(&format!(r#","description":"\"{}""#, "0".repeat(5000))),
    ] {
        let readable = readable(&good, List::Tools).unwrap();
        assert_eq!(readable.text, good.as_str());
        assert_eq!(readable.without, []);
    }
    let resource = r#"{"uri":"u","name":"n","size":5.0,"annotations":{"audience":["user"],"priority":1,
        "lastModified":"2026-02-28T01:02:03.5+01:00"}}"#;
    assert_eq!(readable(resource, List::Resources).unwrap().text, resource);
}

#[test]
fn what_means_the_same_is_written_as_clients_read_it() {
    let object = json!({"type": "object"});
    for (written, schema) in [
        (r#"{"name":"t"}"#, object.clone()),
        (r#"{"name":"t","inputSchema":null}"#, object.clone()),
        (r#"{"name":"t","inputSchema":true}"#, object.clone()),
        (r#"{"name":"t","inputSchema":{}}"#, object),
        (
            r#"{"name":"t","inputSchema":{"type":"object","properties":{"x":true}}}"#,
            json!({"type": "object", "properties": {"x": {}}}),
        ),
    ] {
        let read = read(written, List::Tools);
        assert_eq!(read, (json!({"name": "t", "inputSchema": schema}), vec![]));
    }
    // All else stays as it is written.
    let text = tool(r#","title":null,"annotations":[],"x":12345678901234567890123"#);
    let readable = readable(&text, List::Tools).unwrap();
    assert!(
        readable.text.contains(r#""x":12345678901234567890123"#),
        "{}",
        readable.text
    );
    assert!(!readable.text.contains("title"), "{}", readable.text);
    assert!(readable.text.contains(r#""annotations":{}"#));
    assert_eq!(readable.without, []);
    let properties = |zeta: &str| {
        format!(
            r#"{{"name":"t","inputSchema":{{"type":"object","properties":{{"zeta":{zeta},"id":{{"const":12345678901234567890123,"maximum":18446744073709551617}},"alpha":{{"default":1.0,"minimum":1e2}}}},"required":["zeta"]}}}}"#
        )
    };
    let text = properties("true");
    let readable = super::readable(&text, List::Tools).unwrap();
    assert_eq!(readable.text, properties("{}"));
}

#[test]
fn what_only_harms_is_cut_from_an_output_schema() {
    let schema = |with: &str, within: &str| {
        let schema = r#"{"type":"object","oneOf":[{"title":"T","const":12345678901234567890123"#;
        tool(&format!(r#","outputSchema":{schema}{within}}}]{with}}}"#))
    };
    for id in [
        "5",
        "{}",
        "true",
        r#""constructor""#,
        r#""__proto__""#,
        r#""urn:receipt""#,
        r#""%zz""#,
    ] {
        let text = schema(&format!(r#","$id":{id}"#), r#","__proto__":{"a":1}"#);
        let readable = readable(&text, List::Tools).unwrap();
        assert_eq!(readable.text, schema("", ""));
        assert_eq!(readable.without, []);
    }
}

#[test]
fn a_field_that_clients_refuse_is_left_out_and_named() {
    for (with, field) in [
        (r#","description":5"#, "description"),
        (r#","title":[]"#, "title"),
        (r#","icons":{}"#, "icons"),
        (r#","icons":[{"sizes":["1x1"]}]"#, "icons"),
        (r#","icons":[{"src":"s","theme":"red"}]"#, "icons.theme"),
        (
            r#","annotations":{"readOnlyHint":"yes"}"#,
            "annotations.readOnlyHint",
        ),
        (
            r#","execution":{"taskSupport":true}"#,
            "execution.taskSupport",
        ),
        (r#","_meta":[1]"#, "_meta"),
        (r#","outputSchema":{"type":"string"}"#, "outputSchema"),
        (
            r#","outputSchema":{"properties":{"a":{"pattern":"["}}}"#,
            "outputSchema",
        ),
    ] {
        let (shown, without) = read(&tool(with), List::Tools);
        assert_eq!(without, [field], "{with}");
        assert_eq!(shown["name"], "t");
        assert_eq!(shown.get(field), None);
    }
    for (with, field) in [
        (r#""size":1.5"#, "size"),
        (r#""size":1e300"#, "size"),
        (r#""mimeType":1"#, "mimeType"),
        (r#""annotations":{"priority":2}"#, "annotations.priority"),
        (
            r#""annotations":{"audience":["all"]}"#,
            "annotations.audience",
        ),
        (
            r#""annotations":{"lastModified":"2026-02-30T01:02:03Z"}"#,
            "annotations.lastModified",
        ),
        (
            r#""annotations":{"lastModified":"2026-02-28"}"#,
            "annotations.lastModified",
        ),
        (
            r#""annotations":{"lastModified":"2026-02-28T01:02:03"}"#,
            "annotations.lastModified",
        ),
        (
            r#""annotations":{"lastModified":"2026-02-28T01:02:60Z"}"#,
            "annotations.lastModified",
        ),
    ] {
        let resource = format!(r#"{{"uri":"u","name":"n",{with}}}"#);
        assert_eq!(read(&resource, List::Resources).1, [field], "{with}");
    }
}

#[test]
fn what_nobody_can_use_is_left_out_whole() {
    for odd in [
        "[]".to_owned(),
        r#"{"name":5}"#.to_owned(),
        r#"{"name":"t","inputSchema":{"type":"string"}}"#.to_owned(),
        r#"{"name":"t","inputSchema":{"properties":{"x":5}}}"#.to_owned(),
        tool(r#","description":"\ud800""#),
        tool(&format!(r#","x":1{}e-5000"#, "0".repeat(5000))),
        // Read as the object that is in it by our reader alone.
        r#"{"name":"t","inputSchema":{"\u0024serde_json::private::RawValue":"{\"type\":\"object\"}"}}"#.to_owned(),
        format!("{{\"x\":{}{}}}", "[".repeat(3000), "]".repeat(3000)),
    ] {
        assert!(readable(&odd, List::Tools).is_err(), "{odd}");
    }
    for odd in [
        r#"{"name":"p","arguments":[1]}"#,
        r#"{"name":"p","arguments":{}}"#,
        r#"{"name":"p","arguments":[{"name":"a","required":"yes"}]}"#,
    ] {
        assert!(readable(odd, List::Prompts).is_err(), "{odd}");
    }
    let why = readable(r#"{"uri":"u"}"#, List::Resources).unwrap_err();
    assert_eq!(why, "`name` is missing");
}
