use super::*;

const GRACE: Duration = Duration::from_secs(30);

async fn after(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

fn away(health: &StoreHealth) {
    let error = StoreError::Timeout(Duration::from_secs(2));
    health.note(Operation::Ping, Some(&error));
}

fn refuses(health: &StoreHealth, operation: Operation, why: Refusal) {
    let said = "something".to_owned();
    health.note(operation, Some(&StoreError::Refused { why, said }));
}

fn left(health: &StoreHealth) -> Option<Duration> {
    match health.condition() {
        Condition::Away { left, .. } => Some(left),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_was_never_met_serves_nobody() {
    let health = StoreHealth::new(GRACE);
    away(&health);
    assert!(matches!(health.condition(), Condition::Unmet { .. }));
    assert!(!health.condition().serves());
    health.answers();
    assert_eq!(health.condition(), Condition::Well);
}

#[tokio::test(start_paused = true)]
async fn the_grace_runs_from_the_last_answer() {
    let health = StoreHealth::new(GRACE);
    health.answers();
    after(100).await;
    health.answers();
    after(10).await;
    // Noticing the outage late does not extend the grace period.
    away(&health);
    assert_eq!(left(&health), Some(Duration::from_secs(20)));
    after(19).await;
    assert!(health.condition().serves());
    after(1).await;
    assert_eq!(left(&health), Some(Duration::ZERO));
    assert!(!health.condition().serves());
    // Failed requests do not restart it.
    away(&health);
    assert!(!health.condition().serves());
}

#[tokio::test(start_paused = true)]
async fn what_all_changes_were_heard_of_is_believed_from_the_last_answer_on() {
    let health = StoreHealth::new(GRACE);
    health.hears_again();
    after(1).await;
    let seen = health.now();
    after(100).await;
    health.answers();
    health.hears_no_more();
    away(&health);
    after(29).await;
    assert!(health.is_within_grace(seen));
    after(1).await;
    assert!(!health.is_within_grace(seen));
}

#[tokio::test(start_paused = true)]
async fn what_changes_may_have_been_missed_of_is_believed_from_when_it_was_seen() {
    let health = StoreHealth::new(GRACE);
    health.hears_again();
    after(1).await;
    let seen = health.now();
    // Announcements are missed although the store answers.
    health.hears_no_more();
    after(29).await;
    health.answers();
    away(&health);
    assert!(health.is_within_grace(seen));
    after(1).await;
    assert!(!health.is_within_grace(seen));
    // Receiving them again does not help: those in between were missed.
    health.hears_again();
    health.answers();
    assert!(!health.is_within_grace(seen));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_believed_for_longer_than_the_grace_after_the_last_answer() {
    for hears in [false, true] {
        let health = StoreHealth::new(GRACE);
        if hears {
            health.hears_again();
            after(1).await;
        }
        for _ in 0..5 {
            after(7).await;
            health.answers();
        }
        let seen = health.now();
        away(&health);
        after(30).await;
        for seen in 0..=seen {
            assert!(!health.is_within_grace(seen), "{hears} {seen}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_refuses_writes_is_not_away() {
    let health = StoreHealth::new(GRACE);
    health.answers();
    let full = Condition::Refuses {
        why: Refusal::NoRoom,
    };
    refuses(&health, Operation::Create, Refusal::NoRoom);
    assert_eq!(health.condition(), full);
    after(100).await;
    assert!(health.condition().serves());
    // Operations that need no memory prove nothing.
    for harmless in [Operation::Load, Operation::Touch, Operation::End] {
        health.note(harmless, None);
        assert_eq!(health.condition(), full, "{harmless:?}");
    }
    health.note(Operation::Appear, None);
    assert_eq!(health.condition(), Condition::Well);
}

#[tokio::test(start_paused = true)]
async fn a_permission_that_is_missing_is_missing_until_that_works() {
    let health = StoreHealth::new(GRACE);
    refuses(&health, Operation::Update, Refusal::Permission);
    health.note(Operation::Appear, None);
    assert_ne!(health.condition(), Condition::Well);
    health.note(Operation::Update, None);
    assert_eq!(health.condition(), Condition::Well);
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_asked_is_away_also_if_it_says_why() {
    let health = StoreHealth::new(GRACE);
    health.answers();
    refuses(&health, Operation::Load, Refusal::Credentials);
    assert!(matches!(health.condition(), Condition::Away { .. }));
    let trouble = health.condition().trouble().unwrap();
    assert!(
        trouble.contains("does not accept the credentials of this gateway"),
        "{trouble}"
    );
}
