//! A session over a server that the test plays.

use bowline::Gateway;
use bowline::config::Config;
use bowline_testbed::scripted::{Asked, Scripted, initialize_result};
use serde_json::{Value, json};

use super::client::Client;
use super::gateway::config;
use super::messages::list;
use crate::kit::client::Answer;
use crate::kit::messages::call;

/// The one revision that has batches.
pub(crate) const BATCHING: &str = "2025-03-26";

/// A gateway, the server behind it, and a client whose session is `u1` there.
pub(crate) async fn opened() -> (Gateway, Scripted, Client) {
    opened_with(|_| {}).await
}

/// The same with a configuration as the test wants it.
pub(crate) async fn opened_with(change: impl FnOnce(&mut Config)) -> (Gateway, Scripted, Client) {
    opened_as("u1", change).await
}

/// The same with an id of the test's choice.
pub(crate) async fn opened_as(
    upstream_id: &str,
    change: impl FnOnce(&mut Config),
) -> (Gateway, Scripted, Client) {
    let (gateway, mut server) = before(change).await;
    let client = Client::open(&gateway, &mut server, upstream_id).await;
    (gateway, server, client)
}

/// The same, and the client has said that it is ready.
pub(crate) async fn opened_ready(change: impl FnOnce(&mut Config)) -> (Gateway, Scripted, Client) {
    let (gateway, mut server, client) = opened_with(change).await;
    client.is_ready(&mut server).await;
    (gateway, server, client)
}

/// The same, and the client has been shown that the server's tool `t` only reads.
pub(crate) async fn opened_shown(change: impl FnOnce(&mut Config)) -> (Gateway, Scripted, Client) {
    let (gateway, mut server, client) = opened_with(change).await;
    server.lists(&tools(true));
    let list = list(1);
    let listed = client.send_to(&mut server, &list, |asked| asked.result(&tools(true)));
    assert_eq!(listed.await.status, 200);
    (gateway, server, client)
}

/// The same in another revision of the protocol, on which the server insists.
pub(crate) async fn opened_speaking(
    version: &str,
    change: impl FnOnce(&mut Config),
) -> (Gateway, Scripted, Client) {
    let (gateway, mut server) = before(change).await;
    let mut client = Client::new(&gateway);
    let (answer, ()) = tokio::join!(client.initialize(), async {
        let mut result = initialize_result();
        result["protocolVersion"] = version.into();
        let headers = [("mcp-session-id", "u1")];
        server.next().await.result_with(&headers, &result);
    });
    assert_eq!(answer.status, 200, "{}", answer.text);
    (gateway, server, client)
}

async fn before(change: impl FnOnce(&mut Config)) -> (Gateway, Scripted) {
    let server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    change(&mut config);
    (Gateway::start(config).await.unwrap(), server)
}

/// What a server answers that has forgotten the session.
pub(crate) fn forgot(asked: Asked) {
    asked.reply(404, &[("content-type", "text/plain")], "Session not found");
}

/// A listing of one tool, `t`, which only reads or does not.
pub(crate) fn tools(read_only: bool) -> Value {
    json!({"tools": [{"name": "t", "inputSchema": {}, "annotations": {"readOnlyHint": read_only}}]})
}

/// Calls `t` while the server breaks the connection under the first attempt, after it ran. The answer,
/// and how often it ran.
pub(crate) async fn broken_call(server: &mut Scripted, client: &Client) -> (Answer, usize) {
    let message = call(7);
    let sent = client.send(&message);
    tokio::pin!(sent);
    let mut runs = 0;
    loop {
        tokio::select! {
            answer = &mut sent => return (answer, runs),
            asked = server.next() => match asked.rpc_method().as_str() {
                // An earlier call's, perhaps.
                "ping" => asked.result(&json!({})),
                _ => {
                    runs += 1;
                    match runs {
                        1 => drop(asked),
                        _ => asked.result(&json!({})),
                    }
                }
            },
        }
    }
}
