use super::*;

const GRACE: Duration = Duration::from_secs(30);

async fn after(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

fn away(standing: &Standing) {
    let error = StoreError::Timeout(Duration::from_secs(2));
    standing.note(Operation::Ping, Some(&error));
}

fn refuses(standing: &Standing, operation: Operation, why: Refusal) {
    let said = "something".to_owned();
    standing.note(operation, Some(&StoreError::Refused { why, said }));
}

fn left(standing: &Standing) -> Option<Duration> {
    match standing.condition() {
        Condition::Away { left, .. } => Some(left),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_was_never_met_serves_nobody() {
    let standing = Standing::new(GRACE);
    away(&standing);
    assert!(matches!(standing.condition(), Condition::Unmet { .. }));
    assert!(!standing.condition().serves());
    standing.answers();
    assert_eq!(standing.condition(), Condition::Well);
}

#[tokio::test(start_paused = true)]
async fn the_grace_runs_from_the_last_answer() {
    let standing = Standing::new(GRACE);
    standing.answers();
    after(100).await;
    standing.answers();
    after(10).await;
    // It is noticed late; that gains nothing.
    away(&standing);
    assert_eq!(left(&standing), Some(Duration::from_secs(20)));
    after(19).await;
    assert!(standing.condition().serves());
    after(1).await;
    assert_eq!(left(&standing), Some(Duration::ZERO));
    assert!(!standing.condition().serves());
    // Asking in vain does not begin it anew.
    away(&standing);
    assert!(!standing.condition().serves());
}

#[tokio::test(start_paused = true)]
async fn what_all_changes_were_heard_of_is_believed_from_the_last_answer_on() {
    let standing = Standing::new(GRACE);
    standing.hears_again();
    after(1).await;
    let seen = standing.now();
    after(100).await;
    standing.answers();
    standing.hears_no_more();
    away(&standing);
    after(29).await;
    assert!(standing.is_within_grace(seen));
    after(1).await;
    assert!(!standing.is_within_grace(seen));
}

#[tokio::test(start_paused = true)]
async fn what_changes_may_have_been_missed_of_is_believed_from_when_it_was_seen() {
    let standing = Standing::new(GRACE);
    standing.hears_again();
    after(1).await;
    let seen = standing.now();
    // Nobody hears any more, and yet the store answers.
    standing.hears_no_more();
    after(29).await;
    standing.answers();
    away(&standing);
    assert!(standing.is_within_grace(seen));
    after(1).await;
    assert!(!standing.is_within_grace(seen));
    // Nor does it help to hear again: what was said in between was missed.
    standing.hears_again();
    standing.answers();
    assert!(!standing.is_within_grace(seen));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_believed_for_longer_than_the_grace_after_the_last_answer() {
    for hears in [false, true] {
        let standing = Standing::new(GRACE);
        if hears {
            standing.hears_again();
            after(1).await;
        }
        for _ in 0..5 {
            after(7).await;
            standing.answers();
        }
        let seen = standing.now();
        away(&standing);
        after(30).await;
        for seen in 0..=seen {
            assert!(!standing.is_within_grace(seen), "{hears} {seen}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_refuses_writes_is_not_away() {
    let standing = Standing::new(GRACE);
    standing.answers();
    let full = Condition::Refuses {
        why: Refusal::NoRoom,
    };
    refuses(&standing, Operation::Create, Refusal::NoRoom);
    assert_eq!(standing.condition(), full);
    after(100).await;
    assert!(standing.condition().serves());
    // What needs no room shows nothing.
    for harmless in [Operation::Load, Operation::Touch, Operation::End] {
        standing.note(harmless, None);
        assert_eq!(standing.condition(), full, "{harmless:?}");
    }
    standing.note(Operation::Appear, None);
    assert_eq!(standing.condition(), Condition::Well);
}

#[tokio::test(start_paused = true)]
async fn a_permission_that_is_missing_is_missing_until_that_works() {
    let standing = Standing::new(GRACE);
    refuses(&standing, Operation::Update, Refusal::Permission);
    standing.note(Operation::Appear, None);
    assert_ne!(standing.condition(), Condition::Well);
    standing.note(Operation::Update, None);
    assert_eq!(standing.condition(), Condition::Well);
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_asked_is_away_also_if_it_says_why() {
    let standing = Standing::new(GRACE);
    standing.answers();
    refuses(&standing, Operation::Load, Refusal::Credentials);
    assert!(matches!(standing.condition(), Condition::Away { .. }));
    let trouble = standing.condition().trouble().unwrap();
    assert!(
        trouble.contains("does not let this gateway in"),
        "{trouble}"
    );
}
