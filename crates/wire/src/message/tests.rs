use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};
use serde_json::{Value, json};

use super::*;

fn parse(text: &str) -> Result<Message, Malformed> {
    Message::parse(Bytes::copy_from_slice(text.as_bytes()))
}

#[test]
fn kinds() {
    let kind = |text| parse(text).unwrap().kind();
    assert_eq!(
        kind(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#),
        Kind::Request
    );
    assert_eq!(
        kind(r#"{"jsonrpc":"2.0","method":"ping"}"#),
        Kind::Notification
    );
    assert_eq!(
        kind(r#"{"jsonrpc":"2.0","id":"a","result":{}}"#),
        Kind::Response
    );
    assert_eq!(
        kind(r#"{"jsonrpc":"2.0","id":null,"error":{}}"#),
        Kind::Response
    );
    assert_eq!(kind(r#"{"jsonrpc":"2.0","error":{}}"#), Kind::Response);
}

#[test]
fn a_result_and_an_error_of_which_one_is_null_are_one_answer() {
    let answered = parse(r#"{"jsonrpc":"2.0","id":1,"result":{"a":1},"error":null}"#).unwrap();
    assert_eq!(answered.kind(), Kind::Response);
    assert_eq!(
        (answered.result(), answered.error()),
        (Some(r#"{"a":1}"#), None)
    );
    let failed = parse(r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":-1}}"#).unwrap();
    assert_eq!(failed.kind(), Kind::Response);
    assert_eq!((failed.result(), failed.error_code()), (None, Some(-1)));
    let nothing = parse(r#"{"jsonrpc":"2.0","id":1,"result":null,"error":null}"#).unwrap();
    assert_eq!((nothing.result(), nothing.error()), (Some("null"), None));
    let alone = parse(r#"{"jsonrpc":"2.0","id":1,"error":null}"#).unwrap();
    assert_eq!(
        (alone.kind(), alone.error()),
        (Kind::Response, Some("null"))
    );
}

#[test]
fn methods_are_what_was_written_common_or_not() {
    for name in Method::COMMON
        .into_iter()
        .chain(["tools/calls", "vendor/do", ""])
    {
        let text = json!({"jsonrpc": "2.0", "id": 1, "method": name}).to_string();
        assert_eq!(parse(&text).unwrap().method(), Some(name));
    }
}

#[test]
fn bytes_that_are_no_text_are_refused_of_a_client_and_pass_of_a_server_where_nobody_reads_them() {
    let with = |member: &str| {
        let text = [
            r#"{"jsonrpc":"2.0","id":1,"method":"ping",""#,
            member,
            r#"":""#,
        ]
        .concat();
        Bytes::from([text.as_bytes(), b"\xff\"}"].concat())
    };
    for member in ["other", "params"] {
        let refused = Message::parse(with(member));
        assert!(matches!(refused, Err(Malformed::NotJson(_))), "{member}");
    }
    assert!(Message::from_server(with("other")).is_ok());
    assert!(Message::from_server(with("params")).is_err());
}

#[test]
fn ids_are_raw_json_text() {
    let id = |text: &str| parse(text).unwrap().id().map(RawId::to_buf);
    assert_eq!(
        id(r#"{"jsonrpc":"2.0","id":"a\u0062","method":"x"}"#)
            .unwrap()
            .as_str(),
        r#""a\u0062""#
    );
    assert_eq!(
        id(r#"{"jsonrpc":"2.0","id": -7 ,"method":"x"}"#)
            .unwrap()
            .as_str(),
        "-7"
    );
    assert_eq!(
        id(r#"{"jsonrpc":"2.0","id":1e3,"method":"x"}"#)
            .unwrap()
            .as_str(),
        "1e3"
    );
    assert_eq!(id(r#"{"jsonrpc":"2.0","id":null,"error":{}}"#), None);
}

#[test]
fn an_escaped_method_is_the_same_method() {
    let message = parse(r#"{"jsonrpc":"2.0","id":1,"method":"initi\u0061lize"}"#).unwrap();
    assert_eq!(message.method(), Some("initialize"));
}

#[test]
fn what_is_not_one_message_says_why() {
    let reason = |text| parse(text).unwrap_err().to_string();
    assert_eq!(parse(" [1]"), Err(Malformed::Batch));
    assert_eq!(parse("[]"), Err(Malformed::Batch));
    assert!(matches!(parse("{"), Err(Malformed::NotJson(_))));
    assert!(matches!(parse(""), Err(Malformed::NotJson(_))));
    assert!(matches!(
        parse(r#"{"jsonrpc":"2.0","method":"x"} x"#),
        Err(Malformed::NotJson(_))
    ));
    assert!(matches!(parse("7"), Err(Malformed::NotJsonRpc(_))));
    assert!(reason(r#"{"id":1,"method":"x"}"#).contains("jsonrpc"));
    assert!(reason(r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#).contains("\"2.0\""));
    assert!(reason(r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#).contains("`id`"));
    assert!(reason(r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#).contains("`id`"));
    assert!(reason(r#"{"jsonrpc":"2.0","id":1,"method":7}"#).contains("`method`"));
    assert!(reason(r#"{"jsonrpc":"2.0","id":1}"#).contains("missing"));
    assert!(reason(r#"{"jsonrpc":"2.0","id":1,"result":1,"error":1}"#).contains("beside"));
    assert!(reason(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#).contains("duplicate"));
}

#[test]
fn splice_touches_one_value() {
    let text = r#"{ "b":[1.0 ,2], "id" : 7 , "jsonrpc":"2.0","method":"x","a":"\u0041"}"#;
    let message = parse(text).unwrap();
    let spliced = message.splice(message.id_span().unwrap(), "\"new\"");
    assert_eq!(spliced, text.replace(" 7 ", " \"new\" ").as_bytes());
}

#[test]
fn a_replaced_value_moves_the_others() {
    for text in [
        r#"{"jsonrpc":"2.0","id":7,"method":"odd/one","params":{"a":1,"name":"long__name","b":[2]}}"#,
        r#"{"params":{"name":"long__name"},"x":"\u00fc","method":"tools/call","id":"q","jsonrpc":"2.0"}"#,
    ] {
        let message = parse(text).unwrap();
        let span = message.param("name").unwrap();
        for name in ["\"n\"", "\"a much longer name\"", "\"long__name\""] {
            let replaced = message.replaced(span, name);
            assert_eq!(
                replaced,
                Message::parse(message.splice(span, name)).unwrap()
            );
        }
    }
}

#[test]
fn a_member_is_found_however_its_name_is_spelled_and_the_last_counts() {
    let of = |params: &str| {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{params}}}"#);
        let message = parse(&text).unwrap();
        let found = message.param("name").map(|span| message.text(span));
        found.map(str::to_owned)
    };
    assert_eq!(of(r#"{"n\u0061me":1}"#).as_deref(), Some("1"));
    assert_eq!(
        of(r#"{"name":1,"other":{"name":3},"name":2}"#).as_deref(),
        Some("2")
    );
    assert_eq!(of(r#"{"names":1}"#), None);
    assert_eq!(of(r#"["name"]"#), None);
}

#[test]
fn a_cancellation_names_its_request() {
    let text = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"r","requestId":"q"}}"#;
    let message = parse(text).unwrap();
    assert_eq!(message.text(message.cancelled_request().unwrap()), "\"q\"");
    let other = parse(r#"{"jsonrpc":"2.0","method":"x","params":{"requestId":"q"}}"#).unwrap();
    assert_eq!(other.cancelled_request(), None);
}

#[test]
fn initialize_tells_its_version() {
    let version = |text| {
        parse(text)
            .unwrap()
            .initialized()
            .map(|result| result.version.into_owned())
    };
    let result = r#"{"jsonrpc":"2.0","id":1,"result":{"x":1,"protocolVersion":"2025-06-18"}}"#;
    assert_eq!(version(result).as_deref(), Some("2025-06-18"));
    assert_eq!(version(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), None);
    assert_eq!(version(r#"{"jsonrpc":"2.0","id":1,"error":{}}"#), None);
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let deep = "[".repeat(200_000) + &"]".repeat(200_000);
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{deep}}}"#);
    assert_eq!(parse(&text).unwrap().method(), Some("x"));
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        // Quarters are exact, so that text and value round-trip.
        any::<i32>().prop_map(|n| Value::from(f64::from(n) / 4.0)),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(any::<String>(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_message() -> impl Strategy<Value = Value> {
    // A NUL can be read in two ways.
    let id = prop_oneof![
        any::<i64>().prop_map(Value::from),
        "[^\0]{0,20}".prop_map(Value::from)
    ];
    (id, "[^\0]{0,20}", any_value(), any_value(), 0..4_u8).prop_map(
        |(id, method, params, extra, shape)| match shape {
            0 => json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params, "extra": extra}),
            1 => json!({"jsonrpc": "2.0", "method": method, "params": params, "_meta": extra}),
            2 => json!({"jsonrpc": "2.0", "id": id, "result": params, "extra": extra}),
            _ => json!({"jsonrpc": "2.0", "id": id, "error": params}),
        },
    )
}

/// The same result by a full parse, for comparison.
fn oracle(value: &Value) -> (Kind, Option<&Value>, Option<&str>) {
    let method = value.get("method").and_then(Value::as_str);
    let id = value.get("id");
    let kind = match (method, id) {
        (Some(_), Some(_)) => Kind::Request,
        (Some(_), None) => Kind::Notification,
        (None, _) => Kind::Response,
    };
    (kind, id, method)
}

proptest! {
    #[test]
    fn agrees_with_serde_json(value in any_message(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let message = parse(&text).unwrap();
        let (kind, id, method) = oracle(&value);
        assert_eq!(message.kind(), kind);
        assert_eq!(message.method(), method);
        let peeked: Option<Value> = message.id().map(|id| serde_json::from_str(id.as_str()).unwrap());
        assert_eq!(peeked.as_ref(), id);
        assert_eq!(message.raw(), text.as_bytes());
    }

    #[test]
    fn a_splice_changes_the_id_and_nothing_else(value in any_message(), id in any::<String>()) {
        let message = parse(&value.to_string()).unwrap();
        if let Some(span) = message.id_span() {
            let spliced = message.splice(span, &json!(id).to_string());
            let mut expected = value;
            expected["id"] = json!(id);
            assert_eq!(serde_json::from_slice::<Value>(&spliced).unwrap(), expected);
        }
    }

    #[test]
    fn never_panics_on_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(Message::parse(Bytes::from(bytes)));
    }

    #[test]
    fn never_panics_on_damaged_messages(value in any_message(), at: prop::sample::Index, with: u8) {
        let mut bytes = value.to_string().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = with;
        if let Ok(message) = Message::parse(Bytes::from(bytes)) {
            drop((message.id(), message.method(), message.cancelled_request(), message.initialized()));
        }
    }
}

#[test]
fn params_and_results_by_name() {
    let message =
        parse(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"uri" : "x"}}"#).unwrap();
    assert_eq!(message.text(message.param("uri").unwrap()), "\"x\"");
    assert_eq!(message.param("b"), None);
    let spliced = message.splice(message.param("uri").unwrap(), "2");
    assert_eq!(
        spliced,
        &br#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"uri" : 2}}"#[..]
    );
    let answer = parse(r#"{"jsonrpc":"2.0","id":1,"result":{"capabilities":{}}}"#).unwrap();
    assert_eq!(
        answer.text(answer.result_member("capabilities").unwrap()),
        "{}"
    );
}

#[test]
fn an_array_is_not_taken_for_an_object() {
    let message = parse(r#"{"jsonrpc":"2.0","id":1,"result":["2025-11-25"]}"#).unwrap();
    assert!(message.initialized().is_none());
    assert_eq!(
        parse(r#"{"jsonrpc":"2.0","id":1,"error":[-32000]}"#)
            .unwrap()
            .error_code(),
        None
    );
    let cancelled = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":[7]}"#;
    assert_eq!(parse(cancelled).unwrap().cancelled_request(), None);
    assert!(
        matches!(parse("\x0c[1]"), Err(Malformed::NotJson(_))),
        "a form feed is no JSON white space"
    );
}

#[test]
fn members_of_a_servers_message_that_are_null_are_absent() {
    let read = |text: &str| Message::from_server(Bytes::copy_from_slice(text.as_bytes()));
    for (text, kind) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"method":null,"result":{}}"#,
            Kind::Response,
        ),
        (r#"{"id":1,"result":{}}"#, Kind::Response),
        (
            r#"{"jsonrpc":"1.0","id":1,"error":{"code":1,"message":""},"result":null}"#,
            Kind::Response,
        ),
        (r#"{"jsonrpc":"2.0","id":1,"result":null}"#, Kind::Response),
        (
            r#"{"jsonrpc":"2.0","id":"a","method":"roots/list","error":null}"#,
            Kind::Request,
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"notifications/tools/list_changed"}"#,
            Kind::Notification,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"n","result":null,"error":null}"#,
            Kind::Notification,
        ),
    ] {
        assert_eq!(read(text).unwrap().kind(), kind, "{text}");
    }
    assert!(read(r#"{"jsonrpc":"2.0","id":1}"#).is_err());
    // Messages from clients are read strictly.
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"method":null,"result":{}}"#,
        r#"{"id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#,
    ] {
        let strict = Message::parse(Bytes::copy_from_slice(text.as_bytes()));
        assert!(strict.is_err(), "{text}");
    }
}

#[test]
fn a_name_that_some_reader_takes_for_another_is_refused_of_a_client() {
    for name in ["method", "id", "params", "jsonrpc", "result", "error"] {
        let upper = name.to_uppercase();
        let escaped = format!(r"\u00{:02x}{}\u0000", name.as_bytes()[0], &name[1..]);
        for odd in [
            format!(r"{name}\u0000"),
            format!(r"{name}\u0000x"),
            upper,
            escaped,
        ] {
            for value in [r#""tools/call""#, "null", "{}"] {
                let beside =
                    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","{odd}":{value}}}"#);
                let before = format!(r#"{{"{odd}":{value},"jsonrpc":"2.0","method":"n"}}"#);
                for text in [beside, before] {
                    let parsed = Message::parse(Bytes::from(text.clone()));
                    assert!(parsed.is_err(), "{text}");
                }
            }
        }
    }
    for name in ["methods", "x", "name", "Meta", r"x\u0000method"] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","{name}":1}}"#);
        assert!(Message::parse(Bytes::from(text.clone())).is_ok(), "{text}");
    }
}

#[test]
fn what_can_be_read_in_two_ways_where_it_decides_is_refused_of_a_client() {
    let with = |method: &str, params: &str| {
        parse(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#
        ))
    };
    for (method, name) in [
        ("tools/call", "name"),
        ("tools\\/c\\u0061ll", "name"),
        ("prompts/get", "name"),
        ("resources/read", "uri"),
        ("resources/subscribe", "uri"),
        ("resources/unsubscribe", "uri"),
        ("completion/complete", "ref"),
        ("logging/setLevel", "level"),
        ("initialize", "protocolVersion"),
        ("notifications/cancelled", "requestId"),
        ("notifications/progress", "progressToken"),
    ] {
        let upper = name.to_uppercase();
        let escaped = format!(r"\u00{:02x}{}", name.as_bytes()[0], &name[1..]);
        for params in [
            format!(r#"{{"{name}":"a","{name}":"a"}}"#),
            format!(r#"{{"{name}":"a","{escaped}":"b"}}"#),
            format!(r#"{{"{name}":"a","{upper}":"b"}}"#),
            format!(r#"{{"{upper}":"b"}}"#),
            format!(r#"{{"{name}\u0000":"b"}}"#),
            format!(r#"{{"{name}":"a\u0000b"}}"#),
            format!(r#"{{"{name}":"a\ud800"}}"#),
            format!(r#"{{"{name}":"\udc00a"}}"#),
            format!(r#"{{"\ud800{name}":"a"}}"#),
        ] {
            let refused = with(method, &params);
            let is_refused = matches!(refused, Err(Malformed::TwoReadings { .. }));
            assert!(is_refused, "{method} {params}: {refused:?}");
            assert_eq!(refused.unwrap_err().id(), Some(RawId::new("1")));
        }
        let again = format!(r#"{{"{name}":"a","x":{{"{name}":1,"{upper}":"\u0000"}}}}"#);
        for params in [
            format!(r#"{{"{escaped}":"\ud83d\ude00\n"}}"#),
            again,
            format!(r#"{{"{name}":1}}"#),
            format!(r#"["{name}","{name}"]"#),
            "{}".to_owned(),
        ] {
            assert!(with(method, &params).is_ok(), "{method} {params}");
        }
    }
    for (method, params) in [
        (r"ping\u0000", "{}"),
        (r"tools/call\u0000x", r#"{"name":"a"}"#),
        ("Tools/Call", r#"{"name":"a"}"#),
        ("tool\u{17f}/call", r#"{"name":"a"}"#),
    ] {
        let refused = with(method, params).unwrap_err();
        assert!(
            matches!(refused, Malformed::TwoReadings { what: "method", .. }),
            "{method}"
        );
    }
    for id in [r#""a\u0000""#, r#""\ud800""#] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let (what, id) = ("id", None);
        assert_eq!(parse(&text), Err(Malformed::TwoReadings { what, id }));
    }
    // Nothing is decided by these.
    assert!(with("vendor/do", r#"{"name":1,"Name":"a\u0000"}"#).is_ok());
    assert!(parse("\u{feff}{\"jsonrpc\":\"2.0\",\"method\":\"x\"}").is_err());
}

#[test]
fn a_call_names_its_tool() {
    let tool = |text: &str| parse(text).unwrap().called_tool();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"n\u0061me":"\u0061b"}}"#;
    assert_eq!(tool(call).as_deref(), Some("ab"));
    assert_eq!(tool(&call.replace("tools/call", "prompts/get")), None);
    assert_eq!(tool(&call.replace(r#""\u0061b""#, "7")), None);
}

#[test]
fn a_copy_of_a_large_message_keeps_what_the_original_holds() {
    struct Counted {
        text: Vec<u8>,
        _count: Arc<()>,
    }
    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.text
        }
    }
    let count = Arc::new(());
    let filler = "x".repeat(70_000);
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"a":"{filler}"}}}}"#);
    let owner = Counted {
        text: text.into_bytes(),
        _count: Arc::clone(&count),
    };
    let message = Message::parse(Bytes::from_owner(owner)).unwrap();
    let copy = message.replaced(message.id_span().unwrap(), "22");
    drop(message);
    assert_eq!(Arc::strong_count(&count), 2);
    assert_eq!(copy.id().unwrap().as_str(), "22");
    drop(copy);
    assert_eq!(Arc::strong_count(&count), 1);
}
