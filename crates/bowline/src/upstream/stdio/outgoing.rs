//! Messages on their way to a process: one line each, one after the other.
//!
//! A task of its own writes them, because a line that is cut would spoil the next one: a call that is given up
//! half-way must not take its line with it. The queue is short, and who waits in it can leave.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bowline_egress::Sent;
use bytes::{BufMut as _, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// How many messages wait for a process that does not read.
const QUEUE: usize = 16;

/// Where messages to a process are put.
#[derive(Debug, Clone)]
pub(super) struct Outgoing(mpsc::Sender<Line>);

/// What writes them.
#[derive(Debug)]
pub(super) struct Writer(mpsc::Receiver<Line>);

#[derive(Debug)]
struct Line {
    message: Bytes,
    sent: Sent,
    progress: Arc<Progress>,
    done: oneshot::Sender<Result<(), NotWritten>>,
}

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

/// A new queue.
pub(super) fn outgoing() -> (Outgoing, Writer) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Outgoing(sender), Writer(receiver))
}

// === impl Outgoing ===

impl Outgoing {
    /// Writes a message, which begins within `patience` or not at all. Dropping this does not stop what has
    /// begun.
    pub(super) async fn write(
        &self,
        message: Bytes,
        sent: Sent,
        patience: Duration,
    ) -> Result<(), NotWritten> {
        let progress = Arc::<Progress>::default();
        let (done, written) = oneshot::channel();
        let line = Line {
            message,
            sent,
            progress: Arc::clone(&progress),
            done,
        };
        let broken = |_| NotWritten::Broken {
            was_written: progress.has_begun(),
        };
        let mut writing = Box::pin(async {
            let queued = self.0.send(line).await;
            queued.map_err(|_| NotWritten::Broken { was_written: false })?;
            written.await.map_err(broken)?
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

// === impl Writer ===

impl Writer {
    /// Writes until the process reads no more, or `closing`; then its stdin is closed. A line may have waited
    /// for long, so whether the process is still the session's is asked when it is written. The first line
    /// opens the session, which nobody else can have.
    pub(super) async fn run(
        mut self,
        mut stdin: impl AsyncWrite + Unpin,
        closing: CancellationToken,
        is_certain: impl Fn() -> bool,
    ) {
        let mut is_opened = false;
        let writing = async {
            while let Some(line) = self.0.recv().await {
                if line.done.is_closed() || line.sent.client_left() {
                    continue;
                }
                if is_opened && !is_certain() {
                    drop(line.done.send(Err(NotWritten::Unsure)));
                    continue;
                }
                is_opened = true;
                let mut rest = framed(&line.message);
                while !rest.is_empty() {
                    let next = poll_fn(|cx| line.progress.poll_write(&mut stdin, &rest, cx));
                    match next.await {
                        Some(Ok(count)) if count > 0 => {
                            line.sent.begin();
                            rest = rest.split_off(count);
                        }
                        Some(_) => return,
                        None => break,
                    }
                }
                if rest.is_empty() && line.done.send(Ok(())).is_err() {
                    tracing::trace!("a message was written for a call that was given up");
                }
            }
        };
        closing.run_until_cancelled(writing).await;
    }
}

/// A message as a line. A line break in JSON stands between two tokens, where it means no more than a space.
fn framed(message: &Bytes) -> Bytes {
    let mut line = BytesMut::with_capacity(message.len() + 1);
    line.extend_from_slice(message);
    if memchr::memchr2(b'\n', b'\r', &line).is_some() {
        for byte in line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
            *byte = b' ';
        }
    }
    line.put_u8(b'\n');
    line.freeze()
}

// === impl Progress ===

impl Progress {
    /// Writes some of a line. `None`: it was given up before it had begun.
    fn poll_write(
        &self,
        stdin: &mut (impl AsyncWrite + Unpin),
        rest: &[u8],
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<usize>>> {
        let mut step = self.0.lock();
        if *step == Step::GivenUp {
            return Poll::Ready(None);
        }
        let written = ready!(Pin::new(stdin).poll_write(cx, rest));
        if written.as_ref().is_ok_and(|count| *count > 0) {
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
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn to(stdin: DuplexStream) -> (Outgoing, CancellationToken) {
        let (outgoing, writer) = outgoing();
        let closing = CancellationToken::new();
        let tracker = tokio_util::task::TaskTracker::new();
        tracker.spawn(writer.run(stdin, closing.clone(), || true));
        (outgoing, closing)
    }

    #[tokio::test]
    async fn nothing_but_the_first_is_written_while_the_session_may_be_anothers() {
        let (stdin, mut child) = duplex(1024);
        let (outgoing, writer) = outgoing();
        let closing = CancellationToken::new();
        let tracker = tokio_util::task::TaskTracker::new();
        tracker.spawn(writer.run(stdin, closing.clone(), || false));
        let write = |text| outgoing.write(Bytes::from_static(text), Sent::default(), PATIENCE);
        assert_eq!(write(b"first").await, Ok(()));
        assert_eq!(write(b"second").await, Err(NotWritten::Unsure));
        closing.cancel();
        let mut read = String::new();
        child.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "first\n");
    }

    #[tokio::test]
    async fn each_message_is_one_line() {
        let (stdin, mut child) = duplex(1024);
        let (outgoing, closing) = to(stdin);
        let message = Bytes::from_static(b"{\n  \"a\":\r\n1}");
        let sent = Sent::default();
        outgoing
            .write(message, sent.clone(), PATIENCE)
            .await
            .unwrap();
        assert!(sent.get());
        closing.cancel();
        let mut read = String::new();
        child.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "{   \"a\":  1}\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_does_not_read_is_told_from_one_that_is_gone() {
        let (stdin, child) = duplex(8);
        let (outgoing, _closing) = to(stdin);
        let long = Bytes::from_static(b"0123456789abcdef");
        let first = {
            let outgoing = outgoing.clone();
            let tracker = tokio_util::task::TaskTracker::new();
            tracker.spawn(async move { outgoing.write(long, Sent::default(), PATIENCE).await })
        };
        tokio::task::yield_now().await;
        let (sent, short) = (Sent::default(), Bytes::from_static(b"x"));
        let second = outgoing.write(short.clone(), sent.clone(), PATIENCE).await;
        assert_eq!(second, Err(NotWritten::NotRead));
        assert!(!sent.get());
        drop(child);
        let was_written = true;
        assert_eq!(
            first.await.unwrap(),
            Err(NotWritten::Broken { was_written })
        );
        let third = outgoing.write(short, sent.clone(), PATIENCE).await;
        let was_written = false;
        assert_eq!(third, Err(NotWritten::Broken { was_written }));
    }
}
