//! Servers that speak HTTP+SSE (2024-11-05): a stream that is a session, and a URL for its messages. What holds for
//! every transport is in `matrix`.

mod choosing;
mod conversations;
mod hostile;
mod losses;
mod opening;
pub(crate) mod signing_in;
mod stores;
mod transported;
