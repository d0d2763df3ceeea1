//! People sign in at servers that want it; nobody gets another's token, and no secret is shown.
//!
//! Here belongs whatever is about a server's authorization: the flows, the ways of asking, authorization
//! servers and what they may name, accounts, the pages, and those who attack any of it.

mod accounts;
mod asked_identity;
mod asking;
mod attacks;
mod callback_route;
mod clients;
mod delivery;
mod docker_agent;
mod documents;
mod embedder;
mod imitations;
mod issuers;
mod line_readers;
mod operators;
mod pages;
mod returns;
mod scopes;
mod unopened;
mod visitors;
mod waits;
