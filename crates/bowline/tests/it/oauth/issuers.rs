//! Which authorization server a server may name, where that one's endpoints may be, and how much
//! looking for it costs.

use std::cell::RefCell;
use std::time::Duration;

use bowline::config::{Config, KeyHash, ServerOAuth};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::kit::browser::Browser;
use crate::kit::client::sent;
use crate::kit::messages::call;
use crate::kit::protected::Words;
use crate::kit::signing::{OAuthStage, token_of};

const SOON: Duration = Duration::from_secs(10);

/// A stage whose operator says this of the authorization server. `say` is told the origins of the
/// authorization server and of the stranger.
async fn trusting(
    twist: impl FnOnce(&mut Words),
    say: impl FnOnce(&mut ServerOAuth, &str, &str),
) -> OAuthStage {
    let origins = RefCell::new((String::new(), String::new()));
    let note = |words: &mut Words| {
        origins.replace((words.authority.clone(), words.stranger.clone()));
        twist(words);
    };
    OAuthStage::set_with(note, |config| {
        let server = config.servers.values_mut().next().unwrap();
        let (authority, stranger) = origins.take();
        say(server.oauth.as_mut().unwrap(), &authority, &stranger);
    })
    .await
}

// === Endpoints ===

/// People would sign in at an honest authorization server, and the code would go to another one.
#[tokio::test]
async fn an_authorization_server_cannot_name_anothers_endpoints() {
    let names = [
        &["authorization_endpoint", "registration_endpoint"][..],
        &["authorization_endpoint"],
        &["token_endpoint"],
        &["registration_endpoint"],
        &["revocation_endpoint"],
    ];
    for names in names {
        let stage = OAuthStage::saying(|words| {
            for name in names {
                words.metadata[name] = json!(format!("{}/{name}", words.stranger));
            }
        })
        .await;
        let client = stage.client(None).await;
        let why = stage.refusal(&client).await;
        assert!(why.contains("`endpoints_elsewhere`"), "{names:?}: {why}");
        assert!(why.contains(names[0]), "{names:?}: {why}");
        assert!(stage.stranger.seen().is_empty(), "{names:?}");
        assert!(
            stage.authority().seen_at("/register").is_empty(),
            "{names:?}"
        );
    }
}

#[tokio::test]
async fn the_operator_may_allow_an_endpoint_elsewhere_and_the_page_says_so() {
    let stage = trusting(
        |words| {
            let there = format!("{}/authorize", words.stranger);
            words.metadata["authorization_endpoint"] = json!(there);
        },
        |oauth, _, stranger| oauth.endpoints_elsewhere = vec![stranger.to_owned()],
    )
    .await;
    let client = stage.client(None).await;
    let link = stage.link(&client).await;
    let mut browser = Browser::new();
    let page = browser.get(&link).await.text;
    let stranger = stage.stranger.address().to_string();
    assert!(page.contains(&format!("Continue to {stranger}<")), "{page}");
    assert!(page.contains("id=\"elsewhere\""), "{page}");
    let opened = browser.open(&link).await;
    let leads_to = opened.authorize_url.origin().ascii_serialization();
    assert_eq!(leads_to, stage.words.lock().stranger);
    let page = stage.come_back(&browser, &opened.state, "code").await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert_eq!(token_of(&client).await, "token-code");
}

#[tokio::test]
async fn a_page_that_leads_nowhere_else_says_where_it_leads() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let page = Browser::new().get(&stage.link(&client).await).await.text;
    let authority = stage.authority().address();
    assert!(
        page.contains(&format!("Continue to {authority}<")),
        "{page}"
    );
    assert!(!page.contains("elsewhere"), "{page}");
}

/// What was found lies in the store; a grant is renewed by it long after.
#[tokio::test]
async fn what_the_operator_says_holds_for_what_is_kept() {
    let stage = trusting(
        |words| {
            words.refresh_token = Some("refresh".to_owned());
            let there = format!("{}/revoke", words.stranger);
            words.metadata["revocation_endpoint"] = json!(there);
        },
        |oauth, _, stranger| oauth.endpoints_elsewhere = vec![stranger.to_owned()],
    )
    .await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "one").await;
    assert_eq!(token_of(&client).await, "token-one");
    let link = {
        stage.words.lock().only_token = Some("token-two".to_owned());
        // The refreshed token is refused, too, so a flow is under way.
        stage.link(&client).await
    };
    let asked = stage.token_requests().len();
    let mut config =
        crate::kit::gateway::config(&[("s", &format!("http://{}/mcp", stage.server.address()))]);
    config.servers.values_mut().next().unwrap().oauth = Some(ServerOAuth::default());
    stage.gateway.reload(config).unwrap();
    let why = stage.refusal(&client).await;
    assert!(why.contains("revocation_endpoint"), "{why}");
    // Neither the refresh token nor a code goes there any more.
    let mut browser = Browser::new();
    let opened = browser.open(&link).await;
    let page = stage.come_back(&browser, &opened.state, "two").await;
    assert_ne!(page.status, 200, "{}", page.text);
    assert_eq!(stage.token_requests().len(), asked);
}

// === The one that is meant ===

#[tokio::test]
async fn a_pinned_issuer_is_the_only_one_that_is_asked() {
    let pin = |oauth: &mut ServerOAuth, authority: &str, _: &str| {
        oauth.issuer = Some(authority.to_owned());
    };
    let others = |words: &mut Words| {
        words.resource["authorization_servers"] = json!([words.stranger]);
    };
    let stage = trusting(others, pin).await;
    let client = stage.client(None).await;
    let why = stage.refusal(&client).await;
    assert!(why.contains("than the configured `issuer`"), "{why}");
    assert!(stage.stranger.seen().is_empty());
    assert!(stage.authority().seen().is_empty());

    let among_many = |words: &mut Words| {
        let mut named = vec![words.stranger.clone(); 1000];
        named.push(words.authority.clone());
        words.resource["authorization_servers"] = json!(named);
    };
    let unnamed = |words: &mut Words| {
        words
            .resource
            .as_object_mut()
            .unwrap()
            .remove("authorization_servers");
    };
    let twists: [fn(&mut Words); 2] = [among_many, unnamed];
    for twist in twists {
        let stage = trusting(twist, pin).await;
        let client = stage.client(None).await;
        stage.sign_in(&client, "code").await;
        assert_eq!(token_of(&client).await, "token-code");
        assert!(stage.stranger.seen().is_empty());
    }
}

#[tokio::test]
async fn a_grant_of_another_issuer_is_not_used_once_one_is_pinned() {
    let stage = OAuthStage::set_with(
        |_| {},
        |config| config.api_token = Some(KeyHash::of(b"the-api-token")),
    )
    .await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "one").await;
    assert_eq!(token_of(&client).await, "token-one");
    let mut config = crate::kit::gateway::config(&[("s", &stage.url())]);
    config.api_token = Some(KeyHash::of(b"the-api-token"));
    let mut pin = |issuer: String| {
        config.servers.values_mut().next().unwrap().oauth = Some(ServerOAuth {
            issuer: Some(issuer),
            ..ServerOAuth::default()
        });
        stage.gateway.reload(config.clone()).unwrap();
    };
    // The one that it is from.
    pin(stage.issuer());
    assert_eq!(token_of(&client).await, "token-one");
    pin("https://login.example".to_owned());
    let before = stage.server.seen().len();
    let (asked, renewed) = (stage.refusal(&client).await, stage.token_requests().len());
    assert!(asked.contains("than the configured `issuer`"), "{asked}");
    let new = stage.client(None).await;
    stage.refusal(&new).await;
    for seen in &stage.server.seen()[before..] {
        assert_eq!(seen.header("authorization"), "", "{seen}");
    }
    // A sign-out revokes it where it was issued.
    let url = format!(
        "http://{}/api/mcp-oauth/sign-out?server=s",
        stage.gateway.listen()
    );
    let request = reqwest::Client::new()
        .post(url)
        .bearer_auth("the-api-token");
    assert_eq!(sent(request).await.json()["revoked"], true);
    let revoked = stage.authority().seen_at("/revoke");
    assert!(revoked.iter().any(|seen| seen.body.contains("token-one")));
    assert_eq!(stage.token_requests().len(), renewed);
}

#[tokio::test]
async fn a_configured_secret_goes_to_its_issuer_alone() {
    let text = |issuer: &str| {
        format!(
            "[servers.s]\nurl = \"http://h/mcp\"\n[servers.s.oauth]\nclient_id = \"corp\"\n\
             client_secret = \"corp-secret\"\nissuer = \"{issuer}\""
        )
    };
    let configured = |issuer: &str| {
        let config = Config::parse("", &text(issuer), &|_: &str| None).unwrap();
        config.servers["s"].oauth.clone().unwrap()
    };
    let stage = trusting(
        |words| words.resource["authorization_servers"] = json!([words.stranger]),
        |oauth, authority, _| *oauth = configured(authority),
    )
    .await;
    let client = stage.client(None).await;
    stage.refusal(&client).await;
    assert!(stage.stranger.seen().is_empty());

    let stage = trusting(|_| {}, |oauth, authority, _| *oauth = configured(authority)).await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "code").await;
    assert_eq!(token_of(&client).await, "token-code");
    let asked = stage.authority().seen_at("/token");
    assert!(asked[0].header("authorization").starts_with("Basic "));
}

// === What looking for one costs ===

#[tokio::test]
async fn a_handful_of_issuers_is_tried_and_not_for_every_request() {
    let stage = OAuthStage::saying(|words| {
        let named = (0..1500).map(|number| format!("{}/{number}", words.stranger));
        words.resource["authorization_servers"] = json!(named.collect::<Vec<_>>());
    })
    .await;
    let client = stage.client(None).await;
    let why = stage.refusal(&client).await;
    let asked = stage.stranger.seen().len();
    assert!((1..=12).contains(&asked), "{asked}");
    for _ in 0..5 {
        assert_eq!(stage.refusal(&client).await, why);
    }
    assert_eq!(stage.stranger.seen().len(), asked);
}

/// An issuer that takes connections and says nothing.
async fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    (listener, origin)
}

#[tokio::test]
async fn beginning_takes_no_longer_than_the_hold() {
    let (_listener, origin) = silent().await;
    let many: Vec<_> = (0..4).map(|number| format!("{origin}/{number}")).collect();
    let stage = OAuthStage::set_with(
        |words| words.resource["authorization_servers"] = json!(many),
        |config| config.oauth.hold = Duration::from_millis(300),
    )
    .await;
    let client = stage.client(None).await;
    let why = timeout(SOON, stage.refusal(&client)).await.unwrap();
    assert!(
        why.contains("no answer from the authorization server within 300ms"),
        "{why}"
    );
}

#[tokio::test]
async fn beginning_is_cancelled_like_any_wait() {
    let (listener, origin) = silent().await;
    let stage = OAuthStage::saying(|words| {
        words.resource["authorization_servers"] = json!([origin]);
    })
    .await;
    let client = stage.client(None).await;
    let cancelling = async {
        let held = listener.accept().await.unwrap();
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
        assert_eq!(client.send(&cancel).await.status, 202);
        held
    };
    let request = call(7);
    let both = async { tokio::join!(client.send(&request), cancelling) };
    let (answer, _held) = timeout(SOON, both).await.expect("it goes on");
    assert!(answer.text.contains("cancel"), "{}", answer.text);
}
