use super::*;

#[tokio::test]
async fn a_refresh_says_what_it_is_for() {
    let mut stage = Stage::start().await;
    let refreshed = stage.refresh(&["a"], |asked| {
        assert_eq!(
            form(&asked, "/token"),
            expected([
                ("grant_type", "refresh_token"),
                ("refresh_token", "old-refresh"),
                ("client_id", "the client"),
                ("scope", "a"),
                ("resource", RESOURCE),
            ])
        );
        let mut answer = bearer();
        answer["refresh_token"] = "new-refresh".into();
        answer["scope"] = "a".into();
        grant(asked, &answer);
    });
    let tokens = refreshed.await.unwrap();
    assert!(tokens.access_token.is("new-access"));
    assert!(tokens.refresh_token.unwrap().is("new-refresh"));
    assert_eq!(tokens.scopes, ["a"]);
    stage.script.finish();
}

#[tokio::test]
async fn a_refresh_without_a_new_refresh_token_keeps_the_old_one() {
    let mut stage = Stage::start().await;
    let refreshed = stage.refresh(&[], |asked| {
        assert!(!form(&asked, "/token").contains_key("scope"));
        grant(asked, &bearer());
    });
    let tokens = refreshed.await.unwrap();
    assert!(tokens.refresh_token.unwrap().is("old-refresh"));
    assert!(tokens.scopes.is_empty(), "nothing was said about them");
}

#[tokio::test]
async fn only_a_rejected_refresh_token_is_rejected() {
    let mut stage = Stage::start().await;
    let rejected = stage.refresh(&[], |asked| refuse(asked, 400, "invalid_grant"));
    assert!(matches!(rejected.await, Err(AuthServerError::Rejected)));
    let denied = stage.refresh(&[], |asked| refuse(asked, 401, "invalid_client"));
    assert!(matches!(
        denied.await,
        Err(AuthServerError::ClientRefused("invalid_client"))
    ));
    let trouble = stage.refresh(&[], |asked| asked.reply(502, &[], "<html>"));
    assert!(matches!(
        trouble.await,
        Err(AuthServerError::Unavailable(_))
    ));
    let gone = stage.refresh(&[], drop);
    assert!(matches!(gone.await, Err(AuthServerError::Unreachable(_))));
    stage.script.finish();
}

#[tokio::test]
async fn a_token_is_taken_back_where_that_is_possible() {
    let mut stage = Stage::start().await;
    let (client, token) = (public(), Secret::new("gone"));
    for (kind, hint) in [
        (TokenKind::Access, "access_token"),
        (TokenKind::Refresh, "refresh_token"),
    ] {
        let revoking = stage
            .auth_server
            .revoke(&stage.discovery, &client, &token, kind);
        let answering = async {
            let asked = stage.script.next().await;
            let pairs = [
                ("token", "gone"),
                ("token_type_hint", hint),
                ("client_id", "the client"),
            ];
            assert_eq!(form(&asked, "/revoke"), expected(pairs));
            asked.reply(200, &[], "");
        };
        assert!(tokio::join!(revoking, answering).0.unwrap());
    }
    let revoking = stage
        .auth_server
        .revoke(&stage.discovery, &client, &token, TokenKind::Access);
    let answering = async { stage.script.next().await.reply(503, &[], "") };
    let trouble = tokio::join!(revoking, answering).0;
    assert!(
        matches!(trouble, Err(AuthServerError::Unavailable(_))),
        "{trouble:?}"
    );
    stage.discovery.metadata.remove("revocation_endpoint");
    let revoking = stage
        .auth_server
        .revoke(&stage.discovery, &client, &token, TokenKind::Access);
    assert!(!revoking.await.unwrap());
    stage.script.finish();
}
