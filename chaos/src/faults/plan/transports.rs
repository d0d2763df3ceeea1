//! Which transport replicas have that can have either: a fleet is upgraded replica by replica, stays so, and is rolled
//! back later.

use std::fmt;

use super::{Planner, ROUND};

/// For how many rounds replicas differ, before all of those that are struck get the same.
const MIXED_ROUNDS: usize = 5;
/// For how many rounds more than a gateway may take to recover a session all of them get the same: the first of these
/// rounds reach every replica.
const REACHING_ROUNDS: usize = 7;

/// A transport that a replica can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::faults) enum Transport {
    StreamableHttp,
    Sse,
}

impl Planner {
    /// What a replica has from now on that is struck.
    pub(super) fn transport(&mut self) -> Transport {
        let epoch = MIXED_ROUNDS + self.settled_rounds();
        let (before, round) = ((self.rounds - 1) / epoch, (self.rounds - 1) % epoch);
        // All begin with streamable HTTP.
        let is_sse = match round < MIXED_ROUNDS {
            true => self.of_transports.bool(),
            false => before.is_multiple_of(2),
        };
        match is_sse {
            true => Transport::Sse,
            false => Transport::StreamableHttp,
        }
    }

    fn settled_rounds(&self) -> usize {
        let budget = self.arguments.budget.div_ceil(ROUND.as_secs());
        REACHING_ROUNDS + usize::try_from(budget).unwrap_or_default()
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StreamableHttp => "streamable HTTP",
            Self::Sse => "HTTP+SSE",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;

    use super::super::What;
    use super::*;
    use crate::Arguments;

    #[test]
    fn a_whole_fleet_has_each_transport_for_longer_than_the_budget_and_is_mixed_meanwhile() {
        for budget in ["6", "30"] {
            let options = ["chaos", "--only", "switch", "--budget", budget];
            let arguments = Arguments::parse_from(options);
            let mut planner = Planner::new(&arguments);
            let mut fleet = vec![Transport::StreamableHttp; arguments.replicas.into()];
            let mut spans = vec![(fleet.clone(), Duration::ZERO)];
            for _ in 0..100 {
                let mut strikes = planner.next().strikes;
                strikes.sort_by_key(|strike| strike.after);
                for strike in strikes {
                    let What::Switch(transport) = strike.what else {
                        panic!("{strike:?}");
                    };
                    fleet[strike.replica] = transport;
                }
                match spans.last_mut() {
                    Some((same, lasted)) if *same == fleet => *lasted += ROUND,
                    _ => spans.push((fleet.clone(), ROUND)),
                }
            }
            for transport in [Transport::Sse, Transport::StreamableHttp] {
                let is_long = |(fleet, lasted): &(Vec<Transport>, Duration)| {
                    fleet.iter().all(|one| *one == transport) && lasted.as_secs() > arguments.budget
                };
                assert!(spans.iter().any(is_long), "{transport}: {spans:?}");
            }
            let is_mixed =
                |(fleet, _): &&(Vec<Transport>, Duration)| fleet.iter().any(|one| *one != fleet[0]);
            assert!(spans.iter().filter(is_mixed).count() > 3, "{spans:?}");
        }
    }
}
