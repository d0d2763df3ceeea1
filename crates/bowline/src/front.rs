//! The client's side: a transport's requests become exchanges, and replies become its responses.

mod access;
pub(crate) mod arrival;
mod browser;
mod cross_origin;
pub(crate) mod embedder;
pub(crate) mod html;
pub(crate) mod pages;
pub(crate) mod query;
pub(crate) mod response;
mod sign_out;
pub(crate) mod status;
mod streamable;

pub(crate) use streamable::serve;
