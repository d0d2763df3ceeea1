//! A flow belongs to a caller and a wait to a request: what ends the one leaves the other alone, and
//! both end in time.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::Flow;
use serde_json::{Value, json};

use crate::kit::asking::{
    API_TOKEN, accept, gateway, pass_on, question, reply, session, stream, text,
};
use crate::kit::browser::{Browser, browse, come_back};
use crate::kit::client::{Client, sent};
use crate::kit::events::Events;
use crate::kit::gateway::with_admin;
use crate::kit::log::Log;
use crate::kit::messages::call;
use crate::kit::protected::Protected;
use crate::kit::wait::{until, until_so};

const SHORT: Duration = Duration::from_secs(1);

/// A gateway that holds requests for a short time, and a client that opens links.
async fn held(server: &Protected) -> (Gateway, Client) {
    let gateway = gateway(server, Flow::Managed, |config| config.oauth.hold = SHORT).await;
    let client = session(&gateway, &json!({"url": {}})).await;
    (gateway, client)
}

/// Waits until a held request is told to come back; the question, and what it is told.
async fn told_to_come_back(client: &Client) -> (Value, Value) {
    let mut events = stream(client, &call(1)).await;
    let asked = question(&mut events).await;
    reply(client, &asked, &json!({"action": "accept"})).await;
    let (_, told) = events.next_message().await;
    events.ends_cleanly().await;
    (asked["params"].clone(), told["error"].clone())
}

/// How many streams the gateway's only session has.
async fn open_streams(gateway: &Gateway) -> u64 {
    let url = format!("http://{}/api/sessions", gateway.admin().unwrap());
    let request = reqwest::Client::new().get(url).bearer_auth(API_TOKEN);
    let told = sent(request).await.json();
    told["sessions"][0]["streams"].as_u64().unwrap()
}

async fn hears_of_completion(listener: &mut Events, id: &Value) {
    loop {
        let (_, told) = listener.next_message().await;
        if told["method"] == "notifications/elicitation/complete" {
            assert_eq!(&told["params"]["elicitationId"], id);
            return;
        }
    }
}

#[tokio::test]
async fn a_request_is_held_for_a_while_and_its_client_hears_when_to_come_back() {
    let server = Protected::alone().await;
    let (gateway, client) = held(&server).await;
    let mut listener = Events::new(client.get().send().await.unwrap());
    let (asked, told) = told_to_come_back(&client).await;
    assert_eq!(told["code"], -32042);
    let elicitation = &told["data"]["elicitations"][0];
    for name in ["mode", "elicitationId", "url"] {
        assert_eq!(elicitation[name], asked[name], "{name}");
    }
    // A second one waits for the same flow, is not asked, and is told the same.
    let mut second = stream(&client, &call(2)).await;
    let (_, again) = second.next_message().await;
    assert_eq!(again["error"]["data"], told["data"]);
    let link = asked["url"].as_str().unwrap();
    assert_eq!(browse(&gateway, link).await, 200);
    hears_of_completion(&mut listener, &asked["elicitationId"]).await;
    assert_eq!(text(&client.send(&call(3)).await.json()), "good-1");
}

#[tokio::test]
async fn a_client_that_listens_later_hears_it_later() {
    let server = Protected::alone().await;
    let (gateway, client) = held(&server).await;
    let (asked, _) = told_to_come_back(&client).await;
    let link = asked["url"].as_str().unwrap();
    assert_eq!(browse(&gateway, link).await, 200);
    assert_eq!(text(&client.send(&call(2)).await.json()), "good-1");
    let mut listener = Events::new(client.get().send().await.unwrap());
    hears_of_completion(&mut listener, &asked["elicitationId"]).await;
}

#[tokio::test]
async fn a_form_that_takes_longer_than_the_hold_still_counts() {
    let server = Protected::alone().await;
    for (flow, has_link) in [(Flow::Drive, true), (Flow::ClientDriven, false)] {
        let gateway = gateway(&server, flow, |config| config.oauth.hold = SHORT).await;
        let client = session(&gateway, &json!({})).await;
        let mut events = stream(&client, &call(1)).await;
        let asked = question(&mut events).await;
        let (_, told) = events.next_message().await;
        assert_eq!(told["error"]["code"], -31003);
        assert_eq!(told["error"]["data"]["url"].is_string(), has_link, "{told}");
        let tokens = accept(&json!({"access_token": "good-late"}));
        reply(&client, &asked, &tokens).await;
        assert_eq!(text(&client.send(&call(2)).await.json()), "good-late");
    }
}

/// Nobody knows whose it is, so it ends nothing; but whoever waited in vain learns of it, and the log has it.
#[tokio::test]
async fn an_answer_with_a_wrong_state_is_named_and_ends_nothing() {
    for flow in [Flow::Drive, Flow::Managed] {
        let server = Protected::alone().await;
        let log = Log::default();
        let _kept = log.keep();
        let gateway = gateway(&server, flow, |config| config.oauth.hold = SHORT).await;
        let client = session(&gateway, &json!({"url": {}})).await;
        let mut events = stream(&client, &call(1)).await;
        let asked = question(&mut events).await;
        match flow {
            Flow::Drive => assert_eq!(pass_on(&gateway, "forged", "c").await, 404),
            _ => {
                let url = format!("http://{}/oauth/callback", gateway.listen());
                let page = Browser::new()
                    .get(&format!("{url}?state=forged&code=c"))
                    .await;
                assert_eq!(page.status, 404);
                assert!(page.text.contains("<code>state</code>"), "{}", page.text);
            }
        }
        assert_eq!(log.lines_with("no sign-in has its state").len(), 1);
        assert!(!log.contains("forged"));
        let (_, told) = events.next_message().await;
        let message = told["error"]["message"].as_str().unwrap();
        assert!(message.contains("wrong `state`"), "{message}");
        // It counts for those who waited then.
        let mut later = stream(&client, &call(2)).await;
        let (_, told) = later.next_message().await;
        let message = told["error"]["message"].as_str().unwrap();
        assert!(!message.contains("wrong `state`"), "{message}");
        match flow {
            Flow::Drive => {
                let state = asked["params"]["_meta"]["bowline/state"].as_str().unwrap();
                assert_eq!(pass_on(&gateway, state, "c").await, 200);
            }
            _ => {
                let link = asked["params"]["url"].as_str().unwrap();
                assert_eq!(browse(&gateway, link).await, 200);
            }
        }
        assert_eq!(text(&client.send(&call(3)).await.json()), "good-1");
    }
}

#[tokio::test]
async fn a_cancel_ends_the_wait_and_not_the_flow() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Drive, |_| {}).await;
    let client = session(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(7)).await;
    let asked = question(&mut events).await;
    let mut other = stream(&client, &call(8)).await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    assert_eq!(client.send(&cancel).await.status, 202);
    events.ends_cleanly().await;
    let state = asked["params"]["_meta"]["bowline/state"].as_str().unwrap();
    assert_eq!(pass_on(&gateway, state, "c").await, 200);
    assert_eq!(text(&other.next_message().await.1), "good-1");
    assert_eq!((server.tool_calls(), server.token_requests().len()), (1, 1));
    let next = session(&gateway, &json!({})).await;
    assert_eq!(text(&next.send(&call(1)).await.json()), "good-1");
}

#[tokio::test]
async fn a_client_that_leaves_takes_only_its_wait_along() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Drive, |config| {
        with_admin(config);
    })
    .await;
    let client = session(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    assert_eq!(open_streams(&gateway).await, 1);
    drop(events);
    drop(client);
    until_so("the wait to end", async || {
        open_streams(&gateway).await == 0
    })
    .await;
    let state = asked["params"]["_meta"]["bowline/state"].as_str().unwrap();
    assert_eq!(pass_on(&gateway, state, "c").await, 200);
    let next = session(&gateway, &json!({})).await;
    assert_eq!(text(&next.send(&call(1)).await.json()), "good-1");
    assert_eq!((server.tool_calls(), server.token_requests().len()), (1, 1));
}

#[tokio::test]
async fn a_question_that_went_with_its_request_is_asked_again() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::ClientDriven, |_| {}).await;
    let client = session(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(7)).await;
    let asked = question(&mut events).await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    assert_eq!(client.send(&cancel).await.status, 202);
    events.ends_cleanly().await;
    let mut events = stream(&client, &call(8)).await;
    let again = question(&mut events).await;
    assert_ne!(again["id"], asked["id"]);
    let tokens = accept(&json!({"access_token": "good-given"}));
    reply(&client, &again, &tokens).await;
    assert_eq!(text(&events.next_message().await.1), "good-given");
}

#[tokio::test]
async fn every_flow_ends_in_time() {
    for (flow, elicitation) in [
        (Flow::Managed, json!({"url": {}})),
        (Flow::Drive, json!({"form": {}})),
        (Flow::ClientDriven, json!({})),
    ] {
        let server = Protected::alone().await;
        let gateway = gateway(&server, flow, |config| {
            config.oauth.deadline = Duration::from_secs(1);
        })
        .await;
        let client = session(&gateway, &elicitation).await;
        let mut events = stream(&client, &call(1)).await;
        let asked = question(&mut events).await;
        let params = &asked["params"];
        let (_, withdrawn) = events.next_message().await;
        assert_eq!(withdrawn["method"], "notifications/cancelled", "{flow:?}");
        let (_, ended) = events.next_message().await;
        assert_eq!(ended["error"]["code"], -31003, "{flow:?}");
        let message = ended["error"]["message"].as_str().unwrap();
        assert!(message.contains("the sign-in expired"), "{message}");
        // Whatever comes now comes too late.
        match flow {
            Flow::Managed => {
                let link = params["url"].as_str().unwrap();
                assert_eq!(browse(&gateway, link).await, 404);
                assert_eq!(come_back(&gateway, "state", "a=b").await, 404);
            }
            Flow::Drive => {
                let state = params["_meta"]["bowline/state"].as_str().unwrap();
                let code = accept(&json!({"code": "c", "state": state}));
                reply(&client, &asked, &code).await;
                assert_eq!(pass_on(&gateway, state, "c").await, 404);
            }
            Flow::ClientDriven => {
                let tokens = accept(&json!({"access_token": "good-late"}));
                reply(&client, &asked, &tokens).await;
            }
        }
        assert_eq!((server.tool_calls(), server.token_requests().len()), (0, 0));
        // And the next request asks anew.
        let mut events = stream(&client, &call(2)).await;
        question(&mut events).await;
    }
}

#[tokio::test]
async fn a_browser_that_comes_back_too_late_exchanges_nothing() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Managed, |config| {
        config.oauth.deadline = Duration::from_secs(2);
    })
    .await;
    let client = session(&gateway, &json!({"url": {}})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    let link = asked["params"]["url"].as_str().unwrap();
    let (state, cookie) = crate::kit::browser::set_out(link).await.unwrap();
    while events.next_message().await.1["error"].is_null() {}
    assert_eq!(come_back(&gateway, &state, &cookie).await, 404);
    assert_eq!(server.token_requests().len(), 0);
}

#[tokio::test]
async fn a_stream_that_breaks_after_a_sign_in_is_rescued_like_any_other() {
    let server = Protected::alone().await;
    server.words.lock().is_streaming = true;
    let gateway = gateway(&server, Flow::Drive, |_| {}).await;
    let client = session(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    let state = asked["params"]["_meta"]["bowline/state"].as_str().unwrap();
    assert_eq!(pass_on(&gateway, state, "c").await, 200);
    until("the call to be sent", || server.open_streams() == 1).await;
    server.cut_streams();
    // It may have run, and may not run twice: the client hears so, and sees no cut.
    let told = loop {
        let (_, told) = events.next_message().await;
        // The question is taken back, and the server's comment passes.
        if told["id"] == 1 {
            break told;
        }
    };
    assert_eq!(
        (&told["id"], &told["error"]["code"]),
        (&json!(1), &json!(-31001))
    );
    events.ends_cleanly().await;
}
