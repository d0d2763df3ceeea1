//! Reading a process: line by line, each a message that goes to its reader. What is no message is dropped,
//! and told once.

use std::sync::Arc;
use std::time::Duration;

use bowline_children::{Exit, Line, Lines};
use bowline_wire::message::Message;
use tokio::io::AsyncRead;

use super::end::end;
use super::stderr::Stderr;
use crate::config::ServerName;
use crate::upstream::live::{End, Oddity, Receiving, Routing, Whose, Words};

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
}

// === impl Reading ===

impl Reading {
    pub(super) fn new(server: &ServerName, routing: &Arc<Routing>, stderr: &Arc<Stderr>) -> Self {
        Self {
            server: server.clone(),
            routing: Arc::clone(routing),
            stderr: Arc::clone(stderr),
            receiving: Receiving::new(server, routing, &WORDS, Message::among_logs),
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
        Arc::new(end(&how, &stderr))
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
                Line::TooLong(head) => {
                    self.receiving.too_large(&head);
                    Whose::Told
                }
            };
            if let Whose::Anybodys = whose {
                return Some(UNREADABLE.to_owned());
            }
        }
        None
    }
}
