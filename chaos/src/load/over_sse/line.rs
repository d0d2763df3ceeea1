//! One stream of a client that speaks HTTP+SSE: whose each message on it is.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_testbed::client::Events;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::gateway::{Gateways, Life};
use crate::history::{Call, Kind, Outcome, Recorder};
use crate::load::listen;

/// A stream, which is a session. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Line {
    /// Where its messages go: a path.
    endpoint: String,
    /// Where it is, and in which life of that gateway.
    place: usize,
    life: Life,
    asked: Arc<Mutex<Asked>>,
    ended: CancellationToken,
    is_given_up: AtomicBool,
    _reading: AbortOnDropHandle<()>,
}

/// What was asked on a stream, by id and by progress token (JSON text).
#[derive(Debug, Default)]
struct Asked {
    by_id: HashMap<String, Waiting>,
    by_token: HashMap<String, mpsc::UnboundedSender<Value>>,
}

/// Who waits for an answer.
#[derive(Debug)]
enum Waiting {
    For(mpsc::UnboundedSender<Value>),
    /// Nobody any more.
    GivenUp,
    /// It came.
    Answered,
}

impl Line {
    pub(super) fn start(
        mut events: Events,
        endpoint: String,
        (place, life): (usize, Life),
        session: usize,
        recorder: &Arc<Recorder>,
    ) -> Arc<Self> {
        let (asked, ended) = (Arc::<Mutex<Asked>>::default(), CancellationToken::new());
        let (waiting, over) = (Arc::clone(&asked), ended.clone().drop_guard());
        let recorder = Arc::clone(recorder);
        let reading = TaskTracker::new().spawn(async move {
            while let Ok(Some(event)) = events.next().await {
                if !waiting.lock().take(session, &event.message) {
                    write_down(&recorder, session, place, &event.message);
                }
            }
            drop(over);
        });
        Arc::new(Self {
            endpoint,
            place,
            life,
            asked,
            ended,
            is_given_up: AtomicBool::new(false),
            _reading: AbortOnDropHandle::new(reading),
        })
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Does without it from now on.
    pub(super) fn end(&self) {
        self.is_given_up.store(true, Ordering::SeqCst);
        self.ended.cancel();
    }

    /// What comes for this message.
    pub(super) fn expect(&self, message: &Value) -> mpsc::UnboundedReceiver<Value> {
        let (sender, incoming) = mpsc::unbounded_channel();
        let mut asked = self.asked.lock();
        if let Some(token) = message["params"]["_meta"].get("progressToken") {
            asked.by_token.insert(token.to_string(), sender.clone());
        }
        let id = message["id"].to_string();
        asked.by_id.insert(id, Waiting::For(sender));
        incoming
    }

    /// Nobody waits for the answer to this message.
    pub(super) fn give_up(&self, message: &Value) {
        let mut asked = self.asked.lock();
        asked
            .by_id
            .insert(message["id"].to_string(), Waiting::GivenUp);
    }

    /// Whether its gateway was killed, or its client does without it.
    pub(super) fn was_orphaned(&self, gateways: &Gateways) -> bool {
        let is_given_up = self.is_given_up.load(Ordering::SeqCst);
        is_given_up || gateways.all()[self.place].died_since(self.life)
    }

    /// Whether its gateway was killed, or ever stopped or cut off.
    pub(super) fn was_struck(&self, gateways: &Gateways) -> bool {
        self.was_orphaned(gateways) || gateways.all()[self.place].trials() > 0
    }
}

impl Asked {
    /// Gives a message to whom it is for; `false` if that is nobody.
    fn take(&mut self, session: usize, message: &Value) -> bool {
        let token = &message["params"]["progressToken"];
        if message.get("method").is_some() {
            return match token.is_null() {
                true => listen::is_own(session, message),
                // Who gave up, or has its answer, does not mind.
                false => self
                    .by_token
                    .get(&token.to_string())
                    .map(|waiting| drop(waiting.send(message.clone())))
                    .is_some(),
            };
        }
        let Some(waiting) = self.by_id.get_mut(&message["id"].to_string()) else {
            return message.is_null();
        };
        match std::mem::replace(waiting, Waiting::Answered) {
            Waiting::For(waiting) => drop(waiting.send(message.clone())),
            Waiting::GivenUp => {}
            Waiting::Answered => return false,
        }
        true
    }
}

/// Something came that is not the session's, or came twice.
fn write_down(recorder: &Recorder, session: usize, gateway: usize, message: &Value) {
    let now = recorder.now();
    recorder.call(Call {
        session,
        kind: Kind::Listen,
        key: format!("s{session}.sse"),
        began: now,
        ended: now,
        gateway,
        outcome: Outcome::Wrong(message.to_string()),
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_is_for_who_asked_and_comes_once() {
        let mut asked = Asked::default();
        let (sender, mut incoming) = mpsc::unbounded_channel();
        asked.by_id.insert("1".to_owned(), Waiting::For(sender));
        let answer = |id: u64| json!({"id": id, "result": {}});
        assert!(!asked.take(3, &answer(2)), "nobody asked that");
        assert!(asked.take(3, &answer(1)));
        assert_eq!(incoming.try_recv().unwrap(), answer(1));
        assert!(!asked.take(3, &answer(1)), "it came already");
        asked.by_id.insert("4".to_owned(), Waiting::GivenUp);
        assert!(asked.take(3, &answer(4)));
        let told =
            |name: &str| json!({"method": "notifications/message", "params": {"data": name}});
        assert!(asked.take(3, &told("chaos 3")) && !asked.take(3, &told("chaos 4")));
    }
}
