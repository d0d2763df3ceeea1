//! The client's side: a transport's requests become exchanges, and replies become its responses.

mod arrival;
mod batch;
mod bodies;
mod browser;
pub(crate) mod caller;
mod cross_origin;
mod elicited;
mod embedder;
mod exchange;
pub(crate) mod guard;
mod joined;
mod loops;
mod member;
mod oauth;
mod opening;
mod question;
mod reply;
mod sign_in;
mod sign_out;
mod streamable;
mod visitor;
mod visits;

pub(crate) use bodies::Bodies;
pub(crate) use loops::Pseudonym;
pub(crate) use oauth::{Query, end_page, page};
pub(crate) use reply::{ReplyBody, json, refuse, whole};
pub(crate) use streamable::serve;
pub(crate) use visits::Visits;
