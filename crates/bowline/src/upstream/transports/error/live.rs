//! What can go wrong with a message to something that lives in one gateway.

use std::sync::Arc;

use thiserror::Error;

use super::End;

/// What went wrong with a message.
#[derive(Debug, Error)]
pub(crate) enum LiveError {
    /// It is gone, and the session with it.
    #[error("its {} has ended: {end}", end.what())]
    Ended {
        end: Arc<End>,
        /// Any byte of the message was written.
        was_written: bool,
    },
    #[error("the session lives in another gateway ({0}), which is present")]
    Elsewhere(Arc<str>),
    #[error(
        "this gateway could not tell the others that it is present: the session may be another's by now"
    )]
    Unsure,
    #[error("the server does not read what is sent to it; nothing of this message was written")]
    NotRead,
    #[error("another call of the session has this id")]
    IdTaken,
    #[error("the server wrote an answer that cannot be read")]
    Unreadable,
}

impl LiveError {
    /// It had ended before anything was written.
    pub(in crate::upstream) fn not_sent(end: Arc<End>) -> Self {
        Self::Ended {
            end,
            was_written: false,
        }
    }
}
