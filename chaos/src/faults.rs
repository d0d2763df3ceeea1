//! What is broken, when, and for how long: a plan from the seed, and its execution.
//!
//! Time is cut into rounds. In each, one replica is left alone and the others are struck; all is
//! well with them again before the round ends. So at any moment there is a healthy endpoint, and it
//! stays so for the rest of the round.

use std::time::Duration;

use bowline_testbed::faulty::{Canned, Fault, When};
use fastrand::Rng;
use tokio::time::{Instant, sleep, sleep_until};

use crate::Arguments;
use crate::history::Recorder;
use crate::load::listen;
use crate::world::{Replica, World};

/// How long one replica is left alone.
const ROUND: Duration = Duration::from_secs(2);
/// When the last strike of a round begins, and how long the longest lasts.
const LAST_STRIKE_MS: u64 = 900;
const LONGEST_MS: u64 = 900;

/// What is done in one round, in any order.
#[derive(Debug)]
struct Round {
    #[cfg_attr(not(test), expect(dead_code, reason = "asserted by the tests"))]
    spared: usize,
    strikes: Vec<Strike>,
}

#[derive(Debug)]
struct Strike {
    replica: usize,
    after: Duration,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    /// Dead for so long.
    Kill(Duration),
    /// Every session is forgotten.
    Forget,
    /// Every open connection is reset.
    Break,
    /// So many requests meet a fault of this kind.
    Requests(&'static str, usize, Fault),
}

/// Breaks things until then.
pub(crate) async fn storm(
    arguments: &Arguments,
    world: &World,
    recorder: &Recorder,
    until: Instant,
) -> anyhow::Result<()> {
    let mut random = Rng::with_seed(arguments.seed);
    let mut begin = Instant::now();
    while begin + ROUND <= until {
        let round = plan(&mut random, world.replicas.len());
        let mut strikes = Vec::new();
        for strike in &round.strikes {
            let replica = &world.replicas[strike.replica];
            strikes.push(strike.carry_out(begin, replica, recorder));
        }
        for struck in join_all(strikes).await {
            struck?;
        }
        begin += ROUND;
        sleep_until(begin).await;
        for replica in &world.replicas {
            replica.heal()?;
        }
        listen::speak(world);
    }
    sleep_until(until).await;
    Ok(())
}

/// Runs all of them at the same time on this task.
async fn join_all<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut done = Vec::new();
    std::future::poll_fn(|context| {
        waiting.retain_mut(|future| match future.as_mut().poll(context) {
            std::task::Poll::Ready(output) => {
                done.push(output);
                false
            }
            std::task::Poll::Pending => true,
        });
        if waiting.is_empty() {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    done
}

fn plan(random: &mut Rng, replicas: usize) -> Round {
    let spared = random.usize(..replicas);
    let mut strikes = Vec::new();
    for replica in (0..replicas).filter(|replica| *replica != spared) {
        // Most are struck, some often, some not at all.
        for _ in 0..random.usize(..5) {
            strikes.push(Strike {
                replica,
                after: Duration::from_millis(random.u64(..LAST_STRIKE_MS)),
                what: what(random),
            });
        }
    }
    Round { spared, strikes }
}

fn what(random: &mut Rng) -> What {
    let count = random.usize(1..20);
    let short = Duration::from_millis(random.u64(20..LONGEST_MS));
    match random.u8(..12) {
        0 | 1 => What::Kill(short),
        2 => What::Forget,
        3 => What::Break,
        4 => What::Requests("reset before", count, Fault::ResetBefore),
        5 | 6 => What::Requests("reset after", count, Fault::ResetAfter),
        7 | 8 => What::Requests("cut", count, Fault::Cut(random.usize(..400))),
        9 => What::Requests("delay", count, Fault::Delay(short)),
        10 => {
            let gone = Canned::plain(404, "404 page not found");
            What::Requests("404", count, Fault::Answer(gone))
        }
        _ => {
            let status = *random.choice(&[502, 503, 503, 504]).unwrap_or(&503);
            let mut ill = Canned::plain(status, "no");
            if random.bool() {
                ill = ill.header("retry-after", "1");
            }
            What::Requests("50x", count, Fault::Answer(ill))
        }
    }
}

impl Strike {
    async fn carry_out(
        &self,
        begin: Instant,
        replica: &Replica,
        recorder: &Recorder,
    ) -> std::io::Result<()> {
        sleep_until(begin + self.after).await;
        match &self.what {
            What::Kill(time) => {
                replica.kill().await;
                recorder.fault(self.replica, "kill", format!("killed for {time:?}"));
                sleep(*time).await;
                replica.server.come_back()?;
                replica.proxy.accept()?;
            }
            What::Forget => {
                recorder.fault(self.replica, "forget", "forgets its sessions".to_owned());
                replica.server.forget_sessions();
            }
            What::Break => {
                recorder.fault(self.replica, "break", "resets all connections".to_owned());
                replica.proxy.break_connections();
            }
            What::Requests(kind, count, fault) => {
                let text = format!("{fault:?} for {count} requests");
                recorder.fault(self.replica, kind, text);
                // It is counted by the history; nobody waits for it.
                drop(replica.proxy.next(*count, When::any(), fault.clone()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_replica_is_spared_in_every_round_and_nothing_outlasts_it() {
        let mut random = Rng::with_seed(7);
        let mut kinds = std::collections::BTreeSet::new();
        for _ in 0..2000 {
            let round = plan(&mut random, 3);
            for strike in round.strikes {
                assert_ne!(strike.replica, round.spared);
                let lasts = match strike.what {
                    What::Kill(time) | What::Requests(_, _, Fault::Delay(time)) => time,
                    _ => Duration::ZERO,
                };
                assert!(strike.after + lasts < ROUND);
                kinds.insert(match strike.what {
                    What::Kill(_) => "kill",
                    What::Forget => "forget",
                    What::Break => "break",
                    What::Requests(kind, ..) => kind,
                });
            }
        }
        assert_eq!(kinds.len(), 9, "{kinds:?}");
    }

    #[test]
    fn the_same_seed_plans_the_same() {
        let plans = |seed| {
            let mut random = Rng::with_seed(seed);
            let rounds: Vec<_> = (0..20).map(|_| plan(&mut random, 3)).collect();
            format!("{rounds:?}")
        };
        assert_eq!(plans(3), plans(3));
        assert_ne!(plans(3), plans(4));
    }
}
