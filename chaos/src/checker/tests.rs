//! The checker notices what it is there for, and nothing else.

use std::collections::HashMap;
use std::time::Duration;

use super::{Evidence, Promise, Violation, check};
use crate::history::{Afterwards, Call, Fault, History, Kind, Outcome, Ran};
use crate::machine::Pace;

const LIMIT: Duration = Duration::from_secs(35);

fn call(kind: Kind, outcome: Outcome) -> Call {
    Call {
        session: 1,
        kind,
        key: "k".to_owned(),
        began: Duration::from_secs(1),
        ended: Duration::from_secs(2),
        gateway: 0,
        outcome,
    }
}

fn ran() -> Ran {
    Ran {
        replica: "r0".to_owned(),
        session: "r0-1".to_owned(),
        at: Duration::from_secs(1),
        finished: None,
        destructive: false,
    }
}

fn fault(kind: &'static str, whose: &str) -> Fault {
    Fault {
        at: Duration::from_secs(1),
        lasts: Duration::ZERO,
        whose: whose.to_owned(),
        kind,
        text: String::new(),
    }
}

/// What the checker says of a call that ran so often.
fn broken(call: Call, times: usize) -> Vec<Promise> {
    broken_by(call, vec![ran(); times], Vec::new())
}

fn history_of(call: Call, ran: Vec<Ran>, faults: Vec<Fault>) -> History {
    let list = Call {
        key: "other".to_owned(),
        began: Duration::ZERO,
        ended: Duration::ZERO,
        ..self::call(Kind::List, Outcome::Answered)
    };
    History {
        ran: HashMap::from([(call.key.clone(), ran)]),
        calls: vec![list, call],
        faults,
        limit: LIMIT,
        pace: Pace::default(),
        afterwards: Afterwards::default(),
        births: Vec::new(),
        stream_births: Vec::new(),
        process_births: Vec::new(),
        process_births_of: HashMap::new(),
    }
}

/// The same of these executions, with these faults, after the tools were listed.
fn broken_by(call: Call, ran: Vec<Ran>, faults: Vec<Fault>) -> Vec<Promise> {
    let history = history_of(call, ran, faults);
    let violations = check(&history);
    assert!(
        violations
            .iter()
            .all(|violation| violation.shown_by == Evidence::Call(1))
    );
    violations
        .iter()
        .map(|violation| violation.promise)
        .collect()
}

#[test]
fn a_good_history_passes() {
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Ended) {
        assert_eq!(broken(call(kind, Outcome::Answered), 1), []);
    }
    assert_eq!(broken(call(Kind::Ended, Outcome::Lost), 0), []);
    for times in [0, 1] {
        for kind in [Kind::Bump, Kind::Slow] {
            let unknown = call(kind, Outcome::Unknown);
            let cut = vec![fault("cut", "r0")];
            assert_eq!(broken_by(unknown, vec![ran(); times], cut), []);
        }
        assert_eq!(broken(call(Kind::Slow, Outcome::Orphaned), times), []);
    }
    // Safe calls may run as often as it takes.
    assert_eq!(broken(call(Kind::Read, Outcome::Answered), 3), []);
    assert_eq!(broken(call(Kind::Ping, Outcome::Answered), 0), []);
}

#[test]
fn a_server_may_be_missing_from_a_list_only_with_a_word_and_a_cause() {
    let missing = || call(Kind::List, Outcome::Missing("absent".to_owned()));
    assert_eq!(broken(missing(), 0), [Promise::NotMissing]);
    let killed = vec![fault("kill", "r0")];
    assert_eq!(broken_by(missing(), vec![], killed.clone()), []);
    let lacks = call(Kind::List, Outcome::Lacks);
    assert_eq!(broken_by(lacks, vec![], killed), [Promise::MissingIsSaid]);
}

#[test]
fn a_call_runs_at_its_own_server() {
    let process = Ran {
        replica: "p".to_owned(),
        ..ran()
    };
    let elsewhere = call(Kind::Bump, Outcome::Answered);
    let found = broken_by(elsewhere, vec![process.clone()], vec![]);
    assert_eq!(found, [Promise::RightServer]);
    let own = Call {
        session: 10_001,
        ..call(Kind::Bump, Outcome::Answered)
    };
    assert_eq!(broken_by(own, vec![process], vec![]), []);
}

#[test]
fn a_double_execution_fails_whatever_was_answered() {
    for outcome in [Outcome::Answered, Outcome::Unknown, Outcome::Orphaned] {
        for kind in [Kind::Bump, Kind::Slow] {
            let cut = vec![fault("cut", "r0")];
            let found = broken_by(call(kind, outcome.clone()), vec![ran(); 2], cut);
            assert_eq!(found, [Promise::AtMostOnce]);
        }
    }
}

#[test]
fn a_lost_session_fails() {
    let found = broken(call(Kind::Read, Outcome::Lost), 0);
    assert_eq!(found, [Promise::SessionKept]);
}

#[test]
fn a_wrong_answer_fails() {
    let wrong = Outcome::Wrong("another key".to_owned());
    assert_eq!(broken(call(Kind::Read, wrong), 1), [Promise::RightAnswer]);
}

#[test]
fn a_late_answer_fails_and_one_that_never_comes() {
    let mut late = call(Kind::Read, Outcome::Answered);
    late.ended = late.began + LIMIT;
    assert_eq!(broken(late.clone(), 1), []);
    late.ended += Duration::from_millis(1);
    assert_eq!(broken(late, 1), [Promise::InTime]);
    let never = call(Kind::Bump, Outcome::Never);
    assert_eq!(broken(never, 1), [Promise::InTime]);
}

#[test]
fn silence_fails() {
    let silent = Outcome::Silent("the stream ended".to_owned());
    assert_eq!(broken(call(Kind::Slow, silent), 1), [Promise::NeverSilent]);
}

#[test]
fn an_unknown_outcome_of_a_safe_call_fails() {
    for kind in [
        Kind::Ping,
        Kind::List,
        Kind::Resource,
        Kind::Read,
        Kind::StreamRead,
    ] {
        for tries in [0, 1, 4] {
            let found = broken(call(kind, Outcome::Unknown), tries);
            assert_eq!(found, [Promise::SafeIsRepeated]);
        }
        let often = vec![fault("cut", "r0")];
        let unknown = call(kind, Outcome::Unknown);
        assert_eq!(broken_by(unknown, vec![ran(); 5], often), []);
    }
}

#[test]
fn a_refusal_passes_where_the_machine_had_no_time_to_recover() {
    let refused = |began, ended| {
        let call = Call {
            began: Duration::from_secs(began),
            ended: Duration::from_secs(ended),
            ..call(Kind::Bump, Outcome::Refused(200, Some(-31002)))
        };
        let mut history = history_of(call, Vec::new(), Vec::new());
        for (passed, lost) in [(0, 0), (60, 40), (60, 6), (60, 0)] {
            let seconds = Duration::from_secs;
            history.pace.add(seconds(passed), seconds(lost));
        }
        check(&history).len()
    };
    assert_eq!(refused(30, 40), 0);
    assert_eq!(refused(90, 100), 1);
    assert_eq!(refused(150, 160), 1);
}

#[test]
fn a_refusal_fails_and_twice_if_it_ran_all_the_same() {
    let refused = Outcome::Refused(503, Some(-31002));
    let found = broken(call(Kind::Bump, refused.clone()), 0);
    assert_eq!(found, [Promise::NotRefused]);
    let found = broken(call(Kind::Bump, refused), 1);
    assert_eq!(found, [Promise::NotRefused, Promise::TruthTold]);
}

#[test]
fn an_answer_without_an_execution_fails() {
    let found = broken(call(Kind::Bump, Outcome::Answered), 0);
    assert_eq!(found, [Promise::TruthTold]);
}

#[test]
fn a_session_that_hears_nothing_and_a_server_that_stays_missing_fail() {
    let history = History {
        ran: HashMap::new(),
        calls: Vec::new(),
        faults: Vec::new(),
        limit: LIMIT,
        pace: Pace::default(),
        afterwards: Afterwards {
            deaf: vec![4],
            partial: vec![12_500],
        },
        births: Vec::new(),
        stream_births: Vec::new(),
        process_births: Vec::new(),
        process_births_of: HashMap::new(),
    };
    let violation = |promise, session| Violation {
        promise,
        shown_by: Evidence::Session(session),
    };
    let deaf = violation(Promise::Heard, 4);
    let partial = violation(Promise::WholeAgain, 12_500);
    assert_eq!(check(&history), [deaf, partial]);
}

#[test]
fn a_tool_that_changes_must_not_run_twice_while_it_is_destructive() {
    let destructive = Ran {
        destructive: true,
        ..ran()
    };
    let flips = |ran| broken_by(call(Kind::Flip, Outcome::Answered), ran, Vec::new());
    assert_eq!(flips(vec![ran(), ran(), destructive.clone()]), []);
    let twice = flips(vec![destructive.clone(), ran(), destructive]);
    assert_eq!(twice, [Promise::AtMostOnce]);
}

#[test]
fn a_cancelled_call_that_runs_on_fails_unless_its_server_was_struck() {
    let cancelled = || call(Kind::Long, Outcome::Cancelled(Some(Duration::from_secs(1))));
    let ran_for = |seconds| {
        let finished = Some(Duration::from_secs(seconds));
        vec![Ran { finished, ..ran() }]
    };
    assert_eq!(broken_by(cancelled(), vec![ran()], Vec::new()), []);
    assert_eq!(broken_by(cancelled(), ran_for(1), Vec::new()), []);
    let ran_on = broken_by(cancelled(), ran_for(4), Vec::new());
    assert_eq!(ran_on, [Promise::CancelArrives]);
    assert_eq!(
        broken_by(cancelled(), ran_for(4), vec![fault("break", "r0")]),
        []
    );
    let elsewhere = broken_by(cancelled(), ran_for(4), vec![fault("break", "r1")]);
    assert_eq!(elsewhere, [Promise::CancelArrives]);
}

#[test]
fn an_ended_session_that_answers_fails() {
    let found = broken(call(Kind::Ended, Outcome::Answered), 0);
    assert_eq!(found, [Promise::EndedStaysEnded]);
}

#[test]
fn a_storm_fails() {
    let event = |times| broken(call(Kind::LargeEvent, Outcome::Unknown), times);
    assert_eq!(event(1), []);
    assert_eq!(event(2), [Promise::NoStorm]);
    let struck = |times| {
        let unknown = call(Kind::LargeEvent, Outcome::Unknown);
        broken_by(unknown, vec![ran(); times], vec![fault("cut", "r0")])
    };
    assert_eq!(struck(3), []);
    assert_eq!(struck(9), [Promise::NoStorm]);
}

#[test]
fn a_balancers_400_may_be_told_and_must_not_have_run() {
    let refused = || call(Kind::Bump, Outcome::Refused(400, None));
    let balancer = || vec![fault("400", "r0")];
    assert_eq!(broken_by(refused(), Vec::new(), balancer()), []);
    let found = broken_by(refused(), vec![ran()], balancer());
    assert_eq!(found, [Promise::TruthTold]);
    let found = broken_by(refused(), Vec::new(), vec![fault("cut", "r0")]);
    assert_eq!(found, [Promise::NotRefused]);
}

#[test]
fn a_tool_of_which_nobody_knows_any_more_that_it_is_safe_may_be_unknown() {
    let read = || call(Kind::Read, Outcome::Unknown);
    let reload = vec![fault("reload", "all")];
    assert_eq!(broken_by(read(), vec![ran()], reload), []);
    let found = broken_by(read(), vec![ran()], vec![fault("cut", "r0")]);
    assert_eq!(found, [Promise::SafeIsRepeated]);
}

#[test]
fn an_unknown_outcome_without_a_cause_fails() {
    let found = broken(call(Kind::Bump, Outcome::Unknown), 1);
    assert_eq!(found, [Promise::UnknownHasACause]);
}

/// What the checker says of a stream that runs a call after its successor was used.
fn late((kind, times): (Kind, usize), outcome: Outcome, faults: Vec<Fault>) -> Vec<Promise> {
    let at = |leg: &str, seconds| Ran {
        session: leg.to_owned(),
        at: Duration::from_secs(seconds),
        ..ran()
    };
    let late = Call {
        session: 20_000,
        key: "s20000/2".to_owned(),
        ..call(kind, outcome)
    };
    let history = History {
        ran: HashMap::from([
            ("s20000/0".to_owned(), vec![at("one", 1)]),
            ("s20000/1".to_owned(), vec![at("two", 2)]),
            (late.key.clone(), vec![at("one", 3); times]),
        ]),
        calls: vec![late],
        faults,
        limit: LIMIT,
        pace: Pace::default(),
        afterwards: Afterwards::default(),
        births: Vec::new(),
        stream_births: Vec::new(),
        process_births: Vec::new(),
        process_births_of: HashMap::new(),
    };
    let violations = check(&history).into_iter();
    violations.map(|violation| violation.promise).collect()
}

#[test]
fn what_broke_on_its_way_may_run_late_and_nothing_else() {
    let reset = || vec![fault("reset after", "r0")];
    let once = (Kind::Bump, 1);
    assert_eq!(late(once, Outcome::Unknown, reset()), []);
    assert_eq!(late(once, Outcome::Answered, reset()), [Promise::OneLeg]);
    let elsewhere = vec![fault("reset after", "r1")];
    assert_eq!(late(once, Outcome::Unknown, elsewhere), [Promise::OneLeg]);
    // One that may run twice is repeated instead.
    assert_eq!(late((Kind::Read, 2), Outcome::Answered, reset()), []);
    let once = late((Kind::Read, 1), Outcome::Answered, reset());
    assert_eq!(once, [Promise::OneLeg]);
}
