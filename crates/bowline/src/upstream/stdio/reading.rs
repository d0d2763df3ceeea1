//! Reading a process: line by line, each a message that goes to its reader. What is no message is dropped,
//! and told once. What was meant as a message and cannot be read may be an answer: the call that waits for it
//! learns that, and if nobody knows which call that is, the process cannot be read further.

use std::sync::Arc;
use std::time::Duration;

use bowline_children::{Exit, LINE_LIMIT, Line, Lines};
use bowline_wire::batch;
use bowline_wire::message::{Message, RawId};
use bytes::Bytes;
use serde_json::Value;
use tokio::io::AsyncRead;

use super::end::End;
use super::routing::{Routed, Routing, Whose};
use super::stderr::Stderr;
use crate::config::ServerName;
use crate::upstream::MAX_BATCH;

/// How long what a process wrote before it exited may take to arrive. A descendant may keep the pipe open.
const LAST_LINES: Duration = Duration::from_millis(200);

/// How a process ended that wrote an answer of which nobody knows whose it is.
const UNREADABLE: &str = "it wrote a message that is not JSON in UTF-8 while several calls waited";

/// How much of an odd line is logged.
const SHOWN: usize = 200;

/// What reads one process.
#[derive(Debug)]
pub(super) struct Reading {
    server: ServerName,
    routing: Arc<Routing>,
    stderr: Arc<Stderr>,
    oddities: [u64; Oddity::COUNT],
}

/// What a process should not do. The first of each kind is logged, and the number of all at its end.
#[derive(Debug, Clone, Copy)]
enum Oddity {
    NotJson,
    NotUtf8,
    NotMcp,
    /// It was meant as a message.
    Unreadable,
    Stray,
    Dropped,
}

// === impl Reading ===

impl Reading {
    pub(super) fn new(server: &ServerName, routing: &Arc<Routing>, stderr: &Arc<Stderr>) -> Self {
        Self {
            server: server.clone(),
            routing: Arc::clone(routing),
            stderr: Arc::clone(stderr),
            oddities: [0; Oddity::COUNT],
        }
    }

    /// Reads until the process ends; how it ended.
    pub(super) async fn run(
        mut self,
        mut lines: Lines<impl AsyncRead + Unpin>,
        exited: impl Future<Output = Exit>,
    ) -> Arc<End> {
        let mut exited = Box::pin(exited);
        let how = tokio::select! {
            how = self.read(&mut lines) => match how {
                Some(how) => how,
                // Its exit follows at once, unless only the pipe was closed.
                None => match tokio::time::timeout(LAST_LINES, exited).await {
                    Ok(exit) => exit.to_string(),
                    Err(_) => "it closed its stdout".to_owned(),
                },
            },
            exit = &mut exited => {
                drop(tokio::time::timeout(LAST_LINES, self.read(&mut lines)).await);
                exit.to_string()
            }
        };
        self.stderr.settled(|| Some(())).await;
        let stderr = self.stderr.tail();
        let server = &self.server;
        if self.routing.ended().is_none() {
            tracing::info!(%server, how, %stderr, "a session's process has ended");
        }
        for (oddity, count) in Oddity::ALL.iter().zip(self.oddities) {
            if count > 1 {
                let what = oddity.what();
                tracing::warn!(%server, count, what, "a process wrote what it should not");
            }
        }
        Arc::new(End::new(&how, &stderr))
    }

    /// Reads to the end of stdout. `Some`: the process cannot be read further.
    async fn read(&mut self, lines: &mut Lines<impl AsyncRead + Unpin>) -> Option<String> {
        while let Ok(Some(line)) = lines.next().await {
            match line {
                Line::Empty => {}
                Line::Text(line) => {
                    if let Whose::Anybodys = self.line(line).await {
                        return Some(UNREADABLE.to_owned());
                    }
                }
                Line::NotUtf8(line) => {
                    if let Whose::Anybodys = self.unreadable(Oddity::NotUtf8, &line) {
                        return Some(UNREADABLE.to_owned());
                    }
                }
                Line::Unfinished(line) => self.odd(Oddity::NotJson, &line),
                // It may be the answer that a call waits for, which would never come.
                Line::TooLong(_) => {
                    return Some(format!("it wrote a line of more than {LINE_LIMIT} bytes"));
                }
            }
        }
        None
    }

    async fn line(&mut self, line: Bytes) -> Whose {
        if !batch::is_batch(&line) {
            return self.message(line).await;
        }
        let Ok(members) = batch::split(&line, MAX_BATCH) else {
            return self.unreadable(Oddity::NotJson, &line);
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
        let message = match Message::from_server(raw.clone()) {
            Ok(message) => message,
            Err(_) if raw.trim_ascii_start().starts_with(b"{") => {
                return self.unreadable(Oddity::NotMcp, &raw);
            }
            Err(_) => return self.unreadable(Oddity::NotJson, &raw),
        };
        match self.routing.deliver(&message).await {
            Routed::Done => {}
            Routed::Stray => self.odd(Oddity::Stray, &raw),
            Routed::Dropped => self.odd(Oddity::Dropped, &raw),
        }
        Whose::Told
    }

    /// A line that cannot be read. Most are logs; but one that was meant as a message may be an answer.
    fn unreadable(&mut self, oddity: Oddity, line: &[u8]) -> Whose {
        if !is_meant_as_message(line) {
            self.odd(oddity, line);
            return Whose::Told;
        }
        self.odd(Oddity::Unreadable, line);
        // If single characters are broken, it still says what it is.
        let legible = String::from_utf8_lossy(line).into_owned();
        match serde_json::from_str(&legible) {
            Ok(Value::Object(members)) => {
                if !(members.contains_key("result") || members.contains_key("error")) {
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

    fn odd(&mut self, oddity: Oddity, line: &[u8]) {
        let count = &mut self.oddities[oddity as usize];
        *count += 1;
        if *count > 1 {
            return;
        }
        let (server, what) = (&self.server, oddity.what());
        match oddity {
            // A message may hold a secret of the client's; what is none, the server's author wants to see.
            Oddity::Unreadable | Oddity::Stray | Oddity::Dropped => {
                tracing::warn!(%server, what, "a process wrote what it should not");
            }
            Oddity::NotJson | Oddity::NotUtf8 | Oddity::NotMcp => {
                let line = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]);
                let line = line.escape_debug();
                tracing::warn!(%server, what, %line, "a process wrote what it should not");
            }
        }
    }
}

/// Whether a line was meant as a message: it begins like JSON, and names the protocol. Logs that are JSON, or
/// quote messages, do not do both.
fn is_meant_as_message(line: &[u8]) -> bool {
    let begins = line.trim_ascii_start().first();
    matches!(begins, Some(b'{' | b'[')) && memchr::memmem::find(line, br#""jsonrpc""#).is_some()
}

// === impl Oddity ===

impl Oddity {
    const ALL: [Self; 6] = [
        Self::NotJson,
        Self::NotUtf8,
        Self::NotMcp,
        Self::Unreadable,
        Self::Stray,
        Self::Dropped,
    ];
    const COUNT: usize = Self::ALL.len();

    fn what(self) -> &'static str {
        match self {
            Self::NotJson => "a line on stdout is not JSON; logs belong on stderr",
            Self::NotUtf8 => "a line on stdout is not UTF-8",
            Self::NotMcp => "a line on stdout is not a JSON-RPC message",
            Self::Unreadable => "a message on stdout is not JSON in UTF-8",
            Self::Stray => "an answer to a request that was not made, or a second answer",
            Self::Dropped => "messages were dropped, because no client reads them",
        }
    }
}
