//! A JSON answer that is an array. Only revision 2025-03-26 has these, but clients of other
//! revisions accept them too.
//!
//! An array may contain a server's request, which must not reach the client without its mark. So an
//! array is buffered whole (`held.rs`), its members are marked, and it is passed on as an array.

use bowline_wire::batch::{self, BadBatch};
use bowline_wire::message::{Message, RawId, is_answer_to};
use bytes::Bytes;

use super::rewrite::Rewrite;
use crate::upstream::MAX_BATCH;
use crate::upstream::StreamError;
use crate::upstream::UpstreamError;

/// Whether a body is an array with the answer to the request of this id in it.
pub(crate) fn has_answer_to(body: &Bytes, id: RawId<'_>) -> bool {
    let members = match batch::is_batch(body) {
        true => batch::split(body, MAX_BATCH).unwrap_or_default(),
        false => Vec::new(),
    };
    members.iter().any(|member| is_answer_to(member, id))
}

/// The array with marks and without answers to other requests. Unchanged bytes if nothing had to
/// change.
pub(crate) fn marked(whole: Bytes, rewrite: &Rewrite) -> Result<Bytes, UpstreamError> {
    match batch::split(&whole, MAX_BATCH) {
        Ok(members) => {
            let is_foreign = |raw: &Bytes| {
                let message = Message::from_server(raw.clone());
                message.is_ok_and(|message| rewrite.is_anothers(&message))
            };
            let own = members.iter().filter(|raw| !is_foreign(raw)).cloned();
            let shown = rewrite.members(own.collect()).ok_or(StreamError::Seal)?;
            if shown == members {
                return Ok(whole);
            }
            let array = [&b"["[..], &shown.join(&b","[..]), b"]"].concat();
            Ok(array.into())
        }
        // An array that is not JSON contains no message that needs a mark. The client judges it.
        Err(BadBatch::NotJson(_)) => Ok(whole),
        Err(error @ BadBatch::TooMany { .. }) => Err(StreamError::Batch(error).into()),
    }
}
