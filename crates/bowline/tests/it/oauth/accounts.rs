//! What one account was granted, its sessions and its cookies stay together: not another sign-in of the
//! same caller's uses them, and not whoever has the caller's name later.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bowline::Gateway;
use bowline::config::{Caller, CallerName, Config, Flow, KeyHash, Server, ServerOAuth, StoreKind};
use bowline::login::{GrantManager, SignOutOutcome};
use bowline_testbed::scripted::initialize_result;
use serde_json::{Value, json};
use url::Url;

use crate::kit::asking::{self, question, session, stream};
use crate::kit::browser::{Browser, query};
use crate::kit::client::{Client, sent};
use crate::kit::messages::call;
use crate::kit::protected::Protected;
use crate::kit::signing::{OAuthStage, token_of};
use crate::kit::wait::until_so;

const SIGN_IN_NEEDED: i64 = -31003;

fn over(config: &mut Config, directory: &Path) {
    config.store.kind = StoreKind::File {
        path: directory.to_owned(),
    };
}

/// Signs the local caller in on the command line, as whoever has this code.
async fn log_in(stage: &OAuthStage, directory: &Path, code: &str) {
    let (url, issuer) = {
        let words = stage.words.lock();
        (format!("{}/mcp", words.server), words.authority.clone())
    };
    let mut config = crate::kit::gateway::config(&[]);
    over(&mut config, directory);
    let desk = GrantManager::open(&config).await.unwrap();
    let server = Server::from_url(&url).unwrap();
    let signing_in = desk.begin("s", &server).await.unwrap();
    let (back, state) = (
        query(signing_in.link(), "redirect_uri"),
        query(signing_in.link(), "state"),
    );
    let answer = [("state", &*state), ("code", code), ("iss", &issuer)];
    let back = Url::parse_with_params(&back, answer).unwrap();
    let (finished, page) = tokio::join!(signing_in.finish(), reqwest::get(back));
    assert_eq!(page.unwrap().status(), 200);
    finished.unwrap();
}

#[tokio::test]
async fn a_token_goes_only_with_a_session_of_its_own_sign_in() {
    let directory = tempfile::tempdir().unwrap();
    let stage = OAuthStage::set_with(
        |words| words.expires_in = Some(2),
        |config| over(config, directory.path()),
    )
    .await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "alice").await;
    assert_eq!(token_of(&client).await, "token-alice");
    // Its token is old enough to be renewed before it is sent again; what is found is another's.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    stage.words.lock().expires_in = None;
    log_in(&stage, directory.path(), "bob").await;
    let others = [
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}),
        json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}),
    ];
    for message in others {
        assert_eq!(client.send(&message).await.status, 202);
    }
    // Until it looks what it has, alice's may have been renewed.
    until_so("bob's token", async || {
        token_of(&client).await == "token-bob"
    })
    .await;
    drop(client.get().send().await.unwrap());
    drop(client.delete().send().await.unwrap());
    stage.accounts_are_apart();
}

#[tokio::test]
async fn cookies_stay_behind_when_somebody_else_signs_in() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "alice").await;
    assert_eq!(token_of(&client).await, "token-alice");
    stage.words.lock().only_token = Some("token-bob".to_owned());
    stage.sign_in(&client, "bob").await;
    assert_eq!(token_of(&client).await, "token-bob");
    stage.accounts_are_apart();
    let last = stage.server.seen_at("/mcp").pop().unwrap();
    assert_eq!(last.header("cookie"), "stays-here=of-token-bob");
}

fn bob_with(key: &str) -> BTreeMap<CallerName, Caller> {
    let key = KeyHash::of(key.as_bytes());
    BTreeMap::from([("bob".parse().unwrap(), Caller::with_key(key))])
}

/// The gateway's configuration, with other callers.
fn reload(stage: &OAuthStage, callers: BTreeMap<CallerName, Caller>, directory: Option<&Path>) {
    let url = format!("{}/mcp", stage.words.lock().server);
    let mut config = crate::kit::gateway::config(&[("s", &url)]);
    for server in config.servers.values_mut() {
        server.oauth = Some(ServerOAuth::default());
    }
    config.callers = callers;
    if let Some(directory) = directory {
        over(&mut config, directory);
    }
    stage.gateway.reload(config).unwrap();
}

#[tokio::test]
async fn a_name_that_is_given_to_somebody_else_inherits_nothing() {
    let stage = OAuthStage::set_with(|_| {}, |config| config.callers = bob_with("k-first")).await;
    let first = stage.client(Some("k-first")).await;
    stage.sign_in(&first, "first").await;
    assert_eq!(token_of(&first).await, "token-first");
    let ann = bob_with("k-ann").into_values();
    let ann = ann.map(|caller| ("ann".parse().unwrap(), caller)).collect();
    reload(&stage, ann, None);
    reload(&stage, bob_with("k-second"), None);
    let second = stage.client(Some("k-second")).await;
    assert_eq!(second.send(&call(1)).await.code(), SIGN_IN_NEEDED);
    stage.sign_in(&second, "second").await;
    assert_eq!(token_of(&second).await, "token-second");
    reload(&stage, bob_with("k-first"), None);
    let again = stage.client(Some("k-first")).await;
    assert_eq!(token_of(&again).await, "token-first");
}

async fn sign_out(gateway: &Gateway, query: &str, token: Option<&str>) -> (u16, Value) {
    let url = format!("http://{}/api/mcp-oauth/sign-out?{query}", gateway.listen());
    let mut request = reqwest::Client::new().post(url);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let answer = sent(request).await;
    (answer.status.as_u16(), answer.json())
}

#[tokio::test]
async fn the_holder_of_the_api_token_signs_a_caller_out() {
    let stage = OAuthStage::set_with(
        |_| {},
        |config| {
            config.callers = bob_with("k-bob");
            config.api_token = Some(KeyHash::of(b"the-api-token"));
        },
    )
    .await;
    let client = stage.client(Some("k-bob")).await;
    stage.sign_in(&client, "bob").await;
    assert_eq!(token_of(&client).await, "token-bob");
    let token = Some("the-api-token");
    for (query, token, status) in [
        ("server=s&caller=bob", None, 401),
        ("server=s&caller=bob", Some("k-bob"), 401),
        ("server=s", token, 404),
        ("server=t&caller=bob", token, 404),
        ("caller=bob", token, 404),
    ] {
        let (answered, _) = sign_out(&stage.gateway, query, token).await;
        assert_eq!(answered, status, "{query}");
    }
    assert_eq!(token_of(&client).await, "token-bob");
    let out = sign_out(&stage.gateway, "server=s&caller=bob", token).await;
    assert_eq!(out, (200, json!({"result": "signed_out", "revoked": true})));
    let revoked = stage.authority().seen_at("/revoke");
    assert!(revoked.iter().any(|seen| seen.body.contains("token-bob")));
    let before = stage.server.seen_at("/mcp").len();
    assert_eq!(client.send(&call(1)).await.code(), SIGN_IN_NEEDED);
    // A server that asked for the token at `initialize` alone would go on serving.
    for seen in &stage.server.seen_at("/mcp")[before..] {
        assert_eq!(
            (seen.header("mcp-session-id"), seen.header("cookie")),
            ("", ""),
            "{seen}"
        );
    }
    let out = sign_out(&stage.gateway, "server=s&caller=bob", token).await;
    assert_eq!(out, (200, json!({"result": "not_signed_in"})));
}

#[tokio::test]
async fn a_sign_out_counts_wherever_the_server_was() {
    let mut config = crate::kit::gateway::config(&[]);
    config.callers = bob_with("k-bob");
    config.api_token = Some(KeyHash::of(b"the-api-token"));
    let stage = OAuthStage::set_with(
        |_| {},
        |started| {
            started.callers.clone_from(&config.callers);
            started.api_token.clone_from(&config.api_token);
        },
    )
    .await;
    let client = stage.client(Some("k-bob")).await;
    stage.sign_in(&client, "bob").await;
    assert_eq!(token_of(&client).await, "token-bob");
    let there = format!("{}/mcp", stage.words.lock().stranger);
    let mut moved = Server::from_url(&there).unwrap();
    moved.oauth = Some(ServerOAuth::default());
    config.servers.insert("s".parse().unwrap(), moved);
    stage.gateway.reload(config).unwrap();
    let token = Some("the-api-token");
    let out = sign_out(&stage.gateway, "server=s&caller=bob", token).await;
    assert_eq!(out, (200, json!({"result": "signed_out", "revoked": true})));
    let before = stage.server.seen_at("/mcp").len();
    drop(client.send(&call(2)).await);
    for seen in &stage.server.seen_at("/mcp")[before..] {
        assert_eq!(seen.header("authorization"), "", "{seen}");
    }
}

/// On the command line nobody remembers how the server was reached at its old URL.
#[tokio::test]
async fn tokens_of_an_old_url_are_revoked_too() {
    let directory = tempfile::tempdir().unwrap();
    let stage = OAuthStage::set().await;
    log_in(&stage, directory.path(), "ann").await;
    let mut config = crate::kit::gateway::config(&[]);
    over(&mut config, directory.path());
    let there = format!("{}/mcp", stage.words.lock().stranger);
    let mut moved = Server::from_url(&there).unwrap();
    moved
        .headers
        .insert("x-secret", http::HeaderValue::from_static("of-the-new-url"));
    let desk = GrantManager::open(&config).await.unwrap();
    let out = desk.sign_out(None, "s", &moved).await.unwrap();
    assert!(matches!(out, SignOutOutcome::Revoked), "{out:?}");
    let out = desk.sign_out(None, "s", &moved).await.unwrap();
    assert!(matches!(out, SignOutOutcome::NotSignedIn), "{out:?}");
    let revoked = stage.authority().seen_at("/revoke");
    assert_eq!(revoked.len(), 1, "{revoked:?}");
    assert!(revoked[0].header("x-secret").is_empty());
    assert_eq!(stage.stranger.seen().len(), 0);
}

#[tokio::test]
async fn what_a_server_said_to_somebody_who_signed_out_is_forgotten() {
    let stage = OAuthStage::set_with(
        |_| {},
        |config| {
            config.callers = bob_with("k-bob");
            config.api_token = Some(KeyHash::of(b"the-api-token"));
        },
    )
    .await;
    let client = stage.client(Some("k-bob")).await;
    stage.sign_in(&client, "bob").await;
    assert_eq!(token_of(&client).await, "token-bob");
    let token = Some("the-api-token");
    let out = sign_out(&stage.gateway, "server=s&caller=bob", token).await;
    assert_eq!(out.0, 200);
    let mut next = Client::new(&stage.gateway).with_key("k-bob");
    let told = next.initialize().await.json();
    // Bowline's own words.
    assert_eq!(told["result"]["serverInfo"]["name"], "s", "{told}");
    assert_ne!(told["result"], initialize_result(), "{told}");
}

#[tokio::test]
async fn nobody_may_sign_others_out_where_there_is_no_api_token() {
    let stage = OAuthStage::set_with(|_| {}, |config| config.callers = bob_with("k-bob")).await;
    for token in [None, Some("k-bob"), Some("")] {
        let (status, _) = sign_out(&stage.gateway, "server=s&caller=bob", token).await;
        assert_eq!(status, 401, "{token:?}");
    }
}

#[tokio::test]
async fn a_secret_in_a_servers_url_is_shown_to_nobody() {
    let server = Protected::alone().await;
    for flow in [Flow::Drive, Flow::ClientDriven] {
        let gateway = asking::gateway(&server, flow, |config| {
            for configured in config.servers.values_mut() {
                let url = format!("{}?key=s3cret", server.url());
                let oauth = configured.oauth.take();
                *configured = Server::from_url(&url).unwrap();
                configured.oauth = oauth;
            }
        })
        .await;
        let client = session(&gateway, &json!({})).await;
        let mut events = stream(&client, &call(1)).await;
        let asked = question(&mut events).await;
        assert_eq!(asked["params"]["_meta"]["bowline/server_url"], server.url());
        assert!(!asked.to_string().contains("s3cret"), "{asked}");
    }
}

#[tokio::test]
async fn nor_to_the_authorization_server_and_whoever_lists_sign_ins() {
    let directory = tempfile::tempdir().unwrap();
    let stage = OAuthStage::set_with(
        |_| {},
        |config| {
            over(config, directory.path());
            for configured in config.servers.values_mut() {
                let url = format!("{}?key=s3cret", configured.target.urls()[0]);
                let oauth = configured.oauth.take();
                *configured = Server::from_url(&url).unwrap();
                configured.oauth = oauth;
            }
        },
    )
    .await;
    let url = format!("{}/mcp", stage.words.lock().server);
    let client = stage.client(None).await;
    let mut browser = Browser::new();
    let opened = browser.open(&stage.link(&client).await).await;
    assert_eq!(query(opened.authorize_url.as_str(), "resource"), url);
    let page = stage.come_back(&browser, &opened.state, "code").await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert_eq!(token_of(&client).await, "token-code");
    let asked_for = stage.authority().seen_at("/token").pop().unwrap().body;
    let mut form = url::form_urlencoded::parse(asked_for.as_bytes());
    assert!(form.any(|(name, value)| name == "resource" && value == url));
    let told = format!("{} {:?}", opened.authorize_url, stage.authority().seen());
    assert!(!told.contains("s3cret"), "{told}");
    // The server itself is asked with it.
    let asked = stage.server.seen_at("/mcp");
    assert!(asked.iter().all(|seen| seen.target.contains("s3cret")));
    let mut config = crate::kit::gateway::config(&[]);
    over(&mut config, directory.path());
    let listed = GrantManager::open(&config)
        .await
        .unwrap()
        .all()
        .await
        .unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].server_url, url);
}

#[tokio::test]
async fn the_first_server_with_sign_ins_may_come_with_a_reload() {
    let directory = tempfile::tempdir().unwrap();
    let stage = OAuthStage::set_with(
        |_| {},
        |config| {
            over(config, directory.path());
            for server in config.servers.values_mut() {
                server.oauth = None;
            }
        },
    )
    .await;
    reload(&stage, BTreeMap::new(), Some(directory.path()));
    let mut client = Client::new(&stage.gateway);
    assert_eq!(client.initialize().await.status, 200);
    stage.sign_in(&client, "code").await;
    assert_eq!(token_of(&client).await, "token-code");
    let mut config = crate::kit::gateway::config(&[]);
    over(&mut config, directory.path());
    let desk = GrantManager::open(&config).await.unwrap();
    assert_eq!(desk.all().await.unwrap().len(), 1);
}
