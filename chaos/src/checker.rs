//! What the gateway promises, looked for in a history.

mod excuses;
mod legs;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::history::{Afterwards, Call, History, Kind, Outcome, Ran};
use crate::server::{PROCESSES, Server};

/// How often a call that can never succeed may be tried when other faults meet it besides.
const A_STORM: usize = 8;

/// How often a safe call that may have run goes again: one that breaks its server is not the end of all.
const REPEATS: usize = 4;
/// What a request gets that its client cancelled.
const CANCELLED: i64 = -32800;

/// A promise of the gateway's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    /// No unsafe call runs twice.
    AtMostOnce,
    /// No answer, and nothing of one, reaches another call or session, and nothing comes twice.
    RightAnswer,
    /// No session is lost while a healthy endpoint exists.
    SessionKept,
    /// Every call is answered in time.
    InTime,
    /// Every call is answered: no stream or connection ends without.
    NeverSilent,
    /// -31001 is only for unsafe calls.
    SafeIsRepeated,
    /// -31001 is only for what was struck.
    UnknownHasACause,
    /// Nothing is refused while a healthy endpoint exists.
    NotRefused,
    /// What was answered has run; what was refused has not.
    TruthTold,
    /// What a client cancelled does not run on.
    CancelArrives,
    /// What a client ended stays ended.
    EndedStaysEnded,
    /// What can never succeed is not tried again and again.
    NoStorm,
    /// What dies young is not started again and again.
    NoStartStorm,
    /// No session is opened anew that was alive.
    AliveIsKept,
    /// Once all is well, a listening session hears from its server.
    Heard,
    /// No process or stream of a session is used after another one was.
    OneLeg,
    /// A call runs at the server that it names.
    RightServer,
    /// A list of all servers says which of them are missing.
    MissingIsSaid,
    /// No server is missing from a list while nothing is wrong with it.
    NotMissing,
    /// Once all is well, every server's tools are in the list of all.
    WholeAgain,
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) promise: Promise,
    pub(crate) shown_by: Evidence,
}

/// What shows that a promise was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// A call, by its place in the history.
    Call(usize),
    /// A session.
    Session(usize),
    /// An upstream session that was opened.
    Birth,
    /// An execution, by its key.
    Ran(String),
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::AtMostOnce => "an unsafe call ran twice",
            Self::RightAnswer => "an answer that is not the call's",
            Self::SessionKept => "a session was lost",
            Self::InTime => "an answer was late",
            Self::NeverSilent => "no answer came",
            Self::SafeIsRepeated => "-31001 for a safe call",
            Self::UnknownHasACause => "-31001 although nothing was broken",
            Self::NotRefused => "refused while an endpoint was healthy",
            Self::TruthTold => "the answer is not what happened",
            Self::CancelArrives => "what was cancelled ran on",
            Self::EndedStaysEnded => "an ended session lives on",
            Self::NoStorm => "a hopeless call was tried again",
            Self::NoStartStorm => "a process that dies young was started too often",
            Self::AliveIsKept => "a live session was opened anew",
            Self::Heard => "the notification stream was not restored",
            Self::OneLeg => "two legs of a session were in use",
            Self::RightServer => "a call ran at another server",
            Self::MissingIsSaid => "a list lacks a server without saying so",
            Self::NotMissing => "a server was missing from a list although nothing was broken",
            Self::WholeAgain => "a server's tools did not come back",
        })
    }
}

/// Every broken promise, in the order of the calls.
pub(crate) fn check(history: &History) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (place, call) in history.calls.iter().enumerate() {
        let broken = broken(history, call).into_iter();
        violations.extend(broken.map(|promise| Violation {
            promise,
            shown_by: Evidence::Call(place),
        }));
    }
    let opened = excuses::opened_without_need(history);
    violations.extend(opened.map(|_| Violation {
        promise: Promise::AliveIsKept,
        shown_by: Evidence::Birth,
    }));
    let storms = excuses::started_too_often(history);
    violations.extend(storms.map(|client| Violation {
        promise: Promise::NoStartStorm,
        shown_by: Evidence::Session(client),
    }));
    let late = legs::used_after_another(history).into_iter();
    violations.extend(late.map(|key| Violation {
        promise: Promise::OneLeg,
        shown_by: Evidence::Ran(key),
    }));
    let Afterwards { deaf, partial } = &history.afterwards;
    for (promise, sessions) in [(Promise::Heard, deaf), (Promise::WholeAgain, partial)] {
        violations.extend(sessions.iter().map(|session| Violation {
            promise,
            shown_by: Evidence::Session(*session),
        }));
    }
    violations
}

fn broken(history: &History, call: &Call) -> Vec<Promise> {
    let ran = history.ran.get(&call.key).map_or(&[][..], Vec::as_slice);
    let mut broken = Vec::new();
    if must_not_repeat(call.kind, ran) > 1 {
        broken.push(Promise::AtMostOnce);
    }
    let is_process = call.server() == Server::Processes;
    let elsewhere = |ran: &Ran| (ran.replica == PROCESSES) != is_process;
    // A resource is not named after its server.
    if call.kind != Kind::Resource && ran.iter().any(elsewhere) {
        broken.push(Promise::RightServer);
    }
    let enough = match excuses::was_anything(history, call) {
        true => A_STORM,
        false => 1,
    };
    if call.kind == Kind::LargeEvent && ran.len() > enough {
        broken.push(Promise::NoStorm);
    }
    let limit = history.limit + excuses::stood_still(history, call);
    let took = history.pace.between(call.began, call.ended);
    if took > limit || call.outcome == Outcome::Never {
        broken.push(Promise::InTime);
    }
    let ended = of_outcome(history, call, ran);
    broken.extend(ended);
    broken
}

/// How often it ran as something that may not run twice.
fn must_not_repeat(kind: Kind, ran: &[Ran]) -> usize {
    match kind {
        // It may run as often as it takes while it is read-only.
        Kind::Flip => ran.iter().filter(|ran| ran.destructive).count(),
        // What it has become is known in the session that was told.
        Kind::Turn if !ran.iter().any(|ran| ran.destructive) => 0,
        kind if kind.is_safe() => 0,
        _ => ran.len(),
    }
}

/// What its outcome breaks.
fn of_outcome(history: &History, call: &Call, ran: &[Ran]) -> Vec<Promise> {
    match (&call.outcome, call.kind) {
        // That its session is not there is just what it should hear.
        (Outcome::Answered, Kind::Ended) if excuses::store_is_away(history, call) => vec![],
        (Outcome::Answered, Kind::Ended) => vec![Promise::EndedStaysEnded],
        (Outcome::Lost, Kind::Ended | Kind::Delete) => vec![],
        (Outcome::Refused(..) | Outcome::Silent(_), Kind::Ended | Kind::Delete | Kind::Listen)
            if excuses::store_is_away(history, call) =>
        {
            vec![]
        }
        // It cannot be passed on, whatever its tool says.
        (Outcome::Unknown, Kind::LargeEvent) => vec![],
        // The answer had begun, so its end is all that can be told.
        (Outcome::Silent(_), Kind::Large) if excuses::was_struck(history, call, ran) => vec![],
        (Outcome::Answered, kind) if ran.is_empty() && kind.tool().is_some() => {
            vec![Promise::TruthTold]
        }
        (Outcome::Answered | Outcome::Never, _) => vec![],
        // The client could not know better; but an unsafe call may not run twice.
        (Outcome::Orphaned, _) => vec![],
        (Outcome::Unknown, kind)
            if kind.is_safe() && ran.len() <= REPEATS && !excuses::was_not_shown(history, call) =>
        {
            vec![Promise::SafeIsRepeated]
        }
        // A call that is cancelled has no answer, whatever is told instead.
        (Outcome::Unknown, kind)
            if !matches!(kind, Kind::Long | Kind::Torn)
                && !excuses::was_anything(history, call) =>
        {
            vec![Promise::UnknownHasACause]
        }
        (Outcome::Unknown, _) => vec![],
        (Outcome::Cancelled(Some(accepted)), _)
            if excuses::ran_on(history, call, *accepted, ran) =>
        {
            vec![Promise::CancelArrives]
        }
        (Outcome::Cancelled(_), _) => vec![],
        // The same, in the gateway's words.
        (Outcome::Refused(_, Some(CANCELLED)), Kind::Long) => vec![],
        (Outcome::Refused(status, _), kind) => {
            let mut broken = Vec::new();
            if !excuses::may_be_refused(history, call, *status) {
                broken.push(Promise::NotRefused);
            }
            if must_not_repeat(kind, ran) > 0 {
                broken.push(Promise::TruthTold);
            }
            broken
        }
        (Outcome::Lost, _) => vec![Promise::SessionKept],
        (Outcome::Lacks, _) => vec![Promise::MissingIsSaid],
        (Outcome::Missing(_), _) if excuses::was_anything(history, call) => vec![],
        (Outcome::Missing(_), _) => vec![Promise::NotMissing],
        (Outcome::Wrong(_), _) => vec![Promise::RightAnswer],
        (Outcome::Silent(_), _) => vec![Promise::NeverSilent],
    }
}
