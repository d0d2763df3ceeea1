//! What can be read in two ways passes in neither.

use bowline_wire::message::RawId;
use proptest::prelude::*;

use super::*;

fn filter(allow: &[&str], deny: &[&str]) -> ActiveFilter {
    let owned = |globs: &[&str]| globs.iter().map(ToString::to_string).collect();
    let mut server = Server::from_url("http://h/").unwrap();
    server.tools = Some(ToolFilter {
        allow: (!allow.is_empty()).then(|| owned(allow)),
        deny: owned(deny),
    });
    ActiveFilter(Arc::new(server))
}

fn may_call(text: &str) -> bool {
    let message = Message::parse(Bytes::copy_from_slice(text.as_bytes()));
    let filter = filter(&["good*"], &["good_not"]);
    message.is_ok_and(|message| filter.check_call(&message).is_ok())
}

/// A call with these params.
fn call(params: &str) -> bool {
    may_call(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#
    ))
}

#[test]
fn a_call_is_judged_by_its_tool() {
    assert!(call(r#"{"name":"good"}"#));
    assert!(call(
        r#"{"arguments":{"name":"bad","Name":1},"name":"good_one"}"#
    ));
    assert!(call(r#"{"name":"g\u006fod"}"#));
    assert!(call(r#"{"na\u006de":"good"}"#));
    assert!(!call(r#"{"name":"bad"}"#));
    assert!(!call(r#"{"name":"good_not"}"#));
    assert!(!call(r#"{"name":"good_n\u006ft"}"#));
    assert!(!call(r#"{"na\u006de":"bad"}"#));
    assert!(!call(r#"{"name":"Good"}"#));
}

#[test]
fn a_call_that_can_be_read_in_two_ways_is_refused() {
    for params in [
        r#"{"name":"good","name":"bad"}"#,
        r#"{"name":"bad","name":"good"}"#,
        r#"{"name":"good","na\u006de":"good"}"#,
        r#"{"name":"good","Name":"bad"}"#,
        r#"{"NAME":"good"}"#,
        r#"{"name":1}"#,
        r#"{"name":"\ud800"}"#,
        r#"{"name":"good\u0000"}"#,
        r#"{"name":"good_not\u0000"}"#,
        r#"{"name":null}"#,
        r#"{}"#,
        r#"["good"]"#,
        "null",
    ] {
        assert!(!call(params), "{params}");
    }
    assert!(!may_call(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#
    ));
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call","params":{"name":"bad"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"good"},"Params":{"name":"bad"}}"#,
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"bad"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools\/c\u0061ll","params":{"name":"bad"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call\u0000","params":{"name":"bad"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"Tools/Call","params":{"name":"bad"}}"#,
    ] {
        assert!(!may_call(text), "{text}");
    }
}

#[test]
fn other_requests_are_not_judged() {
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"bad"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
    ] {
        assert!(may_call(text), "{text}");
    }
}

fn listed(text: &str) -> Result<String, Fault> {
    let filter = filter(&[], &["bad*"]);
    let body = Bytes::copy_from_slice(text.as_bytes());
    let seen = filter.whole(ToolLesson::Listing(None), body, true)?;
    Ok(String::from_utf8(seen.to_vec()).unwrap())
}

fn answer(result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0", "id":1,"result": {result} , "x":[1, 2]}}"#)
}

#[test]
fn a_list_has_only_what_is_allowed_and_nothing_else_changes() {
    let one = r#"{ "name" : "a", "title":"\u0041", "inputSchema":{"type":"object","x":1.0e2}}"#;
    let other = r#"{"description":"bad","name":"b","_meta":{"name":"bad"}}"#;
    let bad = r#"{"name":"b\u0061d_one","icons":[]}"#;
    let rest = r#""nextCursor":"c","_meta":{"tools":[{"name":"bad"}]}"#;
    let list = |tools: &str| answer(&format!(r#"{{"tools": {tools}, {rest}}}"#));
    let before = list(&format!("[ {one} ,\n {bad}, {other} , {bad}]"));
    assert_eq!(listed(&before).unwrap(), list(&format!("[{one},{other}]")));
    // Without anything to hide it is the same to the byte.
    let before = list(&format!("[ {one} ,\n {other} ]"));
    assert_eq!(listed(&before).unwrap(), before);
    assert_eq!(listed(&list(&format!("[{bad}]"))).unwrap(), list("[]"));
    let escaped = answer(&format!(r#"{{"t\u006fols":[{bad}]}}"#));
    assert_eq!(listed(&escaped).unwrap(), answer(r#"{"t\u006fols":[]}"#));
    let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"bad"}}"#;
    assert_eq!(listed(error).unwrap(), error);
}

#[test]
fn a_tool_without_a_clear_name_is_hidden() {
    for tool in [
        r#"{}"#,
        r#"{"name":1}"#,
        r#"{"name":"a","name":"bad"}"#,
        r#"{"name":"a","Name":"bad"}"#,
        r#"{"Name":"a"}"#,
        r#"{"name":"a\u0000"}"#,
        r#""a""#,
        "null",
        r#"["a"]"#,
    ] {
        let seen = listed(&answer(&format!(r#"{{"tools":[{tool},{{"name":"a"}}]}}"#)));
        assert_eq!(
            seen.unwrap(),
            answer(r#"{"tools":[{"name":"a"}]}"#),
            "{tool}"
        );
    }
}

#[test]
fn a_list_that_can_be_read_in_two_ways_is_not_shown() {
    for result in [
        r#"{"tools":[],"tools":[{"name":"bad"}]}"#,
        r#"{"tools":[],"Tools":[{"name":"bad"}]}"#,
        r#"{"Tools":[{"name":"bad"}]}"#,
        r#"{"tools":{"name":"bad"}}"#,
        r#"{"tools":"bad"}"#,
    ] {
        assert!(listed(&answer(result)).is_err(), "{result}");
    }
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"result":{},"Result":{"tools":[{"name":"bad"}]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"bad"}]}"#,
        "data: bad",
        "",
    ] {
        assert!(listed(text).is_err(), "{text}");
    }
    // A status says that it is no answer.
    let body = Bytes::from_static(b"<html>bad gateway</html>");
    let seen = filter(&[], &["bad*"]).whole(ToolLesson::Listing(None), body.clone(), false);
    assert_eq!(seen.unwrap(), body);
}

#[test]
fn an_array_is_filtered_message_by_message() {
    let notice =
        r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"tools":[{"name":"bad"}]}}"#;
    let list = answer(r#"{"tools":[{"name":"bad"},{"name":"a"}]}"#);
    let seen = listed(&format!("[{notice} , {list}]")).unwrap();
    let without = answer(r#"{"tools":[{"name":"a"}]}"#);
    assert_eq!(seen, format!("[{notice},{without}]"));
    assert!(listed(&format!("[{notice},1]")).is_err());
}

#[test]
fn events_are_filtered_also_where_the_request_is_unknown() {
    let filter = filter(&[], &["bad*"]);
    let list = Bytes::from(answer(r#"{"tools":[{"name":"bad"}]}"#));
    for lesson in [ToolLesson::Listing(None), ToolLesson::Unknown] {
        let content = Content::of(list.clone()).unwrap();
        let Some(Content::Message(seen)) = filter.event(lesson, content) else {
            panic!("it is shown");
        };
        assert_eq!(seen.raw(), &answer(r#"{"tools":[]}"#));
        let twice = Bytes::from(answer(r#"{"tools":[],"tools":[]}"#));
        let content = Content::of(twice).unwrap();
        let Some(Content::Message(seen)) = filter.event(lesson, content) else {
            panic!("it is refused");
        };
        assert!(seen.answers(RawId::new("1")));
        assert_eq!(seen.error_code(), Some(-32603));
        let broken = Content::of(Bytes::from_static(b"{\"tools\":[{\"name\":\"bad\"}]")).unwrap();
        assert!(filter.event(lesson, broken).is_none());
    }
}

proptest! {
    /// Whatever the names and however they are written, what is not allowed is not there, and what is allowed is.
    #[test]
    fn exactly_what_is_allowed_is_shown(names in proptest::collection::vec("\\PC{0,6}|bad\\PC{0,3}", 0..8)) {
        let written = |name: &String| {
            let escaped: String = name.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            format!(r#"{{"name":"{escaped}"}}"#)
        };
        let tools: Vec<_> = names.iter().map(written).collect();
        let seen = listed(&answer(&format!(r#"{{"tools":[{}]}}"#, tools.join(",")))).unwrap();
        let kept: Vec<_> = names.iter().filter(|name| !name.starts_with("bad")).map(written).collect();
        prop_assert_eq!(seen, answer(&format!(r#"{{"tools":[{}]}}"#, kept.join(","))));
    }
}

#[test]
fn what_ends_at_a_nul_for_some_readers_is_not_sent() {
    assert!(!may_call(
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","method\u0000":"tools/call","params":{"name":"bad"}}"#
    ));
    assert!(!call(r#"{"name":"good","name\u0000x":"bad"}"#));
}
