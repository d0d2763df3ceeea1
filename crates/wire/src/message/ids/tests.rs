use proptest::prelude::{any, proptest};
use serde_json::{Value, json};

use super::*;

fn same_id(a: &str, b: &str) -> bool {
    RawId(a) == RawId(b)
}

fn answers_id(answered: &str, asked: &str) -> bool {
    RawId(answered).answers(RawId(asked))
}

#[test]
fn one_value_in_several_writings() {
    for (a, b) in [
        ("1", "1.0"),
        ("1", "1e0"),
        ("1000", "1E+3"),
        ("100", "1.00e2"),
        ("0", "-0.0"),
        ("-1.50", "-15e-1"),
        ("0.001", "1e-3"),
        (r#""a\/b""#, r#""a/b""#),
        (r#""\u0041""#, r#""A""#),
        (r#""\u003c\u002b""#, r#""<+""#),
        (r#""\u00e9""#, r#""é""#),
        (r#""\ud83d\ude00""#, r#""😀""#),
        ("12345678901234567890123", "12345678901234567890123.0"),
    ] {
        assert!(same_id(a, b) && same_id(b, a), "{a} {b}");
        assert!(answers_id(a, b) && answers_id(b, a), "{a} {b}");
    }
}

#[test]
fn several_values() {
    for (a, b) in [
        ("1", "2"),
        ("1", "-1"),
        ("1", "10"),
        ("1", "0.1"),
        ("9007199254740993", "9007199254740992"),
        ("12345678901234567890", "12345678901234567891"),
        ("1e99999999999999999999", "2e99999999999999999999"),
        (r#""a""#, r#""A""#),
        (r#""a\\/b""#, r#""a/b""#),
        (r#""a""#, "1"),
        (r#""""#, "0"),
    ] {
        assert!(!same_id(a, b) && !same_id(b, a), "{a} {b}");
        assert!(!answers_id(a, b) && !answers_id(b, a), "{a} {b}");
    }
    assert!(!same_id("", "1") && !same_id("null", "\"null\""));
}

#[test]
fn text_answers_a_number_and_is_another_id_all_the_same() {
    assert!(answers_id("\"1\"", "1") && answers_id("\"1\"", "1.0") && answers_id("\"-7\"", "-7"));
    assert!(!same_id("\"1\"", "1"));
    assert!(!answers_id("1", "\"1\""), "no client takes that");
}

#[test]
fn text_answers_a_number_only_as_an_integer_is_printed() {
    for (text, number) in [
        ("0", "0"),
        ("0", "-0"),
        ("7", "7e0"),
        ("-7", "-7.0"),
        ("100", "1e2"),
        ("12345678901234567890123", "12345678901234567890123"),
    ] {
        assert!(answers_id(&format!("\"{text}\""), number), "{text}");
    }
    assert!(answers_id(r#""\u0037""#, "7"), "escapes are no digits");
    for text in [
        "07", "+7", " 7", "7 ", "7.0", "7.", "7e0", "70e-1", "0.7e1", "-", "--7", "٧",
    ] {
        assert!(!answers_id(&format!("\"{text}\""), "7"), "{text}");
    }
    for text in ["-0", "00", "0.0", "", "-"] {
        assert!(!answers_id(&format!("\"{text}\""), "0"), "{text}");
    }
    assert!(!answers_id("\"-07\"", "-7"));
}

#[test]
fn whose_answer_a_body_is() {
    let takes = |body: &str, id| is_answer_to(body.as_bytes(), RawId(id));
    for body in [
        r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
        r#"{"result":{"id":8},"jsonrpc":"2.0","id":7}"#,
        "{ \"result\": {}, \"id\" : 7.0 , \"jsonrpc\": \"2.0\" }\n",
        r#"{"jsonrpc":"2.0","id":"7","result":{},"error":null}"#,
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x"}}"#,
        "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":null}",
    ] {
        assert!(
            takes(body, "7") && echoes_id(body.as_bytes(), RawId("7")),
            "{body}"
        );
        assert!(!takes(body, "70") && !takes(body, "\"x\""), "{body}");
    }
    // Two ids, and each peer may read a different one: it counts as the response, but is not forwarded
    // as one.
    let twice = r#"{"id":8,"id":7,"result":1}"#;
    assert!(echoes_id(twice.as_bytes(), RawId("7")) && !takes(twice, "7"));
    for unaddressed in [
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":1,"message":"x"}}"#,
    ] {
        assert!(takes(unaddressed, "7"), "{unaddressed}");
        assert!(
            !echoes_id(unaddressed.as_bytes(), RawId("7")),
            "{unaddressed}"
        );
    }
    for other in [
        "",
        "{}",
        "[]",
        "<html>",
        r#"{"jsonrpc":"2.0","id":7"#,
        r#"{"jsonrpc":"2.0","id":8,"result":{"id":7}}"#,
        r#"{"jsonrpc":"2.0","id":8,"error":{"code":1}}"#,
        r#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
        r#"{"jsonrpc":"2.0","result":{"a":1,"id":7}}"#,
        r#"{"id":7,"detail":"no such customer"}"#,
        r#"{"id":7,"method":"roots/list","jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{},"Method":"roots/list"}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{},"method\u0000":"roots/list"}"#,
        r#"{"result":{},"METHOD":"roots/list","id":7}"#,
        "{\"result\":{},\"method\0\":\"roots/list\",\"id\":7}",
    ] {
        assert!(
            !takes(other, "7") && !echoes_id(other.as_bytes(), RawId("7")),
            "{other}"
        );
    }
    let latin = b"{\"id\":7,\"error\":{\"message\":\"caf\xe9\"},\"jsonrpc\":\"2.0\"}";
    assert!(
        echoes_id(latin, RawId("7")),
        "a server that cannot write UTF-8 has answered"
    );
}

proptest! {
    #[test]
    fn the_same_string_however_it_is_written(text: String, escape: u64) {
        let plain = json!(text).to_string();
        let mut escaped = String::from('"');
        for (place, unit) in text.encode_utf16().enumerate() {
            let letter = char::from_u32(u32::from(unit)).filter(char::is_ascii_alphanumeric);
            match letter {
                Some(letter) if (escape >> (place % 64)) & 1 == 0 => escaped.push(letter),
                _ => escaped.push_str(&format!("\\u{unit:04x}")),
            }
        }
        escaped.push('"');
        assert!(same_id(&plain, &escaped), "{plain} {escaped}");
    }

    #[test]
    fn strings_agree_with_a_parser(a: String, b: String) {
        let (x, y) = (json!(a).to_string(), json!(b).to_string());
        assert_eq!(same_id(&x, &y), a == b);
    }

    #[test]
    fn integers_are_never_mixed_up(a: i128, b: i128, zeros in 0..4_usize) {
        let point = if zeros == 0 { "" } else { "." };
        let written = format!("{a}{point}{}", "0".repeat(zeros));
        assert!(same_id(&written, &a.to_string()));
        assert_eq!(same_id(&written, &b.to_string()), a == b);
    }

    #[test]
    fn never_panics(a: String, b: String, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        _ = (same_id(&a, &b), answers_id(&a, &b), is_answer_to(&body, RawId(&a)), echoes_id(&body, RawId(&b)));
    }

    #[test]
    fn the_short_cut_agrees_with_the_whole(id: i64, other: i64, last: bool, text: String) {
        let result: Value = json!({"text": text, "id": other});
        let body = match last {
            true => format!(r#"{{"result":{result},"jsonrpc":"2.0","id":{id}}}"#),
            false => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        };
        assert!(is_answer_to(body.as_bytes(), RawId(&id.to_string())));
        assert_eq!(is_answer_to(body.as_bytes(), RawId(&other.to_string())), id == other);
    }
}
