//! What a client makes of an answer.

use bowline_testbed::client::Answer;
use serde_json::{Value, json};

use super::{forge, listen, union};
use crate::history::{Kind, Outcome};
use crate::server::{Server, is_in_union};

/// How many tools each server has.
pub(super) const TOOLS: usize = 11;

/// The resource that stands for a key.
pub(super) fn uri(key: &str) -> String {
    format!("key:{key}")
}

/// What is known of a call before its answer.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    /// The session that it is a call of: its client's own, or the member that has the server.
    pub(super) session: usize,
    /// The number by which servers know the client.
    pub(super) client: usize,
    pub(super) kind: Kind,
    pub(super) id: Value,
    pub(super) key: String,
    /// Under which its progress comes.
    pub(super) token: String,
    /// How often progress is told.
    pub(super) steps: u64,
    /// How much padding there is.
    pub(super) bytes: usize,
    /// The error that the tool is asked for.
    pub(super) refusal: Option<Value>,
    /// What the tool is told to write besides (JSON text).
    pub(super) forged: Vec<Value>,
    /// The call after which its client knows what the tool has become.
    pub(super) after: Option<String>,
}

impl Expected {
    /// What its client calls the tool.
    pub(super) fn tool(&self) -> Option<String> {
        let mut tool = self.kind.tool()?.to_owned();
        if self.kind == Kind::Turn {
            tool = format!("{tool}_{}", self.client);
        }
        Some(match is_in_union(self.session) {
            true => union::exposed(Server::of(self.session), &tool),
            false => tool,
        })
    }
}

/// How a call ended.
pub(super) fn outcome(expected: &Expected, answer: &Answer) -> Outcome {
    let Expected { kind, id, key, .. } = expected;
    let kind = *kind;
    if answer.status == 404 {
        return Outcome::Lost;
    }
    let (mut told, answers): (Vec<_>, Vec<_>) = answer
        .messages
        .iter()
        .partition(|message| message.get("method").is_some());
    // What its server says unasked may come on the stream of any call.
    told.retain(|message| !listen::is_own(expected.client, message));
    if answer.event_ids.iter().any(|id| id == forge::EVENT_ID) {
        return Outcome::Wrong("an event id of the server's".to_owned());
    }
    if let Some(stray) = answers
        .iter()
        .find(|message| !is_id(&message["id"], id, answer.status.as_u16()))
    {
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
        let is_wanted = |wanted: &Value| {
            error["code"] == wanted["code"]
                && error["message"] == wanted["message"]
                && error["data"]["key"] == *key
        };
        if expected.refusal.as_ref().is_some_and(is_wanted) {
            return Outcome::Answered;
        }
        return refused(answer.status.as_u16(), error);
    }
    let result = &found["result"];
    if kind == Kind::List && is_in_union(expected.session) {
        return union::listed(Server::of(expected.session), result);
    }
    if !is_result(kind, key, result) {
        let mut result = result.to_string();
        result.truncate(200);
        return Outcome::Wrong(format!("the result {result}"));
    }
    let padding = result["padding"].as_str().unwrap_or_default();
    if padding.len() != expected.bytes {
        return Outcome::Wrong(format!("{} bytes of padding", padding.len()));
    }
    if matches!(kind, Kind::StreamRead | Kind::Slow | Kind::Long) {
        return progress(&expected.token, expected.steps, &told);
    }
    match told.first() {
        Some(stray) => Outcome::Wrong(format!("the message {stray}")),
        None => Outcome::Answered,
    }
}

/// Whether this is the request's id. A refusal by status may name none.
fn is_id(found: &Value, id: &Value, status: u16) -> bool {
    found == id || (found.is_null() && status >= 400)
}

/// How each member of a batch ended.
pub(super) fn outcomes(members: &[Expected], answer: &Answer) -> Vec<Outcome> {
    let flat = answer.messages.iter().flat_map(|message| match message {
        Value::Array(messages) => messages.as_slice(),
        one => std::slice::from_ref(one),
    });
    let flat: Vec<_> = flat.cloned().collect();
    let is_known = |message: &Value| members.iter().any(|member| message["id"] == member.id);
    let stray = |message: &&Value| message.get("method").is_none() && !is_known(message);
    let stray = flat.iter().find(stray).filter(|_| answer.status == 200);
    let outcomes = members.iter().map(|member| {
        if let Some(stray) = stray {
            return Outcome::Wrong(format!("an answer to {}", stray["id"]));
        }
        let own = flat.iter().filter(|message| message["id"] == member.id);
        let part = Answer {
            status: answer.status,
            headers: answer.headers.clone(),
            messages: own.cloned().collect(),
            event_ids: Vec::new(),
            cut: answer.cut.clone(),
            text: String::new(),
        };
        outcome(member, &part)
    });
    outcomes.collect()
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
            .is_some_and(|tools| tools.len() == TOOLS),
        Kind::Resource => result["contents"][0]["text"] == uri(key),
        Kind::Listen | Kind::Refuse | Kind::Torn | Kind::LargeEvent | Kind::Open | Kind::Delete => {
            false
        }
        Kind::Ended => *result == json!({}),
        Kind::Read
        | Kind::StreamRead
        | Kind::Bump
        | Kind::Slow
        | Kind::Turn
        | Kind::Forge
        | Kind::Flip
        | Kind::Long
        | Kind::Large => {
            result["content"][0]["text"] == key && result["structuredContent"]["key"] == key
        }
    }
}

/// All progress must be the call's own, once each and in order.
fn progress(token: &str, steps: u64, told: &[&Value]) -> Outcome {
    let own = |message: &&Value| message["params"]["progressToken"] == token;
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
        outcome(&expected(kind, 1), &answer(status, messages))
    }

    fn expected(kind: Kind, id: u64) -> Expected {
        Expected {
            session: 1,
            client: 1,
            kind,
            id: json!(id),
            key: "k".to_owned(),
            token: "k".to_owned(),
            steps: 2,
            bytes: 0,
            refusal: None,
            forged: Vec::new(),
            after: None,
        }
    }

    #[test]
    fn a_tools_own_refusal_is_its_answer_unless_it_comes_as_a_lost_session() {
        let wanted = json!({"code": -32000, "message": "the session has expired"});
        let mut expected = expected(Kind::Refuse, 1);
        expected.refusal = Some(wanted);
        let own = json!({"id": 1, "error": {"code": -32000, "message": "the session has expired", "data": {"key": "k"}}});
        for status in [200, 400, 410] {
            let answer = answer(status, vec![own.clone()]);
            assert_eq!(outcome(&expected, &answer), Outcome::Answered);
        }
        let told = answer(404, vec![own]);
        assert_eq!(outcome(&expected, &told), Outcome::Lost);
        let other = answer(200, vec![error(-31002)]);
        let refused = Outcome::Refused(200, Some(-31002));
        assert_eq!(outcome(&expected, &other), refused);
    }

    #[test]
    fn every_member_of_a_batch_wants_its_own_answer() {
        let members = [expected(Kind::Bump, 1), expected(Kind::Read, 2)];
        let judged = |messages| outcomes(&members, &answer(200, vec![messages]));
        let both = judged(json!([result(2, "k"), result(1, "k")]));
        assert_eq!(both, [Outcome::Answered, Outcome::Answered]);
        let one = judged(json!([result(1, "k")]));
        assert!(matches!(&one[..], [Outcome::Answered, Outcome::Silent(_)]));
        let stray = judged(json!([result(1, "k"), result(2, "k"), result(3, "k")]));
        assert!(matches!(&stray[..], [Outcome::Wrong(_), Outcome::Wrong(_)]));
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
