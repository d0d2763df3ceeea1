//! docker-agent's clients, each as strict as it is: its terminal UI, and its remote clients, which sign in by themselves.

use bowline::Gateway;
use bowline::config::{Config, Flow, SignInHost};
use serde_json::{Value, json};

use crate::kit::asking::{accept, gateway, question, reply, session, stream, text};
use crate::kit::browser::browse;
use crate::kit::client::Client;
use crate::kit::events::Events;
use crate::kit::messages::call;
use crate::kit::protected::Protected;

/// What both declare.
fn elicitation() -> Value {
    json!({"form": {}, "url": {}})
}

/// A gateway for them before a server where people sign in by this flow.
async fn for_docker_agent(server: &Protected, flow: Flow) -> Gateway {
    let change = |config: &mut Config| {
        config.oauth.host = SignInHost::DockerAgent;
        config.oauth.meta_prefix = SignInHost::DockerAgent.meta_prefix().to_owned();
    };
    gateway(server, flow, change).await
}

/// A client with a request that waits for a sign-in, and the prompt.
async fn asked(gateway: &Gateway) -> (Client, Events, Value) {
    let client = session(gateway, &elicitation()).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    (client, events, asked)
}

/// The link that the terminal UI shows. A prompt of the type `oauth_flow` it takes for its own runtime's, which opens
/// the browser by itself; of any other it shows the URL, or the message.
fn shown_link(asked: &Value) -> Option<&str> {
    let params = &asked["params"];
    if params["_meta"]["docker-agent/type"] == "oauth_flow" {
        return None;
    }
    match params["mode"].as_str() {
        // The Go SDK refuses a URL elicitation with a schema.
        Some("url") if params.get("requestedSchema").is_none() => params["url"].as_str(),
        _ => None,
    }
}

/// What a remote client does: it declines a prompt that lacks what it reads, and otherwise registers, signs in, and
/// answers with tokens, without the client's id.
fn of_remote_client(asked: &Value) -> Value {
    let meta = &asked["params"]["_meta"];
    let metadata = &meta["auth_server_metadata"];
    let has = |url: &Value| url.as_str().is_some_and(|url| url.starts_with("http://"));
    let reads = [
        &meta["docker-agent/server_url"],
        &metadata["authorization_endpoint"],
        &metadata["token_endpoint"],
        &metadata["registration_endpoint"],
        &meta["resource_metadata"]["resource"],
    ];
    match reads.into_iter().all(has) {
        false => json!({"action": "decline"}),
        true => accept(&json!({
            "access_token": "good-theirs", "token_type": "Bearer", "expires_in": 3600, "refresh_token": "renews",
        })),
    }
}

#[tokio::test]
async fn its_terminal_ui_shows_the_link() {
    let server = Protected::alone().await;
    let gateway = for_docker_agent(&server, Flow::Managed).await;
    let (client, mut events, asked) = asked(&gateway).await;
    let link = shown_link(&asked).expect("a link");
    // Its user opens the link, and confirms.
    reply(&client, &asked, &json!({"action": "accept"})).await;
    assert_eq!(browse(&gateway, link).await, 200);
    assert_eq!(text(&events.next_message().await.1), "good-1");
}

#[tokio::test]
async fn its_remote_client_signs_in_by_itself() {
    for flow in [Flow::Managed, Flow::ClientDriven] {
        let server = Protected::alone().await;
        let gateway = for_docker_agent(&server, flow).await;
        let (client, mut events, asked) = asked(&gateway).await;
        reply(&client, &asked, &of_remote_client(&asked)).await;
        assert_eq!(text(&events.next_message().await.1), "good-theirs");
        assert_eq!(server.token_requests().len(), 0);
    }
}

#[tokio::test]
async fn its_hosts_get_the_keys_of_their_flow() {
    let server = Protected::alone().await;
    let gateway = for_docker_agent(&server, Flow::Drive).await;
    let (client, mut events, asked) = asked(&gateway).await;
    let meta = &asked["params"]["_meta"];
    assert_eq!(meta["docker-agent/type"], "oauth_flow");
    assert!(meta["docker-agent/authorize_url"].is_string());
    let code = json!({"code": "c", "state": meta["docker-agent/state"]});
    reply(&client, &asked, &accept(&code)).await;
    assert_eq!(text(&events.next_message().await.1), "good-1");
}

/// With the prefix alone neither of them could sign in.
#[tokio::test]
async fn other_hosts_get_the_prompts_of_the_specification() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Managed, |config| {
        config.oauth.meta_prefix = "docker-agent".to_owned();
    })
    .await;
    let (_, _, asked) = asked(&gateway).await;
    assert_eq!(shown_link(&asked), None);
    assert_eq!(of_remote_client(&asked)["action"], "decline");
}
