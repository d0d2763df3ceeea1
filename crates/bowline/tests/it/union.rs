//! Several servers at one endpoint are one server: every server's tools are there, each message goes where it
//! belongs, and whoever is missing is named.
//!
//! Here belongs whatever is about clients of several servers at once. What holds for a session with one server holds
//! for their members, and is tested there.

mod attacked;
mod callers;
mod discovery;
mod forgotten;
mod fronts;
mod life;
mod lists;
mod missing;
mod resources;
mod routing;
mod said_by;
mod shared;
mod streams;
