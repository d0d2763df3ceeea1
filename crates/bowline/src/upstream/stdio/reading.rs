//! Reading a process: line by line, each a message that goes to its reader. What is no message is dropped,
//! and told once.

use std::sync::Arc;
use std::time::Duration;

use bowline_children::{Exit, LINE_LIMIT, Line, Lines};
use bowline_wire::batch;
use bowline_wire::message::Message;
use bytes::Bytes;
use tokio::io::AsyncRead;

use super::end::End;
use super::routing::{Routed, Routing};
use super::stderr::Stderr;
use crate::config::ServerName;
use crate::upstream::MAX_BATCH;

/// How long what a process wrote before it exited may take to arrive. A descendant may keep the pipe open.
const LAST_LINES: Duration = Duration::from_millis(200);

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
                Line::Text(line) => self.line(line).await,
                Line::NotUtf8(line) => self.odd(Oddity::NotUtf8, &line),
                Line::Unfinished(line) => self.odd(Oddity::NotJson, &line),
                // It may be the answer that a call waits for, which would never come.
                Line::TooLong(_) => {
                    return Some(format!("it wrote a line of more than {LINE_LIMIT} bytes"));
                }
            }
        }
        None
    }

    async fn line(&mut self, line: Bytes) {
        if !batch::is_batch(&line) {
            return self.message(line).await;
        }
        match batch::split(&line, MAX_BATCH) {
            Ok(members) => {
                for member in members {
                    self.message(member).await;
                }
            }
            Err(_) => self.odd(Oddity::NotJson, &line),
        }
    }

    async fn message(&mut self, raw: Bytes) {
        let message = match Message::from_server(raw.clone()) {
            Ok(message) => message,
            Err(_) if raw.trim_ascii_start().starts_with(b"{") => {
                return self.odd(Oddity::NotMcp, &raw);
            }
            Err(_) => return self.odd(Oddity::NotJson, &raw),
        };
        match self.routing.deliver(&message).await {
            Routed::Done => {}
            Routed::Stray => self.odd(Oddity::Stray, &raw),
            Routed::Dropped => self.odd(Oddity::Dropped, &raw),
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
            Oddity::Stray | Oddity::Dropped => {
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

// === impl Oddity ===

impl Oddity {
    const ALL: [Self; 5] = [
        Self::NotJson,
        Self::NotUtf8,
        Self::NotMcp,
        Self::Stray,
        Self::Dropped,
    ];
    const COUNT: usize = Self::ALL.len();

    fn what(self) -> &'static str {
        match self {
            Self::NotJson => "a line on stdout is not JSON; logs belong on stderr",
            Self::NotUtf8 => "a line on stdout is not UTF-8",
            Self::NotMcp => "a line on stdout is not a JSON-RPC message",
            Self::Stray => "an answer to a request that was not made, or a second answer",
            Self::Dropped => "messages were dropped, because no client reads them",
        }
    }
}
