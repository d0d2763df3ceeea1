//! A stream of events as a client reads it.

use bowline_testbed::scripted::PATIENCE;
use bowline_wire::sse::{Decoder, Event};
use reqwest::Response;
use serde_json::Value;

/// A stream of events, read one by one.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) response: Response,
    decoder: Decoder,
}

impl Events {
    pub(crate) fn new(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            response,
            decoder: Decoder::new(usize::MAX),
        }
    }

    /// The next event; `None` at a clean end, an error at a cut.
    pub(crate) async fn try_next(&mut self) -> Result<Option<Event>, reqwest::Error> {
        loop {
            if let Some(event) = self.decoder.next_event().unwrap() {
                return Ok(Some(event));
            }
            let chunk = tokio::time::timeout(PATIENCE, self.response.chunk()).await;
            match chunk.expect("an event in time")? {
                Some(chunk) => self.decoder.push(chunk),
                None => return Ok(None),
            }
        }
    }

    /// The same without a deadline.
    pub(crate) async fn whenever(&mut self) -> Result<Option<Event>, reqwest::Error> {
        loop {
            if let Some(event) = self.decoder.next_event().unwrap() {
                return Ok(Some(event));
            }
            match self.response.chunk().await? {
                Some(chunk) => self.decoder.push(chunk),
                None => return Ok(None),
            }
        }
    }

    /// The next event as text.
    pub(crate) async fn next(&mut self) -> String {
        let event = self.try_next().await.unwrap().expect("an event");
        String::from_utf8(event.raw().to_vec()).unwrap()
    }

    /// The id and the message of the next event.
    pub(crate) async fn next_message(&mut self) -> (Option<String>, Value) {
        let event = self.try_next().await.unwrap().expect("an event");
        let id = event.id().map(|id| String::from_utf8(id.to_vec()).unwrap());
        let data = event.data().unwrap_or_default();
        (id, serde_json::from_slice(&data).unwrap_or_default())
    }

    /// All messages up to a clean end.
    pub(crate) async fn all(mut self) -> Vec<Value> {
        let mut messages = Vec::new();
        while let Some(event) = self.try_next().await.expect("no cut") {
            let data = event.data().unwrap_or_default();
            if let Ok(message) = serde_json::from_slice(&data) {
                messages.push(message);
            }
        }
        messages
    }

    pub(crate) async fn ends_cleanly(mut self) {
        assert_eq!(self.try_next().await.unwrap(), None);
    }
}
