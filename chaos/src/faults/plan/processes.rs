//! What becomes of the processes of a server that is a command.

use std::time::Duration;

use super::{LAST_STRIKE_MS, LONGEST_MS, Planner, ROUND, Round, Spell};
use crate::server::Server;
use crate::trouble::Trouble;

/// For how long and how many rounds processes die young, which begins in one round of so many.
pub(in crate::faults) const YOUTH: Duration = Duration::from_secs(6);
const YOUTH_ROUNDS: usize = 3;
const ONE_YOUTH_IN: u8 = 8;

/// Some processes of the server that is a command are struck.
#[derive(Debug, Clone, Copy)]
pub(in crate::faults) struct ProcessStrike {
    pub(in crate::faults) spell: Spell,
    pub(in crate::faults) trouble: Trouble,
    /// Which: a number for the choice, and one in so many.
    pub(in crate::faults) draw: usize,
    pub(in crate::faults) one_in: usize,
}

impl ProcessStrike {
    /// All of them are killed at once.
    pub(in crate::faults) fn all() -> Self {
        Self {
            spell: Spell {
                after: Duration::ZERO,
                lasts: Duration::ZERO,
            },
            trouble: Trouble::KillProcess,
            draw: 0,
            one_in: 1,
        }
    }
}

impl Planner {
    /// Whether processes live again in the next round.
    pub(in crate::faults) fn lets_live(&self) -> bool {
        self.young == 0
    }

    /// What becomes of processes: something in most rounds.
    pub(super) fn plan_processes(&mut self, round: &mut Round) {
        if self.arguments.sessions_with(Server::Processes) == 0 {
            return;
        }
        self.plan_youth(round);
        let tried = Trouble::OF_PROCESSES.into_iter();
        // Whether processes start is one matter at a time.
        let tried = tried.filter(|it| *it != Trouble::FailStart || round.young.is_none());
        let tried: Vec<_> = tried.filter(|it| self.arguments.tries(*it)).collect();
        for _ in 0..self.of_processes.usize(..3) {
            let random = &mut self.of_processes;
            let Some(trouble) = random.choice(&tried).copied() else {
                return;
            };
            round.processes.push(ProcessStrike {
                spell: Spell {
                    after: Duration::from_millis(random.u64(..LAST_STRIKE_MS)),
                    lasts: Duration::from_millis(random.u64(20..LONGEST_MS)),
                },
                trouble,
                draw: random.usize(..1000),
                one_in: random.usize(1..4),
            });
        }
    }
}

impl Planner {
    /// Processes die young for several rounds, and none does for a while afterwards.
    fn plan_youth(&mut self, round: &mut Round) {
        if self.young > 0 {
            self.young -= 1;
            round.young = Some(false);
        } else if self.grown > 0 {
            self.grown -= 1;
        } else if self.arguments.tries(Trouble::DieYoung) {
            let is_due = self.of_processes.u8(..ONE_YOUTH_IN) == 0;
            if is_due || !self.arguments.only.is_empty() {
                (self.young, self.grown) = (YOUTH_ROUNDS - 1, YOUTH_ROUNDS);
                round.young = Some(true);
            }
        }
    }
}

const _: () = assert!(YOUTH.as_secs() == ROUND.as_secs() * YOUTH_ROUNDS as u64);

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::Arguments;

    fn planned(options: &[&str]) -> Vec<ProcessStrike> {
        let arguments = [&["chaos"], options].concat();
        let mut planner = Planner::new(&Arguments::parse_from(arguments));
        (0..200).flat_map(|_| planner.next().processes).collect()
    }

    #[test]
    fn everything_happens_to_processes_and_only_what_is_tried() {
        let all = planned(&[]);
        for trouble in Trouble::OF_PROCESSES {
            let count = all.iter().filter(|it| it.trouble == trouble).count();
            assert!(count > 20, "{trouble:?}: {count}");
        }
        let killed = planned(&["--only", "kill-process"]);
        assert!(killed.len() > 100);
        assert!(killed.iter().all(|it| it.trouble == Trouble::KillProcess));
        assert!(planned(&["--only", "404"]).is_empty());
        let mut planner = Planner::new(&Arguments::parse_from(["chaos"]));
        let young = (0..200).filter(|_| planner.next().young == Some(true));
        assert!(young.count() > 5);
        assert!(planned(&["--gateways", "3"]).len() > 100);
        assert!(planned(&["--processes", "0"]).is_empty());
    }
}
