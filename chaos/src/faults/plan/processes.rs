//! What becomes of the processes of a server that is a command.

use std::time::Duration;

use super::{LAST_STRIKE_MS, LONGEST_MS, Planner, Round, Spell};
use crate::server::Server;
use crate::trouble::Trouble;

/// Some processes of the server that is a command are struck.
#[derive(Debug, Clone, Copy)]
pub(in crate::faults) struct ProcessStrike {
    pub(in crate::faults) spell: Spell,
    pub(in crate::faults) trouble: Trouble,
    /// Which: a number for the choice, and one in so many.
    pub(in crate::faults) draw: usize,
    pub(in crate::faults) one_in: usize,
}

impl Planner {
    /// What becomes of processes: something in most rounds.
    pub(super) fn plan_processes(&mut self, round: &mut Round) {
        if self.arguments.sessions_with(Server::Processes) == 0 {
            return;
        }
        let tried = Trouble::OF_PROCESSES.into_iter();
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
        assert!(planned(&["--gateways", "3"]).len() > 100);
        assert!(planned(&["--processes", "0"]).is_empty());
    }
}
