//! The answer to a forward, as it arrives.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bowline_egress::UpstreamBody;
use bowline_wire::skip::MAX_MESSAGE;
use bytes::{Buf as _, Bytes, BytesMut};
use http_body::Body as _;

use super::error::PeerError;
use super::record::{Ending, PART, Record};
use super::secret::PeerSecret;
use crate::owners::UntilGone;

/// The largest sealed record: a part, and what sealing adds.
const LARGEST: usize = PART + 1024;

/// How long the end of a response may take after its last record.
const FINISHES_WITHIN: Duration = Duration::from_millis(50);

/// The answer to a forward. Dropping it tells the owner that nobody reads any more.
#[derive(Debug)]
pub(crate) struct Answer {
    body: UpstreamBody,
    input: BytesMut,
    secret: Arc<PeerSecret>,
    label: Bytes,
    /// How many records were read.
    place: u64,
    /// The owner's presence ends: nothing more will come.
    gone: UntilGone,
}

impl Answer {
    pub(super) fn new(
        body: UpstreamBody,
        secret: Arc<PeerSecret>,
        label: Bytes,
        gone: UntilGone,
    ) -> Self {
        Self {
            body,
            input: BytesMut::new(),
            secret,
            label,
            place: 0,
            gone,
        }
    }

    /// Waits until the owner has accepted the forward.
    pub(super) async fn accepted(&mut self) -> Result<(), PeerError> {
        match self.next().await? {
            Record::Accepted => Ok(()),
            Record::End(ending) => Err(PeerError::of(ending)),
            _ => Err(unexpected()),
        }
    }

    /// The next record.
    pub(crate) async fn next(&mut self) -> Result<Record, PeerError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next record. After the last one this is an error.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Record, PeerError>> {
        loop {
            match self.take() {
                Ok(Some(Record::Beat)) => {}
                Ok(Some(record)) => return Poll::Ready(Ok(record)),
                Ok(None) => match self.poll_read(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        ready!(Pin::new(&mut self.gone).poll(cx));
                        return Poll::Ready(Err(PeerError::Gone { was_sent: true }));
                    }
                },
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PeerError>> {
        match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    self.input.extend_from_slice(&data);
                }
                Poll::Ready(Ok(()))
            }
            Some(Err(error)) => Poll::Ready(Err(PeerError::Broken(error.to_string().into()))),
            None => Poll::Ready(Err(PeerError::Broken(
                "it ended without a last record".into(),
            ))),
        }
    }

    /// The next record of what has arrived.
    fn take(&mut self) -> Result<Option<Record>, PeerError> {
        let Some((length, rest)) = self.input.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > LARGEST {
            return Err(unexpected());
        }
        if rest.len() < length {
            return Ok(None);
        }
        self.input.advance(4);
        let sealed = self.input.split_to(length);
        let opened = self.secret.open_record(&self.label, self.place, &sealed);
        self.place += 1;
        let record = opened.and_then(Record::from_bytes);
        record.map(Some).ok_or_else(unexpected)
    }

    /// The message that follows, and how the answer ends after it.
    pub(crate) async fn whole(&mut self) -> Result<Bytes, PeerError> {
        let mut message = BytesMut::new();
        loop {
            match self.next().await? {
                Record::Part(part) if message.len() + part.len() <= MAX_MESSAGE => {
                    message.extend_from_slice(&part);
                }
                Record::End(Ending::Done) => {
                    self.finish().await;
                    return Ok(message.freeze());
                }
                Record::End(ending) => return Err(PeerError::of(ending)),
                _ => return Err(unexpected()),
            }
        }
    }

    /// Waits for the end of an answer that has no message.
    pub(crate) async fn done(&mut self) -> Result<(), PeerError> {
        match self.next().await? {
            Record::End(Ending::Done) => {
                self.finish().await;
                Ok(())
            }
            Record::End(ending) => Err(PeerError::of(ending)),
            _ => Err(unexpected()),
        }
    }

    /// Has its connection used again: its other end has shown who it is.
    pub(super) fn keep_connection(&mut self) {
        self.body.keep();
    }

    /// Reads the end of the response after the last record, so that its connection can be used again.
    pub(crate) async fn finish(&mut self) {
        let ending = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx));
        drop(tokio::time::timeout(FINISHES_WITHIN, ending).await);
    }
}

pub(crate) fn unexpected() -> PeerError {
    PeerError::Broken("it is not what a gateway with the same secret sends".into())
}
