//! The project's own MCP "everything" server: a real upstream, made of rmcp and nothing of ours.
//!
//! It offers the tools, prompts and resources that the official conformance suite calls by name,
//! and two of its own (`count`, `whoami`) that make a session's state and its replica visible. The
//! suite runs against it directly and through the gateway; the difference is what the gateway did.
//! Integration tests start several `Replica`s in one process and read their `Observed` numbers.
//!
//! Sessions live in memory, as in most servers in the field: a request that reaches the wrong
//! replica is answered with 404. It must never depend on the gateway's crates.

mod handler;
mod observed;
mod part;
mod prompts;
mod replica;
mod resources;
mod samples;
mod sessions;
#[cfg(test)]
mod tests;
mod tools;

pub use observed::Observed;
pub use part::Part;
pub use replica::{PATH, Replica, serve, serve_stdio};
