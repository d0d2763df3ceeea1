//! Messages that a client has heard and that nobody has asked for yet.

use std::collections::VecDeque;

use serde_json::Value;

/// What was heard, in its order.
#[derive(Default)]
pub(crate) struct Heard(VecDeque<Value>);

impl Heard {
    /// The first message that is meant, of those that were heard or are read next.
    pub(crate) async fn find(
        &mut self,
        is_meant: impl Fn(&Value) -> bool,
        mut next: impl AsyncFnMut() -> Option<Value>,
    ) -> Value {
        if let Some(at) = self.0.iter().position(&is_meant) {
            return self.0.remove(at).unwrap();
        }
        loop {
            let message = next().await.expect("a message before the end");
            if is_meant(&message) {
                return message;
            }
            self.0.push_back(message);
        }
    }

    /// Everything that was heard.
    pub(crate) fn take(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.0).into()
    }
}

/// Whether a message answers this id.
pub(crate) fn answers(id: &Value) -> impl Fn(&Value) -> bool {
    move |message| message.get("method").is_none() && &message["id"] == id
}

/// Whether a message is a request or a notification of this method.
pub(crate) fn is_of(method: &str) -> impl Fn(&Value) -> bool {
    move |message| message["method"] == method
}
