//! What is remembered for one client: found once per message, ended once.

mod record;
mod seal;
mod streams;
mod table;

pub(crate) use record::{Caller, InUse, Session};
pub(crate) use seal::{Born, EventMark, Seal};
pub(crate) use streams::{LiveStream, Source, StreamKey};
pub(crate) use table::{Table, Vacancy};
