//! Clients that do what few do: two calls at once under one id, and a call of a tool that has just changed, which nobody
//! but the gateway was told.

use std::time::Duration;

use bowline_testbed::client::Answer;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::judge::{self, Expected};
use super::rover::Failure;
use super::{GRACE, Lane, Speaks};
use crate::history::{Kind, Outcome};

impl<C: Speaks> Lane<C> {
    /// Has the tool become destructive, or not, and calls it: it runs and breaks off.
    pub(super) async fn exchange_turned(&mut self, expected: &Expected) -> Outcome {
        let whose = format!("s{}", expected.session);
        let text = "turn breaks off".to_owned();
        self.recorder.fault(whose, "turn", text, Duration::ZERO);
        let mut expected = expected.clone();
        if self.calls.random().bool() {
            let changes = format!("{}.changes", expected.key);
            let told = self.aside(
                &expected,
                Kind::Turn,
                json!({"key": changes, "changes": true}),
            );
            // What is answered after that was told shows that the gateway knows.
            let known = json!({"key": format!("{}.known", expected.key)});
            if told.await && self.aside(&expected, Kind::Read, known).await {
                expected.after = Some(changes);
            }
        }
        self.exchange(&expected).await
    }

    /// Calls another tool of the same server; whether that was answered.
    async fn aside(&mut self, expected: &Expected, kind: Kind, arguments: Value) -> bool {
        let id = arguments["key"].clone();
        let tool = Expected {
            kind,
            ..expected.clone()
        };
        let tool = json!({"name": tool.tool(), "arguments": arguments});
        let message = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": tool});
        let answer = self.client.send(&message).await;
        let answered = |answer: Answer| answer.to(&id).is_some_and(|it| it.get("result").is_some());
        answer.is_ok_and(answered)
    }

    /// Makes two calls at once, and writes down how each ended.
    pub(super) async fn record_pair(&mut self, [first, second]: [Expected; 2]) {
        let mut twin = self.client.twin();
        let messages = [self.calls.message(&first), self.calls.message(&second)];
        let (began, limit) = (self.recorder.now(), self.limit + GRACE);
        let (one, other) = tokio::join!(
            timeout(limit, self.client.send(&messages[0])),
            timeout(limit, twin.send(&messages[1])),
        );
        for (expected, answered) in [(first, one), (second, other)] {
            let outcome = match answered {
                Ok(Ok(answer)) => judge::outcome(&expected, &answer),
                Ok(Err(Failure::Broken(error))) => Outcome::Silent(error),
                Ok(Err(Failure::Orphaned | Failure::NotThere)) => Outcome::Orphaned,
                Err(_) => Outcome::Never,
            };
            self.write_down(&expected, began, outcome);
        }
    }
}
