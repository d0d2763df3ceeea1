//! What ends a grant, and what does not.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_failed_refresh_loses_nothing() {
    let (vault, issuer) = (memory(), Scripted::new());
    let grants = gateway(&vault, &issuer);
    let sent = sign_in(&grants).await;
    issuer.does(Does::Fail);
    for _ in 0..5 {
        let asked = grants.refused("alice", URL, Some(&sent)).await;
        assert!(matches!(asked, Err(GrantError::NotNow(_))), "{asked:?}");
    }
    // Nobody is asked again so soon, and the refresh token is where it was.
    assert_eq!(issuer.calls(), 1);
    let kept = refresh_token(&vault).await;
    assert_eq!(kept, Some(Secret::new("refresh-secret-0")));
    issuer.does(Does::Rotate);
    tokio::time::advance(Duration::from_secs(14)).await;
    let asked = grants.refused("alice", URL, Some(&sent)).await;
    assert!(matches!(asked, Err(GrantError::NotNow(_))), "{asked:?}");
    tokio::time::advance(Duration::from_secs(17)).await;
    let new = refused(&grants, &sent).await;
    assert_eq!(new.header(), "Bearer access-secret-2");
    assert_eq!(issuer.calls(), 2);
}

#[tokio::test]
async fn the_old_refresh_token_is_kept_when_none_is_returned() {
    let (vault, issuer) = (memory(), Scripted::new());
    let grants = gateway(&vault, &issuer);
    let mut sent = sign_in(&grants).await;
    issuer.does(Does::KeepRefresh);
    for _ in 0..3 {
        sent = refused(&grants, &sent).await;
        let kept = refresh_token(&vault).await;
        assert_eq!(kept, Some(Secret::new("refresh-secret-0")));
    }
    assert_eq!(issuer.calls(), 3);
}

#[tokio::test]
async fn a_grant_that_is_not_accepted_any_more_is_dropped() {
    let (vault, issuer) = (memory(), Scripted::new());
    let [a, b] = [(); 2].map(|()| gateway(&vault, &issuer));
    let sent = sign_in(&a).await;
    assert!(b.bearer("alice", URL).await.unwrap().unwrap().is(&sent));
    issuer.does(Does::Reject);
    assert!(
        a.refused("alice", URL, Some(&sent))
            .await
            .unwrap()
            .is_none()
    );
    assert!(matches!(
        a.cached_bearer("alice", URL),
        CachedBearer::SignedOut
    ));
    assert_eq!(vault.grant(&key()).await.unwrap().value, None);
    // The other gateway learns it when it is refused, without asking anybody.
    assert!(
        b.refused("alice", URL, Some(&sent))
            .await
            .unwrap()
            .is_none()
    );
    assert!(b.bearer("alice", URL).await.unwrap().is_none());
    assert_eq!(issuer.calls(), 1);
    // A new sign-in is a new one, for both.
    issuer.does(Does::Rotate);
    let tokens = tokens("again", Some("refresh-secret-0"), Some(LIFE));
    let again = a
        .sign_in("alice", URL, 0, credentials(tokens))
        .await
        .unwrap();
    assert_eq!(again.header(), "Bearer again");
    assert!(again.sign_in > sent.sign_in);
    let there = b.refused("alice", URL, None).await.unwrap().unwrap();
    assert!(there.is(&again));
}

/// While the authorization server rejects the old grant, the caller signs in anew.
#[tokio::test]
async fn a_sign_in_during_a_refresh_wins() {
    for does in [Does::Reject, Does::Rotate, Does::Fail] {
        let (vault, issuer) = (memory(), Scripted::new());
        let [a, b] = [(); 2].map(|()| gateway(&vault, &issuer));
        let sent = sign_in(&a).await;
        for signs_in in [&a, &b] {
            let calls = issuer.calls();
            issuer.does(does);
            issuer.hold_back();
            let (grants, old) = (Arc::clone(&a), cached_bearer(&a));
            let asking = a
                .tracker
                .spawn(async move { grants.refused("alice", URL, Some(&old)).await });
            issuer.called(calls + 1).await;
            let text = format!("new-{calls}");
            let tokens = tokens(&text, Some("x"), Some(LIFE));
            let new = signs_in
                .sign_in("alice", URL, 0, credentials(tokens))
                .await
                .unwrap();
            assert!(new.sign_in > sent.sign_in);
            issuer.answer();
            let asked = asking.await.unwrap();
            if does == Does::Fail && Arc::ptr_eq(signs_in, &b) {
                // Nothing was learned; the next look finds it.
                assert!(matches!(asked, Err(GrantError::NotNow(_))), "{asked:?}");
                let old = cached_bearer(&a);
                assert!(refused(&a, &old).await.is(&new));
            } else {
                assert!(asked.unwrap().unwrap().is(&new), "{does:?}");
            }
            assert!(cached_bearer(&a).is(&new), "{does:?}");
            let stored = vault.grant(&key()).await.unwrap().value.unwrap();
            assert!(stored.access_token.is(&text), "{does:?}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_renewed_needs_a_sign_in() {
    let (vault, issuer) = (memory(), Scripted::new());
    let grants = gateway(&vault, &issuer);
    let only = tokens("only", None, None);
    let sent = grants
        .sign_in("alice", URL, 0, credentials(only))
        .await
        .unwrap();
    assert!(
        grants
            .refused("alice", URL, Some(&sent))
            .await
            .unwrap()
            .is_none()
    );
    // It is not sent again, even by those who sent nothing.
    assert!(matches!(
        grants.cached_bearer("alice", URL),
        CachedBearer::SignedOut
    ));
    assert!(grants.refused("alice", URL, None).await.unwrap().is_none());
    // But nobody said that the grant is worth nothing.
    assert!(vault.grant(&key()).await.unwrap().value.is_some());
    assert_eq!(issuer.calls(), 0);
    assert!(sign_in(&grants).await.sign_in > sent.sign_in);
    assert_eq!(cached_bearer(&grants).header(), "Bearer access-secret-0");
}

#[tokio::test]
async fn a_refresh_goes_on_when_whoever_asked_for_it_leaves() {
    let (vault, issuer) = (memory(), Scripted::new());
    let grants = gateway(&vault, &issuer);
    let sent = sign_in(&grants).await;
    issuer.hold_back();
    {
        let asking = refused(&grants, &sent);
        let called = issuer.called(1);
        tokio::select! {
            _ = asking => panic!("answered"),
            () = called => {}
        }
    }
    issuer.answer();
    until("the new one is at hand", || {
        !cached_bearer(&grants).is(&sent)
    })
    .await;
    assert_eq!(
        refused(&grants, &sent).await.header(),
        "Bearer access-secret-1"
    );
    assert_eq!(issuer.calls(), 1);
}

#[tokio::test]
async fn a_sign_out_hands_over_what_is_to_be_revoked() {
    let (vault, issuer) = (memory(), Scripted::new());
    let grants = gateway(&vault, &issuer);
    let sent = sign_in(&grants).await;
    issuer.hold_back();
    let (asking, old) = (Arc::clone(&grants), Arc::clone(&sent));
    let asked = grants
        .tracker
        .spawn(async move { refused(&asking, &old).await });
    issuer.called(1).await;
    let leaving = Arc::clone(&grants);
    let left = grants
        .tracker
        .spawn(async move { leaving.sign_out("alice", URL).await });
    issuer.answer();
    asked.await.unwrap();
    // What the refresh brought, not what it replaced.
    let revoked = left.await.unwrap().unwrap().unwrap();
    assert!(revoked.refresh_token.unwrap().is("refresh-secret-1"));
    assert!(matches!(
        grants.cached_bearer("alice", URL),
        CachedBearer::SignedOut
    ));
    assert!(grants.refused("alice", URL, None).await.unwrap().is_none());
    assert!(grants.sign_out("alice", URL).await.unwrap().is_none());
    assert_eq!(vault.grant(&key()).await.unwrap().value, None);
    assert!(sign_in(&grants).await.sign_in > sent.sign_in);
}

/// Another client identity makes another grant; the old one is not left lying about.
#[tokio::test]
async fn a_sign_in_as_another_client_replaces_the_old_grant() {
    let (vault, issuer) = (memory(), Scripted::new());
    let grants = gateway(&vault, &issuer);
    let first = sign_in(&grants).await;
    let mut credentials = credentials(tokens("second", None, None));
    credentials.client.id = "registered-anew".to_owned();
    let second = grants.sign_in("alice", URL, 0, credentials).await;
    let second = second.unwrap();
    assert!(second.sign_in > first.sign_in);
    assert_eq!(vault.grant(&key()).await.unwrap().value, None);
    let other = gateway(&vault, &issuer);
    assert!(
        other
            .bearer("alice", URL)
            .await
            .unwrap()
            .unwrap()
            .is(&second)
    );
}

#[tokio::test]
async fn nothing_shows_a_secret() {
    let (vault, issuer) = (memory(), Scripted::new());
    let grants = gateway(&vault, &issuer);
    let sent = sign_in(&grants).await;
    issuer.does(Does::Fail);
    let error = grants.refused("alice", URL, Some(&sent)).await.unwrap_err();
    let cached = grants.cached("alice", URL);
    let shown = format!("{grants:?} {cached:#?} {sent:?} {error} {error:?}");
    assert!(shown.contains("alice"));
    assert!(!shown.contains("access-secret"), "{shown}");
    assert!(!shown.contains("refresh-secret"), "{shown}");
    assert!(!shown.contains("client-secret"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn a_grant_whose_client_is_forgotten_is_used_up_and_no_longer() {
    let (vault, issuer) = (memory(), Scripted::new());
    let grants = gateway(&vault, &issuer);
    let Credentials {
        discovery, client, ..
    } = credentials(tokens("", None, None));
    let registrar = Registrar {
        server_url: URL,
        issuer: &discovery.issuer,
    };
    vault.put_registration(registrar, &client).await.unwrap();
    let sent = sign_in(&grants).await;
    issuer.does(Does::Forget);
    // Ahead of its end: it is good yet.
    tokio::time::advance(Duration::from_secs(LIFE * 95 / 100)).await;
    assert!(cached_bearer(&grants).is(&sent));
    issuer.called(1).await;
    let registered = || vault.registration(registrar, &client.redirect_uri);
    until("the registration is forgotten", || issuer.calls() >= 1).await;
    while registered().await.unwrap().is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(cached_bearer(&grants).is(&sent));
    // At its end nothing is in the way of a sign-in, not even a rest.
    tokio::time::advance(Duration::from_secs(LIFE * 5 / 100)).await;
    assert!(grants.bearer("alice", URL).await.unwrap().is_none());
    assert!(matches!(
        grants.cached_bearer("alice", URL),
        CachedBearer::SignedOut
    ));
    let asked = issuer.calls();
    assert!(grants.refused("alice", URL, None).await.unwrap().is_none());
    assert_eq!(issuer.calls(), asked, "asked for every request");
    // The grant may be good for a client that is known again.
    assert!(refresh_token(&vault).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_token_that_the_server_never_takes_is_not_renewed_for_each_request() {
    let (vault, issuer) = (memory(), Scripted::new());
    let grants = gateway(&vault, &issuer);
    let first = sign_in(&grants).await;
    let second = refused(&grants, &first).await;
    for _ in 0..5 {
        let asked = grants.refused("alice", URL, Some(&second)).await;
        assert!(asked.unwrap().is_none());
    }
    assert_eq!(issuer.calls(), 1);
    assert!(cached_bearer(&grants).is(&second));
    // It is tried again in a while, or at once if it was taken meanwhile.
    tokio::time::advance(Duration::from_secs(60)).await;
    let third = grants.refused("alice", URL, Some(&second)).await;
    let third = third.unwrap().unwrap();
    refused(&grants, &third).await;
    assert_eq!(issuer.calls(), 3);
}

#[tokio::test]
async fn a_grant_of_another_issuer_than_the_accepted_one_is_not_used() {
    let (vault, issuer) = (memory(), Scripted::new());
    let grants = gateway(&vault, &issuer);
    let sent = sign_in(&grants).await;
    *issuer.distrusts.lock() = key().issuer;
    // A gateway that starts, or uses it for the first time.
    let other = gateway(&vault, &issuer);
    assert!(other.bearer("alice", URL).await.unwrap().is_none());
    // One that is told of it while it uses it.
    assert!(cached_bearer(&grants).is(&sent));
    grants.recheck_issuers();
    for grants in [&grants, &other] {
        assert!(grants.is_signed_out("alice", URL));
        assert!(grants.bearer("alice", URL).await.unwrap().is_none());
        let instead = grants.refused("alice", URL, Some(&sent)).await;
        assert!(instead.unwrap().is_none());
    }
    assert_eq!(issuer.calls(), 0);
    // It is still there: to be used again if the operator changes that, and to be revoked.
    issuer.distrusts.lock().clear();
    let again = other.refused("alice", URL, None).await.unwrap();
    assert!(again.unwrap().is(&sent));
    *issuer.distrusts.lock() = key().issuer;
    let taken_out = grants.sign_out("alice", URL).await.unwrap();
    assert_eq!(taken_out.unwrap().key(), key());
}
