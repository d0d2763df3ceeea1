//! What a forging server writes: ids and tokens of the shape that Bowline gives to calls that it repeats, and ids of
//! calls that were not made to it. Bowline handed out none of them in this call, so it must give none of them back as
//! anything else. What is no answer may pass as it was written: it means nothing to anybody.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use fastrand::Rng;
use serde_json::{Value, json};

use super::LANES;
use super::judge::Expected;
use crate::server::{Server, is_in_union};

/// The event id of everything that is forged.
pub(super) const EVENT_ID: &str = "forged-event";
/// How many messages are forged at once.
const AT_ONCE: std::ops::RangeInclusive<usize> = 1..=3;
/// How far another call's number may be from this one's.
const NEAR: u64 = 3;

/// A repeat's id for this one (JSON text), of a repeat that was not made.
pub(super) fn again(id: &str) -> String {
    format!(r#""bowline-again-7-{}""#, BASE64.encode(id))
}

/// Messages (JSON text) for a call with this number in its lane.
pub(super) fn messages(
    random: &mut Rng,
    expected: &Expected,
    lane: usize,
    number: u64,
) -> Vec<Value> {
    let own = expected.id.to_string();
    let token = json!(expected.token).to_string();
    let other = other_call(random, expected, lane, number).to_string();
    let forge = |which: usize| match which {
        0 => progress(&again(r#""decoded""#)),
        1 => progress(&again(&token)),
        2 => progress(&again(r#""decoded","message":"spliced""#)),
        3 => progress(&again(r#""decoded""#)).replace("bowline-", r"bowline\u002d"),
        4 => answer(&again(&own)),
        5 => answer(&again(&other)),
        _ => answer(&other),
    };
    let count = random.usize(AT_ONCE);
    (0..count)
        .map(|_| json!(forge(random.usize(..7))))
        .collect()
}

/// The id of a call that may be under way elsewhere: of the same client at another server, or of another client.
fn other_call(random: &mut Rng, expected: &Expected, lane: usize, number: u64) -> Value {
    let session = match is_in_union(expected.session) {
        true => {
            let own = Server::of(expected.session);
            let others = Server::ALL.into_iter().filter(|server| *server != own);
            let others: Vec<_> = others.collect();
            let server = random.choice(&others).copied();
            server.map_or(0, |server| server.member_of(expected.client))
        }
        false => expected.session + 1,
    };
    let number = random.u64(number.saturating_sub(NEAR)..=number + NEAR);
    json!(key(session, (lane + 1) % LANES, number))
}

/// The key of a call.
pub(super) fn key(session: usize, lane: usize, number: u64) -> String {
    format!("s{session}/{lane}-{number}")
}

fn progress(token: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
    )
}

fn answer(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"forged"}}]}}}}"#
    )
}

/// Whether this is forged progress as its server wrote it, but for the word to a union's client on whose it is.
pub(super) fn is_as_written(message: &Value) -> bool {
    let mut message = message.clone();
    if let Some(params) = message["params"].as_object_mut()
        && params.get("_meta").is_some_and(says_only_whose)
    {
        params.remove("_meta");
    }
    let token = &message["params"]["progressToken"];
    let is_forged = token
        .as_str()
        .is_some_and(|it| it.starts_with("bowline-again-7-"));
    let written = progress(&token.to_string());
    is_forged && serde_json::from_str::<Value>(&written).is_ok_and(|written| written == message)
}

fn says_only_whose(meta: &Value) -> bool {
    let meta = meta.as_object();
    meta.is_some_and(|meta| meta.keys().eq(["bowline/server"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_on_its_way_is_not_as_written() {
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let written = progress(&again(r#""decoded""#));
        assert!(is_as_written(&read(&written)));
        assert!(is_as_written(&read(
            &written.replace("bowline-", r"bowline\u002d")
        )));
        let said_by = written.replace(
            r#""progress":1"#,
            r#""progress":1,"_meta":{"bowline/server":"s"}"#,
        );
        assert!(is_as_written(&read(&said_by)));
        assert!(!is_as_written(&read(&progress(r#""decoded""#))));
        let spliced = written.replace(r#""progress":1"#, r#""progress":1,"message":"spliced""#);
        assert!(!is_as_written(&read(&spliced)));
        assert!(!is_as_written(&read(&answer(&again("7")))));
    }
}
