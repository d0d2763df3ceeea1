//! One process of a server's: started for one leg, spoken to by its pipes, and ended with the leg.

mod outgoing;
mod reading;
mod stderr;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bowline_children::{Child, GRACE, Lines, Spawn, Tail};
use bowline_egress::Sent;
use bowline_wire::message::{Message, RawId};
use bowline_wire::skip::MAX_MESSAGE;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::outgoing::{NotWritten, Outgoing, outgoing};
use self::reading::Reading;
use self::stderr::{MAX_LINE, Stderr};
use super::error::{End, LastWords, LiveError, ProcessError};
use super::live::{Incoming, LiveChannels, Routing};
use crate::config::{Command, ServerName};
use crate::share::Permit;

/// A process. Dropping it ends it, and everything that it started.
#[derive(Debug)]
pub(crate) struct Process {
    routing: Arc<Routing>,
    outgoing: Outgoing,
    stderr: Arc<Stderr>,
    /// Closes stdin.
    closing: CancellationToken,
    channels: Arc<LiveChannels>,
    running: Arc<Running>,
    /// It is being asked whether it hangs.
    is_doubted: AtomicBool,
}

/// A process that was not ended yet, and what it holds.
#[derive(Debug)]
struct Running(Mutex<Option<(Child, Holds)>>);

/// A process' place among those that there may be, and among those of its server.
pub(super) type Holds = (Permit, Counted);

/// How long a process must live to have started, if it answered nothing but `initialize`.
const YOUNG: Duration = Duration::from_secs(5);

/// One process among those of a server, until it is gone.
#[derive(Debug)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Process {
    /// Starts a process. If it ends young, `early_death` learns how.
    pub(super) async fn start(
        channels: &Arc<LiveChannels>,
        server: &ServerName,
        command: &Command,
        holds: Holds,
        early_death: impl FnOnce(&End) + Send + 'static,
    ) -> Result<Arc<Self>, ProcessError> {
        let mut child = channels.supervisor().spawn(spawn(command)).await?;
        let routing = Routing::new(channels.unread());
        let closing = channels.closing();
        let stderr = Arc::new(Stderr::of(server));
        let tasks = channels.tasks();
        let ours = Arc::clone(channels);
        let stdin = child.stdin.take();
        let (outgoing, writer) = outgoing(stdin, move || ours.owners.is_certain());
        tasks.spawn(writer.run(closing.clone()));
        if let Some(pipe) = child.stderr.take() {
            tasks.spawn(Arc::clone(&stderr).read(Lines::with_limit(pipe, MAX_LINE)));
        }
        tracing::debug!(%server, pid = child.pid(), "process started");
        let (stdout, exited) = (child.stdout.take(), child.exited());
        let running = Arc::new(Running(Mutex::new(Some((child, holds)))));
        if let Some(stdout) = stdout {
            let reading = Reading::new(server, &routing, &stderr);
            let (routing, running) = (Arc::clone(&routing), Arc::clone(&running));
            let (closing, started) = (closing.clone(), Instant::now());
            tasks.spawn(async move {
                let lines = Lines::with_limit(stdout, MAX_MESSAGE);
                let end = reading.run(lines, exited).await;
                // An end before the first answer, to `initialize`, is a failed start anyway.
                let is_young = routing.answers() == 1 && started.elapsed() < YOUNG;
                if is_young && !closing.is_cancelled() {
                    early_death(&end);
                }
                let left = running.leave();
                // Its successor finds its place free.
                routing.end(&end);
                if let Some(child) = left {
                    child.end(GRACE).await;
                }
            });
        }
        Ok(Arc::new(Self {
            routing,
            outgoing,
            stderr,
            closing,
            channels: Arc::clone(channels),
            running,
            is_doubted: AtomicBool::new(false),
        }))
    }

    /// Sends a request. Its answer, and what else is its, comes in.
    pub(super) async fn send(
        &self,
        request: &Message,
        sent: Sent,
        patience: Duration,
    ) -> Result<Incoming, LiveError> {
        let incoming = Incoming::of_request(&self.routing, request).await?;
        self.write(request.raw(), sent, patience).await?;
        Ok(incoming)
    }

    /// Sends a request of Bowline's own: nothing but its answer comes in.
    pub(super) async fn ask(
        &self,
        request: &Message,
        sent: Sent,
        patience: Duration,
    ) -> Result<Bytes, LiveError> {
        let incoming = Incoming::of_call(&self.routing, request, false)?;
        self.write(request.raw(), sent, patience).await?;
        incoming.answer().await
    }

    /// Sends what has no answer.
    pub(super) async fn tell(
        &self,
        message: &Message,
        sent: Sent,
        patience: Duration,
    ) -> Result<(), LiveError> {
        self.routing.tell();
        self.write(message.raw(), sent, patience).await?;
        if let Some(span) = message.cancelled_request() {
            self.routing.cancel(RawId::new(message.text(span)));
        }
        Ok(())
    }

    /// Has this told whenever the server says that its tools have changed.
    pub(in crate::upstream) fn watch_tools(&self, watcher: Box<dyn Fn() + Send + Sync>) {
        self.routing.watch_tools(watcher);
    }

    /// What the server says unasked.
    pub(super) async fn listen(&self) -> Result<Incoming, LiveError> {
        Incoming::of_listener(&self.routing).await
    }

    /// Ends the process if it hangs: it says nothing at all for `patience`, although it is asked to.
    pub(super) async fn end_if_it_hangs(&self, ping: &Message, patience: Duration) {
        if self.is_doubted.swap(true, Ordering::AcqRel) {
            return;
        }
        let heard = self.routing.heard();
        let asking = self.ask(ping, Sent::default(), patience);
        let asked = tokio::time::timeout(patience, asking).await;
        let is_silent = !matches!(asked, Ok(Ok(_))) && self.routing.heard() == heard;
        let is_silent = is_silent && !self.routing.is_held_up();
        if is_silent && self.routing.ended().is_none() {
            let how = format!("it did not answer a call in time, nor a ping within {patience:?}");
            tracing::warn!(server = %self.stderr.server, how, "a session's process hangs");
            self.close();
            let left = self.running.leave();
            // Without grace, and before its successor is started, so that they do not act side by side.
            if let Some(child) = left {
                let gone = child.end(Duration::ZERO);
                self.channels.tasks().spawn(gone);
            }
            self.routing
                .end(&Arc::new(End::of_process(how, &self.stderr.tail())));
        }
        self.is_doubted.store(false, Ordering::Release);
    }

    /// Ends the process and everything that it started, and waits until they are gone.
    pub(super) async fn end(&self) {
        if let Some(ended) = self.begin_end() {
            drop(ended.await);
        }
    }

    /// The same, and does not wait.
    pub(crate) fn abandon(&self) {
        drop(self.begin_end());
    }

    fn begin_end(&self) -> Option<tokio::task::JoinHandle<()>> {
        self.close();
        let (child, holds) = self.running.0.lock().take()?;
        let end = End::of_process("the gateway ended it", &Tail::default());
        self.routing.end(&Arc::new(end));
        Some(self.channels.tasks().spawn(async move {
            let exit = child.end(GRACE).await;
            drop(holds);
            tracing::debug!(%exit, "process ended");
        }))
    }

    /// Closes its stdin. Nothing is written after that.
    fn close(&self) {
        self.closing.cancel();
        self.outgoing.close();
    }

    /// What it wrote to stderr so far, for an error.
    pub(super) fn last_words(&self) -> LastWords {
        LastWords::of(&self.stderr.tail())
    }

    async fn write(
        &self,
        message: &Bytes,
        sent: Sent,
        patience: Duration,
    ) -> Result<(), LiveError> {
        let written = self.outgoing.write(message, sent, patience).await;
        match written {
            Ok(()) => Ok(()),
            Err(NotWritten::NotRead) => Err(LiveError::NotRead),
            Err(NotWritten::Unsure) => Err(LiveError::Unsure),
            Err(NotWritten::Broken { was_written }) => {
                // It exits just now, and then its end is known; or it reads no more, which is the same.
                let end = self.stderr.settled(|| self.routing.ended()).await;
                let end = end.unwrap_or_else(|| {
                    Arc::new(End::of_process("it closed its stdin", &self.stderr.tail()))
                });
                self.routing.end(&end);
                Err(LiveError::Ended { end, was_written })
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.abandon();
    }
}

fn spawn(command: &Command) -> Spawn {
    let mut env = command.inherited.clone();
    env.extend(command.env.clone());
    let argv = std::iter::once(&command.program).chain(&command.args);
    Spawn {
        argv: argv.map(Into::into).collect(),
        env: env
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        cwd: command.cwd.clone(),
    }
}

// === impl Running ===

impl Running {
    /// The process is of no more use: it leaves its place, and is to be ended.
    fn leave(&self) -> Option<Child> {
        self.0.lock().take().map(|(child, _)| child)
    }
}

// === impl Counted ===

impl Counted {
    pub(crate) fn among(running: &Arc<AtomicUsize>) -> Self {
        running.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(running))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
