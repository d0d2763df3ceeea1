//! Bowline: a gateway that keeps MCP sessions tied.
//!
//! A message comes in at a [`front`], passes the guard, finds its [`session`], is [`route`]d to a
//! server, and leaves over that session's [`leg`] through the [`upstream`]'s transport.
//! `docs/architecture.md` draws the way.

pub mod config;
pub mod login;
pub mod probe;
#[doc(hidden)]
pub mod reference;

mod admin;
mod caller;
mod callers;
mod descriptors;
mod drain;
mod exchange;
mod fault;
mod front;
mod gateway;
mod guard;
mod hub;
mod leg;
mod listener;
mod mailboxes;
mod net;
mod oauth;
mod owners;
mod peers;
#[cfg(feature = "planted")]
pub mod planted;
mod proof;
mod registry;
mod route;
mod session;
mod session_store;
mod share;
mod telemetry;
mod union;
mod upstream;

pub use bowline_store::private::is_open_to_others;
pub use bowline_store::sealed::{NoRandomness, SealKeys, SealKeysError};
pub use bowline_store::{OpenStoreError, Refusal, StoreError};
pub use bowline_system::socket_file::SocketFileError;
pub use gateway::{Bridge, Gateway, OpenBrowser, PeerSecretError, ReloadError, StartError};
#[cfg(feature = "planted")]
#[doc(hidden)]
pub use peers::Forgery;
