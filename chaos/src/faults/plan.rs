//! What is broken, when, and for how long: a plan from the seed.
//!
//! Time is cut into rounds. In each, one replica is left alone and the others are struck; all is
//! well with them again before the round ends, but for one that hangs, which is left alone meanwhile and
//! is not the one to rely on. So at any moment there is a healthy endpoint, and it stays so for the rest
//! of the round. The same holds for gateways, if they are several.

mod gateways;
mod processes;
#[cfg(test)]
mod tests;
mod transports;

use std::time::Duration;

use bowline_testbed::faulty::{Canned, Fault, When};
use fastrand::Rng;

pub(super) use self::gateways::{GatewayStrike, SIEGE, Siege};
pub(super) use self::processes::{ProcessStrike, YOUTH};
pub(super) use self::transports::Transport;
use crate::Arguments;
use crate::trouble::Trouble;

/// How long one replica is left alone.
pub(super) const ROUND: Duration = Duration::from_secs(2);
/// How long a replica or a call hangs, and how many rounds that touches.
pub(super) const HANG: Duration = Duration::from_secs(10);
const HANG_ROUNDS: usize = 6;
/// When the last strike of a round begins, and how long the longest lasts.
const LAST_STRIKE_MS: u64 = 900;
const LONGEST_MS: u64 = 900;
/// How long the store hangs at most; its disk is full for longer.
const LONGEST_PAUSE_MS: u64 = 1000;
const FULL_AT_LEAST: Duration = Duration::from_millis(500);
/// In one round of so many a replica begins to hang, a tool changes, endpoints do, or the disk is full.
const ONE_ROUND_IN: u8 = 6;

/// What a balancer says that does not like a request.
const BAD: &str = "Bad Request: no such session here";

/// Strikes, and how often each is drawn.
const STRIKES: [(Trouble, usize); 15] = [
    (Trouble::Kill, 2),
    (Trouble::Forget, 1),
    (Trouble::Break, 1),
    (Trouble::ResetBefore, 1),
    (Trouble::ResetAfter, 2),
    (Trouble::EndThenReset, 2),
    (Trouble::Cut, 2),
    (Trouble::Delay, 1),
    (Trouble::Plain404, 1),
    (Trouble::Html404, 1),
    (Trouble::Plain400, 1),
    (Trouble::Plain400ToAll, 1),
    (Trouble::Ill, 1),
    (Trouble::HangCall, 1),
    (Trouble::Switch, 1),
];

/// What is done in one round, in any order.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) spared: usize,
    pub(super) strikes: Vec<Strike>,
    pub(super) spared_gateway: usize,
    pub(super) deaths: Vec<Death>,
    /// When the store hangs, and for how long.
    pub(super) pause: Option<Spell>,
    /// When the store's disk is full, and for how long.
    pub(super) full: Option<Spell>,
    /// The replica that hangs, and whether it begins to.
    pub(super) hung: Option<(usize, bool)>,
    /// The endpoint that is taken out of the configuration, and when.
    pub(super) drained: Option<(usize, Duration)>,
    pub(super) flip: Option<Flip>,
    /// What happens to processes, and when.
    pub(super) processes: Vec<ProcessStrike>,
    /// Whether processes die young, and whether that begins.
    pub(super) young: Option<bool>,
    /// What happens to gateways besides deaths, and when.
    pub(super) gateways: Vec<GatewayStrike>,
    /// What a gateway bears for several rounds, and whether that begins.
    pub(super) siege: Option<(Siege, bool)>,
}

/// A time in a round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spell {
    pub(super) after: Duration,
    pub(super) lasts: Duration,
}

/// A gateway is killed, and started again after a time.
#[derive(Debug)]
pub(super) struct Death {
    pub(super) gateway: usize,
    pub(super) spell: Spell,
}

/// The tool `flip` becomes something else.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flip {
    pub(super) after: Duration,
    /// The server restarts with it; otherwise it says so to whoever listens.
    pub(super) by_restart: bool,
}

#[derive(Debug)]
pub(super) struct Strike {
    pub(super) replica: usize,
    pub(super) after: Duration,
    pub(super) what: What,
}

#[derive(Debug, Clone)]
pub(super) enum What {
    /// Dead for so long.
    Kill(Duration),
    /// Every session is forgotten.
    Forget,
    /// It restarts with this transport, where it has either.
    Switch(Transport),
    /// Every open connection is reset.
    Break,
    /// The streams of sessions over HTTP+SSE end.
    CutStream,
    /// Requests meet a fault.
    Requests(Requests),
}

/// So many requests like that meet a fault of this kind.
#[derive(Debug, Clone)]
pub(super) struct Requests {
    pub(super) kind: &'static str,
    pub(super) count: usize,
    pub(super) when: When,
    pub(super) fault: Fault,
}

/// Plans one round after the other.
#[derive(Debug)]
pub(super) struct Planner {
    random: Rng,
    arguments: Arguments,
    /// For the processes, so that the rest of a plan is the same without them.
    of_processes: Rng,
    /// The same for what happens to gateways besides deaths, for streams, and for transports.
    of_gateways: Rng,
    of_streams: Rng,
    of_transports: Rng,
    /// What a gateway bears, and for how many rounds still.
    siege: Option<(Siege, usize)>,
    /// For how many rounds nobody bears anything.
    rest: usize,
    /// The replica that hangs, and for how many rounds still.
    hung: Option<(usize, usize)>,
    rounds: usize,
    /// For how many rounds processes still die young, and for how many they live afterwards.
    young: usize,
    grown: usize,
}

impl Planner {
    pub(super) fn new(arguments: &Arguments) -> Self {
        Self {
            random: Rng::with_seed(arguments.seed),
            arguments: arguments.clone(),
            of_processes: Rng::with_seed(!arguments.seed),
            of_gateways: Rng::with_seed(arguments.seed ^ 0x9a7e),
            of_streams: Rng::with_seed(arguments.seed ^ 0x57ea),
            of_transports: Rng::with_seed(arguments.seed ^ 0x7a45),
            siege: None,
            rest: gateways::REST_AT_FIRST,
            hung: None,
            rounds: 0,
            young: 0,
            grown: 0,
        }
    }

    /// What a gateway still bears when the next round begins.
    pub(super) fn siege(&self) -> Option<&Siege> {
        self.siege.as_ref().map(|(siege, _)| siege)
    }

    pub(super) fn next(&mut self) -> Round {
        self.rounds += 1;
        let mut round = Round::default();
        let replicas = usize::from(self.arguments.replicas);
        self.plan_hang(&mut round, replicas);
        let hung = round.hung.map(|(replica, _)| replica);
        let well: Vec<_> = (0..replicas).filter(|one| Some(*one) != hung).collect();
        round.spared = self.random.choice(&well).copied().unwrap_or_default();
        let struck: Vec<_> = well
            .into_iter()
            .filter(|one| *one != round.spared)
            .collect();
        for replica in &struck {
            // Most are struck, some often, some not at all.
            for _ in 0..self.random.usize(..5) {
                let (after, what) = (self.moment(), self.what());
                round.strikes.extend(what.map(|what| Strike {
                    replica: *replica,
                    after,
                    what,
                }));
            }
        }
        if self.happens(Trouble::Reload) {
            let drained = self.random.choice(&struck).copied();
            round.drained = drained.map(|replica| (replica, self.moment()));
        }
        if self.happens(Trouble::Flip) {
            round.flip = Some(Flip {
                after: self.moment(),
                by_restart: self.random.bool(),
            });
        }
        if self.happens(Trouble::DiskFull) {
            // Long enough for something that needs more room.
            let mut full = self.spell();
            full.lasts += FULL_AT_LEAST;
            round.full = Some(full);
        }
        self.plan_streams(&mut round, &struck);
        self.plan_gateways(&mut round);
        self.plan_processes(&mut round);
        round
    }

    /// A replica that hangs does so for several rounds. Of two replicas, none does.
    fn plan_hang(&mut self, round: &mut Round, replicas: usize) {
        if let Some((replica, left)) = self.hung {
            self.hung = (left > 1).then_some((replica, left - 1));
            round.hung = Some((replica, false));
        } else if replicas > 2 && self.happens(Trouble::Hang) {
            let replica = self.random.usize(..replicas);
            self.hung = Some((replica, HANG_ROUNDS - 1));
            round.hung = Some((replica, true));
        }
    }

    /// The streams of sessions over HTTP+SSE end at some replicas that are struck.
    fn plan_streams(&mut self, round: &mut Round, struck: &[usize]) {
        if !self.arguments.tries(Trouble::CutStream) {
            return;
        }
        for replica in struck {
            let random = &mut self.of_streams;
            if random.u8(..3) == 0 {
                round.strikes.push(Strike {
                    replica: *replica,
                    after: Duration::from_millis(random.u64(..LAST_STRIKE_MS)),
                    what: What::CutStream,
                });
            }
        }
    }

    /// Whether it is this one's round.
    fn happens(&mut self, trouble: Trouble) -> bool {
        let is_due = match trouble {
            _ if self.arguments.only.is_empty() => self.random.u8(..ONE_ROUND_IN) == 0,
            // What comes of it is looked at afterwards, so there has to be an afterwards.
            Trouble::DiskFull => self.rounds % 3 == 1,
            _ => true,
        };
        is_due && self.arguments.tries(trouble)
    }

    fn moment(&mut self) -> Duration {
        Duration::from_millis(self.random.u64(..LAST_STRIKE_MS))
    }

    fn spell(&mut self) -> Spell {
        Spell {
            after: self.moment(),
            lasts: Duration::from_millis(self.random.u64(20..LONGEST_PAUSE_MS)),
        }
    }

    /// A strike that this run is about; `None` if it is about none.
    fn what(&mut self) -> Option<What> {
        let tried = |(trouble, _): &&(Trouble, usize)| self.arguments.tries(*trouble);
        let tried: Vec<_> = STRIKES.iter().filter(tried).collect();
        let all: usize = tried.iter().map(|(_, weight)| weight).sum();
        let mut place = self.random.usize(..all.max(1));
        let drawn = tried.into_iter().find(|(_, weight)| {
            let is_here = place < *weight;
            place = place.saturating_sub(*weight);
            is_here
        });
        let transport = self.transport();
        drawn.and_then(|(trouble, _)| strike(*trouble, transport, &mut self.random))
    }
}

fn strike(trouble: Trouble, transport: Transport, random: &mut Rng) -> Option<What> {
    let count = random.usize(1..20);
    let short = Duration::from_millis(random.u64(20..LONGEST_MS));
    let any = |kind, fault| {
        Some(What::Requests(Requests {
            kind,
            count,
            when: When::any(),
            fault,
        }))
    };
    match trouble {
        Trouble::Kill => Some(What::Kill(short)),
        Trouble::Forget => Some(What::Forget),
        Trouble::Switch => Some(What::Switch(transport)),
        Trouble::Break => Some(What::Break),
        Trouble::ResetBefore => any("reset before", Fault::ResetBefore),
        Trouble::ResetAfter => any("reset after", Fault::ResetAfter),
        Trouble::EndThenReset => any("end, then reset", Fault::EndThenReset),
        Trouble::Cut => any("cut", Fault::Cut(random.usize(..400))),
        Trouble::Delay => any("delay", Fault::Delay(short)),
        Trouble::Plain404 => {
            let gone = Canned::plain(404, "404 page not found");
            any("404", Fault::Answer(gone))
        }
        Trouble::Html404 => {
            let page = "<html><body><h1>404 Not Found</h1>nginx</body></html>";
            any("html 404", Fault::Answer(Canned::html(404, page)))
        }
        // So that a ping finds out that the session is alive.
        Trouble::Plain400 => Some(What::Requests(Requests {
            kind: "400",
            count,
            when: When::rpc("tools/call"),
            fault: Fault::Answer(Canned::plain(400, BAD)),
        })),
        Trouble::Plain400ToAll => any("400 to all", Fault::Answer(Canned::plain(400, BAD))),
        Trouble::Ill => {
            let status = *random.choice(&[502, 503, 503, 504]).unwrap_or(&503);
            let mut ill = Canned::plain(status, "no");
            if random.bool() {
                ill = ill.header("retry-after", "1");
            }
            any("50x", Fault::Answer(ill))
        }
        Trouble::HangCall => {
            let fault = match random.bool() {
                true => Fault::Delay(HANG),
                false => Fault::DelayAnswer(HANG),
            };
            Some(What::Requests(Requests {
                kind: "hang a call",
                count: 1,
                when: When::rpc("tools/call"),
                fault,
            }))
        }
        _ => None,
    }
}
