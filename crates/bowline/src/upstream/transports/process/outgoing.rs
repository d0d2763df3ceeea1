//! Messages on their way to a process: one line each, one after the other.
//!
//! Most lines fit into the pipe, and are written at once by whoever sends them. What does not fit, or comes while
//! another line waits, is written by a task of its own, because a line that is cut would spoil the next one: a
//! call that is given up half-way must not take its line with it. The queue is short, and who waits in it can leave.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bowline_egress::Sent;
use bowline_wire::line::framed;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// How many messages wait for a process that does not read.
const QUEUE: usize = 16;

/// Where messages to a process are put.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    pipe: Arc<Mutex<Pipe>>,
    queue: mpsc::Sender<Line>,
}

/// What writes those that wait.
#[derive(Debug)]
pub(super) struct Writer {
    pipe: Arc<Mutex<Pipe>>,
    queue: mpsc::Receiver<Line>,
}

/// The stdin of a process. It is locked while bytes are put into it, never while anybody waits.
struct Pipe {
    /// `None`: it is closed.
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Whether the process is still the session's. The first line opens the session, which nobody else can have.
    is_certain: Box<dyn Fn() -> bool + Send>,
    is_opened: bool,
    /// How many lines wait for the writer, with the one that it writes.
    waiting: usize,
}

#[derive(Debug)]
struct Line {
    text: Text,
    sent: Sent,
    progress: Arc<Progress>,
    done: oneshot::Sender<Result<(), NotWritten>>,
    _waiting: Waiting,
}

/// What was not written yet.
#[derive(Debug)]
enum Text {
    /// All of a message. It becomes a line when its turn comes, so that there are not two copies of all that wait.
    Message(Bytes),
    /// The rest of a line.
    Rest(Bytes),
}

/// One line among those that wait, until it is written or given up.
#[derive(Debug)]
struct Waiting(Arc<Mutex<Pipe>>);

/// How far a line has come. Locked while it is written, so that it is either given up or begun.
#[derive(Debug, Default)]
struct Progress(Mutex<Step>);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Step {
    #[default]
    Waits,
    GivenUp,
    /// Its first byte was written.
    Begun,
}

/// Why a message was not written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotWritten {
    /// The process did not read in time. Nothing was written.
    NotRead,
    /// The session may be another gateway's by now. Nothing was written.
    Unsure,
    /// The process reads no more.
    Broken { was_written: bool },
}

/// The way to a process with this stdin, if it has one.
pub(super) fn outgoing<W: AsyncWrite + Send + Unpin + 'static>(
    stdin: Option<W>,
    is_certain: impl Fn() -> bool + Send + 'static,
) -> (Outgoing, Writer) {
    let pipe = Arc::new(Mutex::new(Pipe {
        stdin: stdin.map(|stdin| Box::new(stdin) as _),
        is_certain: Box::new(is_certain),
        is_opened: false,
        waiting: 0,
    }));
    let (sender, receiver) = mpsc::channel(QUEUE);
    let outgoing = Outgoing {
        pipe: Arc::clone(&pipe),
        queue: sender,
    };
    let queue = receiver;
    (outgoing, Writer { pipe, queue })
}

// === impl Outgoing ===

impl Outgoing {
    /// Writes a message, which begins within `patience` or not at all. Dropping this does not stop what has
    /// begun.
    pub(super) async fn write(
        &self,
        message: &Bytes,
        sent: Sent,
        patience: Duration,
    ) -> Result<(), NotWritten> {
        match self.write_at_once(message, &sent)? {
            Written::Whole => Ok(()),
            Written::Begun(written) => Box::pin(written).await.unwrap_or(Err(CUT)),
            Written::Nothing(waiting) => {
                Box::pin(self.queue(message.clone(), sent, waiting, patience)).await
            }
        }
    }

    /// Closes stdin. Nothing is written after that.
    pub(super) fn close(&self) {
        self.pipe.lock().stdin = None;
    }

    /// Writes as much as fits, if nothing waits. The rest of a line that was begun is the writer's at once, so
    /// that it does not depend on who sent it.
    fn write_at_once(&self, message: &Bytes, sent: &Sent) -> Result<Written, NotWritten> {
        let is_free = self.pipe.lock().waiting == 0;
        // It is not made under the lock, and not at all if it has to wait.
        let line = match is_free {
            true => framed(message),
            false => Bytes::new(),
        };
        let mut pipe = self.pipe.lock();
        let count = match pipe.waiting {
            0 if is_free && !sent.client_left() => {
                match pipe.poll_begin(&line, &mut Context::from_waker(Waker::noop()))? {
                    Poll::Ready(count) => count,
                    Poll::Pending => 0,
                }
            }
            _ => 0,
        };
        if count > 0 {
            sent.begin();
            if count == line.len() {
                return Ok(Written::Whole);
            }
        }
        pipe.waiting += 1;
        let waiting = Waiting(Arc::clone(&self.pipe));
        if count == 0 {
            return Ok(Written::Nothing(waiting));
        }
        let rest = Text::Rest(line.slice(count..));
        let (line, written) = Line::new(rest, sent.clone(), Step::Begun, waiting);
        // Nothing waits, so there is room. A line that finds none is dropped, which needs the lock.
        let queued = self.queue.try_send(line);
        drop(pipe);
        queued.map_err(|_| CUT)?;
        Ok(Written::Begun(written))
    }

    /// Leaves a line to the writer, of which nothing was written.
    async fn queue(
        &self,
        message: Bytes,
        sent: Sent,
        waiting: Waiting,
        patience: Duration,
    ) -> Result<(), NotWritten> {
        let (line, written) = Line::new(Text::Message(message), sent, Step::Waits, waiting);
        let progress = Arc::clone(&line.progress);
        let broken = || NotWritten::Broken {
            was_written: progress.has_begun(),
        };
        let mut writing = Box::pin(async {
            self.queue.send(line).await.map_err(|_| broken())?;
            written.await.map_err(|_| broken())?
        });
        if let Ok(done) = tokio::time::timeout(patience, &mut writing).await {
            return done;
        }
        match progress.give_up() {
            true => Err(NotWritten::NotRead),
            // It may be long, and the process slow.
            false => writing.await,
        }
    }
}

/// A line of which only a part was written.
const CUT: NotWritten = NotWritten::Broken { was_written: true };

/// How much of a line was written at once.
enum Written {
    Whole,
    /// A part of it. The writer says when the rest is.
    Begun(oneshot::Receiver<Result<(), NotWritten>>),
    Nothing(Waiting),
}

// === impl Line ===

impl Line {
    fn new(
        text: Text,
        sent: Sent,
        step: Step,
        waiting: Waiting,
    ) -> (Self, oneshot::Receiver<Result<(), NotWritten>>) {
        let (done, written) = oneshot::channel();
        let line = Self {
            text,
            sent,
            progress: Arc::new(Progress(Mutex::new(step))),
            done,
            _waiting: waiting,
        };
        (line, written)
    }

    /// Whether nobody waits for it, and nothing of it was written.
    fn is_given_up(&self) -> bool {
        (self.done.is_closed() || self.sent.client_left()) && !self.progress.has_begun()
    }
}

// === impl Writer ===

impl Writer {
    /// Writes until the process reads no more, or `closing`; then its stdin is closed.
    pub(super) async fn run(mut self, closing: CancellationToken) {
        let writing = async {
            while let Some(line) = self.queue.recv().await {
                if line.is_given_up() {
                    continue;
                }
                let mut rest = match &line.text {
                    Text::Message(message) => framed(message),
                    Text::Rest(rest) => rest.clone(),
                };
                let written = loop {
                    if rest.is_empty() {
                        break Ok(());
                    }
                    let pipe = &self.pipe;
                    match poll_fn(|cx| line.progress.poll_write(pipe, &rest, cx)).await {
                        Some(Ok(count)) => {
                            line.sent.begin();
                            rest = rest.split_off(count);
                        }
                        Some(Err(NotWritten::Unsure)) => break Err(NotWritten::Unsure),
                        // Who waits for it learns from the end of the channel how far it came.
                        Some(Err(_)) => return,
                        None => break Err(NotWritten::NotRead),
                    }
                };
                if line.done.send(written).is_err() {
                    tracing::trace!("a message was written for a call that was given up");
                }
            }
        };
        closing.run_until_cancelled(writing).await;
        self.pipe.lock().stdin = None;
    }
}

// === impl Pipe ===

impl Pipe {
    /// Writes the first bytes of a line. It may have waited for long, so whether the process is still the session's
    /// is asked now.
    fn poll_begin(&mut self, line: &[u8], cx: &mut Context<'_>) -> Poll<Result<usize, NotWritten>> {
        if self.is_opened && !(self.is_certain)() {
            return Poll::Ready(Err(NotWritten::Unsure));
        }
        let begun = self.poll_rest(line, cx);
        self.is_opened |= matches!(begun, Poll::Ready(Ok(_)));
        begun
    }

    /// Writes more of a line that was begun.
    fn poll_rest(&mut self, rest: &[u8], cx: &mut Context<'_>) -> Poll<Result<usize, NotWritten>> {
        let broken = Poll::Ready(Err(NotWritten::Broken { was_written: false }));
        let Some(stdin) = &mut self.stdin else {
            return broken;
        };
        match ready!(Pin::new(stdin).poll_write(cx, rest)) {
            Ok(count) if count > 0 => Poll::Ready(Ok(count)),
            _ => broken,
        }
    }
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_open = self.stdin.is_some();
        let pipe = &mut f.debug_struct("Pipe");
        pipe.field("is_open", &is_open)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

// === impl Waiting ===

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

// === impl Progress ===

impl Progress {
    /// Writes some of a line. `None`: it was given up before it had begun.
    fn poll_write(
        &self,
        pipe: &Mutex<Pipe>,
        rest: &[u8],
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<usize, NotWritten>>> {
        let mut step = self.0.lock();
        let written = match *step {
            Step::GivenUp => return Poll::Ready(None),
            Step::Waits => ready!(pipe.lock().poll_begin(rest, cx)),
            Step::Begun => ready!(pipe.lock().poll_rest(rest, cx)),
        };
        if written.is_ok() {
            *step = Step::Begun;
        }
        Poll::Ready(Some(written))
    }

    fn has_begun(&self) -> bool {
        *self.0.lock() == Step::Begun
    }

    /// Whether nothing of it was or will be written.
    fn give_up(&self) -> bool {
        let mut step = self.0.lock();
        if *step == Step::Waits {
            *step = Step::GivenUp;
        }
        *step == Step::GivenUp
    }
}

#[cfg(test)]
mod tests;
