//! The client's side: a transport's requests become exchanges, and replies become its responses.

mod arrival;
mod batch;
pub(crate) mod caller;
mod elicited;
mod embedder;
mod exchange;
pub(crate) mod guard;
mod joined;
mod member;
mod oauth;
mod opening;
mod question;
mod reply;
mod sign_in;
mod streamable;
mod visits;

pub(crate) use oauth::{Query, end_page, page};
pub(crate) use reply::{ReplyBody, json, refuse, whole};
pub(crate) use streamable::serve;
pub(crate) use visits::Visits;
