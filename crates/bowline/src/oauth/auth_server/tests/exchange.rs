use super::*;

#[tokio::test]
async fn a_code_is_exchanged_by_whichever_gateway() {
    let mut stage = Stage::start().await;
    let client = public();
    let begun = stage.begin(&client, &["a", "b"]).await;
    let kept = serde_json::to_vec(&begun).unwrap();
    let begun: AuthorizationRequest = serde_json::from_slice(&kept).unwrap();
    let exchanged = stage.exchange(&client, &begun, |asked| {
        assert_eq!(
            form(&asked, "/token"),
            expected([
                ("grant_type", "authorization_code"),
                ("code", "the-code"),
                ("client_id", "the client"),
                ("redirect_uri", REDIRECT),
                ("code_verifier", begun.verifier.expose()),
                ("resource", RESOURCE),
            ])
        );
        assert!(!asked.headers.contains_key("authorization"));
        assert_eq!(asked.header("accept"), "application/json");
        let mut answer = bearer();
        answer["refresh_token"] = "new-refresh".into();
        answer["scope"] = "b  a".into();
        grant(asked, &answer);
    });
    let tokens = exchanged.await.unwrap();
    assert!(tokens.access_token.is("new-access"));
    assert!(tokens.refresh_token.unwrap().is("new-refresh"));
    assert_eq!(tokens.expires_in, Some(Duration::from_secs(60)));
    assert_eq!(tokens.scopes, ["b", "a"]);
    // What is not said was granted as it was asked for, and lasts as long as it lasts.
    let answer = json!({"access_token": "x", "token_type": "Bearer"});
    let exchanged = stage.exchange(&client, &begun, |asked| grant(asked, &answer));
    let tokens = exchanged.await.unwrap();
    assert_eq!((tokens.expires_in, tokens.refresh_token), (None, None));
    assert_eq!(tokens.scopes, ["a", "b"]);
    stage.script.finish();
}

#[tokio::test]
async fn a_client_shows_its_secret_as_agreed_or_as_offered() {
    use Authentication::{ClientSecretBasic, ClientSecretPost};
    for (agreed, offered, expected) in [
        (None, json!(null), Some(ClientSecretBasic)),
        (
            None,
            json!(["client_secret_post", "client_secret_basic"]),
            Some(ClientSecretBasic),
        ),
        (
            None,
            json!(["client_secret_post", "none"]),
            Some(ClientSecretPost),
        ),
        (None, json!(["none"]), None),
        (
            Some(ClientSecretPost),
            json!(["client_secret_basic"]),
            Some(ClientSecretPost),
        ),
        (
            Some(ClientSecretBasic),
            json!(["client_secret_post"]),
            Some(ClientSecretBasic),
        ),
        (
            Some(Authentication::None),
            json!(["client_secret_post"]),
            None,
        ),
    ] {
        let mut stage = Stage::start().await;
        stage.announce("token_endpoint_auth_methods_supported", offered);
        if stage.discovery.metadata["token_endpoint_auth_methods_supported"].is_null() {
            stage
                .discovery
                .metadata
                .remove("token_endpoint_auth_methods_supported");
        }
        let client = confidential(agreed);
        let begun = stage.begin(&client, &[]).await;
        assert!(!begun.authorize_url.contains("p%26ss"));
        let exchanged = stage.exchange(&client, &begun, |asked| {
            assert_shown(&asked, &form(&asked, "/token"), expected);
            grant(asked, &bearer());
        });
        exchanged.await.unwrap();
        let token = Secret::new("gone");
        let revoking =
            stage
                .auth_server
                .revoke(&stage.discovery, &client, &token, TokenKind::Refresh);
        let answering = async {
            let asked = stage.script.next().await;
            assert_shown(&asked, &form(&asked, "/revoke"), expected);
            asked.reply(200, &[], "");
        };
        assert!(tokio::join!(revoking, answering).0.unwrap());
    }
}

fn assert_shown(asked: &Asked, form: &Pairs, how: Option<Authentication>) {
    let basic = format!("Basic {}", BASE64_STANDARD.encode("the+client:p%26ss"));
    let (header, id, secret) = match how {
        Some(Authentication::ClientSecretBasic) => (&*basic, None, None),
        Some(_) => ("", Some("the client"), Some("p&ss")),
        None => ("", Some("the client"), None),
    };
    assert_eq!(asked.header("authorization"), header);
    assert_eq!(form.get("client_id").map(String::as_str), id);
    assert_eq!(form.get("client_secret").map(String::as_str), secret);
}

#[tokio::test]
async fn an_answer_from_somebody_else_is_never_redeemed() {
    let mut stage = Stage::start().await;
    let client = public();
    let issuer = stage.discovery.issuer.clone();
    let begun = stage.begin(&client, &[]).await;
    let strange = [
        "https://evil.example".to_owned(),
        format!("{issuer}/"),
        issuer.to_uppercase(),
        format!("{issuer}/../"),
        String::new(),
    ];
    for iss in &strange {
        let exchanging =
            stage
                .auth_server
                .exchange(&stage.discovery, &client, &begun, "c", Some(iss));
        let failed = exchanging.await;
        assert!(
            matches!(failed, Err(AuthServerError::IssuerMismatch)),
            "{iss}: {failed:?}"
        );
    }
    stage.announce(
        "authorization_response_iss_parameter_supported",
        json!(true),
    );
    let silent = stage
        .auth_server
        .exchange(&stage.discovery, &client, &begun, "c", None)
        .await;
    assert!(
        matches!(silent, Err(AuthServerError::IssuerMismatch)),
        "{silent:?}"
    );
    let right = stage
        .auth_server
        .exchange(&stage.discovery, &client, &begun, "c", Some(&issuer));
    let answering = async { grant(stage.script.next().await, &bearer()) };
    tokio::join!(right, answering).0.unwrap();
    // An error has to come from the right one, too.
    assert!(check_issuer(&stage.discovery, Some(&issuer)).is_ok());
    assert!(check_issuer(&stage.discovery, None).is_err());
    stage.script.finish();
}

#[tokio::test]
async fn a_refusal_is_told_by_its_code_alone() {
    let mut stage = Stage::start().await;
    let client = public();
    let begun = stage.begin(&client, &[]).await;
    for (status, code, is_expected) in [
        (
            400,
            "invalid_grant",
            (|it| matches!(it, AuthServerError::Rejected)) as fn(&_) -> bool,
        ),
        (401, "invalid_client", |it| {
            matches!(it, AuthServerError::ClientRefused("invalid_client"))
        }),
        (400, "invalid_target", |it| {
            matches!(it, AuthServerError::Denied("invalid_target"))
        }),
        (400, "secret-text", |it| {
            matches!(it, AuthServerError::Denied("an error of its own"))
        }),
        (200, "invalid_request", |it| {
            matches!(it, AuthServerError::Denied("invalid_request"))
        }),
        (500, "invalid_grant", |it| {
            matches!(it, AuthServerError::Unavailable(_))
        }),
        (429, "slow_down", |it| {
            matches!(it, AuthServerError::Unavailable(_))
        }),
    ] {
        let failed = stage.exchange(&client, &begun, |asked| refuse(asked, status, code));
        let failed = failed.await.unwrap_err();
        assert!(is_expected(&failed), "{status} {code}: {failed:?}");
        let text = format!("{failed} {failed:?}");
        assert!(
            !text.contains("secret-text") && !text.contains("the-code"),
            "{text}"
        );
    }
    let other_type = json!({"access_token": "secret-text", "token_type": "DPoP"});
    let no_type = json!({"access_token": "secret-text"});
    let no_token = json!({"token_type": "bearer"});
    let empty = json!({"access_token": "", "token_type": "bearer"});
    for junk in [json!("secret-text"), other_type, no_type, no_token, empty] {
        let failed = stage
            .exchange(&client, &begun, |asked| grant(asked, &junk))
            .await;
        let failed = failed.unwrap_err();
        assert!(
            matches!(failed, AuthServerError::Malformed(_)),
            "{junk}: {failed:?}"
        );
        assert!(!format!("{failed} {failed:?}").contains("secret-text"));
    }
    stage.script.finish();
}

#[tokio::test]
async fn codes_and_tokens_follow_no_redirect() {
    let mut stage = Stage::start().await;
    let client = public();
    let begun = stage.begin(&client, &[]).await;
    let elsewhere = Scripted::start().await;
    let away = [("location", elsewhere.url())];
    let failed = stage.exchange(&client, &begun, |asked| asked.reply(307, &away, ""));
    assert!(matches!(failed.await, Err(AuthServerError::Malformed(_))));
    let failed = stage.refresh(&[], |asked| asked.reply(308, &away, ""));
    assert!(matches!(failed.await, Err(AuthServerError::Malformed(_))));
    elsewhere.finish();
    stage.script.finish();
}

#[tokio::test]
async fn no_endpoint_is_where_only_the_gateway_can_go() {
    let mut stage = Stage::start().await;
    for name in [
        "token_endpoint",
        "registration_endpoint",
        "revocation_endpoint",
    ] {
        stage.announce(name, json!("http://169.254.169.254/latest"));
    }
    // Even where the operator allows the origin.
    let elsewhere = crate::config::ServerOAuth {
        endpoints_elsewhere: vec!["http://169.254.169.254".to_owned()],
        ..Default::default()
    };
    stage.auth_server = stage.auth_server.trusting(Trust::of(&elsewhere));
    let (discovery, client, token) = (&stage.discovery, public(), Secret::new("x"));
    let begun = stage.begin(&client, &[]).await;
    let auth_server = &stage.auth_server;
    let failures = [
        auth_server
            .exchange(discovery, &client, &begun, "c", None)
            .await
            .err(),
        auth_server
            .refresh(discovery, &client, &token, &[])
            .await
            .err(),
        auth_server.register(discovery, REDIRECT, &[]).await.err(),
        auth_server
            .revoke(discovery, &client, &token, TokenKind::Access)
            .await
            .err(),
    ];
    for failed in failures {
        let refused = matches!(
            failed,
            Some(AuthServerError::Unreachable(FetchError::OutOfReach(..)))
        );
        assert!(refused, "{failed:?}");
    }
    stage.script.finish();
}

#[tokio::test]
async fn tokens_that_are_too_long_are_not_taken() {
    let mut stage = Stage::start().await;
    let client = public();
    let begun = stage.begin(&client, &[]).await;
    for (name, length, is_good) in [
        ("access_token", 16 * 1024, true),
        ("access_token", 16 * 1024 + 1, false),
        ("refresh_token", 16 * 1024, true),
        ("refresh_token", 900_000, false),
        ("scope", 900_000, false),
    ] {
        let mut answer = json!({"access_token": "x", "token_type": "Bearer"});
        answer[name] = "x".repeat(length).into();
        let exchanged = stage.exchange(&client, &begun, |asked| grant(asked, &answer));
        match exchanged.await {
            Ok(_) => assert!(is_good, "{name} {length}"),
            Err(error @ AuthServerError::TooLong(_)) => {
                assert!(!is_good, "{name} {length}");
                let said = error.to_string();
                assert!(said.contains("more than 16384 bytes"), "{said}");
            }
            Err(error) => panic!("{name} {length}: {error}"),
        }
    }
    stage.script.finish();
}
