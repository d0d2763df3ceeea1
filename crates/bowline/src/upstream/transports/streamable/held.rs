//! Buffers a JSON answer. A small one is buffered whole before the client sees any of it, so that
//! it can be inspected, and requested again if the connection breaks. A larger one is buffered
//! until it is known which request it answers, and then passed on while it arrives.

use std::collections::VecDeque;
use std::future::poll_fn;

use bowline_egress::{ReadError, UpstreamBody, read_limited};
use bowline_wire::batch;
use bowline_wire::message::RawId;
use bytes::Bytes;
use http_body::Body as _;

use crate::upstream::transports::body::poll_data;
use crate::upstream::transports::error::{StreamError, UpstreamError};
use crate::upstream::transports::limits::MAX_HELD_ANSWER;
use crate::upstream::transports::passing::Passing;

/// What has arrived of an answer.
pub(crate) enum Held {
    Whole(Bytes),
    /// It is larger than the buffer.
    Begun(Passing),
}

/// How an answer is buffered.
pub(crate) struct Holding<'a> {
    /// How many bytes, unless it is an array: arrays are always buffered, because they are
    /// inspected.
    pub(crate) limit: usize,
    /// The id that its request was sent under, and the client's own if that is another.
    pub(crate) asked: RawId<'a>,
    pub(crate) own: Option<RawId<'a>>,
}

impl Holding<'_> {
    /// Reads an answer, up to its end or up to the limit.
    pub(crate) async fn hold(&self, body: &mut UpstreamBody) -> Result<Held, UpstreamError> {
        let length = body.size_hint();
        if length
            .exact()
            .is_some_and(|length| length <= self.limit as u64)
        {
            return Ok(Held::Whole(read_limited(body, self.limit).await?));
        }
        Box::pin(self.hold_any(body, length.lower() > self.limit as u64)).await
    }

    /// The same for an answer of unknown length or over the limit.
    async fn hold_any(
        &self,
        body: &mut UpstreamBody,
        is_large: bool,
    ) -> Result<Held, UpstreamError> {
        let mut parts = Parts::default();
        let mut limit = self.limit;
        loop {
            let Some(data) = next(body).await? else {
                return Ok(Held::Whole(parts.joined()));
            };
            parts.add(data);
            let is_array = parts.are_array();
            if is_array {
                limit = MAX_HELD_ANSWER;
            }
            match parts.length > limit {
                true if is_array => return Err(ReadError::TooLarge(limit).into()),
                true => break,
                false if is_large && !is_array && parts.first_byte().is_some() => break,
                false => {}
            }
        }
        let mut passing = Passing::new(self.asked, self.own, body.ends_with_connection());
        let mut length = parts.length;
        for part in parts.list {
            passing.push(part)?;
        }
        while !passing.is_found() && length <= limit {
            let Some(data) = next(body).await? else { break };
            length += data.len();
            passing.push(data)?;
        }
        Ok(Held::Begun(passing))
    }
}

/// Bytes that have arrived and were not inspected.
#[derive(Default)]
struct Parts {
    list: VecDeque<Bytes>,
    length: usize,
}

impl Parts {
    fn add(&mut self, data: Bytes) {
        self.length += data.len();
        self.list.push_back(data);
    }

    /// The first byte that is not white space.
    fn first_byte(&self) -> Option<u8> {
        let parts = self.list.iter().map(|part| part.trim_ascii_start());
        parts.flatten().next().copied()
    }

    fn are_array(&self) -> bool {
        self.first_byte()
            .is_some_and(|byte| batch::is_batch(&[byte]))
    }

    fn joined(mut self) -> Bytes {
        match self.list.len() {
            1 => self.list.pop_front().unwrap_or_default(),
            _ => Vec::from(self.list).concat().into(),
        }
    }
}

async fn next(body: &mut UpstreamBody) -> Result<Option<Bytes>, StreamError> {
    let data = poll_fn(|cx| poll_data(body, cx)).await;
    Ok(data.transpose()?)
}
