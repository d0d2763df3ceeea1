//! The client's side: a transport's requests become exchanges, and replies become its responses.

mod access;
pub(crate) mod arrival;
mod body;
pub(crate) mod callback;
mod client;
mod delivery;
mod embedder;
mod http;
mod http_sse;
mod pages;
pub(crate) mod peer;
mod query;
mod refusal;
pub(crate) mod response;
pub(crate) mod status;
pub(crate) mod stdio;
mod streamable;

pub(crate) use self::http::serve;
