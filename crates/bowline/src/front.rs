//! The client's side: a transport's requests become exchanges, and replies become its responses.

mod arrival;
mod batch;
pub(crate) mod caller;
mod exchange;
pub(crate) mod guard;
mod joined;
mod member;
mod opening;
mod reply;
mod streamable;

pub(crate) use reply::{ReplyBody, json, refuse, whole};
pub(crate) use streamable::serve;
