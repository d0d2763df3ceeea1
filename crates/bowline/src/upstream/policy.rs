//! What applies to the messages of one server: what may be sent to it, what it may not say, which of its tools are
//! safe to repeat, and how long it is tried.

pub(crate) mod budget;
mod carried;
pub(crate) mod reserved;
mod tool_hints;

pub(crate) use self::carried::{Carried, MAX_QUERY, names_for_all};
pub(super) use self::tool_hints::ToolHints;
pub(crate) use self::tool_hints::{
    Audience, Epoch, LastList, LegHints, ListOver, ListTurn, ListedAgain, OWN_LIST, Pages, Stored,
    WantedList, count_safe,
};
