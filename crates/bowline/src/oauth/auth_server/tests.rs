//! An authorization server that the test plays, strictly: whatever it is asked is looked at in full.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use bowline_egress::{FetchError, Reach, Tls};
use bowline_testbed::scripted::{Asked, Scripted};
use serde_json::json;
use url::form_urlencoded;

use super::*;

const REDIRECT: &str = "http://127.0.0.1:4321/callback";
/// Without the slash that a normalised URL would have.
const RESOURCE: &str = "https://mcp.example";

/// An authorization server and what is known about it.
struct Stage {
    script: Scripted,
    auth_server: AuthServer,
    discovery: Discovery,
}

impl Stage {
    async fn start() -> Self {
        let script = Scripted::start().await;
        let issuer = script.url().replace("/mcp", "");
        let server: Uri = script.url().parse().unwrap();
        let fetch = Fetch::new(Reach::new(&server, false), Tls::platform());
        let metadata = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize?tenant=1"),
            "token_endpoint": format!("{issuer}/token"),
            "registration_endpoint": format!("{issuer}/register"),
            "revocation_endpoint": format!("{issuer}/revoke"),
            "code_challenge_methods_supported": ["S256"],
            "scopes_supported": ["a", "offline_access"],
        });
        Self {
            script,
            auth_server: AuthServer::new(&server, fetch),
            discovery: Discovery {
                resource: RESOURCE.to_owned(),
                issuer,
                metadata: metadata.as_object().unwrap().clone(),
                resource_metadata: None,
                scopes: Vec::new(),
            },
        }
    }

    /// Lets it announce this, too.
    fn announce(&mut self, name: &str, value: Value) {
        self.discovery.metadata.insert(name.to_owned(), value);
    }

    async fn begin(&self, client: &ClientIdentity, scopes: &[&str]) -> AuthorizationRequest {
        let scopes = texts(scopes);
        let beginning = self.auth_server.begin(&self.discovery, client, &scopes);
        beginning.await.unwrap()
    }

    /// Exchanges a code, while the token endpoint does this.
    async fn exchange(
        &mut self,
        client: &ClientIdentity,
        begun: &AuthorizationRequest,
        answer: impl FnOnce(Asked),
    ) -> Result<Tokens, AuthServerError> {
        let exchanging =
            self.auth_server
                .exchange(&self.discovery, client, begun, "the-code", None);
        let answering = async { answer(self.script.next().await) };
        tokio::join!(exchanging, answering).0
    }

    /// Refreshes, while the token endpoint does this.
    async fn refresh(
        &mut self,
        scopes: &[&str],
        answer: impl FnOnce(Asked),
    ) -> Result<Tokens, AuthServerError> {
        let (client, old, scopes) = (public(), Secret::new("old-refresh"), texts(scopes));
        let refreshing = self
            .auth_server
            .refresh(&self.discovery, &client, &old, &scopes);
        let answering = async { answer(self.script.next().await) };
        tokio::join!(refreshing, answering).0
    }

    async fn register(
        &mut self,
        redirect_uri: &str,
        scopes: &[&str],
        answer: impl FnOnce(Asked),
    ) -> Result<ClientIdentity, AuthServerError> {
        let scopes = texts(scopes);
        let registering = self
            .auth_server
            .register(&self.discovery, redirect_uri, &scopes);
        let answering = async { answer(self.script.next().await) };
        tokio::join!(registering, answering).0
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn public() -> ClientIdentity {
    ClientIdentity {
        id: "the client".to_owned(),
        secret: None,
        authentication: None,
        redirect_uri: REDIRECT.to_owned(),
    }
}

fn confidential(authentication: Option<Authentication>) -> ClientIdentity {
    ClientIdentity {
        secret: Some(Secret::new("p&ss")),
        authentication,
        ..public()
    }
}

type Pairs = BTreeMap<String, String>;

/// The pairs of a form or query, each of which is there once.
fn pairs(text: &str) -> Pairs {
    let mut pairs = Pairs::new();
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        let twice = pairs.insert(name.clone().into_owned(), value.into_owned());
        assert_eq!(twice, None, "{name} is there twice");
    }
    pairs
}

/// The form that was posted to this endpoint.
fn form(asked: &Asked, target: &str) -> Pairs {
    assert_eq!((asked.method.as_str(), &*asked.target), ("POST", target));
    assert_eq!(asked.header("content-type"), FORM);
    assert!(!asked.headers.contains_key("cookie"));
    pairs(std::str::from_utf8(&asked.body).unwrap())
}

fn expected<const N: usize>(pairs: [(&str, &str); N]) -> Pairs {
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    pairs.into()
}

fn grant(asked: Asked, answer: &Value) {
    asked.reply(
        200,
        &[("content-type", "application/json")],
        answer.to_string(),
    );
}

fn refuse(asked: Asked, status: u16, code: &str) {
    let body = json!({"error": code, "error_description": "the-code p&ss secret-text"});
    asked.reply(
        status,
        &[("content-type", "application/json")],
        body.to_string(),
    );
}

fn bearer() -> Value {
    json!({"access_token": "new-access", "token_type": "bearer", "expires_in": 60})
}

// === registration ===

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

// === the person's part ===

#[tokio::test]
async fn a_sign_in_begins_with_all_that_is_needed() {
    let stage = Stage::start().await;
    let begun = stage.begin(&public(), &["a", "b c"]).await;
    let (endpoint, query) = begun.authorize_url.split_once('?').unwrap();
    assert_eq!(endpoint, format!("{}/authorize", stage.discovery.issuer));
    let challenge = digest(&SHA256, begun.verifier.expose().as_bytes());
    assert_eq!(
        pairs(query),
        expected([
            ("tenant", "1"),
            ("response_type", "code"),
            ("client_id", "the client"),
            ("redirect_uri", REDIRECT),
            ("scope", "a b c"),
            ("state", begun.state.expose()),
            ("code_challenge", &BASE64_URL_SAFE_NO_PAD.encode(challenge)),
            ("code_challenge_method", "S256"),
            ("resource", RESOURCE),
        ])
    );
    assert!(begun.verifier.expose().len() >= 43);
    assert!(begun.state.expose().len() >= 22, "128 bits");
    assert_eq!(begun.scopes, ["a", "b c"]);
    let other = stage.begin(&public(), &[]).await;
    assert_ne!(other.state, begun.state);
    assert_ne!(other.verifier, begun.verifier);
    assert!(!other.authorize_url.contains("scope"));
    assert!(!format!("{begun:?}").contains(begun.state.expose()));
    stage.script.finish();
}

#[tokio::test]
async fn a_lasting_grant_is_consented_to() {
    let stage = Stage::start().await;
    let begun = stage.begin(&public(), &["a", "offline_access"]).await;
    assert!(begun.authorize_url.ends_with("&prompt=consent"));
    let begun = stage.begin(&public(), &["a"]).await;
    assert!(!begun.authorize_url.contains("prompt"));
}

// === exchange ===

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

// === refresh and revocation ===

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

// === secrets ===

/// All that is logged.
#[derive(Clone, Default)]
struct Log(Arc<parking_lot::Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn nothing_secret_is_logged_whoever_listens() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _listening = tracing::subscriber::set_default(subscriber);
    let mut stage = Stage::start().await;
    let client = confidential(None);
    let begun = stage.begin(&client, &["a"]).await;
    let exchanged = stage.exchange(&client, &begun, |asked| {
        let mut answer = bearer();
        answer["x_extra"] = "secret-text".into();
        grant(asked, &answer);
    });
    exchanged.await.unwrap();
    stage
        .refresh(&[], |asked| grant(asked, &bearer()))
        .await
        .unwrap();
    let refused = stage.refresh(&[], |asked| refuse(asked, 400, "invalid_grant"));
    refused.await.unwrap_err();
    tracing::debug!("the log is heard");
    let log = String::from_utf8(log.0.lock().clone()).unwrap();
    assert!(log.contains("the log is heard"));
    let secrets = [
        "the-code",
        "p&ss",
        "p%26ss",
        "new-access",
        "old-refresh",
        "secret-text",
    ];
    let flow = [begun.state.expose(), begun.verifier.expose()];
    for secret in secrets.into_iter().chain(flow) {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
    assert!(!log.contains("rmcp"), "{log}");
}
