//! Servers that are processes (stdio): they are spoken to, recovered and ended like any other, and what they
//! do wrong hurts nobody else.

mod conversations;
mod hanging;
mod hostile;
mod limits;
mod losses;
mod starts;
mod stores;
mod unreadable;
