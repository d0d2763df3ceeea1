use proptest::prelude::*;

use super::*;

/// The ids of an object that is read in pieces of these lengths, repeatedly, and how it ended.
fn scan(text: &[u8], pieces: &[usize]) -> (Vec<String>, Stop, bool) {
    let mut scan = IdScan::default();
    let (mut ids, mut id) = (Vec::new(), None::<Vec<u8>>);
    let (mut rest, mut lengths) = (text, pieces.iter().cycle());
    let mut last = Stop::More;
    while !rest.is_empty() {
        let length = lengths
            .next()
            .map_or(rest.len(), |length| rest.len().min(*length));
        let mut piece;
        (piece, rest) = rest.split_at(length);
        loop {
            let (read, stop) = scan.read(piece);
            if let Some(id) = &mut id {
                id.extend_from_slice(&piece[..read]);
            }
            piece = &piece[read..];
            last = stop;
            match stop {
                Stop::IdBegins => id = Some(Vec::new()),
                Stop::IdEnds => ids.push(String::from_utf8(id.take().unwrap()).unwrap()),
                Stop::More => break assert!(piece.is_empty()),
                Stop::AnswerBegins => {}
                Stop::End | Stop::NotAnAnswer => break,
            }
        }
    }
    (ids, last, scan.has_error())
}

fn found(text: &str) -> (Vec<String>, Stop, bool) {
    let whole = scan(text.as_bytes(), &[]);
    assert_eq!(scan(text.as_bytes(), &[1]), whole, "{text}");
    whole
}

#[test]
fn the_id_is_found_wherever_it_stands() {
    for (text, id) in [
        (r#"{"jsonrpc":"2.0","id":7,"result":{"id":8}}"#, "7"),
        (
            r#"{"result":{"id":8,"x":["{",{"id":"}"}]},"jsonrpc":"2.0","id":7}"#,
            "7",
        ),
        (
            r#"{"result":"a\"},\"id\":9","id" : "b\\\"c" , "x":[]}"#,
            r#""b\\\"c""#,
        ),
        (r#"{"\u0069d":-1.5e3}"#, "-1.5e3"),
        (r#" { "id" : null } "#, "null"),
        (r#"{"id":{"a":[1]},"result":1}"#, r#"{"a":[1]}"#),
        (r#"{"x":[],"y":{},"id":[]}"#, "[]"),
        (r#"{"\\id":1,"id\u0000":2,"i":3,"idd":4,"id":5}"#, "5"),
        ("\u{feff}{\"id\":7}", "7"),
        (r#"{"":"","id":7}"#, "7"),
    ] {
        assert_eq!(found(text).0, [id], "{text}");
        assert_eq!(found(text).1, Stop::End, "{text}");
    }
    assert_eq!(found(r#"{"id":1,"id":2}"#).0, ["1", "2"]);
}

#[test]
fn what_has_no_id_has_none() {
    for text in ["{}", r#"{"result":{"id":1}}"#, r#"{"a":"id","b":["id",1]}"#] {
        assert_eq!(found(text), (vec![], Stop::End, false), "{text}");
    }
    for text in ["", " ", "{", r#"{"id"#, r#"{"a":{"id":1}"#, r#"{"a":"\"#] {
        assert_eq!(found(text), (vec![], Stop::More, false), "{text}");
    }
    for text in [
        "[{\"id\":1}]",
        "7",
        "nonsense",
        "{,",
        "{7:1}",
        r#"{"a" 1}"#,
        r#"{"a":}"#,
        r#"{"a":1 2}"#,
    ] {
        assert_eq!(found(text), (vec![], Stop::NotAnAnswer, false), "{text}");
    }
}

#[test]
fn a_request_is_no_answer() {
    for text in [
        r#"{"method":"ping"}"#,
        r#"{"METHOD":"ping"}"#,
        r#"{"\u006d\u0065\u0074\u0068\u006f\u0064":"ping"}"#,
        r#"{"result":{},"method":null}"#,
        r#"{"result":{},"Method\u0000":1}"#,
        r#"{"\u006d\u0065\u0074\u0068\u006f\u0064\u0000 and more of it":1}"#,
        r#"{"m\ethod":1}"#,
    ] {
        assert_eq!(found(text).1, Stop::NotAnAnswer, "{text}");
    }
    assert_eq!(
        found(r#"{"result":{"method":"ping"},"methods":1,"method of a very long name, longer than that":1}"#).1,
        Stop::End
    );
}

#[test]
fn an_error_is_noticed() {
    assert!(found(r#"{"error":{"code":1},"id":null}"#).2);
    assert!(found(r#"{"\u0065\u0072\u0072\u006f\u0072":"x"}"#).2);
    assert!(!found(r#"{"error":null,"result":{"error":1}}"#).2);
}

/// JSON values of any shape, as text.
#[test]
fn what_begins_or_ends_something_is_seen_wherever_it_stands() {
    for byte in 0..=u8::MAX {
        for at in 0..24 {
            let mut text = [b'1'; 24];
            text[at] = byte;
            let is_plain = !matches!(byte, b'"' | b'{' | b'}' | b'[' | b']');
            let expected = if is_plain { text.len() } else { at };
            assert_eq!(count_plain(&text), expected, "{byte} at {at}");
        }
    }
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        r#"[a-z"\\{}\[\]:,\n\u{e9}]{0,12}"#.prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::vec((r#"id|error|[a-z"\\]{0,4}"#, inner), 0..6)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn where_the_bytes_are_cut_changes_nothing(
        members in prop::collection::vec((r#"id|error|result|[a-z"\\{}]{0,5}"#, value()), 0..8),
        pieces in prop::collection::vec(1_usize..40, 1..8),
        is_pretty: bool,
    ) {
        let object = serde_json::Value::Object(members.into_iter().collect());
        let text = match is_pretty {
            true => serde_json::to_string_pretty(&object).unwrap(),
            false => object.to_string(),
        };
        let whole = scan(text.as_bytes(), &[]);
        prop_assert_eq!(&scan(text.as_bytes(), &pieces), &whole);
        let ids: Vec<serde_json::Value> =
            whole.0.iter().map(|id| serde_json::from_str(id).unwrap()).collect();
        prop_assert_eq!(ids, object.get("id").cloned().into_iter().collect::<Vec<_>>());
        prop_assert_eq!(whole.1, Stop::End);
        prop_assert_eq!(whole.2, object.get("error").is_some_and(|error| !error.is_null()));
    }

    #[test]
    fn any_bytes_are_read(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(&b"{}[]\",:\\id nul"[..])], 0..80),
        pieces in prop::collection::vec(1_usize..9, 1..5),
    ) {
        let stops = |pieces: &[usize]| {
            let mut scan = IdScan::default();
            let (mut rest, mut lengths, mut stops) = (&bytes[..], pieces.iter().cycle(), Vec::new());
            let mut at = 0;
            while !rest.is_empty() {
                let length = lengths.next().map_or(rest.len(), |length| rest.len().min(*length));
                let mut piece;
                (piece, rest) = rest.split_at(length);
                loop {
                    let (read, stop) = scan.read(piece);
                    (at, piece) = (at + read, &piece[read..]);
                    match stop {
                        Stop::More => break,
                        Stop::End | Stop::NotAnAnswer => {
                            stops.push((at, stop));
                            return stops;
                        }
                        stop => stops.push((at, stop)),
                    }
                }
            }
            stops
        };
        prop_assert_eq!(stops(&pieces), stops(&[]));
    }
}

/// The id of a request that arrives in pieces of this size.
fn request_id(text: &str, piece: usize) -> Option<String> {
    let mut scan = RequestScan::default();
    text.as_bytes()
        .chunks(piece)
        .for_each(|bytes| scan.read(bytes));
    scan.id().map(|id| id.as_id().to_string())
}

#[test]
fn the_id_of_a_request_is_found_wherever_it_is() {
    let long = "x".repeat(2000);
    for piece in [1, 2, 3, 7, 4096] {
        for (text, id) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"id":1,"a":["#,
                Some("7"),
            ),
            (
                r#" {"method":"m","params":{"id":1,"result":2},"id":"a\"b" }"#,
                Some(r#""a\"b""#),
            ),
            (r#"{"id":1,"result":{"method":"m"}}"#, None),
            (r#"{"id":1,"method":"m","result":{}}"#, None),
            (r#"{"id":1,"id":2,"method":"m"}"#, None),
            (r#"{"id":null,"method":"m"}"#, None),
            (r#"{"id":{},"method":"m"}"#, None),
            (r#"{"method":"m"}"#, None),
            (r#"[{"id":1,"method":"m"}]"#, None),
            (&format!(r#"{{"id":"{long}","method":"m"}}"#), None),
        ] {
            assert_eq!(request_id(text, piece).as_deref(), id, "{piece} {text}");
        }
    }
}
