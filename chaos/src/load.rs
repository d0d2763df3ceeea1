//! The sessions: each calls what may and what may not run twice, and looks at every answer.

mod judge;
pub(crate) mod listen;
mod rover;

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use self::rover::Failure;
pub(crate) use self::rover::Rover;
use crate::Arguments;
use crate::gateway::Gateways;
use crate::history::{Call, Kind, Outcome, Recorder};

/// How many calls of a session may be under way at the same time.
const LANES: usize = 2;
/// How long it waits after a gateway that is not there before it asks the next.
const BEFORE_THE_NEXT: Duration = Duration::from_millis(10);
/// How long the client waits after a call's limit, to tell late from never.
const GRACE: Duration = Duration::from_secs(5);

/// A session's share of the calls: one after the other, on a connection of its own.
#[derive(Debug)]
struct Lane {
    session: usize,
    lane: usize,
    client: Rover,
    random: Rng,
    recorder: Arc<Recorder>,
    calls: u64,
    steps: u64,
}

/// Opens all sessions, before anything is broken, and has each see the list of tools.
pub(crate) async fn open(
    arguments: &Arguments,
    gateways: &Arc<Gateways>,
    recorder: &Arc<Recorder>,
) -> anyhow::Result<Vec<Rover>> {
    let mut clients = Vec::new();
    for session in 0..arguments.sessions {
        let mut client = Rover::new(gateways, session, &listen::name(session))?;
        ensure!(client.open().await, "a session was not opened");
        let mut lane = Lane::new(arguments, session, LANES, client, recorder);
        let outcome = lane.exchange(Kind::List).await;
        ensure!(outcome == Outcome::Answered, "tools/list: {outcome:?}");
        clients.push(lane.client);
    }
    Ok(clients)
}

/// Calls in all sessions until then, and waits for the last answers.
pub(crate) async fn call(
    arguments: &Arguments,
    sessions: &[Rover],
    recorder: &Arc<Recorder>,
    until: Instant,
    limit: Duration,
) {
    let mut lanes = JoinSet::new();
    for (session, client) in sessions.iter().enumerate() {
        for number in 0..LANES {
            let lane = Lane::new(arguments, session, number, client.twin(), recorder);
            lanes.spawn(lane.run(arguments.pause, until, limit));
        }
    }
    lanes.join_all().await;
}

impl Lane {
    fn new(
        arguments: &Arguments,
        session: usize,
        lane: usize,
        client: Rover,
        recorder: &Arc<Recorder>,
    ) -> Self {
        let mut seeds = Rng::with_seed(arguments.seed ^ 0x5eed);
        let place = (session * (LANES + 1) + lane) as u64;
        let seed = seeds
            .u64(..)
            .wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self {
            session,
            lane,
            client,
            random: Rng::with_seed(seed),
            recorder: Arc::clone(recorder),
            calls: 0,
            steps: 0,
        }
    }

    async fn run(mut self, pause: u64, until: Instant, limit: Duration) {
        loop {
            sleep(Duration::from_millis(self.random.u64(..=pause))).await;
            if Instant::now() >= until {
                return;
            }
            let kind = self.kind();
            let began = self.recorder.now();
            let outcome = timeout(limit + GRACE, self.exchange(kind)).await;
            let outcome = outcome.unwrap_or(Outcome::Never);
            let lost = outcome == Outcome::Lost;
            self.recorder.call(Call {
                session: self.session,
                kind,
                key: self.key(),
                began,
                ended: self.recorder.now(),
                gateway: self.client.latest(),
                outcome,
            });
            if lost && !self.reopen(until).await {
                return;
            }
        }
    }

    /// Opens a session in place of the lost one; `false` when the time was over before.
    async fn reopen(&mut self, until: Instant) -> bool {
        while Instant::now() < until {
            let opened = timeout(GRACE, self.client.open()).await;
            if opened == Ok(true) {
                return true;
            }
            sleep(Duration::from_millis(100)).await;
        }
        false
    }

    fn kind(&mut self) -> Kind {
        match self.random.u8(..20) {
            0 => Kind::Ping,
            1 => Kind::List,
            2 => Kind::Resource,
            3..8 => Kind::Read,
            8..11 => Kind::StreamRead,
            11..17 => Kind::Bump,
            _ => Kind::Slow,
        }
    }

    /// The key of the last call.
    fn key(&self) -> String {
        format!("s{}.{}-{}", self.session, self.lane, self.calls)
    }

    /// Makes one call and looks at the answer. Where a gateway dies, the next is asked, if nothing was
    /// sent or what was sent may run twice.
    async fn exchange(&mut self, kind: Kind) -> Outcome {
        self.calls += 1;
        let key = self.key();
        self.steps = self.random.u64(1..6);
        let mut attempts = 0;
        loop {
            // Numbers are the same in all sessions, so that a mixed-up answer would be taken.
            let id = match (attempts, self.calls % 2) {
                (0, 0) => json!(self.calls * LANES as u64 + self.lane as u64),
                (0, _) => json!(key),
                _ => json!(format!("{key}, again {attempts}")),
            };
            let message = self.message(kind, &id, &key);
            match self.client.send(&message).await {
                Ok(answer) => {
                    return judge::outcome(kind, &id, &key, self.steps, &answer);
                }
                Err(Failure::Broken(error)) => return Outcome::Silent(error),
                Err(Failure::Orphaned) if !kind.is_safe() => return Outcome::Orphaned,
                Err(Failure::Orphaned) => attempts += 1,
                Err(Failure::NotThere) => sleep(BEFORE_THE_NEXT).await,
            }
        }
    }

    fn message(&mut self, kind: Kind, id: &Value, key: &str) -> Value {
        let (method, parameters) = match kind {
            // A stream is asked for without a message.
            Kind::Ping | Kind::Listen => ("ping", json!({})),
            Kind::List => ("tools/list", json!({})),
            Kind::Resource => ("resources/read", json!({"uri": judge::uri(key)})),
            Kind::Read | Kind::Bump => (
                "tools/call",
                json!({"name": kind.tool(), "arguments": {"key": key}}),
            ),
            Kind::StreamRead | Kind::Slow => (
                "tools/call",
                json!({
                    "name": kind.tool(),
                    "arguments": {"key": key, "steps": self.steps, "ms": self.random.u64(5..80)},
                    "_meta": {"progressToken": key},
                }),
            ),
        };
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": parameters})
    }
}
