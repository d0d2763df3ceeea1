//! When tokens are renewed, with the clock in the test's hand.

use super::*;

async fn advance(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_ahead_of_its_end_by_whoever_uses_it() {
    let (vault, authority) = (memory(), Scripted::new());
    let grants = gateway(&vault, &authority);
    let first = sign_in(&grants).await;
    advance(LIFE * 8 / 10 - 2).await;
    assert!(at_hand(&grants).is(&first));
    // Whoever then looked into the vault is done before time goes on.
    tokio::time::sleep(Duration::from_millis(1)).await;
    // Nobody used it in the time to renew it, and nobody did.
    advance(LIFE / 10 + 3).await;
    assert_eq!(authority.calls(), 0);
    // Whoever uses it now need not wait.
    authority.hold_back();
    assert!(at_hand(&grants).is(&first));
    authority.called(1).await;
    for _ in 0..10 {
        assert!(at_hand(&grants).is(&first));
    }
    authority.answer();
    until("the new one is at hand", || !at_hand(&grants).is(&first)).await;
    assert_eq!(at_hand(&grants).header(), "Bearer access-secret-1");
    assert_eq!(at_hand(&grants).sign_in, first.sign_in);
    assert_eq!(authority.calls(), 1);
}

/// Of several gateways one renews; the others find what it brought.
#[tokio::test(start_paused = true)]
async fn the_others_find_what_one_has_renewed() {
    let (vault, authority) = (memory(), Scripted::new());
    let gateways = [(); 5].map(|()| gateway(&vault, &authority));
    let first = sign_in(&gateways[0]).await;
    for grants in &gateways {
        assert!(
            grants
                .bearer("alice", URL)
                .await
                .unwrap()
                .unwrap()
                .is(&first)
        );
    }
    advance(LIFE * 9 / 10 + 1).await;
    for grants in &gateways {
        at_hand(grants);
    }
    for grants in &gateways {
        until("the new one is at hand", || !at_hand(grants).is(&first)).await;
    }
    assert_eq!(authority.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_at_its_end_is_waited_for() {
    let (vault, authority) = (memory(), Scripted::new());
    let grants = gateway(&vault, &authority);
    let first = sign_in(&grants).await;
    advance(LIFE - 29).await;
    authority.hold_back();
    assert!(matches!(grants.at_hand("alice", URL), AtHand::Unknown));
    authority.called(1).await;
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let grants = Arc::clone(&grants);
        all.spawn(async move { grants.bearer("alice", URL).await.unwrap().unwrap() });
    }
    authority.answer();
    for bearer in all.join_all().await {
        assert!(!bearer.is(&first));
    }
    assert_eq!(authority.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn while_it_cannot_be_renewed_it_is_used_to_its_end() {
    let (vault, authority) = (memory(), Scripted::new());
    let grants = gateway(&vault, &authority);
    let first = sign_in(&grants).await;
    authority.does(Does::Fail);
    advance(LIFE - 28).await;
    let bearer = grants.bearer("alice", URL).await.unwrap().unwrap();
    assert!(bearer.is(&first));
    assert_eq!(authority.calls(), 1);
    // Within the rest nobody waits, and nobody is asked.
    advance(10).await;
    assert!(at_hand(&grants).is(&first));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(authority.calls(), 1);
    // Its end is its end, and the refresh token is still there.
    advance(18).await;
    let asked = grants.bearer("alice", URL).await;
    assert!(matches!(asked, Err(GrantError::NotNow(_))), "{asked:?}");
    assert!(refresh_token(&vault).await.is_some());
    authority.does(Does::Rotate);
    advance(30).await;
    let new = grants.bearer("alice", URL).await.unwrap().unwrap();
    assert!(!new.is(&first));
}

#[tokio::test(start_paused = true)]
async fn a_token_without_a_refresh_token_ends_by_itself() {
    let (vault, authority) = (memory(), Scripted::new());
    let grants = gateway(&vault, &authority);
    let only = tokens("only", None, Some(LIFE));
    grants
        .sign_in(("alice", URL), 0, found(), only)
        .await
        .unwrap();
    advance(LIFE - 2).await;
    assert_eq!(at_hand(&grants).header(), "Bearer only");
    advance(3).await;
    assert!(grants.bearer("alice", URL).await.unwrap().is_none());
    assert!(matches!(grants.at_hand("alice", URL), AtHand::SignedOut));
    assert_eq!(authority.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_token_without_an_end_is_not_renewed() {
    let (vault, authority) = (memory(), Scripted::new());
    let grants = gateway(&vault, &authority);
    let endless = tokens("endless", Some("refresh-secret-0"), None);
    grants
        .sign_in(("alice", URL), 0, found(), endless)
        .await
        .unwrap();
    for _ in 0..10 {
        advance(10 * 24 * 60 * 60).await;
        assert_eq!(at_hand(&grants).header(), "Bearer endless");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(authority.calls(), 0);
}

/// An authorization server that never answers holds its own grant up, and only for so long.
#[tokio::test(start_paused = true)]
async fn a_refresh_that_hangs_is_given_up() {
    let (vault, authority) = (memory(), Scripted::new());
    let grants = gateway(&vault, &authority);
    let sent = sign_in(&grants).await;
    authority.hold_back();
    let asked = grants.refused("alice", URL, Some(&sent)).await;
    assert!(matches!(asked, Err(GrantError::NotNow(_))), "{asked:?}");
    assert!(grants.bearer("bob", URL).await.unwrap().is_none());
    assert!(refresh_token(&vault).await.is_some());
}

/// A stream is no use of a grant, so it is asked for.
#[tokio::test(start_paused = true)]
async fn a_sign_out_at_another_gateway_is_found_by_who_asks_for_it() {
    let (vault, authority) = (memory(), Scripted::new());
    let [a, b] = [(); 2].map(|()| gateway(&vault, &authority));
    sign_in(&a).await;
    assert!(b.bearer("alice", URL).await.unwrap().is_some());
    assert!(a.sign_out("alice", URL).await.unwrap().is_some());
    assert!(a.is_out("alice", URL) && !b.is_out("alice", URL));
    advance(31).await;
    b.look_if_out("alice", URL);
    b.somebody_is_out().await;
    assert!(b.is_out("alice", URL));
    assert_eq!(authority.calls(), 0);
}
