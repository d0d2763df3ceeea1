//! The events of a stream that is a session.

use std::future::poll_fn;
use std::sync::Arc;

use bowline_egress::UpstreamBody;
use bowline_wire::message::Message;
use bowline_wire::skip::Skipped;
use bowline_wire::sse::{Decoder, Event, MAX_EVENT};
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::config::ServerName;
use crate::upstream::transports::body::poll_data;
use crate::upstream::transports::error::{End, StreamError};
use crate::upstream::transports::live::{Oddity, Receiving, Routing, Whose, Words};

/// How a stream ended that had an answer of which nobody knows whose it is.
const UNREADABLE: &str = "it had a message that is not JSON in UTF-8 while several calls waited";

static WORDS: Words = Words {
    title: "a server's stream has what it should not",
    not_json: "an event is not JSON",
    not_utf8: "an event is not UTF-8",
    not_mcp: "an event is not a JSON-RPC message",
    unreadable: "a message is not JSON in UTF-8",
};

/// The events of a stream.
#[derive(Debug)]
pub(in crate::upstream) struct Events {
    body: UpstreamBody,
    decoder: Decoder,
}

/// What an event means.
enum Meaning {
    Endpoint(Bytes),
    Message(Bytes),
    /// It was too large.
    Skipped(Skipped),
    /// A comment, or an event of another type.
    Nothing,
}

impl Events {
    pub(in crate::upstream) fn of(body: UpstreamBody) -> Self {
        Self {
            body,
            decoder: Decoder::new(MAX_EVENT),
        }
    }

    /// What the first `endpoint` event names. Nothing else counts before it.
    pub(in crate::upstream) async fn endpoint(&mut self) -> Result<Bytes, Arc<str>> {
        loop {
            match self.next().await {
                Ok(Some(Meaning::Endpoint(named))) => return Ok(named),
                Ok(Some(Meaning::Message(_) | Meaning::Skipped(_) | Meaning::Nothing)) => {}
                Ok(None) => return Err("the server closed it".into()),
                Err(error) => return Err(error.to_string().into()),
            }
        }
    }

    /// Delivers messages until the stream ends, or `closing`; how it ended.
    pub(super) async fn deliver(
        mut self,
        server: ServerName,
        routing: Arc<Routing>,
        closing: CancellationToken,
    ) {
        let mut receiving = Receiving::new(&server, &routing, &WORDS, Message::from_server);
        let reading = self.read(&server, &mut receiving);
        let how = closing.run_until_cancelled(reading).await;
        receiving.sum_up();
        let how = match how {
            Some(how) => {
                if routing.ended().is_none() {
                    tracing::info!(%server, %how, "a session's stream has ended");
                }
                how
            }
            None => "the gateway closed it".into(),
        };
        routing.end(&Arc::new(End::new("stream", how)));
    }

    async fn read(&mut self, server: &ServerName, receiving: &mut Receiving) -> Arc<str> {
        let mut endpoints = 0;
        loop {
            let whose = match self.next().await {
                Ok(Some(Meaning::Message(data))) => match std::str::from_utf8(&data) {
                    Ok(_) => receiving.text(data).await,
                    Err(_) => receiving.unreadable(Oddity::NotUtf8, &data),
                },
                Ok(Some(Meaning::Endpoint(_))) => {
                    // The first one stays good, or is answered 404 or 410, which is a lost session.
                    if endpoints == 0 {
                        let what = "a second `endpoint` event, which is ignored";
                        tracing::warn!(%server, what, "{}", WORDS.title);
                    }
                    endpoints += 1;
                    Whose::Told
                }
                Ok(Some(Meaning::Skipped(what))) => receiving.skipped(Some(what)),
                Ok(Some(Meaning::Nothing)) => Whose::Told,
                Ok(None) => return "the server closed it".into(),
                Err(error) => return error.to_string().into(),
            };
            if let Whose::Anybodys = whose {
                return UNREADABLE.into();
            }
        }
    }

    async fn next(&mut self) -> Result<Option<Meaning>, StreamError> {
        loop {
            match self.decoder.next_event() {
                Ok(Some(event)) => return Ok(Some(Meaning::of(&event))),
                Err(too_large) => return Ok(Some(Meaning::Skipped(too_large.what))),
                Ok(None) => {}
            }
            match poll_fn(|cx| poll_data(&mut self.body, cx)).await {
                Some(data) => self.decoder.push(data?),
                None => return Ok(None),
            }
        }
    }
}

impl Meaning {
    fn of(event: &Event) -> Self {
        let Some(data) = event.data() else {
            return Self::Nothing;
        };
        match event.kind() {
            Some(b"endpoint") => Self::Endpoint(data),
            None | Some(b"message") if !data.is_empty() => Self::Message(data),
            _ => Self::Nothing,
        }
    }
}
