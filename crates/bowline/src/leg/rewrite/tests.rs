use bowline_wire::sse::Decoder;

use super::*;

fn show(rewrite: &Rewrite, text: &str) -> String {
    let mut decoder = Decoder::new(1 << 20);
    decoder.push(Bytes::copy_from_slice(text.as_bytes()));
    let event = decoder.next_event().unwrap().unwrap();
    let content = Content::of(event.data().unwrap_or_default()).unwrap();
    let mut shown = Vec::new();
    let last = rewrite.event(event, &content, &mut shown);
    shown.extend(last);
    let shown: Vec<_> = shown.iter().map(Event::encoded).collect();
    String::from_utf8(shown.concat()).unwrap()
}

fn rewrite_of(origin: StreamOrigin) -> Rewrite {
    let reserved = Reserved::new("bowline", &"weather".parse().unwrap());
    Rewrite::new(
        Seal::generate().unwrap(),
        Generation::FIRST,
        origin,
        reserved,
    )
}

fn rewrite() -> Rewrite {
    rewrite_of(StreamOrigin::Standalone)
}

fn repeat(rewrite: &Rewrite, what: Repeated, own: &str) -> RawIdBuf {
    let leg = rewrite.leg.leg;
    rewrite.seal.repeat(what, leg, RawId::new(own)).unwrap()
}

#[test]
fn the_answer_to_a_repeated_request_is_shown_under_the_clients_own_id() {
    let origin = StreamOrigin::Request(RawIdBuf::new("\"s-1\""));
    let rewrite = rewrite_of(origin);
    let answer =
        |id: &str| format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n\n");
    let again = answer(repeat(&rewrite, Repeated::Id, "\"s-1\"").as_str());
    assert_eq!(show(&rewrite, &again), answer("\"s-1\""));
    assert_eq!(show(&rewrite, &answer("7")), answer("7"));
    // Another call's, or what looks like one.
    for other in [
        repeat(&rewrite, Repeated::Id, "7"),
        repeat(&rewrite, Repeated::Token, "\"s-1\""),
        RawIdBuf::new("\"bowline-again-1-InMtMSI\""),
    ] {
        let other = answer(other.as_str());
        assert_eq!(show(&rewrite, &other), other);
    }
}

#[test]
fn the_progress_of_a_repeated_request_is_shown_under_the_clients_own_token() {
    let progress = |token: &str| {
        format!(
            "data: {{\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{token},\"progress\":1}}}}\n\n"
        )
    };
    for own in ["7", "\"s-1\""] {
        let rewrite = rewrite();
        let again = progress(repeat(&rewrite, Repeated::Token, own).as_str());
        assert_eq!(show(&rewrite, &again), progress(own));
        assert_eq!(show(&rewrite, &progress(own)), progress(own));
        let id = progress(repeat(&rewrite, Repeated::Id, own).as_str());
        assert_eq!(show(&rewrite, &id), id);
    }
    // `7},"method":"x"`
    let forged = progress("\"bowline-again-1-N30sIm1ldGhvZCI6Ingi\"");
    assert_eq!(show(&rewrite(), &forged), forged);
}

#[test]
fn the_progress_of_a_member_is_of_the_request_that_was_sent_with_its_token() {
    let reserved = Reserved::new("bowline", &"weather".parse().unwrap());
    let (seal, leg) = (Seal::generate().unwrap(), Generation::first_of(3));
    let (own, other) = (RawIdBuf::new("7"), RawIdBuf::new("\"8\""));
    let origin = StreamOrigin::Request(own.clone());
    let rewrite = Rewrite::new(seal.clone(), leg, origin, reserved);
    let progress = |token: &str| {
        let message = format!(
            r#"{{"method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
        );
        Message::from_server(message.into()).unwrap()
    };
    let token = |leg, id: &RawIdBuf| seal.own_token(leg, id.as_id(), RawId::new("\"a,b\""));
    let mine = progress(token(leg, &own).unwrap().as_str());
    assert_eq!(rewrite.progressing(&mine), Some(own.clone()));
    assert!(!rewrite.is_anothers(&mine));
    let shown = rewrite.message(&mine).unwrap().unwrap();
    assert_eq!(shown, progress("\"a,b\"").raw());
    let theirs = progress(token(leg, &other).unwrap().as_str());
    assert_eq!(rewrite.progressing(&theirs), Some(other.clone()));
    assert!(rewrite.is_anothers(&theirs));
    let elsewhere = token(Generation::first_of(4), &own).unwrap();
    let twice = format!(r#"7,"progressToken":{}"#, token(leg, &own).unwrap());
    for forged in ["7", "\"a,b\"", elsewhere.as_str(), &twice, "null"] {
        let forged = progress(forged);
        assert_eq!(rewrite.progressing(&forged), None, "{forged:?}");
        assert!(rewrite.is_anothers(&forged), "{forged:?}");
    }
    // For whoever has one server, it is that server's own affair.
    assert!(!rewrite_of(StreamOrigin::Standalone).is_anothers(&progress("7")));
}

#[test]
fn what_needs_no_mark_passes_byte_for_byte() {
    for text in [
        ": comment\n\n",
        "retry: 100\n\n",
        "id:\ndata: \n\n",
        "event: message\r\ndata: {\"jsonrpc\":\"2.0\", \"id\":1,\"result\":{ \"x\":1.0}}\r\n\r\n",
        "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{}}\n\n",
        "data: not json\n\n",
    ] {
        assert_eq!(show(&rewrite(), text), text);
    }
}

#[test]
fn event_ids_become_marks() {
    let rewrite = rewrite();
    let shown = show(&rewrite, "id: stream-1/7\nretry: 5\ndata: x\n\n");
    let mark = shown
        .strip_prefix("id: ")
        .and_then(|rest| rest.strip_suffix("\nretry: 5\ndata: x\n\n"))
        .unwrap();
    let opened = rewrite.seal.open_event(mark.as_bytes()).unwrap();
    assert_eq!(*opened.id, *b"stream-1/7");
}

#[test]
fn a_servers_request_and_its_cancellation_carry_one_mark() {
    let rewrite = rewrite();
    let mark = rewrite
        .seal
        .request(Generation::FIRST, RawId::new("42"))
        .unwrap();
    let asked = show(
        &rewrite,
        "data: {\"jsonrpc\":\"2.0\",\"id\":42,\"method\":\"roots/list\"}\n\n",
    );
    assert_eq!(
        asked,
        format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{mark},\"method\":\"roots/list\"}}\n\n")
    );
    let cancelled = show(
        &rewrite,
        "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":42}}\n\n",
    );
    assert!(
        cancelled.contains(&format!("\"requestId\":{mark}")),
        "{cancelled}"
    );
}

#[test]
fn a_batch_becomes_single_messages_each_with_its_mark() {
    let rewrite = rewrite();
    let mark = rewrite
        .seal
        .request(Generation::FIRST, RawId::new("42"))
        .unwrap();
    let shown = show(
        &rewrite,
        "event: message\nid: 7\ndata: [{\"jsonrpc\":\"2.0\", \"id\":42,\"method\":\"roots/list\"} , 1.0,{\"jsonrpc\":\"2.0\",\"id\":42,\"result\":{}}]\n\n",
    );
    let asked = format!(
        "event: message\ndata: {{\"jsonrpc\":\"2.0\", \"id\":{mark},\"method\":\"roots/list\"}}\n\nevent: message\ndata: 1.0\n\nevent: message\nid: "
    );
    let rest = shown.strip_prefix(&asked).expect(&shown);
    let (id, rest) = rest.split_once('\n').unwrap();
    assert_eq!(*rewrite.seal.open_event(id.as_bytes()).unwrap().id, *b"7");
    assert_eq!(
        rest,
        "data: {\"jsonrpc\":\"2.0\",\"id\":42,\"result\":{}}\n\n"
    );
    for other in ["data: []\n\n", "data: [\n\n"] {
        assert_eq!(show(&rewrite, other), other);
    }
}

#[test]
fn a_batch_too_large_to_look_into_is_refused() {
    let array = |members| Bytes::from(format!("[{}1]", "1,".repeat(members - 1)));
    assert!(matches!(
        Content::of(array(MAX_BATCH)),
        Ok(Content::Batch(_))
    ));
    assert!(Content::of(array(MAX_BATCH + 1)).is_err());
}

#[test]
fn data_in_several_lines_is_one_message() {
    let shown = show(
        &rewrite(),
        "data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":42,\"method\":\"ping\"}\n\n",
    );
    assert!(!shown.contains("\"id\":42"), "{shown}");
    assert_eq!(
        shown
            .lines()
            .filter(|line| line.starts_with("data: "))
            .count(),
        2
    );
}

/// Any JSON, in any notation that JSON allows.
fn any_json() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::{Strategy as _, any, prop, prop_oneof};
    let leaf = prop_oneof![
        prop::sample::select(vec![
            "null",
            "true",
            "1.0",
            "-0",
            "1e5",
            "\"\\u0041\"",
            "\"é\""
        ])
        .prop_map(str::to_owned),
        any::<i32>().prop_map(|number| number.to_string()),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|all| format!("[ {} ]", all.join(" ,"))),
            prop::collection::vec(inner, 0..4).prop_map(|all| {
                let members: Vec<String> = all
                    .iter()
                    .enumerate()
                    .map(|(n, value)| format!("\"k{n}\" :{value}"))
                    .collect();
                format!("{{{}}}", members.join(", "))
            }),
        ]
    })
}

proptest::proptest! {
    #[test]
    fn what_is_not_rewritten_is_byte_identical(
        value in any_json(),
        shape in 0..3_u8,
        ending in proptest::sample::select(vec!["\n", "\r\n"]),
        comment in "[ -~]{0,20}",
    ) {
        let message = match shape {
            0 => format!("{{\"result\":{value} ,\"id\":7,\"jsonrpc\":\"2.0\",\"extra\":{value}}}"),
            1 => format!("{{\"jsonrpc\":\"2.0\", \"error\":{value},\"id\":\"a\"}}"),
            _ => format!("{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{value}}}"),
        };
        let text = format!(":{comment}{ending}event: message{ending}data: {message}{ending}retry: 5{ending}{ending}");
        assert_eq!(show(&rewrite(), &text), text);
    }
}
