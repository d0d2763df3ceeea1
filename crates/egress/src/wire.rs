//! One connection to an endpoint, driven by the task that uses it.
//!
//! A task of its own would have to be woken for every request, and would wake its client's task for every
//! part of an answer. Because the client's task reads and writes itself, a request and its answer cost no
//! extra wake-ups, and an idle stream holds no buffer.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bowline_wire::http1::{Framing, Head, take_head};
use bytes::{Buf as _, Bytes, BytesMut};
use socket2::SockRef;
use tokio::io::{AsyncRead as _, AsyncWrite, ReadBuf};

use super::dial::Connection;
use super::{Request, WireError};

/// The most that is read at once. Every thread has one such buffer for all of its connections.
const READ_BUFFER: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BUFFER]);
}

/// A connection.
pub(super) struct Wire {
    stream: Connection,
    /// The address at the other end.
    pub(super) peer: Option<IpAddr>,
    /// Input that was not used yet.
    input: BytesMut,
    /// The part of a request that was not written when its response arrived.
    unwritten: Bytes,
}

/// Why a request got no answer on this connection.
pub(super) struct SendError {
    /// Whether any part of the request may have been sent.
    pub(super) was_sent: bool,
    pub(super) error: WireError,
}

// === impl Wire ===

impl Wire {
    pub(super) fn new(stream: Connection) -> Self {
        Self {
            peer: stream.peer(),
            stream,
            input: BytesMut::new(),
            unwritten: Bytes::new(),
        }
    }

    /// Checks that another request can be sent: the server neither closed the connection nor sent
    /// anything while it was idle.
    pub(super) fn check_idle(&mut self) -> bool {
        if !self.input.is_empty() || !self.unwritten.is_empty() {
            return false;
        }
        // What has arrived may be TLS records without data, which reading processes.
        let has_nothing_to_say = match self.stream {
            Connection::Plain(_) => true,
            Connection::Tls(_) => self
                .poll_read(&mut Context::from_waker(Waker::noop()))
                .is_pending(),
        };
        has_nothing_to_say && self.is_silent()
    }

    /// Whether there is neither unread data nor the end of the stream. The system is asked, not the
    /// runtime, which may not know yet.
    fn is_silent(&self) -> bool {
        let peeked = SockRef::from(self.stream.socket()).peek(&mut [MaybeUninit::uninit()]);
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(&mut self, request: &Request) -> Result<Head, SendError> {
        let (mut written, mut broke) = (0, None);
        let mut has_tried = false;
        let answered = poll_fn(|cx| {
            if written == 0 && !request.may_begin() {
                return Poll::Ready(Err(WireError::Withheld));
            }
            has_tried = true;
            if broke.is_none()
                && let Poll::Ready(Err(error)) = self.poll_write(cx, request, &mut written)
            {
                if written == 0 {
                    return Poll::Ready(Err(error.into()));
                }
                // The server may have sent the reason before it closed.
                broke = Some(error);
            }
            match ready!(self.poll_head(cx)) {
                Err(WireError::Closed) if broke.is_some() => {
                    Poll::Ready(Err(broke.take().map_or(WireError::Closed, WireError::Io)))
                }
                answered => Poll::Ready(answered),
            }
        });
        let answered = answered.await;
        match answered {
            Ok(head) => {
                if written < request.len() {
                    self.unwritten = request.rest(written);
                }
                Ok(head)
            }
            Err(error) => Err(SendError {
                // TLS may have written some of its records when it reports that it wrote nothing.
                was_sent: written > 0 || (has_tried && matches!(self.stream, Connection::Tls(_))),
                error,
            }),
        }
    }

    /// Writes the rest of a request. Ready when all of it is written.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
        written: &mut usize,
    ) -> Poll<io::Result<()>> {
        while *written < request.len() {
            let slices = request.slices(*written).map(IoSlice::new);
            // A stream may look at the first slice only, so it must not be empty.
            let slices = match slices[0].is_empty() {
                true => &slices[1..],
                false => &slices,
            };
            let wrote = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices))?;
            if wrote == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *written += wrote;
            request.sent.begin();
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Head, WireError>> {
        loop {
            if !self.input.is_empty() {
                if is_http2(&self.input) {
                    return Poll::Ready(Err(WireError::Http2));
                }
                if let Some(head) = take_head(&mut self.input)? {
                    return Poll::Ready(Ok(head));
                }
            }
            if ready!(self.poll_read(cx))? == 0 {
                return Poll::Ready(Err(WireError::Closed));
            }
        }
    }

    /// The next bytes of an answer's body; `None` at its end.
    pub(super) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Framing,
    ) -> Poll<Option<Result<Bytes, WireError>>> {
        loop {
            if let Some(data) = body.take(&mut self.input)? {
                return Poll::Ready(Some(Ok(data)));
            }
            if body.has_ended() {
                return Poll::Ready(None);
            }
            self.write_rest(cx);
            if ready!(self.poll_read(cx))? == 0 {
                return match body {
                    Framing::UntilClosed => {
                        *body = Framing::Ended;
                        Poll::Ready(None)
                    }
                    _ => Poll::Ready(Some(Err(WireError::Closed))),
                };
            }
        }
    }

    /// Continues to write a request whose answer arrived before all of it was written. If that fails,
    /// reading the answer fails too.
    fn write_rest(&mut self, cx: &mut Context<'_>) {
        while !self.unwritten.is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.unwritten) {
                Poll::Ready(Ok(wrote)) if wrote > 0 => self.unwritten.advance(wrote),
                _ => return,
            }
        }
    }

    /// Reads what has arrived; 0 at the end.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut arrived = ReadBuf::new(scratch);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut arrived))?;
            self.input.extend_from_slice(arrived.filled());
            Poll::Ready(Ok(arrived.filled().len()))
        })
    }
}

/// Whether an answer begins with a frame of HTTP/2: SETTINGS or GOAWAY, on the connection itself.
/// No answer of HTTP/1 begins with a zero.
fn is_http2(input: &[u8]) -> bool {
    matches!(input, [0, _, _, 4 | 7, _, 0, 0, 0, 0, ..])
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}
