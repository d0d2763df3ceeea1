//! A JSON answer in a session whose revision has batches: it may be an array.
//!
//! A server's request may stand in it, and must not reach the client without its mark. So an array
//! is held whole, its members are marked, and it is passed on as an array again: a client of that
//! revision reads batches. Anything else passes frame by frame, as in every revision.

use std::future::poll_fn;

use bowline_wire::batch::{self, BadBatch};
use bowline_wire::message::is_answer_to;
use bytes::{Bytes, BytesMut};

use super::relay::{StreamError, poll_data};
use super::rewrite::{MAX_BATCH, Rewrite};
use super::send::{Answered, MAX_HELD_ANSWER, Reply};
use crate::body::{ReadError, read_limited};
use crate::egress::UpstreamBody;
use crate::upstream::{Answer, UpstreamError};

/// The most white space before the first byte that tells an array.
const MAX_BLANK: usize = 4096;

/// An answer of any length: an array is read, anything else is still to be read.
pub(super) async fn look_into(
    mut answer: Answer,
    first: Option<Bytes>,
    rewrite: &Rewrite,
) -> Result<Answered, UpstreamError> {
    let first = first_bytes(first, &mut answer.body).await?;
    if !batch::is_batch(&first) {
        return Ok(Answered::Arriving(answer, Some(first)));
    }
    let (status, content_type) = (answer.status, answer.content_type().cloned());
    let rest = read_limited(answer.body, MAX_HELD_ANSWER).await?;
    let whole = Bytes::from([first, rest].concat());
    Ok(Answered::Read(Reply::Whole {
        status,
        content_type,
        body: marked(whole, rewrite)?,
    }))
}

/// Whether a body is an array with the answer to the request of this id (JSON text) in it.
pub(super) fn has_answer_to(body: &Bytes, id: &str) -> bool {
    let members = match batch::is_batch(body) {
        true => batch::split(body, MAX_BATCH).unwrap_or_default(),
        false => Vec::new(),
    };
    members.iter().any(|member| is_answer_to(member, id))
}

/// The same bytes, or an array with marks.
fn marked(whole: Bytes, rewrite: &Rewrite) -> Result<Bytes, UpstreamError> {
    if !batch::is_batch(&whole) {
        return Ok(whole);
    }
    match batch::split(&whole, MAX_BATCH) {
        Ok(members) => {
            let shown: Option<Vec<Bytes>> = members.iter().map(|raw| rewrite.member(raw)).collect();
            let shown = shown.ok_or(StreamError::Seal)?;
            if shown == members {
                return Ok(whole);
            }
            let array = [&b"["[..], &shown.join(&b","[..]), b"]"].concat();
            Ok(array.into())
        }
        // Not for us to judge: there is no message in it that could want a mark.
        Err(BadBatch::NotJson(_)) => Ok(whole),
        Err(error @ BadBatch::TooMany { .. }) => Err(StreamError::Batch(error).into()),
    }
}

/// What arrives first, up to a byte that is not white space or the body's end.
async fn first_bytes(
    first: Option<Bytes>,
    body: &mut UpstreamBody,
) -> Result<Bytes, UpstreamError> {
    if let Some(first) = first {
        return Ok(first);
    }
    let mut first = BytesMut::new();
    while let Some(data) = poll_fn(|cx| poll_data(body, cx)).await {
        first.extend_from_slice(&data.map_err(StreamError::Broken)?);
        if !first.trim_ascii_start().is_empty() {
            break;
        }
        if first.len() > MAX_BLANK {
            return Err(UpstreamError::BadBody(ReadError::TooLarge(MAX_BLANK)));
        }
    }
    Ok(first.freeze())
}
