//! What becomes of gateways, if they are several. One is left alone in every round.

use std::time::Duration;

use super::{Death, LAST_STRIKE_MS, LONGEST_PAUSE_MS, Planner, ROUND, Round, Spell};
use crate::trouble::Trouble;

/// For how many rounds a gateway bears something: others notice after 9 to 15 seconds that it is gone, and somewhat
/// later on a busy machine.
pub(in crate::faults) const SIEGE: Duration = Duration::from_secs(18);
const SIEGE_ROUNDS: usize = 9;
/// For how many rounds nobody bears anything so long afterwards, and at the beginning, before calls are under way.
const REST_ROUNDS: usize = 3;
pub(super) const REST_AT_FIRST: usize = 1;
/// A siege begins in one round of so many, and a short strike comes to a gateway in one of so many.
const ONE_SIEGE_IN: u8 = 3;
const ONE_STRIKE_IN: u8 = 4;

/// A gateway is stopped or cut off for a moment.
#[derive(Debug, Clone, Copy)]
pub(in crate::faults) struct GatewayStrike {
    pub(in crate::faults) spell: Spell,
    pub(in crate::faults) siege: Siege,
}

/// A gateway is stopped, or cut off from its peers or the Redis; or the Redis is unfit for all.
#[derive(Debug, Clone, Copy)]
pub(in crate::faults) struct Siege {
    pub(in crate::faults) gateway: usize,
    pub(in crate::faults) trouble: Trouble,
    /// What is sent is held, and arrives afterwards; otherwise connections are reset.
    pub(in crate::faults) is_silent: bool,
}

impl Planner {
    /// What becomes of the gateways.
    pub(super) fn plan_gateways(&mut self, round: &mut Round) {
        let gateways = usize::from(self.arguments.gateways);
        if gateways == 1 {
            return;
        }
        round.spared_gateway = self.random.usize(..gateways);
        let besieged = self.siege.map(|(siege, _)| siege.gateway);
        if besieged == Some(round.spared_gateway) {
            round.spared_gateway = (round.spared_gateway + 1) % gateways;
        }
        let dies = self.arguments.tries(Trouble::KillGateway);
        for gateway in (0..gateways).filter(|gateway| *gateway != round.spared_gateway) {
            if dies && self.random.u8(..3) == 0 && besieged != Some(gateway) {
                let spell = self.spell();
                round.deaths.push(Death { gateway, spell });
            }
        }
        if self.arguments.pause_redis && self.random.u8(..3) == 0 {
            round.pause = Some(self.spell());
        }
        self.plan_siege(round, gateways);
        self.plan_strikes(round, gateways);
    }

    /// Goes on with a siege, or begins one.
    fn plan_siege(&mut self, round: &mut Round, gateways: usize) {
        if let Some((siege, left)) = self.siege {
            self.siege = (left > 1).then_some((siege, left - 1));
            self.rest = REST_ROUNDS;
            round.siege = Some((siege, false));
            return;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        let is_due = self.of_gateways.u8(..ONE_SIEGE_IN) == 0;
        // With one thing only, there is no time to lose.
        let is_due = is_due || !self.arguments.only.is_empty();
        let is_free = |one: &usize| {
            *one != round.spared_gateway && round.deaths.iter().all(|death| death.gateway != *one)
        };
        let free: Vec<_> = (0..gateways).filter(is_free).collect();
        let troubles = [&Trouble::OF_GATEWAYS[..], &Trouble::OF_REDIS].concat();
        let Some(siege) = self.siege_of(&free, &troubles).filter(|_| is_due) else {
            return;
        };
        self.siege = Some((siege, SIEGE_ROUNDS - 1));
        round.siege = Some((siege, true));
    }

    /// Short strikes come to gateways that bear nothing else.
    fn plan_strikes(&mut self, round: &mut Round, gateways: usize) {
        let besieged = round.siege.map(|(siege, _)| siege.gateway);
        for gateway in 0..gateways {
            let dies = round.deaths.iter().any(|death| death.gateway == gateway);
            let is_spared = gateway == round.spared_gateway || besieged == Some(gateway);
            if dies || is_spared || self.of_gateways.u8(..ONE_STRIKE_IN) != 0 {
                continue;
            }
            let random = &mut self.of_gateways;
            let spell = Spell {
                after: Duration::from_millis(random.u64(..LAST_STRIKE_MS)),
                lasts: Duration::from_millis(random.u64(20..LONGEST_PAUSE_MS)),
            };
            let siege = self.siege_of(&[gateway], &Trouble::OF_GATEWAYS);
            let strike = siege.map(|siege| GatewayStrike { spell, siege });
            round.gateways.extend(strike);
        }
    }

    fn siege_of(&mut self, gateways: &[usize], troubles: &[Trouble]) -> Option<Siege> {
        let tried = troubles.iter().copied();
        let tried: Vec<_> = tried.filter(|it| self.arguments.tries(*it)).collect();
        let random = &mut self.of_gateways;
        Some(Siege {
            gateway: *random.choice(gateways)?,
            trouble: *random.choice(&tried)?,
            is_silent: random.bool(),
        })
    }
}

const _: () = assert!(SIEGE.as_secs() == ROUND.as_secs() * SIEGE_ROUNDS as u64);
