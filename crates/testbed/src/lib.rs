//! What Bowline is tested against. Development only; nothing here ships.

pub mod everything;
pub mod faulty;
pub mod haproxy;
pub mod scripted;
pub mod strict;
