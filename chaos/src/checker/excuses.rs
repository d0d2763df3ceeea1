//! What was broken at the time, and what it excuses.

use std::time::Duration;

use crate::history::{Call, Fault, History, Kind, Outcome, Ran};
use crate::server::{PROCESSES, Server, is_in_union};

/// How long after a fault its consequences are felt.
const AFTER: Duration = Duration::from_secs(3);
/// How long a fault is felt at most, from its beginning, also on the slowest machine.
const FELT_FOR: Duration = Duration::from_secs(60);
/// How long a gateway that died is taken for alive.
const PRESENCE: Duration = Duration::from_secs(12);
/// How long a cancel may take to arrive.
const CANCEL_TAKES: Duration = Duration::from_secs(1);
/// How long a new upstream session may take until it is the session's own. What was known of the tools is
/// forgotten only then, also what a listing said that was asked for in between.
const OPENING_TAKES: Duration = Duration::from_secs(1);
/// How long after the cause a session may be opened anew: a call can hang before it is noticed.
const LOSS_TAKES: Duration = Duration::from_secs(40);

/// How long a gateway recovers a session, at most.
const RECOVERY_TAKES: Duration = Duration::from_secs(20);
/// How much of its time a machine must have had for a recovery to be expected.
const ENOUGH: f64 = 0.7;

/// How often a process that dies young may be started for a client: so often, and so many times a second.
const MOST_STARTS: usize = 2;
const STARTS_A_SECOND: f64 = 1.0;

/// Faults that were felt at a time between these.
fn felt(history: &History, from: Duration, to: Duration) -> impl Iterator<Item = &Fault> {
    let is_felt = move |fault: &&Fault| {
        let since = history.pace.between(fault.at + fault.lasts, from);
        fault.at <= to && since <= AFTER
    };
    // They are in their order, and a long run has thousands.
    let earliest = from.saturating_sub(FELT_FOR);
    let begin = history.faults.partition_point(|fault| fault.at < earliest);
    history.faults[begin..]
        .iter()
        .take_while(move |fault| fault.at <= to)
        .filter(is_felt)
}

/// Faults that a call can have felt: those of its own server, of gateways, and of what all share.
fn felt_by<'a>(history: &'a History, call: &Call) -> impl Iterator<Item = &'a Fault> {
    let session = call.session;
    felt(history, call.began, call.ended).filter(move |fault| concerns(fault, session))
}

fn concerns(fault: &Fault, session: usize) -> bool {
    match struck_session(fault) {
        Some(struck) => struck == session,
        None => concerns_server(fault, Server::of(session)),
    }
}

fn concerns_server(fault: &Fault, server: Server) -> bool {
    match fault.whose.as_str() {
        PROCESSES => server == Server::Processes,
        whose if is_replica(whose) => server != Server::Processes,
        _ => struck_session(fault).is_none_or(|struck| Server::of(struck) == server),
    }
}

/// The session that alone was struck.
fn struck_session(fault: &Fault) -> Option<usize> {
    fault.whose.strip_prefix('s')?.parse().ok()
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
        // The same, or what is said to the call itself.
        _ if opens_a_member(history, call) => {
            &["400", "400 to all", "404", "html 404", "disk full"]
        }
        400 => &["400", "400 to all"],
        // A replica that has the other transport by now, if the ping that would tell breaks off.
        405 => &["switch"],
        503 => &["disk full"],
        // In a batch, nothing has a status of its own.
        200 => &["400", "400 to all", "disk full"],
        _ => return false,
    };
    let mut felt = felt_by(history, call);
    felt.any(|fault| causes.contains(&fault.kind))
        || (matches!(status, 200 | 503)
            && (has_no_store(history, call) || cannot_store(history, call)))
        || lost_again(history, call)
        || was_starved(history, call)
}

/// Whether the machine was too busy, when the call waited or shortly before, for a recovery to be over in its time.
/// That time is the gateway's, and it is not longer on a busy machine.
fn was_starved(history: &History, call: &Call) -> bool {
    let from = call.began.saturating_sub(RECOVERY_TAKES);
    let counted = history.pace.between(from, call.ended);
    counted < (call.ended - from).mul_f64(ENOUGH)
}

/// Whether a call is the first at a server since its client opened the union, and so opens a session there.
fn opens_a_member(history: &History, call: &Call) -> bool {
    let own = history.calls.iter();
    let own = own.filter(|one| one.session == call.session && one.ended <= call.began);
    let answered = own.rev().find(|one| one.outcome == Outcome::Answered);
    is_in_union(call.session) && answered.is_some_and(|one| one.kind == Kind::Open)
}

/// Whether the gateway that was asked could not reach the Redis, or was stopped while it waited for it.
fn has_no_store(history: &History, call: &Call) -> bool {
    let gateway = format!("g{}", call.gateway);
    let mut felt = felt_by(history, call);
    felt.any(|fault| matches!(fault.kind, "cut redis" | "stop gateway") && fault.whose == gateway)
}

/// Whether the Redis could not be written when that was needed: for a new session, to write down that one was recovered
/// or taken over, or, for a gateway that cannot say that it lives, to use what it owns.
fn cannot_store(history: &History, call: &Call) -> bool {
    let is_new = call.kind == Kind::Open || opens_a_member(history, call);
    let is_owned = call.server().lives_in_one_gateway();
    let others = |unfit: &Fault| {
        let is_other = |fault: &Fault| !matches!(fault.kind, "redis full" | "redis read-only");
        felt(history, unfit.at, call.ended)
            .any(|fault| is_other(fault) && concerns(fault, call.session))
    };
    felt_by(history, call).any(|fault| match fault.kind {
        "redis full" => is_new || others(fault),
        "redis read-only" => is_new || is_owned || others(fault),
        _ => false,
    })
}

/// Whether the session of a safe call may have been lost for a second time: a call goes again for one loss.
fn lost_again(history: &History, call: &Call) -> bool {
    let server = call.server();
    let costs = |fault: &Fault| {
        let costs = match fault.kind {
            "forget" | "kill" | "flip" | "404" | "html 404" | "400 to all" | "kill process"
            | "fail start" | "die young" | "switch" | "turn" => true,
            // With its connection, a stream is lost.
            "break" | "cut" | "cut stream" | "reset after" | "reset before" | "end, then reset" => {
                matches!(server, Server::Streams | Server::Mixed)
            }
            "kill gateway" | "stop gateway" | "cut redis" => server.lives_in_one_gateway(),
            _ => false,
        };
        costs && concerns(fault, call.session)
    };
    let during = |fault: &Fault| fault.at <= call.ended && call.began <= fault.at + fault.lasts;
    let mut faults = history.faults.iter();
    // A tool that is read-only at the time is one of them.
    let may_be_safe = call.kind.is_safe() || matches!(call.kind, Kind::Flip | Kind::Turn);
    may_be_safe && faults.any(|fault| costs(fault) && during(fault))
}

/// Whether the store could not be written or asked.
pub(super) fn store_is_away(history: &History, call: &Call) -> bool {
    let mut felt = felt_by(history, call);
    felt.any(|fault| {
        matches!(
            fault.kind,
            "disk full" | "pause redis" | "cut redis" | "redis full" | "redis read-only"
        )
    })
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
    // A list of one session, which the gateway makes after a turn, takes back what all of the caller rely on.
    if felt(history, call.began, call.ended).any(|fault| fault.kind == "turn") {
        return true;
    }
    let server = call.server();
    let births = history.births_of(server).map(|born| (born, OPENING_TAKES));
    let faults = history.faults.iter();
    let changes = faults
        .filter(|fault| server != Server::Processes && matches!(fault.kind, "flip" | "reload"))
        .map(|fault| (fault.at, fault.lasts));
    let changed = births
        .chain(changes)
        .filter(|(at, _)| *at <= call.ended)
        .map(|(at, lasts)| (at + lasts).min(call.ended))
        .max();
    let shown = |list: &&Call| {
        list.kind == Kind::List
            && list.server() == server
            && list.outcome == Outcome::Answered
            && list.ended <= call.began
            && changed.is_none_or(|changed| list.began > changed)
    };
    history.calls.iter().find(shown).is_none()
}

/// Whether a cancelled call ran on, or again, although nothing kept the cancel from its server.
pub(super) fn ran_on(history: &History, call: &Call, accepted: Duration, ran: &[Ran]) -> bool {
    let is_late = |at| history.pace.between(accepted, at) > CANCEL_TAKES;
    let ran_on = ran.iter().filter_map(|ran| match ran.finished {
        Some(finished) if is_late(finished) => Some(finished),
        _ => is_late(ran.at).then_some(ran.at),
    });
    let Some(at) = ran_on.max() else {
        return false;
    };
    let from = accepted.saturating_sub(AFTER);
    !felt(history, from, at).any(|fault| concerns(fault, call.session) && is_near(fault, ran))
}

/// How long a call may have waited for gateways that were stopped, and for the presence of two owners that died one
/// after the other.
pub(super) fn stood_still(history: &History, call: &Call) -> Duration {
    let during = |kind: &'static str| {
        history.faults.iter().filter(move |fault| {
            let (from, to) = (fault.at, fault.at + fault.lasts);
            fault.kind == kind && from <= call.ended && call.began <= to
        })
    };
    let stopped: Duration = during("stop gateway").map(|fault| fault.lasts).sum();
    let is_owned = call.server().lives_in_one_gateway();
    let owners = during("kill gateway").filter(|_| is_owned).take(2);
    stopped + owners.map(|_| PRESENCE).sum::<Duration>()
}

/// Whether a message may have been on its way to this replica for longer than its stream was in use. If its connection
/// broke after it was written, nobody can take it back: its client was told that the outcome is not known, or it was
/// repeated.
pub(super) fn may_be_delayed(history: &History, key: &str, ran: &Ran) -> bool {
    let was_repeated = history.ran.get(key).is_some_and(|all| all.len() > 1);
    let broke = || {
        let mut calls = history.calls.iter().filter(|call| call.key == key);
        calls.any(|call| call.outcome == Outcome::Unknown || (call.kind.is_safe() && was_repeated))
    };
    let mut felt = felt(history, ran.at, ran.at).filter(|fault| fault.whose == ran.replica);
    felt.any(|fault| match fault.kind {
        "delay" | "hang" | "hang a call" => true,
        "reset after" | "end, then reset" | "break" => broke(),
        _ => false,
    })
}

/// Sessions that were opened anew although nothing had been done to any of their server's.
pub(super) fn opened_without_need(history: &History) -> impl Iterator<Item = Duration> {
    // Clients that open theirs themselves say nothing.
    let visits = history.calls.iter().any(|call| call.kind == Kind::Open);
    let births = history.births.iter().filter(move |_| !visits);
    let births = births.map(|born| (*born, Server::Replicas));
    let others = [Server::Processes, Server::Streams].into_iter();
    let others = others.flat_map(|server| {
        let births = history.births_of(server);
        births.map(move |born| (born, server))
    });
    let unneeded = births.chain(others);
    let unneeded = unneeded.filter(|(born, server)| has_no_cause(history, *born, *server));
    unneeded.map(|(born, _)| born)
}

fn has_no_cause(history: &History, born: Duration, server: Server) -> bool {
    // Faults that cost no session say nothing.
    let costs = |fault: &&Fault| {
        !matches!(fault.kind, "400" | "delay" | "hang a call") && concerns_server(fault, server)
    };
    let first = history.faults.iter().map(|fault| fault.at).min();
    let is_later = first.is_some_and(|first| born > first);
    let mut costly = history.faults.iter().filter(costs);
    let explained =
        costly.any(|fault| (fault.at..=fault.at + fault.lasts + LOSS_TAKES).contains(&born));
    is_later && !explained
}

/// Clients whose processes died young and were started too often meanwhile.
pub(super) fn started_too_often(history: &History) -> impl Iterator<Item = usize> {
    let youths = history.faults.iter();
    let youths = youths.filter(|fault| fault.kind == "die young");
    youths.flat_map(|youth| {
        let most = MOST_STARTS + (youth.lasts.as_secs_f64() * STARTS_A_SECOND) as usize;
        let during = youth.at..=youth.at + youth.lasts;
        let clients = history.process_births_of.iter();
        let often = clients.filter(move |(_, births)| {
            births.iter().filter(|born| during.contains(born)).count() > most
        });
        often.map(|(client, _)| *client)
    })
}
