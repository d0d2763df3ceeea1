//! Gateways on one store with `[peers]`: a session whose server is a process is used through all of them, whatever
//! happens to its owner or to the way there, and by nobody who should not.

mod attacks;
mod conversations;
mod deliveries;
mod failures;
mod fleet;
mod killing;
mod signing_in;
mod stopping;
