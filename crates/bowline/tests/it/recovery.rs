//! A server that loses a session, goes away or restarts is not the client's problem, and nothing runs twice.
//!
//! Here belongs whatever is about a loss and what follows: how it is known, what is opened and restored, what
//! goes again and what is told, at one gateway. Losses that several gateways meet are in `stores`.

mod accepted;
mod balancer;
mod carried;
mod draining;
mod fingerprints;
mod keep_alive;
mod leftovers;
mod listings;
mod losses;
mod notices;
mod own_lists;
mod repeats;
mod replays;
mod restore;
mod scenarios;
mod table_answered;
mod table_unanswered;
mod waiting;
