//! `POST /api/mcp-oauth/callback`: what it answers, and that only the right delivery does anything.

use bowline::Gateway;
use bowline::config::Flow;
use serde_json::{Value, json};

use crate::kit::asking::{API_TOKEN, gateway, pass_on, question, session, stream, text};
use crate::kit::browser::set_out;
use crate::kit::client::{Answer, Client, sent};
use crate::kit::events::Events;
use crate::kit::log::Log;
use crate::kit::messages::call;
use crate::kit::protected::Protected;

async fn post(gateway: &Gateway, query: &str, token: Option<&str>) -> Answer {
    let url = format!("http://{}/api/mcp-oauth/callback?{query}", gateway.listen());
    let mut request = reqwest::Client::new().post(url);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    sent(request).await
}

/// A client whose request waits for a sign-in, the rest of its answer, and the state.
async fn waiting(gateway: &Gateway) -> (Client, Events, String) {
    let client = session(gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    let state = asked["params"]["_meta"]["bowline/state"].as_str().unwrap();
    (client, events, state.to_owned())
}

/// The request's answer, after the question was taken back.
async fn answer(events: &mut Events) -> Value {
    assert_eq!(
        events.next_message().await.1["method"],
        "notifications/cancelled"
    );
    events.next_message().await.1
}

#[tokio::test]
async fn only_the_right_delivery_is_taken_and_only_once() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Drive, |_| {}).await;
    let (_client, mut events, state) = waiting(&gateway).await;
    let token = Some(API_TOKEN);
    let good = format!("state={state}&code=c");
    for (query, token, status) in [
        (good.as_str(), None, 401),
        (&good, Some("wrong"), 401),
        ("code=c", token, 400),
        ("state=&code=c", token, 400),
        (&format!("state={state}"), token, 400),
        (&format!("state={state}&state=x&code=c"), token, 400),
        ("state=unknown&code=c", token, 404),
        ("state=unknown&error=access_denied", token, 404),
        (&format!("{good}&iss=http://other.example"), token, 400),
    ] {
        let told = post(&gateway, query, token).await;
        assert_eq!(told.status, status, "{query}");
        assert!(!told.text.contains(&state));
    }
    assert_eq!(server.token_requests().len(), 0);
    let told = post(&gateway, &good, token).await;
    assert_eq!(
        (told.status.as_u16(), told.json()),
        (200, json!({"result": "signed_in"}))
    );
    assert_eq!(text(&answer(&mut events).await), "good-1");
    assert_eq!(post(&gateway, &good, token).await.status, 404);
    assert_eq!(server.token_requests().len(), 1);
}

#[tokio::test]
async fn of_several_deliveries_one_wins() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Drive, |_| {}).await;
    let (_client, mut events, state) = waiting(&gateway).await;
    let all = tokio::join!(
        pass_on(&gateway, &state, "c1"),
        pass_on(&gateway, &state, "c2"),
        pass_on(&gateway, &state, "c3"),
        pass_on(&gateway, &state, "c4"),
    );
    let mut all = [all.0, all.1, all.2, all.3];
    all.sort_unstable();
    assert_eq!(all, [200, 404, 404, 404]);
    assert_eq!(text(&answer(&mut events).await), "good-1");
    assert_eq!(server.token_requests().len(), 1);
}

#[tokio::test]
async fn a_no_of_the_authorization_server_is_remembered() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Drive, |_| {}).await;
    let (client, mut events, state) = waiting(&gateway).await;
    let log = Log::default();
    let _kept = log.keep();
    let query = format!("state={state}&error=access_denied&error_description=%3Cscript%3E");
    let told = post(&gateway, &query, Some(API_TOKEN)).await;
    assert_eq!(
        (told.status.as_u16(), told.json()),
        (200, json!({"result": "declined"}))
    );
    let refused = answer(&mut events).await;
    assert_eq!(refused["error"]["code"], -31003);
    let message = refused["error"]["message"].as_str().unwrap();
    let named = "declined (access_denied: \"<script>\")";
    assert!(message.contains(named), "{message}");
    // What anybody can have written is not.
    assert!(log.contains("access_denied") && !log.contains("script"));
    let later = client.send(&call(2)).await.json();
    assert_eq!(later["error"]["message"], message);
    assert_eq!(server.token_requests().len(), 0);
}

#[tokio::test]
async fn another_error_ends_the_flow_and_is_not_remembered() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Drive, |_| {}).await;
    let (client, mut events, state) = waiting(&gateway).await;
    let query = format!("state={state}&error=server_error");
    let told = post(&gateway, &query, Some(API_TOKEN)).await;
    assert_eq!(told.json(), json!({"result": "failed"}));
    let refused = answer(&mut events).await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("server_error"), "{message}");
    question(&mut stream(&client, &call(2)).await).await;
}

#[tokio::test]
async fn what_comes_back_to_our_own_page_is_not_taken_here() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Managed, |_| {}).await;
    let client = session(&gateway, &json!({"url": {}})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    let link = asked["params"]["url"].as_str().unwrap();
    let (state, cookie) = set_out(link).await.unwrap();
    assert_eq!(pass_on(&gateway, &state, "c").await, 404);
    assert_eq!(server.token_requests().len(), 0);
    assert_eq!(
        crate::kit::browser::come_back(&gateway, &state, &cookie).await,
        200
    );
}
