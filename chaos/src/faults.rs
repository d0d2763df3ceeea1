//! What is planned is carried out.

mod gateways;
mod plan;

use std::time::Duration;

use bowline_testbed::faulty::{Fault, When};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::plan::{
    Death, Flip, HANG, Planner, ProcessStrike, ROUND, Round, SIEGE, Strike, Transport, What, YOUTH,
};
use crate::Arguments;
use crate::gateway::Gateways;
use crate::history::Recorder;
use crate::load::listen::{self, Heard};
use crate::server::PROCESSES;
use crate::trouble::Trouble;
use crate::world::{Replica, Start, World};

/// How long it takes at most until somebody hears that the tools changed, and everybody may know.
const UNTIL_HEARD: Duration = Duration::from_millis(600);
const UNTIL_KNOWN: Duration = Duration::from_millis(300);
/// How many calls of a changed tool are reset after they ran, at each replica.
const FLIPS_RESET: usize = 4;

/// All there is to break.
#[derive(Debug)]
pub(crate) struct Storm<'a> {
    pub(crate) world: &'a World,
    pub(crate) gateways: &'a Gateways,
    pub(crate) recorder: &'a Recorder,
    pub(crate) heard: &'a Heard,
}

impl Storm<'_> {
    /// Breaks things until then.
    pub(crate) async fn rage(&self, arguments: &Arguments, until: Instant) -> anyhow::Result<()> {
        let mut planner = Planner::new(arguments);
        let (mut begin, mut hung) = (Instant::now(), None);
        while begin + ROUND <= until {
            let round = planner.next();
            self.round(&round, begin).await?;
            begin += ROUND;
            sleep_until(begin).await;
            self.lift(&planner).await?;
            hung = round.hung.map(|(replica, _)| replica);
            for (number, replica) in self.world.replicas.iter().enumerate() {
                if hung != Some(number) {
                    replica.heal()?;
                }
            }
            if round.drained.is_some() {
                self.reload(None).await?;
            }
            if round.young.is_some() && planner.lets_live() {
                self.start_processes(Start::Well)?;
            }
            listen::speak(self.world);
        }
        self.lift_all().await?;
        self.start_processes(Start::Well)?;
        sleep_until(until).await;
        for (number, replica) in self.world.replicas.iter().enumerate() {
            replica.heal()?;
            if hung == Some(number) {
                // What hangs at the end would do so for longer than anybody listens.
                let (whose, text) = (format!("r{number}"), "resets all connections");
                self.recorder
                    .fault(whose, "break", text.to_owned(), Duration::ZERO);
                replica.proxy.break_connections();
            }
        }
        Ok(())
    }

    async fn round(&self, round: &Round, begin: Instant) -> anyhow::Result<()> {
        if let Some((replica, true)) = round.hung {
            self.hang(replica);
        }
        if round.young == Some(true) {
            let text = format!("die young for {YOUTH:?}");
            self.recorder.fault(PROCESSES, "die young", text, YOUTH);
            self.start_processes(Start::DiesYoung)?;
            self.strike_processes(&ProcessStrike::all(), begin).await?;
        }
        let strikes = round
            .strikes
            .iter()
            .map(|strike| self.strike(strike, begin));
        let deaths = round.deaths.iter().map(|death| self.kill(death, begin));
        let pause = async {
            let Some(pause) = round.pause else {
                return Ok(());
            };
            sleep_until(begin + pause.after).await;
            self.gateways.pause_redis(pause.lasts, self.recorder).await
        };
        let full = async {
            let Some(full) = round.full else {
                return Ok(());
            };
            sleep_until(begin + full.after).await;
            self.gateways.fill_disk(full.lasts, self.recorder).await
        };
        let drain = async {
            let Some((replica, after)) = round.drained else {
                return Ok(());
            };
            sleep_until(begin + after).await;
            self.reload(Some(replica)).await
        };
        let flip = async {
            if let Some(flip) = round.flip {
                sleep_until(begin + flip.after).await;
                self.flip(flip).await;
            }
        };
        if let Some((siege, true)) = round.siege {
            self.besiege(&siege, SIEGE).await?;
        }
        let gateways = round.gateways.iter();
        let gateways = gateways.map(|strike| self.strike_gateway(strike, begin));
        let processes = round.processes.iter();
        let processes = processes.map(|strike| self.strike_processes(strike, begin));
        let (struck, died, hit, tried, paused, filled, drained, ()) = tokio::join!(
            join_all(strikes.collect()),
            join_all(deaths.collect()),
            join_all(processes.collect()),
            join_all(gateways.collect()),
            pause,
            full,
            drain,
            flip
        );
        struck.into_iter().collect::<Result<(), _>>()?;
        died.into_iter().collect::<Result<(), _>>()?;
        hit.into_iter().collect::<Result<(), _>>()?;
        tried.into_iter().collect::<Result<(), _>>()?;
        paused.and(filled).and(drained)
    }

    async fn strike(&self, strike: &Strike, begin: Instant) -> std::io::Result<()> {
        sleep_until(begin + strike.after).await;
        let replica = &self.world.replicas[strike.replica];
        let record = |kind, text, lasts| {
            let whose = format!("r{}", strike.replica);
            self.recorder.fault(whose, kind, text, lasts);
        };
        match &strike.what {
            What::Kill(time) => {
                // Before the kill: calls may break before it is complete.
                record("kill", format!("killed for {time:?}"), *time);
                replica.kill().await;
                sleep(*time).await;
                replica.come_back().await?;
            }
            What::Forget => {
                record("forget", "forgets its sessions".to_owned(), Duration::ZERO);
                replica.server.forget_sessions();
            }
            What::Switch(transport) => {
                let text = format!("restarts with {transport}");
                record("switch", text, Duration::ZERO);
                replica.server.restart_with(*transport == Transport::Sse);
            }
            What::Break => {
                record("break", "resets all connections".to_owned(), Duration::ZERO);
                replica.proxy.break_connections();
            }
            What::CutStream => {
                record("cut stream", "ends its streams".to_owned(), Duration::ZERO);
                replica.server.cut_streams();
            }
            What::Requests(requests) => {
                let (count, fault) = (requests.count, requests.fault.clone());
                let lasts = match fault {
                    Fault::Delay(time) | Fault::DelayAnswer(time) => ROUND + time,
                    _ => ROUND,
                };
                record(
                    requests.kind,
                    format!("{fault:?} for {count} requests"),
                    lasts,
                );
                // It is counted by the history; nobody waits for it.
                drop(replica.proxy.next(count, requests.when.clone(), fault));
            }
        }
        Ok(())
    }

    async fn kill(&self, death: &Death, begin: Instant) -> anyhow::Result<()> {
        let time = death.spell.lasts;
        sleep_until(begin + death.spell.after).await;
        let whose = format!("g{}", death.gateway);
        let text = format!("killed for {time:?}");
        self.recorder.fault(whose, "kill gateway", text, time);
        self.gateways.all()[death.gateway].kill_for(time).await
    }

    async fn strike_processes(&self, strike: &ProcessStrike, begin: Instant) -> anyhow::Result<()> {
        let Some(processes) = &self.world.processes else {
            return Ok(());
        };
        sleep_until(begin + strike.spell.after).await;
        let alive = processes.alive().into_iter().enumerate();
        let is_struck = |number: usize| (number + strike.draw).is_multiple_of(strike.one_in);
        let struck = alive.filter(|(number, _)| is_struck(*number));
        let struck: Vec<_> = struck.map(|(_, pid)| pid).collect();
        let (count, time) = (struck.len(), strike.spell.lasts);
        let record = |kind, text, lasts| self.recorder.fault(PROCESSES, kind, text, lasts);
        match strike.trouble {
            Trouble::StopProcess => {
                record(
                    "stop process",
                    format!("{count} stopped for {time:?}"),
                    time,
                );
                processes.signal("STOP", &struck).await?;
                sleep(time).await;
                processes.signal("CONT", &struck).await?;
            }
            Trouble::FailStart => {
                let text = format!("{count} killed, the next exit at once for {time:?}");
                record("fail start", text, time);
                processes.start(Start::Fails)?;
                processes.signal("KILL", &struck).await?;
                sleep(time).await;
                processes.start(Start::Well)?;
            }
            _ => {
                record("kill process", format!("{count} killed"), Duration::ZERO);
                processes.signal("KILL", &struck).await?;
            }
        }
        Ok(())
    }

    /// What becomes of processes that are started from now on.
    fn start_processes(&self, start: Start) -> std::io::Result<()> {
        let processes = self.world.processes.as_ref();
        processes.map_or(Ok(()), |processes| processes.start(start))
    }

    fn hang(&self, number: usize) {
        let text = format!("hangs for {HANG:?}");
        self.recorder
            .fault(format!("r{number}"), "hang", text, HANG);
        let hanging = Fault::Hang(Instant::now() + HANG);
        let replica: &Replica = &self.world.replicas[number];
        replica.proxy.pass();
        drop(replica.proxy.always(When::any(), hanging));
    }

    /// Has the gateways do without this replica, or with all.
    async fn reload(&self, without: Option<usize>) -> anyhow::Result<()> {
        let text = match without {
            Some(replica) => format!("configured without r{replica}"),
            None => "configured with all".to_owned(),
        };
        self.recorder.fault("all", "reload", text, ROUND);
        self.gateways.reload(self.world, without).await
    }

    /// Makes the tool `flip` what it was not. It is destructive only when the gateway must know: after all
    /// sessions were lost, or a while after a client heard that the tools changed.
    async fn flip(&self, flip: Flip) {
        let (world, tally) = (self.world, &self.world.tally);
        let destructive = !tally.lists_flip_as_destructive();
        let text = match (destructive, flip.by_restart) {
            (true, true) => "flip is destructive after a restart",
            (true, false) => "flip will be destructive, as is told",
            (false, true) => "flip is read-only after a restart",
            (false, false) => "flip is read-only, as is told",
        };
        self.recorder.fault("all", "flip", text.to_owned(), ROUND);
        tally.list_flip(destructive);
        if !destructive {
            tally.make_flip(false);
        }
        if flip.by_restart {
            for replica in &world.replicas {
                replica.server.forget_sessions();
            }
            tally.make_flip(destructive);
        } else {
            let number = self.heard.announce();
            let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"_meta": {"flip": number}}});
            for replica in &world.replicas {
                replica.server.emit(&changed);
            }
            if timeout(UNTIL_HEARD, self.heard.until(number))
                .await
                .is_err()
            {
                return;
            }
            self.recorder.machine.sleep(UNTIL_KNOWN).await;
            tally.make_flip(destructive);
        }
        for replica in &world.replicas {
            let when = When::tool("flip");
            drop(replica.proxy.next(FLIPS_RESET, when, Fault::ResetAfter));
        }
    }
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
