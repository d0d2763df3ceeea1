//! What somebody may try who writes a server's documents and answers: nobody is led astray, no token goes
//! elsewhere, and the gateway knocks nowhere for them.

use std::cell::RefCell;

use bowline::config::{Server, ServerOAuth};
use http::HeaderValue;
use serde_json::json;

use crate::kit::browser::Browser;
use crate::kit::client::Client;
use crate::kit::messages::call;
use crate::kit::protected::Words;
use crate::kit::signing::{OAuthStage, token_of};

// === Where documents lead ===

/// What a server says instead of the truth.
type Twist = fn(&mut Words);

#[tokio::test]
async fn documents_that_lead_behind_the_gateway_are_not_followed() {
    let twists: [(&str, Twist); 5] = [
        ("resource_metadata", |words| {
            let forbidden = words.forbidden();
            words.challenge = format!(r#"Bearer resource_metadata="{forbidden}/document""#);
        }),
        ("authorization_servers", |words| {
            words.resource["authorization_servers"] = json!([words.forbidden()]);
        }),
        ("a redirect of the server's document", |words| {
            let there = format!("{}/document", words.forbidden());
            words
                .redirects
                .insert("/.well-known/oauth-protected-resource/mcp", there);
        }),
        ("a redirect of the authorization server's", |words| {
            let there = format!("{}/document", words.forbidden());
            words
                .redirects
                .insert("/.well-known/oauth-authorization-server", there);
        }),
        ("the clouds' metadata", |words| {
            words.resource["authorization_servers"] = json!(["http://169.254.169.254/latest"]);
        }),
    ];
    for (what, twist) in twists {
        let stage = OAuthStage::saying(twist).await;
        let client = stage.client(None).await;
        let why = stage.refusal(&client).await;
        assert!(
            why.contains("has no address that may be reached from here"),
            "{what}: {why}"
        );
        assert!(stage.stranger.seen().is_empty(), "{what}");
    }
}

#[tokio::test]
async fn the_operator_can_let_documents_lead_there() {
    let twist = |words: &mut Words| {
        words.resource["authorization_servers"] = json!([words.forbidden()]);
    };
    let stage = OAuthStage::set_with(twist, |config| {
        let server = config.servers.values_mut().next().unwrap();
        server.oauth.as_mut().unwrap().allow_private = true;
    })
    .await;
    let client = stage.client(None).await;
    stage.refusal(&client).await;
    assert!(!stage.stranger.seen().is_empty(), "nobody would have heard");
}

#[tokio::test]
async fn pkce_that_is_not_listed_is_the_operators_to_allow_and_is_used() {
    for is_allowed in [false, true] {
        let silent = |words: &mut Words| words.leave_out("code_challenge_methods_supported");
        let stage = OAuthStage::set_with(silent, |config| {
            let server = config.servers.values_mut().next().unwrap();
            server.oauth.as_mut().unwrap().unlisted_pkce = is_allowed;
        })
        .await;
        let client = stage.client(None).await;
        if !is_allowed {
            let why = stage.refusal(&client).await;
            assert!(why.contains("does not list its PKCE methods"), "{why}");
            assert!(why.contains("`unlisted_pkce`"), "{why}");
            continue;
        }
        let mut browser = Browser::new();
        let opened = browser.open(&stage.link(&client).await).await;
        let asked = opened.authorize_url.query().unwrap();
        assert!(asked.contains("code_challenge_method=S256"), "{asked}");
        stage.come_back(&browser, &opened.state, "code").await;
        assert!(stage.token_requests()[0]["code_verifier"].len() >= 43);
    }
}

#[tokio::test]
async fn a_token_endpoint_behind_the_gateway_gets_no_code() {
    let forbidden = RefCell::new(String::new());
    let twist = |words: &mut Words| {
        *forbidden.borrow_mut() = words.forbidden();
        words.metadata["token_endpoint"] = json!(format!("{}/token", words.forbidden()));
    };
    let stage = OAuthStage::set_with(twist, |config| {
        let server = config.servers.values_mut().next().unwrap();
        server.oauth.as_mut().unwrap().endpoints_elsewhere = vec![forbidden.take()];
    })
    .await;
    let client = stage.client(None).await;
    let mut browser = Browser::new();
    let opened = browser.open(&stage.link(&client).await).await;
    let page = stage.come_back(&browser, &opened.state, "code").await;
    assert_eq!(page.status, 502);
    assert!(page.text.contains("no address that may"), "{}", page.text);
    assert!(stage.stranger.seen().is_empty());
}

#[tokio::test]
async fn a_token_request_is_not_redirected_anywhere() {
    let stage = OAuthStage::saying(|words| {
        let there = format!("{}/token", words.stranger);
        words.redirects.insert("/token", there);
    })
    .await;
    let client = stage.client(None).await;
    let mut browser = Browser::new();
    let opened = browser.open(&stage.link(&client).await).await;
    let page = stage.come_back(&browser, &opened.state, "code").await;
    assert_eq!(page.status, 502, "{}", page.text);
    assert!(stage.stranger.seen().is_empty());
}

#[tokio::test]
async fn people_are_led_to_pages_only() {
    for endpoint in [
        "javascript:alert(1)//",
        "data:text/html,hello",
        "file:///etc/passwd",
        "vbscript:msgbox",
        "http://user:password@127.0.0.1/authorize",
        "http:/authorize",
        "/authorize",
        "http://127.0.0.1/authorize\nSet-Cookie: a=b",
        "http://127.0.0.1/authorize?<script>",
        "",
    ] {
        let stage = OAuthStage::saying(|words| {
            words.metadata["authorization_endpoint"] = json!(endpoint);
        })
        .await;
        let client = stage.client(None).await;
        let why = stage.refusal(&client).await;
        assert!(why.contains("authorization server"), "{endpoint:?}: {why}");
    }
}

#[tokio::test]
async fn what_a_shell_or_a_page_would_run_stays_part_of_the_url() {
    let stage = OAuthStage::saying(|words| {
        let tricky = "/a\"onclick=\"alert(1);$(id)?a='$(id)'&b=%22%3E%3Cscript%3E";
        words.metadata["authorization_endpoint"] = json!(format!("{}{tricky}", words.authority));
    })
    .await;
    let client = stage.client(None).await;
    let link = stage.link(&client).await;
    let mut browser = Browser::new();
    let page = browser.get(&link).await;
    let opened = browser.open(&link).await;
    let authority = stage.words.lock().authority.clone();
    let origin = opened.authorize_url.origin().ascii_serialization();
    assert_eq!(origin, authority);
    let mut query = opened.authorize_url.query_pairs();
    assert_eq!(query.next().unwrap().1, "'$(id)'");
    assert_eq!(query.next().unwrap().1, "\"><script>");
    // One is the page's own.
    assert_eq!(page.text.matches("<script").count(), 1, "{}", page.text);
    assert!(!page.text.contains("\"onclick"), "{}", page.text);
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'none'"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    // Browsers hold the redirects behind a form against it, and those lead anywhere.
    assert!(!policy.contains("form-action"), "{policy}");
}

// === Whose answer is taken ===

#[tokio::test]
async fn another_issuers_answer_is_not_taken_and_costs_the_flow_nothing() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let mut browser = Browser::new();
    let opened = browser.open(&stage.link(&client).await).await;
    let state = opened.state.as_str();
    let slash = format!("{}/", stage.words.lock().authority);
    for query in [
        &[("state", state), ("code", "code")][..],
        &[
            ("state", state),
            ("code", "code"),
            ("iss", "https://evil.example"),
        ],
        &[("state", state), ("code", "code"), ("iss", &slash)],
        &[
            ("state", state),
            ("error", "access_denied"),
            ("iss", "https://evil.example"),
        ],
        &[("state", state), ("error", "access_denied")],
    ] {
        assert_eq!(
            stage.callback(&browser, query).await.status,
            400,
            "{query:?}"
        );
    }
    assert_eq!(stage.token_requests().len(), 0);
    assert_eq!(stage.come_back(&browser, state, "code").await.status, 200);
    assert_eq!(token_of(&client).await, "token-code");
}

#[tokio::test]
async fn a_token_stays_at_its_server() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "code").await;
    assert_eq!(token_of(&client).await, "token-code");
    let there = format!("{}/mcp", stage.words.lock().stranger);
    stage.words.lock().redirects.insert("/mcp", there);
    let answer = client.send(&call(2)).await;
    assert!(answer.json().get("error").is_some(), "{}", answer.text);
    assert!(stage.stranger.seen().is_empty(), "a redirect was followed");
}

#[tokio::test]
async fn a_server_at_another_place_is_signed_in_at_anew() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "code").await;
    assert_eq!(token_of(&client).await, "token-code");
    let mut config = crate::kit::gateway::config(&[]);
    let there = format!("{}/mcp", stage.words.lock().stranger);
    let mut moved = Server::from_url(&there).unwrap();
    moved.oauth = Some(ServerOAuth::default());
    config.servers.insert("s".parse().unwrap(), moved);
    stage.gateway.reload(config).unwrap();
    drop(Client::new(&stage.gateway).initialize().await);
    drop(client.send(&call(2)).await);
    let seen = stage.stranger.seen();
    assert!(!seen.is_empty(), "nothing went to the new place");
    for seen in seen {
        assert_eq!(seen.header("authorization"), "", "{seen}");
        assert_eq!(seen.header("cookie"), "", "{seen}");
    }
}

#[tokio::test]
async fn cookies_and_configured_headers_stay_at_their_server() {
    let stage = OAuthStage::set_with(
        |_| {},
        |config| {
            let server = config.servers.values_mut().next().unwrap();
            let key = HeaderValue::from_static("of the server");
            server.headers.insert("x-key", key);
        },
    )
    .await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "first").await;
    assert_eq!(token_of(&client).await, "token-first");
    // Signed in anew, now that there are cookies.
    stage.words.lock().only_token = Some("token-second".to_owned());
    stage.sign_in(&client, "second").await;
    assert_eq!(token_of(&client).await, "token-second");
    let at_server = stage.server.seen_at("/mcp");
    let last = at_server.last().unwrap();
    assert_eq!(last.header("cookie"), "stays-here=of-token-second");
    stage.accounts_are_apart();
    assert_eq!(last.header("x-key"), "of the server");
    assert!(stage.token_requests().len() == 2);
    for seen in stage.authority().seen() {
        assert_eq!(seen.header("cookie"), "", "{seen}");
        assert_eq!(seen.header("x-key"), "", "{seen}");
        assert!(
            !seen.header("authorization").starts_with("Bearer"),
            "{seen}"
        );
    }
}
