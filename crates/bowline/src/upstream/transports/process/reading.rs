//! Reading a process: line by line, each a message that goes to its reader. What is no message is dropped,
//! and told once.

use std::sync::Arc;
use std::time::Duration;

use bowline_children::{Exit, Line, Lines};
use bowline_wire::message::Message;
use bowline_wire::skip::Skipping;
use tokio::io::AsyncRead;

use super::stderr::Stderr;
use crate::config::ServerName;
use crate::upstream::transports::error::End;
use crate::upstream::transports::live::{Oddity, Receiving, Routing, Whose, Words};

/// How long what a process wrote before it exited may take to arrive. A descendant may keep the pipe open.
const LAST_LINES: Duration = Duration::from_millis(200);

/// How a process ended that wrote an answer of which nobody knows whose it is.
const UNREADABLE: &str = "it wrote a message that is not JSON in UTF-8 while several calls waited";

static WORDS: Words = Words {
    title: "a process wrote what it should not",
    not_json: "a line on stdout is not JSON; logs belong on stderr",
    not_utf8: "a line on stdout is not UTF-8",
    not_mcp: "a line on stdout is not a JSON-RPC message",
    unreadable: "a message on stdout is not JSON in UTF-8",
};

/// What reads one process.
#[derive(Debug)]
pub(super) struct Reading {
    server: ServerName,
    routing: Arc<Routing>,
    stderr: Arc<Stderr>,
    receiving: Receiving,
    /// A line that is too long.
    long: Skipping,
}

// === impl Reading ===

impl Reading {
    pub(super) fn new(server: &ServerName, routing: &Arc<Routing>, stderr: &Arc<Stderr>) -> Self {
        #[cfg(not(feature = "planted"))]
        let parse = Message::among_logs;
        #[cfg(feature = "planted")]
        let parse = match crate::planted::has(crate::planted::Bug::LogsAreMessages) {
            true => Message::from_server,
            false => Message::among_logs,
        };
        Self {
            server: server.clone(),
            routing: Arc::clone(routing),
            stderr: Arc::clone(stderr),
            receiving: Receiving::new(server, routing, &WORDS, parse),
            long: Skipping::default(),
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
        self.receiving.sum_up();
        Arc::new(End::of_process(&how, &stderr))
    }

    /// Reads to the end of stdout. `Some`: the process cannot be read further.
    async fn read(&mut self, lines: &mut Lines<impl AsyncRead + Unpin>) -> Option<String> {
        while let Ok(Some(line)) = lines.next().await {
            let whose = match line {
                Line::Empty => Whose::Told,
                Line::Text(line) => self.receiving.text(line).await,
                Line::NotUtf8(line) => self.receiving.unreadable(Oddity::NotUtf8, &line),
                Line::Unfinished(line) => {
                    self.receiving.odd(Oddity::NotJson, &line);
                    Whose::Told
                }
                Line::TooLong(line) => {
                    self.long = Skipping::default();
                    self.receiving.skipped(self.long.read(&line))
                }
                Line::Rest { bytes, is_last } => {
                    let known = self.long.read(&bytes);
                    let end = || is_last.then(|| self.long.end()).flatten();
                    self.receiving.skipped(known.or_else(end))
                }
            };
            if let Whose::Anybodys = whose {
                return Some(UNREADABLE.to_owned());
            }
        }
        None
    }
}
