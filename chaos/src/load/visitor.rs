//! Clients that open a session, call a little, end it, and look whether it has ended.

use std::time::Duration;

use bowline_testbed::client::VERSION;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::rover::Failure;
use super::{BEFORE_THE_NEXT, GRACE, LANES, Lane, Load, Rover, listen};
use crate::history::{Kind, Outcome};
use crate::server::{Server, Target, union_clients};
use crate::trouble::Trouble;

/// How many there are, with the replicas and with all servers as one.
const VISITORS: usize = 4;
const UNION_VISITORS: usize = 2;
/// The longest pause between two of its steps, in milliseconds.
const PAUSE_MS: u64 = 300;
/// How long their `initialize` is, and that one session in so many is never ended: so stores grow, and a
/// full disk is met.
const WEIGHT: usize = 8 * 1024;
const ONE_STAYS_IN: u8 = 3;
/// How long the other gateways may take to hear of an end.
const UNTIL_ANNOUNCED: Duration = Duration::from_millis(500);
/// How often an end that went wrong is tried again.
const ENDS: usize = 5;

impl Load<'_> {
    /// Has them come and go until then.
    pub(super) fn visit(&self, tasks: &mut JoinSet<()>, until: Instant) {
        if !self.arguments.tries(Trouble::Delete) {
            return;
        }
        let sessions = (self.arguments.sessions + 1..).take(VISITORS);
        let sessions = sessions.map(|session| (session, Target::One(Server::Replicas)));
        let unions = self.arguments.union_clients();
        let members = union_clients()
            .skip(unions)
            .take(UNION_VISITORS.min(unions));
        let members = members.map(|client| (client, Target::Union));
        for (session, target) in sessions.chain(members) {
            let name = listen::name(session);
            let Ok(client) = Rover::new(self.gateways, target, session, &name, VERSION) else {
                continue;
            };
            let mut lane = self.lane(session, LANES, client.weighing(WEIGHT));
            // They open no sessions with the other servers, whose number says something.
            lane.calls.only(Server::Replicas);
            tasks.spawn(async move {
                while Instant::now() < until {
                    lane.visit().await;
                }
            });
        }
    }
}

impl Lane<Rover> {
    async fn visit(&mut self) {
        self.rest().await;
        if self.step(Kind::Open).await != Outcome::Answered {
            return;
        }
        for _ in 0..self.calls.random().usize(..3) {
            self.rest().await;
            let kind = match self.calls.random().bool() {
                true => Kind::Read,
                false => Kind::Bump,
            };
            if self.record(kind).await == Outcome::Lost {
                return;
            }
        }
        if self.calls.random().u8(..ONE_STAYS_IN) == 0 {
            return;
        }
        for _ in 0..ENDS {
            match self.step(Kind::Delete).await {
                Outcome::Answered | Outcome::Lost => {
                    if self.client.has_several_gateways() {
                        self.recorder.machine.sleep(UNTIL_ANNOUNCED).await;
                    }
                    self.record(Kind::Ended).await;
                    return;
                }
                // What nobody answered may have ended it, or not: the next tells.
                _ => self.rest().await,
            }
        }
    }

    /// Opens or ends the session, and writes down how that went.
    async fn step(&mut self, kind: Kind) -> Outcome {
        let expected = self.calls.next(kind);
        let (began, limit) = (self.recorder.now(), self.limit + GRACE);
        let stepping = async {
            loop {
                let answer = match kind {
                    Kind::Open => self.client.open().await,
                    _ => self.client.delete().await,
                };
                return match answer {
                    Ok(answer) => match answer.status.as_u16() {
                        200..300 => Outcome::Answered,
                        404 if kind == Kind::Delete => Outcome::Lost,
                        status => Outcome::Refused(status, answer.code()),
                    },
                    Err(Failure::Broken(error)) => Outcome::Silent(error),
                    Err(Failure::Orphaned) => Outcome::Orphaned,
                    Err(Failure::NotThere) => {
                        sleep(BEFORE_THE_NEXT).await;
                        continue;
                    }
                };
            }
        };
        let outcome = timeout(limit, stepping).await;
        let outcome = outcome.unwrap_or(Outcome::Never);
        self.write_down(&expected, began, outcome.clone());
        outcome
    }

    async fn rest(&mut self) {
        let pause = self.calls.random().u64(..PAUSE_MS);
        sleep(Duration::from_millis(pause)).await;
    }
}
