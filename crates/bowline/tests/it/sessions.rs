//! A session is opened with a server that answers, stays with it under the id that this server issued, and
//! ends once.
//!
//! Here belongs whatever is about which server, which id and which cookies a session has, how it begins and
//! how long it lives, and what a request gets that has none. Sessions that are lost are in `recovery`, those
//! that are kept outside the gateway in `stores`.

mod cookies;
mod ids;
mod kept_alive;
mod lifetime;
mod opening;
mod refusals;
mod replicas;
mod sticky;
