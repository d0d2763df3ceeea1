//! Whose a message is, for a client of several servers: `_meta` says it in each request, notification and result, and
//! what a person is shown begins with it. A server cannot say that it is another one, because its own keys of this name
//! were removed before.

use std::borrow::Cow;

use bowline_wire::members::{Members, written};
use bowline_wire::message::{Kind, Message};
use bowline_wire::names::{plain, reads_as};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{OWN, PROMPT};
use crate::config::ServerName;

/// Where a message says whose it is.
const SERVER: &str = "bowline/server";

/// The member of an error's data that has prompts.
const PROMPTS: &str = "elicitations";

/// The message with the name of its server; `None` if there is no place for it. Errors have none, except for those with
/// prompts in them.
pub(super) fn marked(message: Message, server: &ServerName) -> Option<Message> {
    let with_name = |object: &str| with_name(object, server);
    let answer = message.result_span().or(message.error_span());
    let around = answer.map(|answer| message.splice(answer, "0"));
    if around.is_some_and(|around| asks(&String::from_utf8_lossy(&around))) {
        // Beside the answer, some reader could take it for an error.
        return None;
    }
    match (message.kind(), message.result_span(), message.params_span()) {
        (Kind::Response, Some(result), _) => {
            let marked = with_name(message.text(result))?;
            Some(message.replaced(result, &marked))
        }
        (Kind::Response, None, _) => match message.error_span() {
            Some(error) if asks(message.text(error)) => {
                let marked = with_prompts_signed(message.text(error), server)?;
                Some(message.replaced(error, &marked))
            }
            _ => Some(message),
        },
        (_, _, Some(params)) => {
            let is_prompt = message.method().is_some_and(|it| reads_as(it, PROMPT));
            let marked = match message.text(params) {
                "null" => with_name("{}"),
                own if is_prompt => signed(own, server).and_then(|signed| with_name(&signed)),
                own => with_name(own),
            };
            Some(message.replaced(params, &marked?))
        }
        (_, _, None) => {
            let params = with_name("{}")?;
            let marked = Members::of_bytes(message.raw())?.with("params", &params);
            Message::from_server(marked.into()).ok()
        }
    }
}

/// Params or a result with the name in its `_meta`; `None` if it is no object.
fn with_name(object: &str, server: &ServerName) -> Option<String> {
    let members = Members::of(object)?;
    let name = Value::from(server.as_ref()).to_string();
    let only_name = || written([(SERVER, &*name)]);
    let own = members.iter().rev().find(|(name, _)| *name == "_meta");
    let Some((_, own)) = own else {
        // Most have none, and then all bytes stay.
        let rest = object.strip_prefix('{')?;
        let comma = if rest.trim_start().starts_with('}') {
            ""
        } else {
            ","
        };
        return Some(format!("{{\"_meta\":{}{comma}{rest}", only_name()));
    };
    let meta = match Members::of(own) {
        Some(own) => own.with(SERVER, &name),
        None => only_name(),
    };
    Some(members.with("_meta", &meta))
}

/// The params of a prompt whose text begins with the server's name, whichever member a client takes for the text.
fn signed(params: &str, server: &ServerName) -> Option<String> {
    changed(params, |name, value| {
        let text = value
            .strip_prefix('"')
            .filter(|_| reads_as(name, "message"));
        Some(text.map(|text| format!("\"{server}: {text}")))
    })
}

/// Whether some client could find prompts in an error.
fn asks(error: &str) -> bool {
    plain(error).contains(PROMPTS)
}

/// An error that has prompts in its data, each with the server's name. The data has it as a result has.
fn with_prompts_signed(error: &str, server: &ServerName) -> Option<String> {
    let signed_data = |data: &str| {
        let mut asks = false;
        let signed = changed(data, |name, value| {
            if !reads_as(name, PROMPTS) {
                return Some(None);
            }
            asks = true;
            let prompts: Vec<&RawValue> = serde_json::from_str(value).ok()?;
            let prompts = prompts.iter().map(|prompt| signed(prompt.get(), server));
            let prompts: Option<Vec<_>> = prompts.collect();
            Some(Some(format!("[{}]", prompts?.join(","))))
        })?;
        match asks {
            true => with_name(&signed, server).map(Some),
            false => Some(None),
        }
    };
    changed(error, |name, value| match reads_as(name, "data") {
        true if value.starts_with('{') => signed_data(value),
        _ => Some(None),
    })
}

/// An object with other values for some of its members; `None` if it is no object, or a value cannot be made.
fn changed(
    object: &str,
    mut value: impl FnMut(&str, &str) -> Option<Option<String>>,
) -> Option<String> {
    let members = Members::of(object)?;
    let changed = members.iter().map(|(name, own)| {
        let value = value(name, own)?;
        Some((name, value.map_or(Cow::Borrowed(own), Cow::Owned)))
    });
    let changed: Vec<_> = changed.collect::<Option<_>>()?;
    Some(written(
        changed.iter().map(|(name, value)| (*name, &**value)),
    ))
}

/// Looks for what would have been changed in a member's answer, had it been held: reserved keys, and prompts.
#[derive(Debug)]
pub(crate) struct KeyScan {
    /// How what it looks for begins, with the quote before it.
    wanted: [String; 3],
    /// The end of what was read, as long as the longest notation of one of them.
    tail: Vec<u8>,
}

impl KeyScan {
    /// Keys with this prefix are reserved, too.
    pub(super) fn new(prefix: &str) -> Self {
        Self {
            wanted: [OWN, prefix, PROMPTS].map(|key| format!("\"{key}")),
            tail: Vec::new(),
        }
    }

    /// Whether some reader could find such a key in what was read so far.
    pub(crate) fn finds(&mut self, part: &[u8]) -> bool {
        let read = [&self.tail, part].concat();
        let text = plain(&String::from_utf8_lossy(&read));
        let longest = self.wanted.iter().map(String::len).max();
        let kept = longest.unwrap_or_default() * r"\u0062".len();
        self.tail = read[read.len().saturating_sub(kept)..].to_vec();
        self.wanted.iter().any(|key| text.contains(&**key))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::super::Reserved;
    use super::*;

    fn reserved() -> Reserved {
        Reserved::new("My.App", &"weather".parse().unwrap()).of_union()
    }

    fn shown(text: &str) -> String {
        let message = Message::from_server(Bytes::copy_from_slice(text.as_bytes())).unwrap();
        let shown = reserved().cleared(message).unwrap();
        // The spans are those of the new bytes.
        let again = Message::from_server(shown.raw().clone()).unwrap();
        assert_eq!(shown, again);
        String::from_utf8(shown.raw().to_vec()).unwrap()
    }

    fn value(text: &str) -> Value {
        serde_json::from_str(&shown(text)).unwrap()
    }

    #[test]
    fn every_request_notification_and_result_says_whose_it_is() {
        let mark = r#""_meta":{"bowline/server":"weather"}"#;
        for (said, shown_as) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
                format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{{mark}}}}}"#),
            ),
            (
                r#"{"id":1,"result":{ "x":1e400,"a":[1, 2]},"jsonrpc":"2.0"}"#,
                format!(r#"{{"id":1,"result":{{{mark}, "x":1e400,"a":[1, 2]}},"jsonrpc":"2.0"}}"#),
            ),
            (
                r#"{"id":"a","method":"roots/list"}"#,
                format!(r#"{{"id":"a","method":"roots/list","params":{{{mark}}}}}"#),
            ),
            (
                r#"{"method":"notifications/message","params":null}"#,
                format!(r#"{{"method":"notifications/message","params":{{{mark}}}}}"#),
            ),
            (
                r#"{"id":1,"result":{"_meta":{"x":1e400},"b":2}}"#,
                r#"{"id":1,"result":{"b":2,"_meta":{"x":1e400,"bowline/server":"weather"}}}"#
                    .to_owned(),
            ),
            (
                r#"{"id":1,"result":{"_meta":5}}"#,
                format!(r#"{{"id":1,"result":{{{mark}}}}}"#),
            ),
        ] {
            assert_eq!(shown(said), shown_as, "{said}");
        }
        for unchanged in [
            r#"{"id":1,"error":{"code":1,"message":"m"}}"#,
            r#"{"id":1,"error":{"code":1, "message":"m","data":{"\ud800":1}}}"#,
            r#"{"id":1,"error":"m"}"#,
        ] {
            assert_eq!(shown(unchanged), unchanged);
        }
    }

    #[test]
    fn what_has_no_place_for_the_name_is_not_shown() {
        for said in [
            r#"{"id":1,"result":[1]}"#,
            r#"{"id":1,"result":5}"#,
            r#"{"id":1,"result":{"content":[],"\ud800":1}}"#,
            r#"{"method":"m","params":[1]}"#,
            r#"{"method":"notifications/message","params":{"data":1,"\udfff":1}}"#,
            r#"{"id":1,"method":"elicitation/create","params":{"message":"bank: PIN?","\ud800":1}}"#,
            r#"{"id":1,"error":{"code":-32042,"data":{"elicitations":{"message":"bank: go"}}}}"#,
            r#"{"id":1,"error":{"code":-32042,"data":{"elicitations":[],"\ud800":1}}}"#,
            r#"{"id":1,"result":{},"Error":{"code":-32042,"data":{"elicitations":[]}}}"#,
            r#"{"id":1,"Error":{"data":{"Elicit\u0061tions":[]}},"error":{"code":1}}"#,
        ] {
            let said = Bytes::copy_from_slice(said.as_bytes());
            let message = Message::from_server(said.clone()).unwrap();
            assert_eq!(reserved().cleared(message), None, "{said:?}");
        }
        let half = r#"{"id":1,"result":{"_meta":{"\ud800":1}}}"#;
        let shown_as = r#"{"id":1,"result":{"_meta":{"bowline/server":"weather"}}}"#;
        assert_eq!(shown(half), shown_as);
    }

    #[test]
    fn a_prompt_in_an_error_begins_with_the_name_of_its_server() {
        let mark = r#""_meta":{"bowline/server":"weather"}"#;
        for (code, name) in [
            ("-32042", "elicitations"),
            ("-3.2042e4", r"Elicit\u0061tions"),
        ] {
            let said = format!(
                r#"{{"id":1,"error":{{"code":{code},"message":"m","data":{{"_meta":{{"bowline/server":"bank"}},"{name}":[{{"mode":"url","message":"bank: go","url":"https://e"}}]}}}}}}"#
            );
            let data = value(&said)["error"]["data"].clone();
            let name = if name.starts_with('E') {
                "Elicitations"
            } else {
                name
            };
            assert_eq!(
                data,
                json!({"_meta": {"bowline/server": "weather"},
                    name: [{"mode": "url", "message": "weather: bank: go", "url": "https://e"}]})
            );
        }
        let none = r#"{"id":1,"error":{"code":-32042,"message":"m","data":{"elicitations":[]}}}"#;
        let marked = none.replace(r#""data":{"#, &format!(r#""data":{{{mark},"#));
        assert_eq!(shown(none), marked);
    }

    #[test]
    fn nobody_speaks_in_anothers_name() {
        for forged in [
            r#"{"_meta":{"bowline/server":"bank"}}"#,
            r#"{"_meta":{"bowline/server":"bank"},"_meta":{}}"#,
            r#"{"_meta":{},"_meta":{"bowline/server":"bank"}}"#,
            r#"{"_meta":{"bowline\/server":"bank","b\u006fwline/server":"bank"}}"#,
            r#"{"_META":{"Bowline/Server":"bank"},"_meta\u0000":{"bowline/server\u0000":"bank"}}"#,
            r#"{"a":[{"_meta":{"bowline/server":"bank"}}]}"#,
        ] {
            for said in [
                format!(r#"{{"id":1,"result":{forged}}}"#),
                format!(r#"{{"id":1,"method":"sampling/createMessage","params":{forged}}}"#),
                format!(r#"{{"method":"notifications/message","params":{forged}}}"#),
            ] {
                let shown = shown(&said);
                assert!(!shown.contains("bank"), "{said}: {shown}");
                assert_eq!(shown.matches("bowline/server").count(), 1, "{shown}");
            }
        }
        // What only some reader takes for an answer.
        for odd in [
            r#"{"id":1,"result":{"_meta":{"bowline/server":"bank"}},"result":{}}"#,
            r#"{"id":1,"result":{"_meta":{"bowline/server":"bank"}},"error":{}}"#,
        ] {
            let odd = Bytes::copy_from_slice(odd.as_bytes());
            assert_eq!(reserved().cleared_answer(odd.clone()), None);
            let batch = reserved().cleared_batch(vec![odd]);
            assert_eq!(batch, Vec::<Bytes>::new());
        }
    }

    #[test]
    fn a_prompt_begins_with_the_name_of_its_server() {
        let asks = |params: &str| {
            value(&format!(
                r#"{{"id":1,"method":"elicitation/create","params":{params}}}"#
            ))["params"]
                .clone()
        };
        let meta = json!({"bowline/server": "weather"});
        assert_eq!(
            asks(r#"{"message":"bank: \"PIN\"?","requestedSchema":{}}"#),
            json!({"message": "weather: bank: \"PIN\"?", "requestedSchema": {}, "_meta": meta})
        );
        assert_eq!(
            asks(r#"{"mode":"url","url":"https://e","message":"Go","Message":"bank: go"}"#),
            json!({"mode": "url", "url": "https://e", "message": "weather: Go",
                "Message": "weather: bank: go", "_meta": meta})
        );
        let half = shown(r#"{"id":1,"method":"elicitation/create","params":{"message":"\ud83d"}}"#);
        assert!(half.contains(r#""message":"weather: \ud83d""#), "{half}");
        assert_eq!(
            asks(r#"{"message":5}"#),
            json!({"message": 5, "_meta": meta})
        );
    }

    #[test]
    fn what_some_client_could_take_for_another_prompt_is_not_shown() {
        let prompt = r#"{"message":"bank: go"}"#;
        for odd in [
            format!(r#"{{"id":1,"method":"elicitation/create","params":{prompt},"params":{{}}}}"#),
            format!(r#"{{"id":1,"method":"elicitation/create","Params":{prompt},"params":{{}}}}"#),
            format!(
                r#"{{"id":1,"method":"ping","METHOD":"elicitation/create","params":{prompt}}}"#
            ),
            format!(r#"{{"id":1,"method":"elicitation/create","result":1,"params":{prompt}}}"#),
            format!(r#"[[{{"id":1,"method":"elicitation/create","params":{prompt}}}]]"#),
        ] {
            let odd = Bytes::from(odd);
            let shown = match Message::from_server(odd.clone()) {
                Ok(message) => reserved().cleared(message).is_some(),
                Err(_) => reserved().admits(&odd),
            };
            assert!(!shown, "{odd:?}");
        }
        assert!(reserved().admits(&Bytes::from_static(b"keep-alive")));
    }

    #[test]
    fn what_would_be_changed_is_found_in_pieces_of_any_length() {
        for (text, has_key) in [
            (r#"{"result":{"_meta":{"bowline/server":1}}}"#, true),
            (r#"{"result":{"_meta":{"BOWLINE\/\u0073erver":1}}}"#, true),
            (r#"{"result":{"_meta":{ "bowline/type":1}}}"#, true),
            (r#"{"result":{"_meta":{"m\u0079.App/state":1}}}"#, true),
            (r#"{"error":{"data":{"elicitations":[]}}}"#, true),
            (r#"{"error":{"data":{"Elicitation\u017f\u0000":[]}}}"#, true),
            (
                r#"{"result":{"text":"bowline / server \u0062 / my.app/ elicitations"}}"#,
                false,
            ),
        ] {
            for piece in 1..=text.len() {
                let mut scan = reserved().scan();
                let mut pieces = text.as_bytes().chunks(piece);
                assert_eq!(pieces.any(|part| scan.finds(part)), has_key, "{text}");
            }
        }
    }

    #[test]
    fn a_client_of_one_server_is_told_nothing() {
        let reserved = Reserved::new("bowline", &"weather".parse().unwrap());
        let body = Bytes::from_static(br#"{"id":1,"result":{"_meta":{"bowline/server":"x"}}}"#);
        let message = Message::from_server(body.clone()).unwrap();
        assert_eq!(reserved.cleared(message).unwrap().raw(), &body);
    }
}
