//! The client's side: a transport's requests become exchanges, and replies become its responses.

pub(crate) mod guard;
mod reply;
mod streamable;

pub(crate) use reply::{ReplyBody, json, refuse};
pub(crate) use streamable::serve;
