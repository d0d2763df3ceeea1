//! The client's side: a transport's requests become exchanges, and replies become its responses.

mod access;
pub(crate) mod arrival;
mod body;
mod browser;
pub(crate) mod callback;
mod client;
mod cross_origin;
pub(crate) mod embedder;
mod forms;
pub(crate) mod html;
mod http_sse;
pub(crate) mod pages;
pub(crate) mod peer;
pub(crate) mod query;
pub(crate) mod response;
mod shown;
mod sign_out;
pub(crate) mod status;
pub(crate) mod stdio;
mod streamable;

pub(crate) use streamable::serve;
