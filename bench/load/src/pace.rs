//! Calls at a fixed rate, whether or not earlier ones were answered.

use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

/// The moments at which one connection is to call. A call that cannot leave on time because the
/// one before it has no answer yet is still measured from its moment.
pub(crate) type Moments = UnboundedReceiver<Instant>;

/// Deals out `rate` moments a second to `connections` in turn, until `end`.
///
/// On a thread of its own, because the runtime's timers are too coarse: they know milliseconds.
pub(crate) fn pace(rate: u32, connections: usize, start: Instant, end: Instant) -> Vec<Moments> {
    let (senders, moments): (Vec<UnboundedSender<Instant>>, Vec<Moments>) =
        (0..connections).map(|_| unbounded_channel()).unzip();
    let gap = Duration::from_secs(1) / rate;
    thread::spawn(move || {
        let mut moment = start;
        for sender in senders.iter().cycle() {
            if moment >= end {
                break;
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "this thread has nothing else to do"
            )]
            thread::sleep(moment.saturating_duration_since(Instant::now()));
            if sender.send(moment).is_err() {
                break;
            }
            moment += gap;
        }
    });
    moments
}
