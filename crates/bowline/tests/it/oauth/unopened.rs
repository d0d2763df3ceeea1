//! A session that begins before anybody has signed in: what its client is told meanwhile, and what it
//! finds afterwards.

use bowline_testbed::scripted::initialize_result;
use serde_json::json;

use crate::kit::client::Client;
use crate::kit::signing::{OAuthStage, token_of};

#[tokio::test]
async fn a_client_is_told_what_the_server_last_said_to_this_caller() {
    let stage = OAuthStage::set().await;
    let mut client = Client::new(&stage.gateway);
    let told = client.initialize().await.json();
    assert_eq!(told["result"]["serverInfo"]["name"], "s", "{told}");
    stage.sign_in(&client, "one").await;
    assert_eq!(token_of(&client).await, "token-one");
    stage.words.lock().only_token = Some("token-two".to_owned());
    let mut next = Client::new(&stage.gateway);
    let told = next.initialize().await.json();
    assert_eq!(told["result"], initialize_result(), "{told}");
    stage.sign_in(&next, "two").await;
    assert_eq!(token_of(&next).await, "token-two");
}

#[tokio::test]
async fn lists_that_the_server_does_not_have_are_empty() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "one").await;
    let ask = |method: &str| json!({"jsonrpc": "2.0", "id": 7, "method": method});
    for (method, list) in [
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        let answer = client.send(&ask(method)).await.json();
        assert_eq!(
            answer,
            json!({"jsonrpc": "2.0", "id": 7, "result": {list: []}})
        );
    }
    client.send(&ask("tools/list")).await;
    let seen = stage.server.seen_at("/mcp");
    let lists: Vec<_> = seen
        .iter()
        .map(|seen| {
            seen.json()["method"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
        .filter(|method| method.ends_with("/list"))
        .collect();
    assert_eq!(lists, ["tools/list"]);
}

#[tokio::test]
async fn a_refusal_without_a_challenge_costs_nothing() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "one").await;
    assert_eq!(token_of(&client).await, "token-one");
    let challenge = std::mem::take(&mut stage.words.lock().challenge);
    stage.words.lock().only_token = Some("none".to_owned());
    let refused = client.send(&crate::kit::messages::call(1)).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (200, -31003));
    assert_eq!(stage.token_requests().len(), 1);
    // The server has come to its senses: the grant is still there.
    stage.words.lock().only_token = None;
    stage.words.lock().challenge = challenge;
    assert_eq!(token_of(&client).await, "token-one");
    assert_eq!(stage.token_requests().len(), 1);
}
