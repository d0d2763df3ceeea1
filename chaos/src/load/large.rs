//! One session with answers that are larger than anybody likes.

use std::time::Duration;

use bowline_testbed::client::VERSION;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{GRACE, LANES, Lane, Load, Rover, listen};
use crate::history::{Kind, Outcome};
use crate::server::{Server, Target};
use crate::trouble::Trouble;

/// An answer that passes, and an event that is larger than one may be.
const BYTES: usize = 20 << 20;
const EVENT_BYTES: usize = 66 << 20;
/// The pause between two, in milliseconds: they are a lot of work.
const PAUSE_MS: std::ops::Range<u64> = 2000..6000;

impl Load<'_> {
    /// Calls until then.
    pub(super) fn call_large(&self, tasks: &mut JoinSet<()>, until: Instant) {
        if !self.arguments.tries(Trouble::Large) {
            return;
        }
        let session = self.arguments.sessions;
        let client = Rover::new(
            self.gateways,
            Target::One(Server::Replicas),
            session,
            &listen::name(session),
            VERSION,
        );
        if let Ok(client) = client {
            let lane = self.lane(session, LANES, client);
            tasks.spawn(lane.run_large(until));
        }
    }
}

impl Lane<Rover> {
    async fn run_large(mut self, until: Instant) {
        if !self.reopen(until).await {
            return;
        }
        for kind in [Kind::LargeEvent, Kind::Large].into_iter().cycle() {
            if self.record_large(kind).await == Outcome::Lost && !self.reopen(until).await {
                return;
            }
            let pause = self.calls.random().u64(PAUSE_MS);
            sleep(Duration::from_millis(pause)).await;
            if Instant::now() >= until {
                return;
            }
        }
    }

    async fn record_large(&mut self, kind: Kind) -> Outcome {
        let mut expected = self.calls.next(kind);
        expected.bytes = match kind {
            Kind::LargeEvent => EVENT_BYTES,
            _ => BYTES,
        };
        let began = self.recorder.now();
        let outcome = timeout(self.limit + GRACE, self.exchange(&expected)).await;
        let outcome = outcome.unwrap_or(Outcome::Never);
        self.write_down(&expected, began, outcome.clone());
        outcome
    }
}
