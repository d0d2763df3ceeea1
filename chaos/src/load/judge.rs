//! What a client makes of an answer.

use bowline_testbed::client::Answer;
use serde_json::{Value, json};

use crate::history::{Kind, Outcome};

/// The resource that stands for a key.
pub(super) fn uri(key: &str) -> String {
    format!("key:{key}")
}

/// How a call ended.
pub(super) fn outcome(kind: Kind, id: &Value, key: &str, steps: u64, answer: &Answer) -> Outcome {
    if answer.status == 404 {
        return Outcome::Lost;
    }
    let (told, answers): (Vec<_>, Vec<_>) = answer
        .messages
        .iter()
        .partition(|message| message.get("method").is_some());
    if let Some(stray) = answers.iter().find(|message| message["id"] != *id) {
        return Outcome::Wrong(format!("an answer to {}", stray["id"]));
    }
    let [found] = answers.as_slice() else {
        return match (answers.len(), answer.status.as_u16()) {
            (0, 200) => Outcome::Silent(answer.cut.clone().unwrap_or("a clean end".to_owned())),
            (0, status) => Outcome::Refused(status, None),
            (count, _) => Outcome::Wrong(format!("{count} answers")),
        };
    };
    if let Some(error) = found.get("error") {
        return refused(answer.status.as_u16(), error);
    }
    if !is_result(kind, key, &found["result"]) {
        return Outcome::Wrong(format!("the result {}", found["result"]));
    }
    if matches!(kind, Kind::StreamRead | Kind::Slow) {
        return progress(key, steps, &told);
    }
    Outcome::Answered
}

fn refused(status: u16, error: &Value) -> Outcome {
    let code = error["code"].as_i64();
    if code == Some(-31001) && error["data"]["reason"] == "outcome_unknown" {
        Outcome::Unknown
    } else {
        Outcome::Refused(status, code)
    }
}

fn is_result(kind: Kind, key: &str, result: &Value) -> bool {
    match kind {
        Kind::Ping => *result == json!({}),
        Kind::List => result["tools"]
            .as_array()
            .is_some_and(|tools| tools.len() == 4),
        Kind::Resource => result["contents"][0]["text"] == uri(key),
        Kind::Listen => false,
        Kind::Read | Kind::StreamRead | Kind::Bump | Kind::Slow => {
            result["content"][0]["text"] == key && result["structuredContent"]["key"] == key
        }
    }
}

/// All progress must be the call's own, once each and in order.
fn progress(key: &str, steps: u64, told: &[&Value]) -> Outcome {
    let own = |message: &&Value| message["params"]["progressToken"] == key;
    if !told.iter().all(own) {
        return Outcome::Wrong("the progress of another call".to_owned());
    }
    let seen: Vec<_> = told
        .iter()
        .filter_map(|message| message["params"]["progress"].as_u64())
        .collect();
    if seen.iter().copied().eq(1..=steps) {
        Outcome::Answered
    } else {
        Outcome::Wrong(format!("progress {seen:?} of {steps}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, messages: Vec<Value>) -> Answer {
        Answer {
            status: http_status(status),
            headers: Default::default(),
            messages,
            event_ids: Vec::new(),
            cut: None,
            text: String::new(),
        }
    }

    fn http_status<T: TryFrom<u16>>(status: u16) -> T {
        T::try_from(status).unwrap_or_else(|_| panic!("a status"))
    }

    fn result(id: u64, key: &str) -> Value {
        json!({"id": id, "result": {"content": [{"text": key}], "structuredContent": {"key": key}}})
    }

    fn error(code: i64) -> Value {
        json!({"id": 1, "error": {"code": code, "data": {"reason": "outcome_unknown"}}})
    }

    fn step(token: &str, progress: u64) -> Value {
        json!({"method": "notifications/progress", "params": {"progressToken": token, "progress": progress}})
    }

    fn judged(kind: Kind, status: u16, messages: Vec<Value>) -> Outcome {
        outcome(kind, &json!(1), "k", 2, &answer(status, messages))
    }

    #[test]
    fn only_its_own_answer_will_do() {
        assert_eq!(
            judged(Kind::Bump, 200, vec![result(1, "k")]),
            Outcome::Answered
        );
        for messages in [
            vec![result(2, "k")],
            vec![result(1, "other")],
            vec![result(1, "k"), result(1, "k")],
        ] {
            let judged = judged(Kind::Bump, 200, messages);
            assert!(matches!(judged, Outcome::Wrong(_)), "{judged:?}");
        }
    }

    #[test]
    fn progress_must_be_whole_and_in_order() {
        let with = |steps: &[(&str, u64)]| {
            let mut messages: Vec<_> = steps
                .iter()
                .map(|(key, number)| step(key, *number))
                .collect();
            messages.push(result(1, "k"));
            judged(Kind::Slow, 200, messages)
        };
        assert_eq!(with(&[("k", 1), ("k", 2)]), Outcome::Answered);
        for wrong in [
            &[("k", 1)][..],
            &[("k", 1), ("k", 1), ("k", 2)],
            &[("k", 2), ("k", 1)],
            &[("k", 1), ("other", 2)],
        ] {
            assert!(matches!(with(wrong), Outcome::Wrong(_)), "{wrong:?}");
        }
    }

    #[test]
    fn failures_are_told_apart() {
        assert_eq!(judged(Kind::Read, 404, vec![error(-32001)]), Outcome::Lost);
        assert_eq!(
            judged(Kind::Bump, 200, vec![error(-31001)]),
            Outcome::Unknown
        );
        assert_eq!(
            judged(Kind::Bump, 503, vec![error(-31002)]),
            Outcome::Refused(503, Some(-31002))
        );
        assert_eq!(judged(Kind::Bump, 502, vec![]), Outcome::Refused(502, None));
        assert!(matches!(
            judged(Kind::Slow, 200, vec![]),
            Outcome::Silent(_)
        ));
    }
}
