//! What is broken, when, and for how long: a plan from the seed, and its execution.
//!
//! Time is cut into rounds. In each, one replica is left alone and the others are struck; all is
//! well with them again before the round ends. So at any moment there is a healthy endpoint, and it
//! stays so for the rest of the round. The same holds for gateways, if they are several.

use std::time::Duration;

use bowline_testbed::faulty::{Canned, Fault, When};
use fastrand::Rng;
use tokio::time::{Instant, sleep, sleep_until};

use crate::Arguments;
use crate::gateway::{Gateway, Gateways};
use crate::history::Recorder;
use crate::load::listen;
use crate::world::{Replica, World};

/// How long one replica is left alone.
const ROUND: Duration = Duration::from_secs(2);
/// When the last strike of a round begins, and how long the longest lasts.
const LAST_STRIKE_MS: u64 = 900;
const LONGEST_MS: u64 = 900;
/// How long the store hangs at most.
const LONGEST_PAUSE_MS: u64 = 1000;

/// What is done in one round, in any order.
#[derive(Debug)]
struct Round {
    #[cfg_attr(not(test), expect(dead_code, reason = "asserted by the tests"))]
    spared: usize,
    strikes: Vec<Strike>,
    spared_gateway: usize,
    deaths: Vec<Death>,
    /// When the store hangs, and for how long.
    pause: Option<(Duration, Duration)>,
}

/// A gateway is killed, and started again after a time.
#[derive(Debug)]
struct Death {
    gateway: usize,
    after: Duration,
    lasts: Duration,
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
    gateways: &Gateways,
    recorder: &Recorder,
    until: Instant,
) -> anyhow::Result<()> {
    let mut random = Rng::with_seed(arguments.seed);
    let mut begin = Instant::now();
    while begin + ROUND <= until {
        let mut round = plan(&mut random, world.replicas.len());
        round.plan_gateways(&mut random, arguments);
        let mut strikes = Vec::new();
        for strike in &round.strikes {
            let replica = &world.replicas[strike.replica];
            strikes.push(strike.carry_out(begin, replica, recorder));
        }
        let mut deaths = Vec::new();
        for death in &round.deaths {
            let gateway = &gateways.all()[death.gateway];
            deaths.push(death.carry_out(begin, gateway, recorder));
        }
        let pause = async {
            let Some((after, lasts)) = round.pause else {
                return Ok(());
            };
            sleep_until(begin + after).await;
            gateways.pause_redis(lasts, recorder).await
        };
        let (struck, died, paused) = tokio::join!(join_all(strikes), join_all(deaths), pause);
        struck.into_iter().collect::<Result<(), _>>()?;
        died.into_iter().collect::<Result<(), _>>()?;
        paused?;
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
    Round {
        spared,
        strikes,
        spared_gateway: 0,
        deaths: Vec::new(),
        pause: None,
    }
}

impl Round {
    /// What becomes of the gateways; nothing is drawn for a single one, so that a seed means the same
    /// with it as ever.
    fn plan_gateways(&mut self, random: &mut Rng, arguments: &Arguments) {
        let gateways = usize::from(arguments.gateways);
        if gateways == 1 {
            return;
        }
        self.spared_gateway = random.usize(..gateways);
        for gateway in (0..gateways).filter(|gateway| *gateway != self.spared_gateway) {
            if random.u8(..3) == 0 {
                self.deaths.push(Death {
                    gateway,
                    after: Duration::from_millis(random.u64(..LAST_STRIKE_MS)),
                    lasts: Duration::from_millis(random.u64(..LONGEST_MS)),
                });
            }
        }
        if arguments.pause_redis && random.u8(..3) == 0 {
            let after = Duration::from_millis(random.u64(..LAST_STRIKE_MS));
            let lasts = Duration::from_millis(random.u64(20..LONGEST_PAUSE_MS));
            self.pause = Some((after, lasts));
        }
    }
}

impl Death {
    async fn carry_out(
        &self,
        begin: Instant,
        gateway: &Gateway,
        recorder: &Recorder,
    ) -> anyhow::Result<()> {
        sleep_until(begin + self.after).await;
        let text = format!("killed for {:?}", self.lasts);
        recorder.fault(format!("g{}", self.gateway), "kill gateway", text);
        gateway.kill_for(self.lasts).await
    }
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
        let whose = format!("r{}", self.replica);
        match &self.what {
            What::Kill(time) => {
                replica.kill().await;
                recorder.fault(whose, "kill", format!("killed for {time:?}"));
                sleep(*time).await;
                replica.server.come_back()?;
                replica.proxy.accept()?;
            }
            What::Forget => {
                recorder.fault(whose, "forget", "forgets its sessions".to_owned());
                replica.server.forget_sessions();
            }
            What::Break => {
                recorder.fault(whose, "break", "resets all connections".to_owned());
                replica.proxy.break_connections();
            }
            What::Requests(kind, count, fault) => {
                let text = format!("{fault:?} for {count} requests");
                recorder.fault(whose, kind, text);
                // It is counted by the history; nobody waits for it.
                drop(replica.proxy.next(*count, When::any(), fault.clone()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

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
    fn one_gateway_is_spared_in_every_round_and_the_store_hangs_when_asked_for() {
        let mut random = Rng::with_seed(7);
        let arguments = Arguments::parse_from(["chaos", "--gateways", "3", "--pause-redis"]);
        let (mut deaths, mut pauses) = (0, 0);
        for _ in 0..2000 {
            let mut round = plan(&mut random, 3);
            round.plan_gateways(&mut random, &arguments);
            for death in &round.deaths {
                assert_ne!(death.gateway, round.spared_gateway);
            }
            deaths += round.deaths.len();
            pauses += usize::from(round.pause.is_some());
        }
        assert!(deaths > 1000 && pauses > 500, "{deaths}, {pauses}");
    }

    #[test]
    fn a_single_gateway_changes_nothing_about_a_seed() {
        let arguments = Arguments::parse_from(["chaos"]);
        let (mut random, mut same) = (Rng::with_seed(7), Rng::with_seed(7));
        let mut round = plan(&mut random, 3);
        round.plan_gateways(&mut random, &arguments);
        assert!(round.deaths.is_empty());
        plan(&mut same, 3);
        assert_eq!(random.u64(..), same.u64(..));
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
