//! What people read.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use crate::checker::{Evidence, Promise, Violation};
use crate::history::{Afterwards, Call, History, Kind, Outcome, Recorder};

/// How often progress is told.
const EVERY: Duration = Duration::from_secs(5);
/// How many violations of one promise are told in full.
const IN_FULL: usize = 8;
/// How long before a call what was broken may matter to it.
const BEFORE: Duration = Duration::from_millis(500);
const BEFORE_AT_ITS_GATEWAY: Duration = Duration::from_secs(10);

/// Calls by how they ended.
#[derive(Debug, Default)]
struct Counts {
    answered: usize,
    unknown: usize,
    refused: usize,
    lost: usize,
    orphaned: usize,
    cancelled: usize,
    missing: usize,
    other: usize,
}

/// Tells how it goes, for ever.
pub(crate) async fn progress(recorder: &Recorder) -> Infallible {
    let mut seen = 0;
    loop {
        tokio::time::sleep(EVERY).await;
        let mut counts = Counts::default();
        let before = seen;
        seen = recorder.since(seen, |call| counts.add(call));
        println!(
            "{:>5} s  {:>6} calls: {counts}; {} faults so far",
            recorder.now().as_secs(),
            seen - before,
            recorder.faults(),
        );
    }
}

/// The last word on every kind of call.
pub(crate) fn table(history: &History) {
    println!();
    println!(
        "{:<16}{:>8}{:>9}{:>8}{:>9}{:>6}{:>10}{:>10}{:>9}{:>7}{:>10}{:>10}{:>10}",
        "call",
        "calls",
        "answered",
        "-31001",
        "refused",
        "lost",
        "orphaned",
        "cancelled",
        "missing",
        "other",
        "p50 ms",
        "p99 ms",
        "max ms"
    );
    Kind::ALL.into_iter().for_each(|kind| row(history, kind));
    let mut kinds = BTreeMap::<_, usize>::new();
    for fault in &history.faults {
        *kinds.entry(fault.kind).or_default() += 1;
    }
    let faults: Vec<_> = kinds
        .iter()
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    println!("faults: {}", faults.join(", "));
    let took = history
        .calls
        .last()
        .map_or(Duration::ZERO, |call| call.ended);
    let counted = history.pace.between(Duration::ZERO, took);
    println!("of {took:.0?} the machine had time for {counted:.0?}");
    println!("upstream sessions opened: {}", history.births.len());
    println!("HTTP+SSE streams opened: {}", history.stream_births.len());
    println!("processes started: {}", history.process_births.len());
    println!();
}

/// What came of the calls of one kind.
fn row(history: &History, kind: Kind) {
    let of_kind = history.calls.iter().filter(|call| call.kind == kind);
    let calls: Vec<_> = of_kind.collect();
    if calls.is_empty() {
        return;
    }
    let mut counts = Counts::default();
    calls.iter().for_each(|call| counts.add(call));
    let mut times: Vec<_> = calls.iter().map(|call| call.took()).collect();
    times.sort_unstable();
    let quantile = |share: f64| {
        let place = (times.len() as f64 * share) as usize;
        let time = times.get(place).or(times.last());
        time.map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    };
    println!(
        "{kind:<16}{:>8}{:>9}{:>8}{:>9}{:>6}{:>10}{:>10}{:>9}{:>7}{:>10.1}{:>10.1}{:>10.1}",
        calls.len(),
        counts.answered,
        counts.unknown,
        counts.refused,
        counts.lost,
        counts.orphaned,
        counts.cancelled,
        counts.missing,
        counts.other,
        quantile(0.5),
        quantile(0.99),
        quantile(1.0),
    );
}

/// Which promises were broken how often, and the first of each in full.
pub(crate) fn violations(history: &History, violations: &[Violation]) {
    let mut by_promise = BTreeMap::<Promise, Vec<&Call>>::new();
    for violation in violations {
        if let Evidence::Call(place) = &violation.shown_by {
            let call = &history.calls[*place];
            by_promise.entry(violation.promise).or_default().push(call);
        }
    }
    legs(history, violations);
    let births = violations.iter();
    let births = births.filter(|violation| violation.shown_by == Evidence::Birth);
    let births = births.count();
    if births > 0 {
        println!("VIOLATED {births} times: {}", Promise::AliveIsKept);
    }
    let storms = violations.iter().filter_map(|violation| match violation {
        Violation {
            promise: Promise::NoStartStorm,
            shown_by: Evidence::Session(client),
        } => Some(*client),
        _ => None,
    });
    let storms: Vec<_> = storms.collect();
    if !storms.is_empty() {
        let (count, promise) = (storms.len(), Promise::NoStartStorm);
        println!("VIOLATED {count} times: {promise}: clients {storms:?}");
    }
    let Afterwards { deaf, partial } = &history.afterwards;
    for (promise, sessions) in [(Promise::Heard, deaf), (Promise::WholeAgain, partial)] {
        if !sessions.is_empty() {
            let count = sessions.len();
            println!("VIOLATED {count} times: {promise}: sessions {sessions:?}");
        }
    }
    for (promise, calls) in by_promise {
        println!("VIOLATED {} times: {promise}", calls.len());
        for (outcome, count) in outcomes(&calls) {
            println!("    {count:>6} x {outcome}");
        }
        for call in first_of_each(&calls) {
            for line in minimal(history, call) {
                println!("    {line}");
            }
            println!();
        }
    }
}

/// What ran on a process or stream that had been left for another: the first in full.
fn legs(history: &History, violations: &[Violation]) {
    let keys = violations.iter().filter_map(|it| match &it.shown_by {
        Evidence::Ran(key) => Some(key),
        _ => None,
    });
    let keys: Vec<_> = keys.collect();
    let Some(first) = keys.first() else {
        return;
    };
    println!("VIOLATED {} times: {}", keys.len(), Promise::OneLeg);
    let call = history.calls.iter().find(|call| call.key == **first);
    for line in call.map_or_else(Vec::new, |call| minimal(history, call)) {
        println!("    {line}");
    }
    let session = first.split('/').next().unwrap_or_default();
    let own = history.ran.iter().filter(|(key, _)| {
        let rest = key.strip_prefix(session);
        rest.is_some_and(|rest| rest.starts_with('/'))
    });
    let mut own: Vec<_> = own.flat_map(|(_, ran)| ran).collect();
    own.sort_by_key(|ran| ran.at);
    own.dedup_by(|a, b| a.session == b.session);
    for ran in own {
        let at = ran.at.as_secs_f64();
        println!(
            "    {at:>9.3} s  {} is used, on {}",
            ran.session, ran.replica
        );
    }
}

fn outcomes(calls: &[&Call]) -> BTreeMap<String, usize> {
    let mut outcomes = BTreeMap::new();
    for call in calls {
        *outcomes.entry(sort(call)).or_default() += 1;
    }
    outcomes
}

/// Kind and outcome, without what differs from call to call.
fn sort(call: &Call) -> String {
    match &call.outcome {
        Outcome::Wrong(_) => format!("{}: Wrong", call.kind),
        Outcome::Cancelled(_) => format!("{}: Cancelled", call.kind),
        Outcome::Missing(_) => format!("{}: Missing", call.kind),
        other => format!("{}: {other:?}", call.kind),
    }
}

/// The first call of each sort.
fn first_of_each<'a>(calls: &[&'a Call]) -> Vec<&'a Call> {
    let mut seen = BTreeSet::new();
    let firsts = calls.iter().filter(|call| seen.insert(sort(call)));
    firsts.take(IN_FULL).copied().collect()
}

/// All that matters to one call, in the order of time.
fn minimal(history: &History, call: &Call) -> Vec<String> {
    let ran = history.ran.get(&call.key).map_or(&[][..], Vec::as_slice);
    let mut lines = vec![
        (
            call.began,
            format!(
                "session {} calls {} with key {}",
                call.session, call.kind, call.key
            ),
        ),
        (
            call.ended,
            format!("{:?} from g{}", call.outcome, call.gateway),
        ),
    ];
    lines.extend(ran.iter().map(|ran| {
        let text = format!("runs on {} in its session {}", ran.replica, ran.session);
        (ran.at, text)
    }));
    let gateway = format!("g{}", call.gateway);
    let meanwhile = history.faults.iter().filter(|fault| {
        let before = match fault.whose == gateway {
            true => BEFORE_AT_ITS_GATEWAY,
            false => BEFORE,
        };
        let is_others = fault.kind == "turn" && fault.whose != format!("s{}", call.session);
        !is_others && (call.began.saturating_sub(before)..=call.ended).contains(&fault.at)
    });
    lines.extend(meanwhile.map(|fault| (fault.at, format!("{}: {}", fault.whose, fault.text))));
    lines.sort_by_key(|(at, _)| *at);
    let told = lines.into_iter();
    told.map(|(at, text)| format!("{:>9.3} s  {text}", at.as_secs_f64()))
        .collect()
}

impl Counts {
    fn add(&mut self, call: &Call) {
        match call.outcome {
            Outcome::Answered => self.answered += 1,
            Outcome::Unknown => self.unknown += 1,
            Outcome::Refused(..) => self.refused += 1,
            Outcome::Lost => self.lost += 1,
            Outcome::Orphaned => self.orphaned += 1,
            Outcome::Cancelled(_) => self.cancelled += 1,
            Outcome::Missing(_) => self.missing += 1,
            Outcome::Wrong(_) | Outcome::Silent(_) | Outcome::Never | Outcome::Lacks => {
                self.other += 1;
            }
        }
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} answered, {} -31001, {} refused, {} lost, {} orphaned, {} cancelled, {} missing, {} other",
            self.answered,
            self.unknown,
            self.refused,
            self.lost,
            self.orphaned,
            self.cancelled,
            self.missing,
            self.other
        )
    }
}
