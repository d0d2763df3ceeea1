//! Bowline: a gateway that keeps MCP sessions tied.
//!
//! A message comes in at a [`front`], passes the guard, finds its [`session`], is [`route`]d to a
//! server, and leaves over that session's [`leg`] through the [`upstream`]'s transport.
//! `docs/architecture.md` draws the way.

pub mod config;
pub mod sign_in;

mod admin;
mod body;
mod clock;
mod descriptors;
mod detach;
mod drain;
mod egress;
mod fault;
mod front;
mod gateway;
mod leg;
mod listener;
mod neighbours;
mod net;
mod oauth;
#[cfg(feature = "planted")]
pub mod planted;
mod route;
mod session;
mod share;
mod store;
mod telemetry;
mod upstream;

pub use gateway::{Gateway, ReloadError, StartError};
pub use store::private::is_open_to_others;
pub use store::sealed::{NoRandomness, SealKeys, SealKeysError};
pub use store::{OpenStoreError, Refusal, StoreError};
