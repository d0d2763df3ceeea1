//! A child in the supervisor, and the steps of its end.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::time::Instant;

use crate::descendants::{Process, Root, signal};
use crate::exit::Exit;
use crate::protocol::ChildId;

/// How soon it is checked whether all that were killed are gone, and the longest time between two checks.
const CHECK_FIRST: Duration = Duration::from_millis(5);
const CHECK_LATER: Duration = Duration::from_secs(1);

/// How long, and how often, it is checked whether a process that may be anybody's turns out to be a member.
const UNKNOWN_FOR: Duration = Duration::from_millis(150);
const CHECK_UNKNOWN: Duration = Duration::from_millis(20);

/// A child and its descendants.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) pid: Pid,
    pub(super) start: u64,
    pub(super) tag: String,
    pub(super) exit: Option<Exit>,
    ending: Option<Ending>,
}

#[derive(Debug)]
struct Ending {
    stage: Stage,
    grace: Duration,
    /// When the next step is due.
    due: Instant,
    /// Whether it may be over before that.
    look: bool,
    /// Since when nobody is found beside processes that may be anybody's.
    empty_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// stdin is closed; it may exit by itself.
    Closed,
    /// SIGTERM was sent.
    Terminated,
    /// SIGKILL is sent, again after this time.
    Killed(Duration),
}

impl Family {
    pub(super) fn new(pid: Pid, start: u64, tag: String) -> Self {
        let (exit, ending) = (None, None);
        Self {
            pid,
            start,
            tag,
            exit,
            ending,
        }
    }

    pub(super) fn root(&self, id: ChildId) -> Root<'_> {
        Root {
            id,
            pid: self.pid,
            start: self.start,
            tag: &self.tag,
            exited: self.exit.is_some(),
            ending: self.ending.is_some(),
        }
    }

    /// Begins the end, or hurries one that is under way.
    pub(super) fn end(&mut self, grace: Duration, now: Instant) {
        let due = now + grace;
        match &mut self.ending {
            Some(ending) => {
                ending.grace = ending.grace.min(grace);
                ending.due = ending.due.min(due);
            }
            None => {
                let (stage, look) = (Stage::Closed, self.exit.is_some());
                self.ending = Some(Ending {
                    stage,
                    grace,
                    due,
                    look,
                    empty_since: None,
                });
            }
        }
    }

    /// A process below the supervisor exited, perhaps the last one of this family.
    pub(super) fn look(&mut self) {
        if self.exit.is_some()
            && let Some(ending) = &mut self.ending
        {
            ending.look = true;
        }
    }

    /// When something is to be done next.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let ending = self.ending.as_ref()?;
        Some(if ending.look { now } else { ending.due })
    }

    /// Takes the step that is due. Returns whether all are gone. `has_unknown`: there are processes that may be
    /// members.
    pub(super) fn advance(&mut self, members: &[Process], has_unknown: bool, now: Instant) -> bool {
        let Some(ending) = &mut self.ending else {
            return false;
        };
        let exited = self.exit.is_some();
        ending.look = false;
        if exited && members.is_empty() {
            let since = *ending.empty_since.get_or_insert(now);
            ending.due = now + CHECK_UNKNOWN;
            return !has_unknown || now >= since + UNKNOWN_FOR;
        }
        // Descendants that are left do not read the child's stdin: there is nothing to wait for.
        let is_due = now >= ending.due || (exited && ending.stage == Stage::Closed);
        if is_due {
            let sent = ending.step(now);
            members.iter().for_each(|process| signal(process, sent));
            // The child runs, but `/proc` does not show it.
            if members.is_empty()
                && let Err(error) = kill_process_group(self.pid, sent)
            {
                tracing::debug!(%error, "cannot signal a process group");
            }
        }
        false
    }
}

impl Ending {
    /// The signal that is due now.
    fn step(&mut self, now: Instant) -> Signal {
        let (sent, stage, pause) = match self.stage {
            Stage::Closed => (Signal::TERM, Stage::Terminated, self.grace),
            Stage::Terminated => (Signal::KILL, Stage::Killed(CHECK_FIRST), CHECK_FIRST),
            Stage::Killed(pause) => {
                let longer = (pause * 2).min(CHECK_LATER);
                (Signal::KILL, Stage::Killed(longer), longer)
            }
        };
        self.stage = stage;
        self.due = now + pause;
        sent
    }
}
