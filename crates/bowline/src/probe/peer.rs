//! The server that is probed: messages to it over its transport, and its answers with everything that a gateway
//! would not look at.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bowline_egress::{Jar, Sent, read_limited};
use bowline_wire::compose;
use bowline_wire::media;
use bowline_wire::message::{Kind, Message, RawIdBuf};
use bowline_wire::sse::Event;
use bowline_wire::version::Agreed;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};

use super::report::Transport;
use super::trouble::{Refusal, Trouble};
use crate::caller::Caller;
use crate::config;
use crate::oauth::Account;
use crate::upstream::{
    Answer, Carried, Conversation, EventSource, InitializeAnswer, Initialized, Issued, Link,
    MAX_HELD_ANSWER, Outcome, Pin, Pulse, Reading, Repeat, SourceError, StreamError, Upstream,
    UpstreamError,
};

/// The server that is probed.
pub(super) struct Peer {
    pub(super) upstream: Arc<Upstream>,
    pub(super) endpoint: Pin,
    pub(super) account: Option<Arc<Account>>,
    carried: Carried,
    last_id: AtomicU64,
    /// It speaks HTTP+SSE.
    is_sse: bool,
}

/// A session at the server.
pub(super) struct Opened {
    pub(super) conversation: Conversation,
    pub(super) version: Option<Agreed>,
}

/// An answer.
pub(super) struct Heard {
    pub(super) message: Message,
    pub(super) headers: HeaderMap,
    pub(super) is_events: bool,
    pub(super) has_event_ids: bool,
}

/// A request of the probe's.
pub(super) struct Asked {
    id: RawIdBuf,
    message: Message,
}

// === impl Peer ===

impl Peer {
    pub(super) fn new(upstream: Arc<Upstream>, endpoint: Pin) -> Self {
        let account = upstream.account(&Caller::Local);
        let is_sse = upstream.config().transport == config::Transport::Sse;
        Self {
            upstream,
            endpoint,
            account,
            carried: Carried::default(),
            last_id: AtomicU64::new(0),
            is_sse,
        }
    }

    /// Whether it is a URL.
    pub(super) fn is_url(&self) -> bool {
        self.endpoint.address.url().is_some()
    }

    /// Whether it is spoken to over streamable HTTP.
    pub(super) fn is_streamable(&self) -> bool {
        self.is_url() && !self.is_sse
    }

    /// How messages are sent to it.
    pub(super) fn transport(&self) -> Transport {
        match (self.is_url(), self.is_sse) {
            (true, false) => Transport::StreamableHttp,
            (true, true) => Transport::HttpSse,
            (false, _) => Transport::Stdio,
        }
    }

    /// Speaks HTTP+SSE to it from now on.
    pub(super) fn turn_to_sse(&mut self) {
        self.is_sse = true;
        self.upstream.note_sse();
    }

    pub(super) fn link<'a>(&'a self, opened: &'a Opened) -> Link<'a> {
        Link {
            endpoint: &self.endpoint,
            conversation: &opened.conversation,
            version: opened.version.as_ref(),
            carried: &self.carried,
            account: self.account.as_deref(),
            credentials: None,
            repeat: Repeat::Safe,
        }
    }

    /// A session that is not open yet.
    pub(super) fn unopened(&self) -> Opened {
        Opened {
            conversation: Conversation::new(&self.endpoint.address, Jar::default()),
            version: None,
        }
    }

    /// A request with an id of its own.
    pub(super) fn request(&self, method: &str, params: Option<&str>) -> Result<Asked, Trouble> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let text = match params {
            Some(params) => compose::request(id, method, params),
            None => compose::bare_request(id, method),
        };
        let message = Message::parse(text.into());
        Ok(Asked {
            id: RawIdBuf::new(id.to_string()),
            message: message.map_err(|_| Trouble::Malformed("cannot be asked that"))?,
        })
    }

    /// Sends the first request of a session. What was opened is in `opened` also if the answer is of no use.
    pub(super) async fn open(&self, asked: &Asked, opened: &mut Opened) -> Result<Heard, Trouble> {
        let raw = asked.message.raw().clone();
        if self.is_streamable() {
            let answer = self.post(opened, raw, &HeaderMap::new()).await?;
            let issued = answer.issued_id();
            let known = issued.as_ref().ok().cloned().flatten();
            opened.take(Issued::SessionId(known));
            issued?;
            return hear(answer, asked).await;
        }
        let (link, sent) = (self.link(opened), Sent::default());
        let initialized = self.upstream.initialize(link, &Caller::Local, raw, sent);
        let Initialized::Answered {
            issued,
            answer: InitializeAnswer::Held(whole),
        } = initialized.await?
        else {
            return Err(Trouble::Malformed("did not answer `initialize`"));
        };
        opened.take(issued?);
        heard_alone(&whole.body, asked)
    }

    /// Sends a request on a session.
    pub(super) async fn ask(&self, opened: &Opened, asked: &Asked) -> Result<Heard, Trouble> {
        if self.is_streamable() {
            let raw = asked.message.raw().clone();
            let answer = self.post(opened, raw, &HeaderMap::new()).await?;
            return hear(answer, asked).await;
        }
        let reading = Reading {
            limit: MAX_HELD_ANSWER,
            own: None,
        };
        let asking =
            self.upstream
                .request(self.link(opened), &asked.message, reading, Sent::default());
        match asking.await? {
            Outcome::Message(whole) => heard_alone(&whole.body, asked),
            Outcome::Events(source) => {
                until_answer(source, asked).await.map(|(message, _)| Heard {
                    message,
                    headers: HeaderMap::new(),
                    is_events: false,
                    has_event_ids: false,
                })
            }
            Outcome::Frames(_) => Err(Trouble::TooLarge),
        }
    }

    /// Sends a request over HTTP that belongs to no session, with these headers.
    pub(super) async fn ask_with(
        &self,
        asked: &Asked,
        version: Option<Agreed>,
        headers: &HeaderMap,
    ) -> Result<Heard, Trouble> {
        let nowhere = Opened {
            version,
            ..self.unopened()
        };
        let answer = self
            .post(&nowhere, asked.message.raw().clone(), headers)
            .await?;
        hear(answer, asked).await
    }

    /// Sends a notification.
    pub(super) async fn tell(&self, opened: &Opened, method: &str) -> Result<(), Trouble> {
        let text = Bytes::from(compose::bare_notification(method));
        let telling = self
            .upstream
            .notify(self.link(opened), text, Sent::default());
        telling.await?;
        Ok(())
    }

    /// Whether the server knows a session, as a gateway finds out.
    pub(super) async fn pulse(&self, opened: &Opened) -> Result<Pulse, Trouble> {
        let asked = self.request("ping", None)?;
        Ok(self.upstream.ping(self.link(opened), &asked.message).await)
    }

    async fn post(
        &self,
        opened: &Opened,
        message: Bytes,
        headers: &HeaderMap,
    ) -> Result<Answer, Trouble> {
        let link = self.link(opened);
        let posting = self
            .upstream
            .examine(link, Method::POST, Some(message), headers);
        Ok(posting.await?)
    }

    /// Sends a request without a message, over HTTP.
    pub(super) async fn send(&self, opened: &Opened, method: Method) -> Result<Answer, Trouble> {
        let (link, nothing) = (self.link(opened), HeaderMap::new());
        Ok(self.upstream.examine(link, method, None, &nothing).await?)
    }
}

// === impl Opened ===

impl Opened {
    fn take(&mut self, issued: Issued) {
        self.conversation = self.conversation.twin().issued(issued);
    }

    /// Whether the server issued a session id.
    pub(super) fn has_id(&self) -> bool {
        self.conversation.session_id().is_some()
    }
}

/// Reads an answer up to the message that answers the request.
async fn hear(answer: Answer, asked: &Asked) -> Result<Heard, Trouble> {
    let (status, headers) = (answer.status, answer.headers.clone());
    if answer.is_events() {
        let (message, has_event_ids) = until_answer(EventSource::http(answer.body), asked).await?;
        return good(message).map(|message| Heard {
            message,
            headers,
            is_events: true,
            has_event_ids,
        });
    }
    let content_type = answer.content_type().and_then(|it| it.to_str().ok());
    let content_type = content_type.map(str::to_owned);
    let is_json = answer.is(media::JSON);
    let body = read_limited(answer.body, MAX_HELD_ANSWER).await;
    let body = body.map_err(UpstreamError::from)?;
    let response = Message::from_server(body.clone()).ok();
    let response = response.filter(|it| it.kind() == Kind::Response);
    if status != StatusCode::OK {
        return Err(Trouble::Refused(Refusal::new(
            status,
            response.as_ref(),
            &body,
            content_type,
        )));
    }
    let Some(message) = response.filter(|_| is_json) else {
        return Err(Trouble::NotMcp(status, content_type));
    };
    if !message.answers(asked.id.as_id()) && message.error().is_none() {
        return Err(Trouble::Malformed(
            "answers another request than the one that was sent",
        ));
    }
    Ok(Heard {
        message: good(message)?,
        headers,
        is_events: false,
        has_event_ids: false,
    })
}

fn heard_alone(body: &Bytes, asked: &Asked) -> Result<Heard, Trouble> {
    let message = Message::from_server(body.clone()).ok();
    let message = message.filter(|it| it.answers(asked.id.as_id()));
    let message = message.ok_or(Trouble::Malformed("does not answer in JSON-RPC"))?;
    Ok(Heard {
        message: good(message)?,
        headers: HeaderMap::new(),
        is_events: false,
        has_event_ids: false,
    })
}

/// The message, if it is a result.
fn good(message: Message) -> Result<Message, Trouble> {
    match message.error() {
        None => Ok(message),
        Some(_) => Err(Trouble::Refused(Refusal::of_message(&message))),
    }
}

/// Reads a stream up to the answer: the answer, and whether any event had an id.
async fn until_answer(source: EventSource, asked: &Asked) -> Result<(Message, bool), Trouble> {
    let mut has_ids = false;
    let mut events = Events::new(source);
    while let Some(event) = events.next().await? {
        has_ids |= event.id().is_some_and(|id| !id.is_empty());
        let Some(data) = event.data() else { continue };
        let message = Message::from_server(data).ok();
        let is_answer = |it: &Message| it.kind() == Kind::Response && it.answers(asked.id.as_id());
        if let Some(answer) = message.filter(is_answer) {
            return Ok((answer, has_ids));
        }
    }
    Err(Trouble::Malformed(
        "ended its stream of events without the answer",
    ))
}

/// The events of a stream, of a bounded length.
pub(super) struct Events {
    source: EventSource,
    read: usize,
}

impl Events {
    pub(super) fn new(source: EventSource) -> Self {
        Self { source, read: 0 }
    }

    /// The next event; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, Trouble> {
        let event = match poll_fn(|cx| self.source.poll_event(cx)).await {
            // What it was cut in the middle of is not an event.
            None | Some(Err(SourceError::Broken(StreamError::Cut))) => return Ok(None),
            Some(Err(SourceError::Skipped(_))) => return Err(Trouble::TooLarge),
            Some(Err(SourceError::Broken(error))) => return Err(UpstreamError::from(error).into()),
            Some(Ok(event)) => event,
        };
        self.read += event.size();
        match self.read > MAX_HELD_ANSWER {
            true => Err(Trouble::TooLarge),
            false => Ok(Some(event)),
        }
    }
}
