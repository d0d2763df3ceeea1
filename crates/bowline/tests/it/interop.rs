//! Clients that others wrote work through the gateway as they do without it.
//!
//! Here belongs what can be tried with the Rust SDK; other SDKs are in `interop/` of the repository.

mod modern_clients;
