//! A program that runs its clients' dialogs itself: it learns a session's hash, and answers for it.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::{Config, Flow, Password, Peers, Server};
use bowline_testbed::redis::Redis;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::kit::asking::{API_TOKEN, gateway, initialize, question, session, stream, text};
use crate::kit::client::{Client, sent};
use crate::kit::messages::call;
use crate::kit::protected::Protected;
use crate::kit::stores::in_redis;
use crate::kit::wait::until_so;

/// A session whose client asked for its hash; the client, and the hash.
async fn known(gateway: &Gateway, elicitation: &Value) -> (Client, String) {
    let mut client = Client::new(gateway);
    let request = client
        .post(&initialize(elicitation))
        .header("bowline-session", "?");
    let opened = sent(request).await;
    let hash = opened.headers["bowline-session"]
        .to_str()
        .unwrap()
        .to_owned();
    client.session = opened.headers.get("mcp-session-id").cloned();
    (client, hash)
}

/// Answers for a session; the status and the body.
async fn answer(gateway: &Gateway, hash: &str, token: Option<&str>, body: &Value) -> (u16, Value) {
    let url = format!(
        "http://{}/api/sessions/{hash}/elicitation",
        gateway.listen()
    );
    let mut request = reqwest::Client::new().post(url).body(body.to_string());
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let answer = sent(request).await;
    (answer.status.as_u16(), answer.json())
}

/// The id of the elicitation that waits for an answer for this server.
async fn waiting(gateway: &Gateway, server: &str) -> Value {
    let pending = format!("http://{}/api/mcp-oauth/pending", gateway.listen());
    let pending = sent(reqwest::Client::new().get(pending).bearer_auth(API_TOKEN)).await;
    let pending = pending.json();
    let all = pending["pending"].as_array().unwrap();
    let found = all.iter().find(|one| one["server"] == server);
    found.unwrap_or_else(|| panic!("{pending}"))["elicitation_id"].clone()
}

#[tokio::test]
async fn the_hash_is_told_to_those_who_ask_and_the_id_is_not_in_it() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Drive, |_| {}).await;
    let (client, hash) = known(&gateway, &json!({})).await;
    assert_eq!(hash.len(), 16);
    assert!(!client.session.unwrap().to_str().unwrap().contains(&hash));
    for header in [None, Some("!"), Some("")] {
        let client = Client::new(&gateway);
        let mut request = client.post(&initialize(&json!({})));
        if let Some(value) = header {
            request = request.header("bowline-session", value);
        }
        let opened = sent(request).await;
        assert!(!opened.headers.contains_key("bowline-session"));
    }
}

#[tokio::test]
async fn a_question_is_answered_for_the_client() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Drive, |_| {}).await;
    let (client, hash) = known(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    let state = &asked["params"]["_meta"]["bowline/state"];
    let content = json!({"code": "c", "state": state});
    let body = json!({"action": "accept", "content": content});
    for wrong in [None, Some("wrong")] {
        assert_eq!(answer(&gateway, &hash, wrong, &body).await.0, 401);
    }
    let token = Some(API_TOKEN);
    assert_eq!(
        answer(&gateway, "0000000000000000", token, &body).await.0,
        404
    );
    let elsewhere = json!({"action": "accept", "elicitation_id": "0".repeat(32)});
    assert_eq!(answer(&gateway, &hash, token, &elsewhere).await.0, 404);
    for malformed in [json!({}), json!({"action": "maybe"}), json!([])] {
        assert_eq!(answer(&gateway, &hash, token, &malformed).await.0, 400);
    }
    let forged = json!({"action": "accept", "content": {"code": "c", "state": "forged"}});
    assert_eq!(answer(&gateway, &hash, token, &forged).await.0, 404);
    assert_eq!(server.token_requests().len(), 0);
    // The request learns at once that its answer was of no use.
    let (_, told) = events.next_message().await;
    let message = told["error"]["message"].as_str().unwrap();
    assert!(message.contains("wrong `state`"), "{message}");
    let mut events = stream(&client, &call(2)).await;
    question(&mut events).await;
    let told = answer(&gateway, &hash, token, &body).await;
    assert_eq!(told, (200, json!({"result": "signed_in"})));
    assert_eq!(text(&events.next_message().await.1), "good-1");
    assert_eq!(answer(&gateway, &hash, token, &body).await.0, 404);
}

#[tokio::test]
async fn a_session_is_named_by_its_id_too() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Drive, |_| {}).await;
    let client = session(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    let content = json!({"code": "c", "state": asked["params"]["_meta"]["bowline/state"]});
    let body = json!({"action": "accept", "content": content});
    let id = client.session.as_ref().unwrap().to_str().unwrap();
    for wrong in [None, Some("wrong")] {
        assert_eq!(answer(&gateway, id, wrong, &body).await.0, 401);
    }
    let token = Some(API_TOKEN);
    let other = "A".repeat(id.len());
    assert_eq!(answer(&gateway, &other, token, &body).await.0, 404);
    let told = answer(&gateway, id, token, &body).await;
    assert_eq!(told, (200, json!({"result": "signed_in"})));
    assert_eq!(text(&events.next_message().await.1), "good-1");
}

/// A client of several servers has one hash, and whichever of its servers asks is answered; one asks at a time.
#[tokio::test]
async fn the_questions_of_a_union_are_answered_by_its_hash_one_after_the_other() {
    let (one, other) = (Protected::alone().await, Protected::alone().await);
    let gateway = gateway(&one, Flow::Drive, |config| {
        let mut second = config.servers["s"].clone();
        second.target = Server::from_url(&other.url()).unwrap().target;
        config.servers.insert("t".parse().unwrap(), second);
    })
    .await;
    let mut client = Client::at(format!("http://{}/mcp", gateway.listen()));
    let request = client.post(&initialize(&json!({})));
    let opened = sent(request.header("bowline-session", "?")).await;
    let hash = opened.headers["bowline-session"].to_str().unwrap();
    client.session = opened.headers.get("mcp-session-id").cloned();
    let call_of = |id: u32, tool: &str| {
        let mut call = call(id);
        call["params"]["name"] = tool.into();
        call
    };
    let mut first = stream(&client, &call_of(1, "s__x")).await;
    let asked = question(&mut first).await;
    let own = client.clone();
    let mut second = JoinSet::new();
    second.spawn(async move {
        let mut events = stream(&own, &call_of(2, "t__x")).await;
        let asked = question(&mut events).await;
        (events, asked)
    });
    let accept = async |asked: &Value, server: &str| {
        let state = &asked["params"]["_meta"]["bowline/state"];
        json!({"action": "accept", "content": {"code": "c", "state": state},
            "elicitation_id": waiting(&gateway, server).await})
    };
    until_so("asked", async || !other.server.seen().is_empty()).await;
    assert!(second.try_join_next().is_none(), "one question at a time");
    let accepted = accept(&asked, "s").await;
    let told = answer(&gateway, hash, Some(API_TOKEN), &accepted).await;
    assert_eq!(told, (200, json!({"result": "signed_in"})));
    assert_eq!(text(&first.next_message().await.1), "good-1");
    drop(first);
    let (mut events, asked) = second.join_next().await.unwrap().unwrap();
    let accepted = accept(&asked, "t").await;
    let told = answer(&gateway, hash, Some(API_TOKEN), &accepted).await;
    assert_eq!(told, (200, json!({"result": "signed_in"})));
    assert_eq!(text(&events.next_message().await.1), "good-1");
}

/// Tokens for one server must not reach another, also if their answer comes late, or twice.
#[tokio::test]
async fn an_answer_that_names_no_elicitation_is_refused_where_there_are_several_servers() {
    let (one, other) = (Protected::alone().await, Protected::alone().await);
    let gateway = gateway(&one, Flow::ClientDriven, |config| {
        let mut second = config.servers["s"].clone();
        second.target = Server::from_url(&other.url()).unwrap().target;
        config.servers.insert("t".parse().unwrap(), second);
        config.oauth.hold = Duration::from_secs(1);
    })
    .await;
    let mut client = Client::at(format!("http://{}/mcp", gateway.listen()));
    let request = client.post(&initialize(&json!({})));
    let opened = sent(request.header("bowline-session", "?")).await;
    let hash = opened.headers["bowline-session"].to_str().unwrap();
    client.session = opened.headers.get("mcp-session-id").cloned();
    let ask = async |id: u32, tool: &str| {
        let mut call = call(id);
        call["params"]["name"] = tool.into();
        let mut events = stream(&client, &call).await;
        question(&mut events).await;
        // Its request waits no longer; its sign-in does.
        events.next_message().await;
    };
    ask(1, "s__x").await;
    let token = Some(API_TOKEN);
    let content = json!({"access_token": "good-of-s", "client_id": "c"});
    let mut body = json!({"action": "accept", "content": content});
    // Only one waits, and it could be another one a moment later.
    let (status, told) = answer(&gateway, hash, token, &body).await;
    assert_eq!(
        (status, &told["error"]["data"]["reason"]),
        (400, &json!("several_questions"))
    );
    let message = told["error"]["message"].as_str().unwrap();
    assert!(message.contains("`elicitation_id`"), "{message}");
    body["elicitation_id"] = waiting(&gateway, "s").await;
    let told = answer(&gateway, hash, token, &body).await;
    assert_eq!(told, (200, json!({"result": "signed_in"})));
    // The same again, because the host missed that, while another server asks.
    ask(2, "t__x").await;
    assert_eq!(answer(&gateway, hash, token, &body).await.0, 404);
    let mut decline = json!({"action": "decline"});
    assert_eq!(answer(&gateway, hash, token, &decline).await.0, 400);
    decline["elicitation_id"] = waiting(&gateway, "t").await;
    let told = answer(&gateway, hash, token, &decline).await;
    assert_eq!(told, (200, json!({"result": "declined"})));
}

#[tokio::test]
async fn a_no_is_passed_on_too() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::ClientDriven, |_| {}).await;
    let (client, hash) = known(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    question(&mut events).await;
    let told = answer(
        &gateway,
        &hash,
        Some(API_TOKEN),
        &json!({"action": "decline"}),
    )
    .await;
    assert_eq!(told, (200, json!({"result": "declined"})));
    assert_eq!(events.next_message().await.1["error"]["code"], -31003);
}

#[tokio::test]
async fn without_a_token_nobody_answers_for_anybody() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Drive, |config| config.api_token = None).await;
    let (client, hash) = known(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    question(&mut events).await;
    let decline = json!({"action": "decline"});
    for token in [None, Some(API_TOKEN)] {
        let (status, told) = answer(&gateway, &hash, token, &decline).await;
        assert_eq!(
            (status, &told["error"]["data"]["reason"]),
            (401, &json!("no_api_token"))
        );
    }
}

#[tokio::test]
async fn an_answer_for_one_session_is_none_for_another_caller() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Drive, |config| {
        for (name, key) in [("ann", "k-ann"), ("bob", "k-bob")] {
            let key = bowline::config::KeyHash::of(key.as_bytes());
            let caller = bowline::config::Caller::with_key(key);
            config.callers.insert(name.parse().unwrap(), caller);
        }
    })
    .await;
    let mut ann = Client::new(&gateway).with_key("k-ann");
    let opened = sent(ann.post(&initialize(&json!({})))).await;
    ann.session = opened.headers.get("mcp-session-id").cloned();
    let mut events = stream(&ann, &call(1)).await;
    let asked = question(&mut events).await;
    let state = asked["params"]["_meta"]["bowline/state"].as_str().unwrap();
    let mut bob = Client::new(&gateway).with_key("k-bob");
    let request = bob
        .post(&initialize(&json!({})))
        .header("bowline-session", "?");
    let opened = sent(request).await;
    let hash = opened.headers["bowline-session"]
        .to_str()
        .unwrap()
        .to_owned();
    bob.session = opened.headers.get("mcp-session-id").cloned();
    let mut others = stream(&bob, &call(1)).await;
    question(&mut others).await;
    let content = json!({"code": "c", "state": state});
    let body = json!({"action": "accept", "content": content});
    assert_eq!(answer(&gateway, &hash, Some(API_TOKEN), &body).await.0, 404);
    assert_eq!(server.token_requests().len(), 0);
}

/// With peers it need not know which gateway has the session.
#[tokio::test]
async fn a_question_is_answered_at_any_gateway_that_has_peers() {
    let Ok(redis) = Redis::start().await else {
        bowline_testbed::skip("no Redis");
        return;
    };
    let server = Protected::alone().await;
    let with_peers = |config: &mut Config| {
        config.store = in_redis(&redis);
        config.peers = Some(Peers {
            listen: "127.0.0.1:0".parse().unwrap(),
            advertise: None,
            secret: Password::Written("a secret of gateways, and of nobody else".to_owned()),
        });
    };
    let first = gateway(&server, Flow::Drive, with_peers).await;
    let second = gateway(&server, Flow::Drive, with_peers).await;
    let (client, hash) = known(&first, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    let state = &asked["params"]["_meta"]["bowline/state"];
    let body = json!({"action": "accept", "content": {"code": "c", "state": state}});
    let token = Some(API_TOKEN);
    // It has to have heard of the first one.
    until_so("the other gateway is known", async || {
        let other = json!({"action": "accept", "elicitation_id": "0".repeat(32)});
        let (status, told) = answer(&second, &hash, token, &other).await;
        assert_eq!(status, 404, "{told}");
        told["error"]["data"]["reason"] == "no_such_question"
    })
    .await;
    assert_eq!(answer(&second, &hash, Some("wrong"), &body).await.0, 401);
    let nobody = answer(&second, "0000000000000000", token, &body).await;
    assert_eq!(nobody.0, 404);
    assert_eq!(answer(&second, &hash, token, &json!({})).await.0, 400);
    let told = answer(&second, &hash, token, &body).await;
    assert_eq!(told, (200, json!({"result": "signed_in"})));
    assert_eq!(text(&events.next_message().await.1), "good-1");
}
