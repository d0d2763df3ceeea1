//! What was broken at the time, and what it excuses.

use std::time::Duration;

use crate::history::{Call, Fault, History, Kind, Outcome, PROCESSES, Ran};

/// How long after a fault its consequences are felt.
const AFTER: Duration = Duration::from_secs(3);
/// How long a cancel may take to arrive.
const CANCEL_TAKES: Duration = Duration::from_secs(1);
/// How long a new upstream session may take until it is the session's own. What was known of the tools is
/// forgotten only then, also what a listing said that was asked for in between.
const OPENING_TAKES: Duration = Duration::from_secs(1);
/// How long after the cause a session may be opened anew: a call can hang before it is noticed.
const LOSS_TAKES: Duration = Duration::from_secs(40);

/// Faults that were felt at a time between these.
fn felt(history: &History, from: Duration, to: Duration) -> impl Iterator<Item = &Fault> {
    let is_felt = move |fault: &&Fault| fault.at <= to && from <= fault.at + fault.lasts + AFTER;
    history.faults.iter().filter(is_felt)
}

/// Faults that a call can have felt: those of its own server, of gateways, and of what all share.
fn felt_by<'a>(history: &'a History, call: &Call) -> impl Iterator<Item = &'a Fault> {
    let is_process = call.is_of_process();
    felt(history, call.began, call.ended).filter(move |fault| concerns(fault, is_process))
}

fn concerns(fault: &Fault, is_process: bool) -> bool {
    match fault.whose.as_str() {
        PROCESSES => is_process,
        whose if is_replica(whose) => !is_process,
        _ => true,
    }
}

fn is_replica(whose: &str) -> bool {
    let number = whose.strip_prefix('r');
    number.is_some_and(|number| number.parse::<u8>().is_ok())
}

/// Whether a call may be refused with this status: a balancer said so, or nothing can be written down.
pub(super) fn may_be_refused(history: &History, call: &Call, status: u16) -> bool {
    let causes: &[_] = match status {
        // What a balancer says to `initialize` is all that its client can be told.
        _ if call.kind == Kind::Open => &["400 to all", "404", "html 404", "disk full"],
        400 => &["400", "400 to all"],
        503 => &["disk full"],
        // In a batch, nothing has a status of its own.
        200 => &["400", "400 to all", "disk full"],
        _ => return false,
    };
    let mut felt = felt_by(history, call);
    felt.any(|fault| causes.contains(&fault.kind)) || lost_again(history, call)
}

/// Whether the session of a safe call may have been lost for a second time: a call goes again for one loss.
fn lost_again(history: &History, call: &Call) -> bool {
    let costs = |fault: &Fault| {
        matches!(
            fault.kind,
            "forget"
                | "kill"
                | "flip"
                | "404"
                | "html 404"
                | "400 to all"
                | "kill process"
                | "fail start"
        ) && concerns(fault, call.is_of_process())
    };
    let during = |fault: &Fault| fault.at <= call.ended && call.began <= fault.at + fault.lasts;
    let mut faults = history.faults.iter();
    // A tool that is read-only at the time is one of them.
    let may_be_safe = call.kind.is_safe() || call.kind == Kind::Flip;
    may_be_safe && faults.any(|fault| costs(fault) && during(fault))
}

/// Whether the store could not be written or asked.
pub(super) fn store_is_away(history: &History, call: &Call) -> bool {
    let mut felt = felt_by(history, call);
    felt.any(|fault| matches!(fault.kind, "disk full" | "pause redis"))
}

/// Whether anything at all was broken.
pub(super) fn was_anything(history: &History, call: &Call) -> bool {
    felt_by(history, call).next().is_some()
}

/// Whether a fault struck the replica that ran it, or its gateway.
pub(super) fn was_struck(history: &History, call: &Call, ran: &[Ran]) -> bool {
    felt_by(history, call).any(|fault| is_near(fault, ran))
}

fn is_near(fault: &Fault, ran: &[Ran]) -> bool {
    let is_its = |ran: &Ran| ran.replica == fault.whose;
    ran.iter().any(is_its) || !(is_replica(&fault.whose) || fault.whose == PROCESSES)
}

/// Whether a safe tool was not known to be one: since the tools may have changed (a session was opened
/// anew, endpoints or tools changed), nobody was shown the list of tools.
pub(super) fn was_not_shown(history: &History, call: &Call) -> bool {
    if !matches!(call.kind, Kind::Read | Kind::StreamRead) {
        return false;
    }
    let is_process = call.is_of_process();
    let births = match is_process {
        true => &history.process_births,
        false => &history.births,
    };
    let births = births.iter().map(|born| (*born, OPENING_TAKES));
    let faults = history.faults.iter();
    let changes = faults
        .filter(|fault| !is_process && matches!(fault.kind, "flip" | "reload"))
        .map(|fault| (fault.at, fault.lasts));
    let changed = births
        .chain(changes)
        .filter(|(at, _)| *at <= call.ended)
        .map(|(at, lasts)| (at + lasts).min(call.ended))
        .max();
    let shown = |list: &&Call| {
        list.kind == Kind::List
            && list.is_of_process() == is_process
            && list.outcome == Outcome::Answered
            && list.ended <= call.began
            && changed.is_none_or(|changed| list.began > changed)
    };
    history.calls.iter().find(shown).is_none()
}

/// Whether a cancelled call ran on, or again, although nothing kept the cancel from its server.
pub(super) fn ran_on(history: &History, accepted: Duration, ran: &[Ran]) -> bool {
    let late = accepted + CANCEL_TAKES;
    let ran_on = ran.iter().filter_map(|ran| match ran.finished {
        Some(finished) if finished > late => Some(finished),
        _ => (ran.at > late).then_some(ran.at),
    });
    let Some(at) = ran_on.max() else {
        return false;
    };
    let from = accepted.saturating_sub(AFTER);
    !felt(history, from, at).any(|fault| is_near(fault, ran))
}

/// Sessions that were opened anew although nothing had been done to any of their server's.
pub(super) fn opened_without_need(history: &History) -> impl Iterator<Item = Duration> {
    // Clients that open theirs themselves say nothing.
    let visits = history.calls.iter().any(|call| call.kind == Kind::Open);
    let births = history.births.iter().filter(move |_| !visits);
    let births = births.map(|born| (*born, false));
    let of_processes = history.process_births.iter().map(|born| (*born, true));
    let unneeded = births.chain(of_processes);
    let unneeded = unneeded.filter(|(born, is_process)| has_no_cause(history, *born, *is_process));
    unneeded.map(|(born, _)| born)
}

fn has_no_cause(history: &History, born: Duration, is_process: bool) -> bool {
    // Faults that cost no session say nothing.
    let costs = |fault: &&Fault| {
        !matches!(fault.kind, "400" | "delay" | "hang a call") && concerns(fault, is_process)
    };
    let first = history.faults.iter().map(|fault| fault.at).min();
    let is_later = first.is_some_and(|first| born > first);
    let mut costly = history.faults.iter().filter(costs);
    let explained =
        costly.any(|fault| (fault.at..=fault.at + fault.lasts + LOSS_TAKES).contains(&born));
    is_later && !explained
}
