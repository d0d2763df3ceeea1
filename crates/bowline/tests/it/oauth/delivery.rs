//! Who may bring a sign-in's answer, and to which flow.

use aws_lc_rs::digest::{SHA256, digest};
use bowline::Gateway;
use bowline::config::{Flow, KeyHash};
use bowline_testbed::leaks;
use bowline_testbed::redis::Redis;
use serde_json::{Value, json};

use crate::kit::asking::{
    API_TOKEN, gateway, oauth, pass_on, question, reply, session, stream, text,
};
use crate::kit::browser::{Browser, come_back, set_out};
use crate::kit::client::{Answer, Client, sent};
use crate::kit::messages::call;
use crate::kit::protected::Protected;
use crate::kit::signing::{OAuthStage, token_of};
use crate::kit::stores::in_redis;
use crate::kit::wait::until;

/// The id of the flow with this state.
pub(super) fn flow_of(state: &str) -> String {
    let hash = digest(&SHA256, state.as_bytes());
    let bytes = hash.as_ref()[..16].iter();
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

pub(super) async fn visit(
    gateway: &Gateway,
    path: &str,
    headers: &[(&'static str, &str)],
) -> Answer {
    let url = format!("http://{}{path}", gateway.listen());
    let mut request = reqwest::Client::new().get(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    sent(request).await
}

fn state_of(question: &Value) -> &str {
    question["params"]["_meta"]["bowline/state"]
        .as_str()
        .unwrap()
}

pub(super) fn link_of(question: &Value) -> &str {
    question["params"]["url"].as_str().unwrap()
}

/// The tool that asks for another link.
fn sign_in() -> Value {
    let mut sign_in = call("again");
    sign_in["params"]["name"] = "sign_in".into();
    sign_in
}

/// The link in what the tool says.
async fn another_link(client: &Client) -> String {
    let told = client.send(&sign_in()).await.json();
    let words = text(&told).rsplit(' ').next().unwrap();
    leaks::note_url(words);
    words.to_owned()
}

// === With the API token alone ===

#[tokio::test]
async fn a_host_s_flow_is_answered_with_the_api_token_and_in_no_other_way() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Drive, |_| {}).await;
    let client = session(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    let state = state_of(&asked);
    let flow = flow_of(state);
    // The pages of managed sign-ins know nothing of it, whoever knows its id or its state.
    let start = format!("http://{}/oauth/start?flow={flow}", gateway.listen());
    assert_eq!(set_out(&start).await, Err(404));
    let page = visit(&gateway, &format!("/oauth/start?flow={flow}"), &[]).await;
    assert_eq!(page.status, 404);
    assert!(!page.text.contains(state), "{}", page.text);
    let cookie = format!("bowline-sign-in-{flow}=anything");
    for cookie in ["", &cookie] {
        assert_eq!(come_back(&gateway, state, cookie).await, 404);
    }
    // Its link has the state.
    let pending = "/api/mcp-oauth/pending";
    let wrong = [("authorization", "Bearer wrong")];
    for headers in [&[][..], &wrong] {
        let told = visit(&gateway, pending, headers).await;
        assert_eq!(told.status, 401);
        assert!(!told.text.contains(state), "{}", told.text);
    }
    let token = format!("Bearer {API_TOKEN}");
    let told = visit(&gateway, pending, &[("authorization", &token)]).await;
    assert!(told.text.contains(state), "{}", told.text);
    assert_eq!(server.token_requests().len(), 0);
    assert_eq!(pass_on(&gateway, state, "c").await, 200);
}

// === The kind of a flow ===

pub(super) async fn on(redis: &Redis, server: &Protected, flow: Flow) -> Gateway {
    gateway(server, flow, |config| config.store = in_redis(redis)).await
}

#[tokio::test]
async fn another_gateway_knows_whose_page_people_come_back_to() {
    let redis = Redis::start().await.unwrap();
    let server = Protected::alone().await;
    // Each is its own `public_url`.
    let one = on(&redis, &server, Flow::Managed).await;
    let other = on(&redis, &server, Flow::Managed).await;
    let client = session(&one, &json!({"url": {}})).await;
    let mut events = stream(&client, &call(1)).await;
    let link = link_of(&question(&mut events).await).to_owned();
    let beside = session(&other, &json!({"url": {}, "form": {}})).await;
    let mut others = stream(&beside, &call(1)).await;
    let asked = question(&mut others).await;
    assert_eq!(link_of(&asked), link);
    let (state, cookie) = set_out(&link).await.unwrap();
    assert!(!asked.to_string().contains(&state), "{asked}");
    // Only by the browser, at whichever of them.
    for gateway in [&one, &other] {
        assert_eq!(pass_on(gateway, &state, "c").await, 404);
        assert_eq!(come_back(gateway, &state, "").await, 404);
    }
    assert_eq!(server.token_requests().len(), 0);
    assert_eq!(come_back(&one, &state, &cookie).await, 200);
    for events in [&mut events, &mut others] {
        let (_, withdrawn) = events.next_message().await;
        assert_eq!(withdrawn["method"], "notifications/cancelled");
        assert_eq!(text(&events.next_message().await.1), "good-1");
    }
}

#[tokio::test]
async fn a_gateway_of_another_kind_replaces_a_flow_and_does_not_misread_it() {
    let redis = Redis::start().await.unwrap();
    let server = Protected::alone().await;
    let managed = on(&redis, &server, Flow::Managed).await;
    let driven = on(&redis, &server, Flow::Drive).await;
    let client = session(&managed, &json!({"url": {}})).await;
    let mut events = stream(&client, &call(1)).await;
    let link = link_of(&question(&mut events).await).to_owned();
    let (old, cookie) = set_out(&link).await.unwrap();
    // It is met here, too, and nobody but its browser answers it.
    assert_eq!(pass_on(&driven, &old, "c").await, 404);
    let host = session(&driven, &json!({})).await;
    let mut hosts = stream(&host, &call(1)).await;
    let asked = question(&mut hosts).await;
    assert_ne!(state_of(&asked), old);
    assert_eq!(come_back(&managed, &old, &cookie).await, 404);
    assert_eq!(pass_on(&managed, state_of(&asked), "c").await, 200);
    assert_eq!(server.token_requests().len(), 1);
}

#[tokio::test]
async fn a_flow_of_before_a_reload_is_not_taken_for_one_of_after_it() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Managed, |_| {}).await;
    let client = session(&gateway, &json!({"url": {}, "form": {}})).await;
    let mut events = stream(&client, &call(1)).await;
    let (old, cookie) = set_out(link_of(&question(&mut events).await))
        .await
        .unwrap();
    let mut config = crate::kit::gateway::config(&[("s", &server.url())]);
    config.api_token = Some(KeyHash::of(API_TOKEN.as_bytes()));
    for server in config.servers.values_mut() {
        server.oauth = Some(oauth(Flow::Drive));
    }
    gateway.reload(config).unwrap();
    assert_eq!(pass_on(&gateway, &old, "c").await, 404);
    let later = session(&gateway, &json!({})).await;
    let mut others = stream(&later, &call(2)).await;
    let asked = question(&mut others).await;
    assert_ne!(state_of(&asked), old);
    assert_eq!(come_back(&gateway, &old, &cookie).await, 404);
    assert_eq!(pass_on(&gateway, state_of(&asked), "c").await, 200);
}

// === One flow of a caller at a server ===

#[tokio::test]
async fn a_replaced_flow_signs_nobody_in_and_declines_nothing() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let mut attacker = Browser::new();
    let old = attacker.open(&stage.link(&client).await).await;
    let link = another_link(&client).await;
    let issuer = stage.words.lock().authority.clone();
    let no = [
        ("state", &*old.state),
        ("error", "access_denied"),
        ("iss", &*issuer),
    ];
    // Neither while the new one waits,
    assert_eq!(stage.callback(&attacker, &no).await.status, 404);
    let page = stage.come_back(&attacker, &old.state, "attacker").await;
    assert_eq!(page.status, 404);
    assert_eq!(stage.link(&client).await, link);
    let mut owner = Browser::new();
    let new = owner.open(&link).await;
    let page = stage.come_back(&owner, &new.state, "owner").await;
    assert_eq!(page.status, 200);
    // nor once that is done.
    let page = stage.come_back(&attacker, &old.state, "attacker").await;
    assert_eq!(page.status, 404);
    assert_eq!(stage.callback(&attacker, &no).await.status, 404);
    assert_eq!(token_of(&client).await, "token-owner");
    assert_eq!(stage.token_requests().len(), 1);
}

#[tokio::test]
async fn a_flow_that_a_step_up_replaced_is_dead_too() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "first").await;
    let wanting = |scope: &str| {
        let challenge = format!(r#"Bearer error="insufficient_scope", scope="{scope}""#);
        stage.words.lock().never_enough = Some(challenge);
    };
    wanting("write");
    let mut attacker = Browser::new();
    let old = attacker.open(&stage.link(&client).await).await;
    wanting("admin");
    let mut owner = Browser::new();
    let new = owner.open(&stage.link(&client).await).await;
    assert_ne!(new.state, old.state);
    let page = stage.come_back(&attacker, &old.state, "attacker").await;
    assert_eq!(page.status, 404);
    let page = stage.come_back(&owner, &new.state, "owner").await;
    assert_eq!(page.status, 200);
    stage.words.lock().never_enough = None;
    assert_eq!(token_of(&client).await, "token-owner");
    assert_eq!(stage.token_requests().len(), 2);
}

#[tokio::test]
async fn an_exchange_that_is_overtaken_by_another_link_brings_nothing() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Managed, |_| {}).await;
    let client = session(&gateway, &Value::Null).await;
    let told = client.send(&call(1)).await.json();
    let link = told["error"]["data"]["url"].as_str().unwrap();
    let (old, cookie) = set_out(link).await.unwrap();
    server.exchanges.close();
    let attacker = come_back(&gateway, &old, &cookie);
    let owner = async {
        until("the exchange", || server.exchanges.waiting() == 1).await;
        let link = another_link(&client).await;
        let (new, cookie) = set_out(&link).await.unwrap();
        let owner = come_back(&gateway, &new, &cookie);
        let both = async {
            until("both exchanges", || server.exchanges.waiting() == 2).await;
            server.exchanges.open();
        };
        tokio::join!(owner, both).0
    };
    let (attacker, owner) = tokio::join!(attacker, owner);
    assert_eq!((attacker, owner), (502, 200));
    // The owner's exchange was the second.
    assert_eq!(text(&client.send(&call(2)).await.json()), "good-2");
}

#[tokio::test]
async fn requests_wait_for_an_exchange_that_is_under_way() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Drive, |_| {}).await;
    let client = session(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    server.exchanges.close();
    let content = json!({"code": "the-code", "state": state_of(&asked)});
    let answer = json!({"action": "accept", "content": content});
    let answered = reply(&client, &asked, &answer);
    let meanwhile = async {
        until("the exchange", || server.exchanges.waiting() == 1).await;
        // The client was asked once, and is not asked for another sign-in.
        let mut later = stream(&client, &call(2)).await;
        server.exchanges.open();
        assert_eq!(text(&later.next_message().await.1), "good-1");
    };
    tokio::join!(answered, meanwhile);
    assert_eq!(text(&events.next_message().await.1), "good-1");
    assert_eq!(server.token_requests().len(), 1);
}
