//! The checker notices what it is there for, and nothing else.

use std::collections::HashMap;
use std::time::Duration;

use super::{Evidence, Promise, Violation, check};
use crate::history::{Call, History, Kind, Outcome, Ran};

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

/// What the checker says of a call that ran so often.
fn broken(call: Call, times: usize) -> Vec<Promise> {
    let ran = Ran {
        replica: "r0".to_owned(),
        session: "r0-1".to_owned(),
        at: Duration::from_secs(1),
    };
    let other = Call {
        key: "other".to_owned(),
        ..self::call(Kind::Bump, Outcome::Answered)
    };
    let history = History {
        ran: HashMap::from([
            (call.key.clone(), vec![ran.clone(); times]),
            (other.key.clone(), vec![ran]),
        ]),
        calls: vec![other, call],
        faults: Vec::new(),
        limit: LIMIT,
        deaf: Vec::new(),
        initializes: 1,
    };
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
    for kind in Kind::ALL {
        assert_eq!(broken(call(kind, Outcome::Answered), 1), []);
    }
    for times in [0, 1] {
        assert_eq!(broken(call(Kind::Bump, Outcome::Unknown), times), []);
        assert_eq!(broken(call(Kind::Slow, Outcome::Unknown), times), []);
        assert_eq!(broken(call(Kind::Slow, Outcome::Orphaned), times), []);
    }
    // Safe calls may run as often as it takes.
    assert_eq!(broken(call(Kind::Read, Outcome::Answered), 3), []);
    assert_eq!(broken(call(Kind::Ping, Outcome::Answered), 0), []);
}

#[test]
fn a_double_execution_fails_whatever_was_answered() {
    for outcome in [Outcome::Answered, Outcome::Unknown, Outcome::Orphaned] {
        for kind in [Kind::Bump, Kind::Slow] {
            let found = broken(call(kind, outcome.clone()), 2);
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
        let found = broken(call(kind, Outcome::Unknown), 1);
        assert_eq!(found, [Promise::SafeIsRepeated]);
    }
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
fn a_session_that_hears_nothing_fails() {
    let history = History {
        ran: HashMap::new(),
        calls: Vec::new(),
        faults: Vec::new(),
        limit: LIMIT,
        deaf: vec![4],
        initializes: 1,
    };
    let violation = Violation {
        promise: Promise::Heard,
        shown_by: Evidence::Session(4),
    };
    assert_eq!(check(&history), [violation]);
}
