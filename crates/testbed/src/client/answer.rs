//! What a client reads: a complete response, or a stream of events.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;

/// A complete response.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// The messages in it: one, or one for every event.
    pub messages: Vec<Value>,
    /// The ids of its events.
    pub event_ids: Vec<String>,
    /// Why it ended early, if it did.
    pub cut: Option<String>,
    /// The body, if it was not a message.
    pub text: String,
}

/// A stream of events that is being read.
#[derive(Debug)]
pub struct Events {
    /// The answer's head.
    pub head: http::response::Parts,
    body: Incoming,
    pending: String,
}

/// One event.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Event {
    /// Its id.
    pub id: Option<String>,
    /// Its data.
    pub data: String,
    /// Its message; null when it carries none.
    pub message: Value,
}

// === impl Answer ===

impl Answer {
    /// The response to the request with this id, if there is exactly one.
    #[must_use]
    pub fn to(&self, id: &Value) -> Option<&Value> {
        let answers = |message: &&Value| message.get("method").is_none() && message["id"] == *id;
        let mut found = self.messages.iter().filter(answers);
        let first = found.next();
        if found.next().is_some() { None } else { first }
    }

    /// The JSON-RPC error code of the first message.
    #[must_use]
    pub fn code(&self) -> Option<i64> {
        self.messages.first()?["error"]["code"].as_i64()
    }
}

// === impl Events ===

impl Events {
    pub(super) fn new(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            head,
            body,
            pending: String::new(),
        }
    }

    /// The next event; `None` at a clean end.
    ///
    /// # Errors
    ///
    /// When the stream is cut.
    pub async fn next(&mut self) -> Result<Option<Event>, hyper::Error> {
        loop {
            if let Some(end) = self.pending.find("\n\n") {
                let event: String = self.pending.drain(..end + 2).collect();
                return Ok(Some(Event::new(&event)));
            }
            if !self.more().await? {
                return Ok(None);
            }
        }
    }

    async fn more(&mut self) -> Result<bool, hyper::Error> {
        let Some(frame) = self.body.frame().await else {
            return Ok(false);
        };
        if let Ok(data) = frame?.into_data() {
            let text = String::from_utf8_lossy(&data).replace('\r', "");
            self.pending.push_str(&text);
        }
        Ok(true)
    }

    /// Reads until the stream ends or breaks.
    pub(super) async fn read(&mut self) -> Answer {
        let mut answer = Answer {
            status: self.head.status,
            headers: self.head.headers.clone(),
            messages: Vec::new(),
            event_ids: Vec::new(),
            cut: None,
            text: String::new(),
        };
        let content_type = self.head.headers.get(CONTENT_TYPE);
        if content_type.is_some_and(|content_type| content_type == "text/event-stream") {
            loop {
                match self.next().await {
                    Ok(Some(event)) => {
                        answer.event_ids.extend(event.id);
                        if !event.message.is_null() {
                            answer.messages.push(event.message);
                        }
                    }
                    Ok(None) => return answer,
                    Err(error) => {
                        answer.cut = Some(error.to_string());
                        return answer;
                    }
                }
            }
        }
        loop {
            match self.more().await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    answer.cut = Some(error.to_string());
                    break;
                }
            }
        }
        match serde_json::from_str(&self.pending) {
            Ok(message) => answer.messages.push(message),
            Err(_) => answer.text = std::mem::take(&mut self.pending),
        }
        answer
    }
}

// === impl Event ===

impl Event {
    fn new(text: &str) -> Self {
        let mut event = Self::default();
        for line in text.lines() {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => event.id = Some(value.to_owned()),
                "data" => event.data += value,
                _ => {}
            }
        }
        event.message = serde_json::from_str(&event.data).unwrap_or_default();
        event
    }
}
