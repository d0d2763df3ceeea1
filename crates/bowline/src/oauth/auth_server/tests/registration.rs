use super::*;

#[tokio::test]
async fn a_registration_says_what_bowline_is() {
    let mut stage = Stage::start().await;
    for (redirect_uri, application_type) in [
        (REDIRECT, "native"),
        ("http://localhost:1/x", "native"),
        ("http://[::1]:1/x", "native"),
        ("app.example:/x", "native"),
        ("https://gateway.example/oauth/callback", "web"),
        ("https://127.0.0.1.example/x", "web"),
    ] {
        let registered = stage.register(redirect_uri, &["a", "b"], |asked| {
            assert_eq!(
                (asked.method.as_str(), &*asked.target),
                ("POST", "/register")
            );
            assert_eq!(
                asked.json(),
                json!({
                    "client_name": "Bowline",
                    "redirect_uris": [redirect_uri],
                    "grant_types": ["authorization_code", "refresh_token"],
                    "response_types": ["code"],
                    "token_endpoint_auth_method": "none",
                    "scope": "a b",
                    "application_type": application_type,
                })
            );
            let answer = json!({"client_id": "new", "client_secret": ""}).to_string();
            asked.reply(201, &[], answer);
        });
        let client = registered.await.unwrap();
        assert_eq!((&*client.id, client.secret), ("new", None));
        assert_eq!(client.redirect_uri, redirect_uri);
    }
    stage.script.finish();
}

#[tokio::test]
async fn a_registration_may_come_with_a_secret_and_how_to_show_it() {
    let mut stage = Stage::start().await;
    for (method, expected) in [
        ("client_secret_post", Some(Authentication::ClientSecretPost)),
        (
            "client_secret_basic",
            Some(Authentication::ClientSecretBasic),
        ),
        ("none", Some(Authentication::None)),
        ("private_key_jwt", None),
    ] {
        let registered = stage.register(REDIRECT, &[], |asked| {
            assert!(asked.json().get("scope").is_none());
            let answer = json!({
                "client_id": "new",
                "client_secret": "p&ss",
                "token_endpoint_auth_method": method,
                "redirect_uris": [REDIRECT],
            });
            asked.reply(200, &[], answer.to_string());
        });
        let client = registered.await.unwrap();
        assert!(client.secret.unwrap().is("p&ss"));
        assert_eq!(client.authentication, expected);
    }
}

#[tokio::test]
async fn a_refused_registration_says_why() {
    let mut stage = Stage::start().await;
    let refused = stage.register(REDIRECT, &[], |it| refuse(it, 400, "invalid_redirect_uri"));
    let refused = refused.await.unwrap_err();
    let why = "invalid_redirect_uri";
    assert!(matches!(refused, AuthServerError::RegistrationRefused(code) if code == why));
    let forbidden = stage.register(REDIRECT, &[], |asked| asked.reply(403, &[], "secret-text"));
    let forbidden = forbidden.await.unwrap_err();
    assert!(
        matches!(forbidden, AuthServerError::RegistrationRefused(_)),
        "{forbidden:?}"
    );
    let trouble = stage.register(REDIRECT, &[], |asked| asked.reply(503, &[], ""));
    assert!(matches!(
        trouble.await,
        Err(AuthServerError::Unavailable(_))
    ));
    for (id, secret, is_good) in [
        (4096, 4096, true),
        (4097, 0, false),
        (1, 4097, false),
        (1, 900_000, false),
    ] {
        let answer = json!({"client_id": "i".repeat(id), "client_secret": "s".repeat(secret)});
        let registered = stage.register(REDIRECT, &[], |asked| {
            asked.reply(201, &[], answer.to_string());
        });
        match registered.await {
            Ok(_) => assert!(is_good, "{id}, {secret}"),
            Err(AuthServerError::RegistrationTooLarge { limit: 4096, .. }) => assert!(!is_good),
            Err(error) => panic!("{error}"),
        }
    }
    for status in [307, 308] {
        let elsewhere = "http://127.0.0.1:9/register";
        let led_away = stage.register(REDIRECT, &[], |asked| {
            asked.reply(status, &[("location", elsewhere)], "");
        });
        let led_away = led_away.await;
        assert!(
            matches!(
                led_away,
                Err(AuthServerError::Unreachable(FetchError::LeavesOrigin))
            ),
            "{led_away:?}"
        );
    }
    let junk = stage.register(REDIRECT, &[], |asked| asked.reply(201, &[], "{}"));
    assert!(matches!(junk.await, Err(AuthServerError::Malformed(_))));
    stage.discovery.metadata.remove("registration_endpoint");
    let none = stage
        .auth_server
        .register(&stage.discovery, REDIRECT, &[])
        .await;
    assert!(matches!(none, Err(AuthServerError::NoRegistration)));
    stage.script.finish();
}
