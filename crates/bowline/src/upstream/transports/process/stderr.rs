//! What a process writes to stderr: in the log under its server's name, and its end in errors.

use std::sync::Arc;
use std::time::Duration;

use bowline_children::{Line, Lines, Tail};
use parking_lot::Mutex;
use tokio::io::AsyncRead;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::ServerName;

/// How much of a line is logged; the rest of it is not.
pub(super) const MAX_LINE: usize = 2048;

/// How many lines are logged in a second.
const LINES_PER_SECOND: u32 = 50;

/// How long the last lines may take to arrive after a process has exited.
const LAST_LINES: Duration = Duration::from_millis(200);

/// A process' stderr.
#[derive(Debug)]
pub(super) struct Stderr {
    pub(super) server: ServerName,
    tail: Mutex<Tail>,
    /// It has ended.
    ended: watch::Sender<bool>,
}

/// How many lines were logged lately.
struct Rate {
    since: Instant,
    logged: u32,
    skipped: u64,
}

impl Stderr {
    pub(super) fn of(server: &ServerName) -> Self {
        Self {
            server: server.clone(),
            tail: Mutex::default(),
            ended: watch::Sender::new(false),
        }
    }

    /// Reads it to its end.
    pub(super) async fn read(self: Arc<Self>, mut lines: Lines<impl AsyncRead + Unpin>) {
        let server = &self.server;
        let mut rate = Rate {
            since: Instant::now(),
            logged: 0,
            skipped: 0,
        };
        while let Ok(Some(line)) = lines.next().await {
            let (Line::Text(text)
            | Line::NotUtf8(text)
            | Line::TooLong(text)
            | Line::Unfinished(text)) = line
            else {
                continue;
            };
            // As the tail shows it: without what could steer a terminal.
            let mut shown = Tail::default();
            shown.push(&text);
            self.tail.lock().push(&text);
            if rate.allows() {
                tracing::debug!(target: "bowline::process", %server, stderr = %shown, "process");
            }
        }
        if rate.skipped > 0 {
            tracing::debug!(target: "bowline::process", %server, lines = rate.skipped, "stderr was not logged: too much");
        }
        self.ended.send_replace(true);
    }

    /// Its last lines.
    pub(super) fn tail(&self) -> Tail {
        self.tail.lock().clone()
    }

    /// Waits a moment for its end, or until this is known; a descendant may keep it open.
    pub(super) async fn settled<T>(&self, known: impl Fn() -> Option<T>) -> Option<T> {
        let mut ended = self.ended.subscribe();
        let settling = ended.wait_for(|ended| *ended);
        drop(tokio::time::timeout(LAST_LINES, settling).await);
        known()
    }
}

impl Rate {
    fn allows(&mut self) -> bool {
        if self.since.elapsed() >= Duration::from_secs(1) {
            (self.since, self.logged) = (Instant::now(), 0);
        }
        self.logged += 1;
        let allows = self.logged <= LINES_PER_SECOND;
        self.skipped += u64::from(!allows);
        allows
    }
}
