use bowline_wire::id::SessionId;

use super::*;
use crate::caller::Caller;
use crate::leg::capabilities::Capabilities;
use crate::leg::marks::Seal;
use crate::session::client_state::ClientState;
use crate::session::recovery::Spent;

/// A session at a server that cannot be reached.
fn session() -> Arc<Session> {
    let id = SessionId::from_random([7; SessionId::BYTES]);
    let client_state = ClientState::new(&[], None, Capabilities::default());
    let seal = Seal::generate().unwrap();
    Arc::new(Session::new(
        &id,
        Caller::Local,
        seal,
        Leg::idle(),
        client_state,
    ))
}

fn joined(session: &Arc<Session>, cause: Cause) -> Joined {
    join(session, &session.leg(), cause, &Arc::default()).unwrap()
}

/// The current flight.
fn flight(session: &Session) -> Option<Arc<Waiters>> {
    let flight = session.recovery.flight.lock();
    flight.as_ref().map(|flight| Arc::clone(&flight.waiters))
}

#[tokio::test]
async fn a_second_waiter_joins_the_flight() {
    let session = session();
    let first = joined(&session, Cause::Unproven).waiting;
    let second = joined(&session, Cause::Lost).waiting;
    assert!(Arc::ptr_eq(&first.0, &second.0));
    drop(first);
    assert!(!second.0.nobody_left.is_cancelled());
    let waiters = Arc::clone(&second.0);
    drop(second);
    assert!(waiters.nobody_left.is_cancelled());
}

#[tokio::test]
async fn a_waiter_that_comes_as_the_last_one_leaves_starts_a_new_flight() {
    let session = session();
    let first = joined(&session, Cause::Unproven);
    drop(first.waiting);
    let mut outcome = first.outcome;
    // The first flight has not stopped yet.
    let second = joined(&session, Cause::Unproven).waiting;
    let stopped = outcome.wait_for(Option::is_some).await.unwrap().clone();
    assert!(matches!(stopped, Some(Err(RecoveryError::Unavailable(_)))));
    let under_way = flight(&session).expect("the second flight");
    assert!(
        Arc::ptr_eq(&under_way, &second.0),
        "the first flight's end does not end the second"
    );
    assert!(!second.0.nobody_left.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_budget_refills_while_no_recovery_runs() {
    let seconds = Duration::from_secs;
    let total = seconds(30);
    let mut spent = Spent::default();
    assert_eq!(spent.left(total), total);
    tokio::time::advance(seconds(20)).await;
    spent.add(seconds(20));
    tokio::time::advance(seconds(5)).await;
    assert_eq!(
        spent.left(total),
        seconds(15),
        "it was well for five seconds"
    );
    tokio::time::advance(seconds(15)).await;
    spent.add(seconds(15));
    assert_eq!(spent.left(total), Duration::ZERO);
    tokio::time::advance(total).await;
    assert_eq!(
        spent.left(total),
        total,
        "it was well for as long as the budget"
    );
}

#[tokio::test(start_paused = true)]
async fn a_used_up_budget_refills_however_often_it_is_checked() {
    let total = Duration::from_secs(30);
    let mut spent = Spent::default();
    spent.left(total);
    spent.add(total);
    for second in 1..=30 {
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(spent.left(total), Duration::from_secs(second));
        spent.add(Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempts_time_comes_although_a_client_insists() {
    let (total, attempt) = (Duration::from_secs(30), Duration::from_secs(10));
    let mut spent = Spent::default();
    assert_eq!(spent.for_flight(total, attempt), total);
    spent.add(total);
    let mut longest = Vec::new();
    for _ in 0..100 {
        tokio::time::advance(Duration::from_secs(1)).await;
        let time = spent.for_flight(total, attempt);
        if time >= attempt {
            longest.push(Instant::now());
        }
        tokio::time::advance(time).await;
        spent.add(time);
    }
    assert!(longest.len() > 2, "{longest:?}");
    let pairs = longest.windows(2);
    assert!(
        pairs
            .map(|pair| pair[1] - pair[0])
            .all(|rest| rest >= total)
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_flight_spends_its_budget_and_the_next_gets_the_rest() {
    let session = session();
    let total = session.upstream.config().recovery.budget;
    let flown = async || {
        let started = Instant::now();
        let recovered = recover(
            &session,
            &session.leg(),
            Cause::Unproven,
            &Carried::default(),
        )
        .await;
        assert!(matches!(recovered, Err(RecoveryError::Unavailable(_))));
        started.elapsed()
    };
    let first = flown().await;
    assert!(first <= total && first > total / 2, "{first:?}");
    let second = flown().await;
    assert!(first + second <= total, "{second:?}");
    tokio::time::advance(total).await;
    let third = flown().await;
    assert!(third > total / 2, "well for long enough: {third:?}");
}
