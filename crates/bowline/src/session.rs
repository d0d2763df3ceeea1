//! What is remembered for one client: found once per message, ended once.

mod believed;
mod caller;
mod calls;
mod departed;
mod keeper;
mod kept;
mod news;
mod places;
mod questions;
mod record;
mod seal;
mod shown;
mod standing;
mod streams;
mod table;
mod timeline;
mod written;

pub(crate) use believed::{Believed, Lacks, MAX_OPENING, Offered, TooMuchSaid};
pub(crate) use caller::{Caller, KeyPrint};
pub(crate) use calls::{Call, Calls};
pub(crate) use departed::Departed;
pub(crate) use keeper::{Keeper, Unsure};
pub(crate) use kept::{Held, Published, Turn};
pub(crate) use news::News;
pub(crate) use questions::{Question, Questions};
pub(crate) use record::{InUse, Session};
pub(crate) use seal::{Born, EventMark, Seal};
pub(crate) use standing::Condition;
pub(crate) use streams::{LiveStream, Source, StreamKey};
pub(crate) use table::{Table, Vacancy};
