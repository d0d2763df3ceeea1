//! What an operator does and sees: metrics, lists, warnings, reload, stop, certificates.
//!
//! Here belongs whatever is about running a gateway rather than about what its clients see.

mod admin;
mod certificates;
mod key_files;
mod sockets;
