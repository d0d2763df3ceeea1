//! A JSON answer that is an array, as one revision has them. Clients of others read them, too.
//!
//! A server's request may stand in it, and must not reach the client without its mark. So an array
//! is held whole (`held.rs`), its members are marked, and it is passed on as an array again.

use bowline_wire::batch::{self, BadBatch};
use bowline_wire::message::{Message, is_answer_to};
use bytes::Bytes;

use super::rewrite::Rewrite;
use crate::upstream::MAX_BATCH;
use crate::upstream::StreamError;
use crate::upstream::UpstreamError;

/// Whether a body is an array with the answer to the request of this id (JSON text) in it.
pub(crate) fn has_answer_to(body: &Bytes, id: &str) -> bool {
    let members = match batch::is_batch(body) {
        true => batch::split(body, MAX_BATCH).unwrap_or_default(),
        false => Vec::new(),
    };
    members.iter().any(|member| is_answer_to(member, id))
}

/// An array with marks and without answers to other requests, or the same bytes.
pub(crate) fn marked(whole: Bytes, rewrite: &Rewrite) -> Result<Bytes, UpstreamError> {
    match batch::split(&whole, MAX_BATCH) {
        Ok(members) => {
            let is_anothers = |raw: &Bytes| {
                let message = Message::from_server(raw.clone());
                message.is_ok_and(|message| rewrite.is_anothers(&message))
            };
            let own = members.iter().filter(|raw| !is_anothers(raw)).cloned();
            let shown = rewrite.members(own.collect()).ok_or(StreamError::Seal)?;
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
