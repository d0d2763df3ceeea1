//! When tokens are renewed, with the clock in the test's hand.

use super::*;

async fn advance(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_ahead_of_its_end_by_whoever_uses_it() {
    let (vault, issuer) = (memory(), Scripted::new());
    let grants = gateway(&vault, &issuer);
    let first = sign_in(&grants).await;
    advance(LIFE * 8 / 10 - 2).await;
    assert!(cached_bearer(&grants).is(&first));
    // Whoever then looked into the vault is done before time goes on.
    tokio::time::sleep(Duration::from_millis(1)).await;
    // Nobody used it in the time to renew it, and nobody did.
    advance(LIFE / 10 + 3).await;
    assert_eq!(issuer.calls(), 0);
    // Whoever uses it now need not wait.
    issuer.hold_back();
    assert!(cached_bearer(&grants).is(&first));
    issuer.called(1).await;
    for _ in 0..10 {
        assert!(cached_bearer(&grants).is(&first));
    }
    issuer.answer();
    until("the new one is at hand", || {
        !cached_bearer(&grants).is(&first)
    })
    .await;
    assert_eq!(cached_bearer(&grants).header(), "Bearer access-secret-1");
    assert_eq!(cached_bearer(&grants).sign_in, first.sign_in);
    assert_eq!(issuer.calls(), 1);
}

/// Of several gateways one renews; the others find what it brought.
#[tokio::test(start_paused = true)]
async fn the_others_find_what_one_has_renewed() {
    let (vault, issuer) = (memory(), Scripted::new());
    let gateways = [(); 5].map(|()| gateway(&vault, &issuer));
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
        cached_bearer(grants);
    }
    for grants in &gateways {
        until("the new one is at hand", || {
            !cached_bearer(grants).is(&first)
        })
        .await;
    }
    assert_eq!(issuer.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_at_its_end_is_waited_for() {
    let (vault, issuer) = (memory(), Scripted::new());
    let grants = gateway(&vault, &issuer);
    let first = sign_in(&grants).await;
    advance(LIFE - 29).await;
    issuer.hold_back();
    assert!(matches!(
        grants.cached_bearer("alice", URL),
        CachedBearer::Unknown
    ));
    issuer.called(1).await;
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let grants = Arc::clone(&grants);
        all.spawn(async move { grants.bearer("alice", URL).await.unwrap().unwrap() });
    }
    issuer.answer();
    for bearer in all.join_all().await {
        assert!(!bearer.is(&first));
    }
    assert_eq!(issuer.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn while_it_cannot_be_renewed_it_is_used_to_its_end() {
    let (vault, issuer) = (memory(), Scripted::new());
    let grants = gateway(&vault, &issuer);
    let first = sign_in(&grants).await;
    issuer.does(Does::Fail);
    advance(LIFE - 28).await;
    let bearer = grants.bearer("alice", URL).await.unwrap().unwrap();
    assert!(bearer.is(&first));
    assert_eq!(issuer.calls(), 1);
    // Within the rest nobody waits, and nobody is asked.
    advance(10).await;
    assert!(cached_bearer(&grants).is(&first));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(issuer.calls(), 1);
    // Its end is its end, and the refresh token is still there.
    advance(18).await;
    let asked = grants.bearer("alice", URL).await;
    assert!(matches!(asked, Err(GrantError::NotNow(_))), "{asked:?}");
    assert!(refresh_token(&vault).await.is_some());
    issuer.does(Does::Rotate);
    advance(30).await;
    let new = grants.bearer("alice", URL).await.unwrap().unwrap();
    assert!(!new.is(&first));
}

#[tokio::test(start_paused = true)]
async fn a_token_without_a_refresh_token_ends_by_itself() {
    let (vault, issuer) = (memory(), Scripted::new());
    let grants = gateway(&vault, &issuer);
    let only = tokens("only", None, Some(LIFE));
    grants
        .sign_in("alice", URL, 0, credentials(only))
        .await
        .unwrap();
    advance(LIFE - 2).await;
    assert_eq!(cached_bearer(&grants).header(), "Bearer only");
    advance(3).await;
    assert!(grants.bearer("alice", URL).await.unwrap().is_none());
    assert!(matches!(
        grants.cached_bearer("alice", URL),
        CachedBearer::SignedOut
    ));
    assert_eq!(issuer.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_token_without_an_end_is_not_renewed() {
    let (vault, issuer) = (memory(), Scripted::new());
    let grants = gateway(&vault, &issuer);
    let endless = tokens("endless", Some("refresh-secret-0"), None);
    grants
        .sign_in("alice", URL, 0, credentials(endless))
        .await
        .unwrap();
    for _ in 0..10 {
        advance(10 * 24 * 60 * 60).await;
        assert_eq!(cached_bearer(&grants).header(), "Bearer endless");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(issuer.calls(), 0);
}

/// An authorization server that never answers holds its own grant up, and only for so long.
#[tokio::test(start_paused = true)]
async fn a_refresh_that_hangs_is_given_up() {
    let (vault, issuer) = (memory(), Scripted::new());
    let grants = gateway(&vault, &issuer);
    let sent = sign_in(&grants).await;
    issuer.hold_back();
    let asked = grants.refused("alice", URL, Some(&sent)).await;
    assert!(matches!(asked, Err(GrantError::NotNow(_))), "{asked:?}");
    assert!(grants.bearer("bob", URL).await.unwrap().is_none());
    assert!(refresh_token(&vault).await.is_some());
}

/// A stream is no use of a grant, so it is asked for.
#[tokio::test(start_paused = true)]
async fn a_sign_out_at_another_gateway_is_found_by_who_asks_for_it() {
    let (vault, issuer) = (memory(), Scripted::new());
    let [a, b] = [(); 2].map(|()| gateway(&vault, &issuer));
    sign_in(&a).await;
    assert!(b.bearer("alice", URL).await.unwrap().is_some());
    assert!(a.sign_out("alice", URL).await.unwrap().is_some());
    assert!(a.is_signed_out("alice", URL) && !b.is_signed_out("alice", URL));
    advance(31).await;
    b.check_sign_out("alice", URL);
    b.signed_out().await;
    assert!(b.is_signed_out("alice", URL));
    assert_eq!(issuer.calls(), 0);
}
