//! What the gateway promises, looked for in a history.

#[cfg(test)]
mod tests;

use std::fmt;

use crate::history::{Call, History, Outcome};

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
    /// Nothing is refused while a healthy endpoint exists.
    NotRefused,
    /// What was answered has run; what was refused has not.
    TruthTold,
    /// Once all is well, a listening session hears from its server.
    Heard,
}

/// A broken promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) promise: Promise,
    pub(crate) shown_by: Evidence,
}

/// What shows that a promise was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// A call, by its place in the history.
    Call(usize),
    /// A session.
    Session(usize),
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
            Self::NotRefused => "refused while an endpoint was healthy",
            Self::TruthTold => "the answer is not what happened",
            Self::Heard => "the notification stream was not restored",
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
    violations.extend(history.deaf.iter().map(|session| Violation {
        promise: Promise::Heard,
        shown_by: Evidence::Session(*session),
    }));
    violations
}

fn broken(history: &History, call: &Call) -> Vec<Promise> {
    let ran = history.ran.get(&call.key).map_or(0, Vec::len);
    let mut broken = Vec::new();
    if ran > 1 && !call.kind.is_safe() {
        broken.push(Promise::AtMostOnce);
    }
    if call.took() > history.limit || call.outcome == Outcome::Never {
        broken.push(Promise::InTime);
    }
    match &call.outcome {
        Outcome::Answered if ran == 0 && call.kind.tool().is_some() => {
            broken.push(Promise::TruthTold);
        }
        Outcome::Answered | Outcome::Never => {}
        // The client could not know better; but an unsafe call may not run twice.
        Outcome::Orphaned => {}
        Outcome::Unknown if call.kind.is_safe() => broken.push(Promise::SafeIsRepeated),
        Outcome::Unknown => {}
        Outcome::Refused(..) => {
            broken.push(Promise::NotRefused);
            if ran > 0 && !call.kind.is_safe() {
                broken.push(Promise::TruthTold);
            }
        }
        Outcome::Lost => broken.push(Promise::SessionKept),
        Outcome::Wrong(_) => broken.push(Promise::RightAnswer),
        Outcome::Silent(_) => broken.push(Promise::NeverSilent),
    }
    broken
}
