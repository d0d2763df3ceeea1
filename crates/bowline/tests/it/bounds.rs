//! Nobody can have more than their share, and one that is sick hurts nobody else.
//!
//! Here belongs whatever is about how much and how long: limits, crowds, deadlines, servers that hang.

mod crowds;
mod deadlines;
mod hanging;
mod limits;
mod memory;
mod sessions;
