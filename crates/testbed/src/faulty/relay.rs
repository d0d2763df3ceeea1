//! One connection through the proxy.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::framing::{Body, Head};
use super::rules::{Mark, Seen};
use super::{Canned, Fault, Shared};

/// How long after its end a connection is reset.
const BEFORE_THE_RESET: Duration = Duration::from_millis(2);

/// How a connection ends, if no error ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Everything that was sent arrives.
    Clean,
    /// At once.
    Reset,
}

/// Whether the connection carries another request.
type Next = io::Result<Option<End>>;

/// Both sides, and the unused input of each.
#[derive(Debug)]
struct Line {
    client: TcpStream,
    asked: BytesMut,
    upstream: Option<TcpStream>,
    answered: BytesMut,
    /// The fault in progress.
    mark: Option<Mark>,
}

/// Relays requests until either side or a fault ends the connection.
pub(super) async fn relay(client: TcpStream, shared: Arc<Shared>, broken: CancellationToken) {
    let mut line = Line {
        client,
        asked: BytesMut::new(),
        upstream: None,
        answered: BytesMut::new(),
        mark: None,
    };
    let end = tokio::select! {
        end = line.run(&shared) => end.unwrap_or(End::Reset),
        () = broken.cancelled() => End::Reset,
    };
    if end == End::Reset {
        _ = line.client.set_zero_linger();
        if let Some(upstream) = &line.upstream {
            _ = upstream.set_zero_linger();
        }
    }
    let mark = line.mark.take();
    drop(line);
    // The fault counts only now that the connection is gone.
    drop(mark);
}

impl Line {
    async fn run(&mut self, shared: &Shared) -> io::Result<End> {
        self.client.set_nodelay(true)?;
        loop {
            let Some((head, body)) = self.request().await? else {
                return Ok(End::Clean);
            };
            let seen = Seen::new(head.method(), &body);
            let (fault, mark) = shared.rules.meet(&seen);
            self.mark = Some(mark);
            let next = self.serve(shared, fault, &seen, [head.raw, body]).await?;
            if let Some(end) = next {
                return Ok(end);
            }
            self.mark = None;
        }
    }

    /// The next request; `None` when there is none.
    async fn request(&mut self) -> io::Result<Option<(Head, Bytes)>> {
        let head = loop {
            if let Some(head) = Head::take(&mut self.asked) {
                break head;
            }
            if !self.read_request().await? {
                return Ok(None);
            }
        };
        let length = head.request_length().ok_or(io::ErrorKind::Unsupported)?;
        while self.asked.len() < length {
            if !self.read_request().await? {
                return Ok(None);
            }
        }
        Ok(Some((head, self.asked.split_to(length).freeze())))
    }

    /// Reads more of a request. Between requests, an upstream that closes ends the connection.
    async fn read_request(&mut self) -> io::Result<bool> {
        let Some(upstream) = &mut self.upstream else {
            return Ok(self.client.read_buf(&mut self.asked).await? > 0);
        };
        tokio::select! {
            read = self.client.read_buf(&mut self.asked) => Ok(read? > 0),
            _ = upstream.read_buf(&mut self.answered) => Ok(false),
        }
    }

    async fn serve(
        &mut self,
        shared: &Shared,
        fault: Fault,
        seen: &Seen,
        request: [Bytes; 2],
    ) -> Next {
        match fault {
            Fault::ResetBefore => return Ok(Some(End::Reset)),
            Fault::Answer(canned) => {
                self.client.write_all(&rendered(&canned, seen)).await?;
                return Ok(None);
            }
            Fault::Delay(time) => tokio::time::sleep(time).await,
            Fault::Hang(until) => tokio::time::sleep_until(until).await,
            Fault::Pass
            | Fault::ResetAfter
            | Fault::EndThenReset
            | Fault::Cut(_)
            | Fault::DelayAnswer(_) => {}
        }
        self.forward(shared, request).await?;
        match fault {
            Fault::ResetAfter => {
                // An upstream that starts to answer has certainly read the request.
                self.read_answer().await?;
                Ok(Some(End::Reset))
            }
            Fault::EndThenReset => {
                self.read_answer().await?;
                self.client.shutdown().await?;
                tokio::time::sleep(BEFORE_THE_RESET).await;
                Ok(Some(End::Reset))
            }
            Fault::Cut(after) => self.answer(after).await,
            Fault::DelayAnswer(time) => {
                tokio::time::sleep(time).await;
                self.answer(usize::MAX).await
            }
            _ => self.answer(usize::MAX).await,
        }
    }

    async fn forward(&mut self, shared: &Shared, request: [Bytes; 2]) -> io::Result<()> {
        if self.upstream.is_none() {
            #[expect(clippy::disallowed_methods, reason = "this is not the gateway")]
            let upstream = TcpStream::connect(shared.upstream).await?;
            upstream.set_nodelay(true)?;
            self.upstream = Some(upstream);
        }
        let upstream = self.upstream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        upstream.write_all(&request.concat()).await
    }

    /// Relays a response until it ends or this much of its body has passed.
    async fn answer(&mut self, mut left: usize) -> Next {
        let head = loop {
            if let Some(head) = Head::take(&mut self.answered) {
                break head;
            }
            if !self.read_answer().await? {
                return Ok(Some(End::Reset));
            }
        };
        self.client.write_all(&head.raw).await?;
        let mut body = head.body();
        loop {
            let passing = body.advance(&self.answered, &mut left);
            let passing = self.answered.split_to(passing);
            self.client.write_all(&passing).await?;
            if body.is_over() {
                return Ok(head.is_last().then_some(End::Clean));
            }
            if left == 0 {
                return Ok(Some(End::Clean));
            }
            if self.answered.is_empty() && !self.read_answer().await? {
                let whole = matches!(body, Body::UntilEnd);
                return Ok(Some(if whole { End::Clean } else { End::Reset }));
            }
        }
    }

    /// Reads more of a response; `false` at its end. A client that disconnects ends it with an error.
    async fn read_answer(&mut self) -> io::Result<bool> {
        let upstream = self.upstream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        loop {
            tokio::select! {
                read = upstream.read_buf(&mut self.answered) => return Ok(read? > 0),
                read = self.client.read_buf(&mut self.asked) => {
                    if read? == 0 {
                        return Err(io::ErrorKind::BrokenPipe.into());
                    }
                }
            }
        }
    }
}

fn rendered(canned: &Canned, seen: &Seen) -> Vec<u8> {
    let body = canned.body.replace("$id", &seen.message["id"].to_string());
    let mut text = format!(
        "HTTP/1.1 {} Made up\r\ncontent-length: {}\r\n",
        canned.status,
        body.len()
    );
    for (name, value) in &canned.headers {
        text += &format!("{name}: {value}\r\n");
    }
    (text + "\r\n" + &body).into_bytes()
}
