//! Who Bowline is where nobody registers it: asked of the caller, and believed once it has worked.

use bowline::config::Flow;
use serde_json::{Value, json};

use crate::kit::asking::{accept, gateway, question, reply, session, stream, text};
use crate::kit::browser::{browse, query};
use crate::kit::client::Client;
use crate::kit::events::Events;
use crate::kit::messages::call;
use crate::kit::protected::Protected;

async fn asked_for_client(client: &Client) -> (Events, Value) {
    let mut events = stream(client, &call(1)).await;
    let asked = question(&mut events).await;
    let params = &asked["params"];
    assert_eq!(params["_meta"]["bowline/type"], "oauth_client_credentials");
    assert_eq!(params["requestedSchema"]["required"], json!(["client_id"]));
    (events, asked)
}

#[tokio::test]
async fn it_is_asked_for_by_form_and_the_sign_in_goes_on() {
    let server = Protected::without_registration().await;
    let gateway = gateway(&server, Flow::Drive, |_| {}).await;
    let client = session(&gateway, &json!({})).await;
    let (mut events, asked) = asked_for_client(&client).await;
    assert!(!asked.to_string().contains("authorize_url"), "{asked}");
    let named = json!({"client_id": "named", "client_secret": "their-secret"});
    reply(&client, &asked, &accept(&named)).await;
    // On the same stream, for the same request.
    let next = question(&mut events).await;
    let meta = &next["params"]["_meta"];
    let authorize = meta["bowline/authorize_url"].as_str().unwrap();
    assert_eq!(query(authorize, "client_id"), "named");
    let code = accept(&json!({"code": "c", "state": meta["bowline/state"]}));
    reply(&client, &next, &code).await;
    assert_eq!(text(&events.next_message().await.1), "good-1");
    let requests = server.token_requests();
    assert_eq!(requests[0]["client_id"], "named");
    assert_eq!(requests[0]["client_secret"], "their-secret");
}

#[tokio::test]
async fn a_link_follows_for_a_client_that_opens_links() {
    let server = Protected::without_registration().await;
    let gateway = gateway(&server, Flow::Managed, |_| {}).await;
    let client = session(&gateway, &json!({"form": {}, "url": {}})).await;
    let (mut events, asked) = asked_for_client(&client).await;
    reply(&client, &asked, &accept(&json!({"client_id": "named"}))).await;
    let next = question(&mut events).await;
    reply(&client, &next, &json!({"action": "accept"})).await;
    let link = next["params"]["url"].as_str().unwrap();
    assert_eq!(browse(&gateway, link).await, 200);
    assert_eq!(text(&events.next_message().await.1), "good-1");
}

#[tokio::test]
async fn a_no_is_remembered_and_a_blank_is_no_id() {
    let server = Protected::without_registration().await;
    let gateway = gateway(&server, Flow::Drive, |_| {}).await;
    let client = session(&gateway, &json!({})).await;
    let (mut events, asked) = asked_for_client(&client).await;
    reply(&client, &asked, &accept(&json!({"client_id": "  "}))).await;
    let (_, refused) = events.next_message().await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("no client id was given"), "{message}");
    let (mut events, asked) = asked_for_client(&client).await;
    reply(&client, &asked, &json!({"action": "decline"})).await;
    let (_, refused) = events.next_message().await;
    assert_eq!(refused["error"]["code"], -31003);
    let later = client.send(&call(2)).await;
    assert!(later.text.contains("declined"), "{}", later.text);
    assert_eq!(server.token_requests().len(), 0);
}

#[tokio::test]
async fn a_client_without_forms_is_told_what_to_configure() {
    let server = Protected::without_registration().await;
    for flow in [Flow::Managed, Flow::Drive] {
        let gateway = gateway(&server, flow, |_| {}).await;
        for elicitation in [Value::Null, json!({"url": {}})] {
            let client = session(&gateway, &elicitation).await;
            let refused = client.send(&call(1)).await;
            assert_eq!(refused.code(), -31003);
            assert!(refused.text.contains("configure a client id"));
        }
    }
}
