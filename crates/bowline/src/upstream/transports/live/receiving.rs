//! Receiving a server's messages from a live channel: each goes to its reader. What is no message is dropped, and
//! told once. What was meant as a message and cannot be read may be an answer: the call that waits for it learns
//! that, and if nobody knows which call that is, the channel cannot be read further.

use std::sync::Arc;

use bowline_wire::batch;
use bowline_wire::message::{Kind, Malformed, Message, RawId};
use bowline_wire::skip::Skipped;
use bytes::Bytes;
use serde_json::Value;

use super::routing::{Routed, Routing, Whose};
use crate::config::ServerName;
use crate::upstream::transports::limits::MAX_BATCH;

/// How much of an odd text is logged.
const SHOWN: usize = 200;

/// What receives the messages of one channel.
#[derive(Debug)]
pub(in crate::upstream) struct Receiving {
    server: ServerName,
    routing: Arc<Routing>,
    words: &'static Words,
    /// Reads what may be a message.
    parse: fn(Bytes) -> Result<Message, Malformed>,
    oddities: [u64; Oddity::COUNT],
}

/// How the log names what a channel should not carry.
#[derive(Debug)]
pub(in crate::upstream) struct Words {
    pub(in crate::upstream) title: &'static str,
    pub(in crate::upstream) not_json: &'static str,
    pub(in crate::upstream) not_utf8: &'static str,
    pub(in crate::upstream) not_mcp: &'static str,
    pub(in crate::upstream) unreadable: &'static str,
}

/// What a server should not do. The first of each kind is logged, and the number of all at the end.
#[derive(Debug, Clone, Copy)]
pub(in crate::upstream) enum Oddity {
    NotJson,
    NotUtf8,
    NotMcp,
    /// It was meant as a message.
    Unreadable,
    TooLarge,
    Stray,
    Dropped,
}

// === impl Receiving ===

impl Receiving {
    pub(in crate::upstream) fn new(
        server: &ServerName,
        routing: &Arc<Routing>,
        words: &'static Words,
        parse: fn(Bytes) -> Result<Message, Malformed>,
    ) -> Self {
        Self {
            server: server.clone(),
            routing: Arc::clone(routing),
            words,
            parse,
            oddities: [0; Oddity::COUNT],
        }
    }

    /// Takes one text in UTF-8: a message, or a batch of messages.
    pub(in crate::upstream) async fn text(&mut self, text: Bytes) -> Whose {
        if !batch::is_batch(&text) {
            return self.message(text).await;
        }
        let Ok(members) = batch::split(&text, MAX_BATCH) else {
            return self.unreadable(Oddity::NotJson, &text);
        };
        let mut whose = Whose::Told;
        for member in members {
            if let Whose::Anybodys = self.message(member).await {
                whose = Whose::Anybodys;
            }
        }
        whose
    }

    async fn message(&mut self, raw: Bytes) -> Whose {
        let message = match (self.parse)(raw.clone()) {
            Ok(message) => message,
            Err(_) if raw.trim_ascii_start().starts_with(b"{") => {
                return self.unreadable(Oddity::NotMcp, &raw);
            }
            Err(_) => return self.unreadable(Oddity::NotJson, &raw),
        };
        #[cfg(feature = "planted")]
        let is_heard = !crate::planted::has(crate::planted::Bug::ChangeIsUnheard);
        #[cfg(not(feature = "planted"))]
        let is_heard = true;
        // Before it waits for a reader, or is dropped: what changes what the gateway knows is known from here on.
        if is_heard && message.method() == Some("notifications/tools/list_changed") {
            self.routing.tools_changed();
        }
        let may_go = message.kind() == Kind::Notification;
        let Some(raw) = self.routing.unread.count(raw, |_| may_go).await else {
            self.odd(Oddity::Dropped, &[]);
            return Whose::Told;
        };
        let message = message.held_by(raw.clone());
        match self.routing.deliver(&message).await {
            Routed::Done => {}
            Routed::Stray => self.odd(Oddity::Stray, &raw),
            Routed::Dropped => self.odd(Oddity::Dropped, &raw),
        }
        Whose::Told
    }

    /// A text that cannot be read. Many are logs; but one that was meant as a message may be an answer.
    pub(in crate::upstream) fn unreadable(&mut self, oddity: Oddity, text: &[u8]) -> Whose {
        if !is_meant_as_message(text) {
            self.odd(oddity, text);
            return Whose::Told;
        }
        self.odd(Oddity::Unreadable, text);
        // If single characters are broken, it still says what it is.
        let legible = String::from_utf8_lossy(text).into_owned();
        match serde_json::from_str(&legible) {
            Ok(Value::Object(members)) => {
                let is_message = members.get("jsonrpc").is_some_and(|said| said == "2.0");
                if !is_message || !(members.contains_key("result") || members.contains_key("error"))
                {
                    return Whose::Told;
                }
                let id = members.get("id");
                let id = id.filter(|id| id.is_string() || id.is_number());
                let id = id.map(Value::to_string);
                self.routing.unreadable(id.as_deref().map(RawId::new))
            }
            _ => self.routing.unreadable(None),
        }
    }

    /// A message that is too large, once it is known what it is. The channel goes on.
    pub(in crate::upstream) fn skipped(&mut self, what: Option<Skipped>) -> Whose {
        let Some(what) = what else {
            return Whose::Told;
        };
        self.odd(Oddity::TooLarge, &[]);
        match what {
            Skipped::Answer(id) => self.routing.too_large(Some(id.as_id())),
            Skipped::Unknown => self.routing.too_large(None),
            Skipped::NoAnswer => {}
        }
        Whose::Told
    }

    pub(in crate::upstream) fn odd(&mut self, oddity: Oddity, text: &[u8]) {
        let count = &mut self.oddities[oddity as usize];
        *count += 1;
        if *count > 1 {
            return;
        }
        let (server, what, title) = (&self.server, self.what(oddity), self.words.title);
        match oddity {
            // A message may hold a secret of the client's; what is none, the server's author wants to see.
            Oddity::Unreadable | Oddity::TooLarge | Oddity::Stray | Oddity::Dropped => {
                tracing::warn!(%server, what, "{title}");
            }
            Oddity::NotJson | Oddity::NotUtf8 | Oddity::NotMcp => {
                let line = String::from_utf8_lossy(&text[..text.len().min(SHOWN)]);
                let line = line.escape_debug();
                tracing::warn!(%server, what, %line, "{title}");
            }
        }
    }

    /// Logs how often each of the oddities occurred that occurred again.
    pub(in crate::upstream) fn sum_up(&self) {
        for (oddity, count) in Oddity::ALL.into_iter().zip(self.oddities) {
            if count > 1 {
                let (server, what) = (&self.server, self.what(oddity));
                tracing::warn!(%server, count, what, "{}", self.words.title);
            }
        }
    }

    fn what(&self, oddity: Oddity) -> &'static str {
        match oddity {
            Oddity::NotJson => self.words.not_json,
            Oddity::NotUtf8 => self.words.not_utf8,
            Oddity::NotMcp => self.words.not_mcp,
            Oddity::Unreadable => self.words.unreadable,
            Oddity::TooLarge => "a message is larger than 64 MiB, and was skipped",
            Oddity::Stray => "an answer to a request that was not made, or a second answer",
            Oddity::Dropped => "messages were dropped, because no client reads them",
        }
    }
}

/// Whether a text was meant as a message: it begins like JSON, and names the protocol. Logs that are JSON, or
/// quote messages, do not do both.
fn is_meant_as_message(text: &[u8]) -> bool {
    let begins = text.trim_ascii_start().first();
    matches!(begins, Some(b'{' | b'[')) && memchr::memmem::find(text, br#""jsonrpc""#).is_some()
}

// === impl Oddity ===

impl Oddity {
    const ALL: [Self; 7] = [
        Self::NotJson,
        Self::NotUtf8,
        Self::NotMcp,
        Self::Unreadable,
        Self::TooLarge,
        Self::Stray,
        Self::Dropped,
    ];
    const COUNT: usize = Self::ALL.len();
}
