//! Whoever asks gets the server's own answer to the byte, whole, and nobody else's; what is none is told as
//! what it is.
//!
//! Here belongs whatever is about one request and what its server says to it: bytes that pass, ids, refusals,
//! redirects, large answers, batches. What goes again after a failure is in `recovery`.

mod arrays;
mod batches;
mod faults;
mod ids;
mod large;
mod odd;
mod own;
mod redirects;
mod refused;
mod tools;
mod verbatim;
