//! Servers that want a sign-in: the client is asked on its stream, and its call waits there.

use bowline::config::Flow;
use bowline_testbed::leaks;
use serde_json::json;

use crate::kit::asking::{accept, gateway, text};
use crate::kit::messages::{VERSION, call};
use crate::kit::protected::Protected;
use crate::kit::sse::Sse;

#[tokio::test]
async fn a_call_waits_until_the_client_has_answered_the_prompt() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::ClientDriven, |_| {}).await;
    let mut client = Sse::open(&gateway).await;
    let capabilities = json!({"elicitation": {}});
    let opened = client.begin_with(VERSION, &capabilities).await;
    assert_eq!(opened["result"]["protocolVersion"], VERSION, "{opened}");
    client.say(&call(1)).await;
    let asked = client.hear_of("elicitation/create").await;
    leaks::note("access_token", "good-given");
    let content = accept(&json!({"access_token": "good-given"}));
    client
        .say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": content}))
        .await;
    let answer = client.answer_to(&json!(1)).await;
    assert_eq!(text(&answer), "good-given");
}
