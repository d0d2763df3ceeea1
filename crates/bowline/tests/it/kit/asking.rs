//! Clients that can be asked to sign in, and those who answer for them.

use bowline::Gateway;
use bowline::config::{Config, Flow, KeyHash, ServerOAuth};
use bowline_testbed::leaks;
use serde_json::{Value, json};

use super::client::Client;
use super::events::Events;
use super::gateway::{config, only};
use super::messages::{initialize_message, ready};
use super::protected::Protected;

/// Where people come back to in drive-flow.
pub(crate) const REDIRECT: &str = "http://127.0.0.1:9/done";

pub(crate) const API_TOKEN: &str = "the-api-token";

/// How people sign in, by the flow's name: with nothing else configured.
pub(crate) fn oauth(flow: Flow) -> ServerOAuth {
    match flow {
        Flow::Drive => ServerOAuth::drive(REDIRECT.parse().unwrap()),
        flow => ServerOAuth {
            flow,
            ..ServerOAuth::default()
        },
    }
}

/// A gateway before a server where people sign in by this flow.
pub(crate) async fn gateway(
    server: &Protected,
    flow: Flow,
    change: impl FnOnce(&mut Config),
) -> Gateway {
    let mut config = config(&[("s", &server.url())]);
    config.api_token = Some(KeyHash::of(API_TOKEN.as_bytes()));
    only(&mut config).oauth = Some(oauth(flow));
    change(&mut config);
    Gateway::start(config).await.unwrap()
}

/// A session of a client that can be asked like this.
pub(crate) async fn session(gateway: &Gateway, elicitation: &Value) -> Client {
    let mut client = Client::new(gateway);
    let opened = client.send(&initialize(elicitation)).await;
    assert_eq!(opened.status, 200, "{}", opened.text);
    client.session = opened.headers.get("mcp-session-id").cloned();
    assert_eq!(client.send(&ready()).await.status, 202);
    client
}

/// An `initialize` of a client that can be asked like this, or not at all.
pub(crate) fn initialize(elicitation: &Value) -> Value {
    let mut message = initialize_message();
    if !elicitation.is_null() {
        message["params"]["capabilities"]["elicitation"] = elicitation.clone();
    }
    message
}

/// Sends a request whose answer streams.
pub(crate) async fn stream(client: &Client, message: &Value) -> Events {
    Events::new(client.post(message).send().await.unwrap())
}

/// The next message, which has to be a question.
pub(crate) async fn question(events: &mut Events) -> Value {
    let (_, question) = events.next_message().await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let params = &question["params"];
    let meta = &params["_meta"];
    for (kind, secret) in [
        ("flow", &params["elicitationId"]),
        ("state", &meta["bowline/state"]),
    ] {
        leaks::note(kind, secret.as_str().unwrap_or_default());
    }
    for url in [&params["url"], &meta["bowline/authorize_url"]] {
        leaks::note_url(url.as_str().unwrap_or_default());
    }
    question
}

/// Answers a question.
pub(crate) async fn reply(client: &Client, question: &Value, result: &Value) {
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
    for name in ["access_token", "refresh_token", "client_secret"] {
        leaks::note(name, result["content"][name].as_str().unwrap_or_default());
    }
    assert_eq!(client.send(&answer).await.status, 202);
}

pub(crate) fn accept(content: &Value) -> Value {
    json!({"action": "accept", "content": content})
}

/// The text of a tool's result.
pub(crate) fn text(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("not a result: {answer}"))
}

/// Passes an authorization server's answer on; the status.
pub(crate) async fn pass_on(gateway: &Gateway, state: &str, code: &str) -> u16 {
    let at = gateway.listen();
    let url = format!("http://{at}/api/mcp-oauth/callback?state={state}&code={code}");
    let sent = reqwest::Client::new()
        .post(url)
        .bearer_auth(API_TOKEN)
        .send();
    sent.await.unwrap().status().as_u16()
}
