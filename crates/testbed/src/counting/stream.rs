//! A stream whose events are kept, so that it can be resumed.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::Life;
use crate::scripted::Scroll;

/// A stream of events. A reader gets the events after the position that it names.
#[derive(Debug)]
pub(super) struct Stream {
    number: u64,
    /// Whether its events have ids. Without ids it cannot be resumed.
    with_ids: bool,
    /// Whether it outlasts the calls that are answered on it.
    lasts: bool,
    written: watch::Sender<Written>,
}

#[derive(Debug, Default)]
struct Written {
    events: Vec<String>,
    over: bool,
}

impl Stream {
    pub(super) fn new(number: u64, with_ids: bool) -> Arc<Self> {
        Arc::new(Self {
            number,
            with_ids,
            lasts: false,
            written: watch::Sender::default(),
        })
    }

    /// A stream that ends only when it is closed.
    pub(super) fn lasting(number: u64) -> Arc<Self> {
        Arc::new(Self {
            number,
            with_ids: true,
            lasts: true,
            written: watch::Sender::default(),
        })
    }

    /// Writes an event of another kind than a message.
    pub(super) fn write_event(&self, event: &str, data: &str) {
        let text = format!("event: {event}\ndata: {data}\n\n");
        self.written
            .send_modify(|written| written.events.push(text));
    }

    pub(super) fn is_lasting(&self) -> bool {
        self.lasts
    }

    /// Writes an event that only carries an id to resume from.
    pub(super) fn prime(&self) {
        self.write_data("");
    }

    pub(super) fn write(&self, message: &Value) {
        self.write_text(&message.to_string());
    }

    /// Writes two messages, with nothing in between.
    pub(super) fn write_both(&self, messages: &[Value; 2]) {
        self.written.send_modify(|written| {
            for message in messages {
                let event = self.event(written.events.len(), &message.to_string());
                written.events.push(event);
            }
        });
    }

    /// Writes a message that is already JSON text.
    pub(super) fn write_text(&self, message: &str) {
        self.write_data(message);
    }

    /// Writes a message (JSON text) with an event id that the server did not make up for this stream.
    pub(super) fn write_as(&self, id: &str, message: &str) {
        let text = format!("id: {id}\ndata: {message}\n\n");
        self.written
            .send_modify(|written| written.events.push(text));
    }

    fn write_data(&self, data: &str) {
        self.written.send_modify(|written| {
            let event = self.event(written.events.len(), data);
            written.events.push(event);
        });
    }

    fn event(&self, place: usize, data: &str) -> String {
        if self.with_ids {
            format!("id: {}-{place}\ndata: {data}\n\n", self.number)
        } else {
            format!("data: {data}\n\n")
        }
    }

    /// Ends the stream of a call.
    pub(super) fn finish(&self) {
        if !self.lasts {
            self.close();
        }
    }

    /// Ends the stream.
    pub(super) fn close(&self) {
        self.written.send_modify(|written| written.over = true);
    }

    /// How many events there are.
    pub(super) fn len(&self) -> usize {
        self.written.borrow().events.len()
    }

    /// A body of all events from this position on, written by a task that a crash stops.
    pub(super) fn body(self: Arc<Self>, from: usize, life: &Life) -> Scroll {
        self.body_until(from, life, || {})
    }

    /// The same, and what to do when it has ended or nobody reads it any more.
    pub(super) fn body_until(
        self: Arc<Self>,
        from: usize,
        life: &Life,
        ended: impl FnOnce() + Send + 'static,
    ) -> Scroll {
        let (parts, body) = mpsc::unbounded_channel();
        let over = life.over.clone();
        life.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = over.cancelled() => {
                    // Without this error the body would seem complete.
                    drop(parts.send(Err(io::ErrorKind::ConnectionReset.into())));
                }
                () = self.pump(from, &parts) => {}
            }
            ended();
        });
        Scroll::new(body)
    }

    async fn pump(&self, from: usize, parts: &mpsc::UnboundedSender<io::Result<Bytes>>) {
        let mut reader = self.written.subscribe();
        let mut place = from;
        loop {
            let (fresh, over) = {
                let written = reader.borrow_and_update();
                let fresh = written.events.get(place..).unwrap_or_default().to_vec();
                (fresh, written.over)
            };
            for event in fresh {
                place += 1;
                if parts.send(Ok(event.into())).is_err() {
                    return;
                }
            }
            if over {
                return;
            }
            tokio::select! {
                changed = reader.changed() => if changed.is_err() { return },
                () = parts.closed() => return,
            }
        }
    }
}
