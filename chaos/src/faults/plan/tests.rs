//! A plan spares what it must, and has what it is asked for.

use std::collections::BTreeSet;

use clap::Parser as _;

use super::*;

fn planner(options: &[&str]) -> Planner {
    let arguments = [&["chaos"], options].concat();
    Planner::new(&Arguments::parse_from(arguments))
}

#[test]
fn one_replica_is_spared_in_every_round_and_only_hangs_outlast_it() {
    let mut planner = planner(&["--seed", "7"]);
    let (mut kinds, mut others) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..2000 {
        let round = planner.next();
        for strike in &round.strikes {
            assert_ne!(strike.replica, round.spared);
            let (kind, lasts) = match &strike.what {
                What::Kill(time) => ("kill", *time),
                What::Forget => ("forget", Duration::ZERO),
                What::Break => ("break", Duration::ZERO),
                What::Switch(_) => ("switch", Duration::ZERO),
                What::CutStream => ("cut stream", Duration::ZERO),
                What::Requests(requests) => match requests.fault {
                    Fault::Delay(time) if time != HANG => (requests.kind, time),
                    _ => (requests.kind, Duration::ZERO),
                },
            };
            assert!(strike.after + lasts < ROUND);
            kinds.insert(kind);
        }
        for (is_so, name) in [
            (round.hung.is_some(), "hang"),
            (round.flip.is_some(), "flip"),
            (round.drained.is_some(), "reload"),
            (round.full.is_some(), "disk"),
        ] {
            others.extend(is_so.then_some(name));
        }
        assert_ne!(round.hung.map(|(hung, _)| hung), Some(round.spared));
        let drained = round.drained.map(|(replica, _)| replica);
        assert_ne!(drained, Some(round.spared));
    }
    assert_eq!(kinds.len(), STRIKES.len() + 1, "{kinds:?}");
    assert_eq!(others.len(), 4, "{others:?}");
}

#[test]
fn one_gateway_is_spared_in_every_round_and_the_store_hangs_when_asked_for() {
    let mut planner = planner(&["--gateways", "3", "--pause-redis"]);
    let (mut deaths, mut pauses, mut sieges, mut strikes) = (0, 0, 0, 0);
    for _ in 0..2000 {
        let round = planner.next();
        for death in &round.deaths {
            assert_ne!(death.gateway, round.spared_gateway);
        }
        let besieged = round.siege.map(|(siege, _)| siege.gateway);
        assert_ne!(besieged, Some(round.spared_gateway));
        for strike in &round.gateways {
            assert_ne!(strike.siege.gateway, round.spared_gateway);
            assert_ne!(Some(strike.siege.gateway), besieged);
        }
        let dies = |gateway| round.deaths.iter().any(|death| death.gateway == gateway);
        assert!(!besieged.is_some_and(dies));
        sieges += usize::from(round.siege.is_some_and(|(_, begins)| begins));
        strikes += round.gateways.len();
        deaths += round.deaths.len();
        pauses += usize::from(round.pause.is_some());
    }
    assert!(deaths > 700 && pauses > 500, "{deaths}, {pauses}");
    assert!(sieges > 100 && strikes > 200, "{sieges}, {strikes}");
}

#[test]
fn a_run_of_one_thing_has_nothing_else() {
    let mut planner = planner(&["--only", "404"]);
    let mut strikes = 0;
    for _ in 0..200 {
        let round = planner.next();
        assert!(round.hung.is_none() && round.flip.is_none() && round.drained.is_none());
        for strike in round.strikes {
            strikes += 1;
            assert!(matches!(strike.what, What::Requests(requests) if requests.kind == "404"));
        }
    }
    assert!(strikes > 100, "{strikes}");
}

#[test]
fn the_same_seed_plans_the_same() {
    let plans = |seed| {
        let mut planner = planner(&["--seed", seed]);
        let rounds: Vec<_> = (0..20).map(|_| planner.next()).collect();
        format!("{rounds:?}")
    };
    assert_eq!(plans("3"), plans("3"));
    assert_ne!(plans("3"), plans("4"));
}
