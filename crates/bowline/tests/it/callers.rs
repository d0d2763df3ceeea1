//! Only those are served who may be, and what is theirs is nobody else's.
//!
//! Here belongs whatever is about who asks: keys, origins, callers that are gone, a gateway that asks itself.
//! Signing in at a server is in `oauth`.

mod cross_origin;
mod departures;
mod every_way;
mod keys;
mod loops;
mod servers;
