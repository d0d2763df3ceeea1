//! Servers of HTTP+SSE that want a sign-in: the refusal may come to the GET, or to a message.

use bowline::config::{Config, Flow, Transport};
use serde_json::{Value, json};

use crate::kit::asking::{accept, oauth, question, reply, session, stream, text};
use crate::kit::client::Client;
use crate::kit::gateway::only;
use crate::kit::messages::call;
use crate::kit::protected::Protected;
use crate::kit::sse_server::SsePlay;

/// People bring a token of this server.
pub(crate) fn signed(config: &mut Config) {
    only(config).transport = Transport::Sse;
    only(config).oauth = Some(oauth(Flow::ClientDriven));
}

/// The server wants this token, which is given by `authority`.
pub(crate) fn wants(
    server: &bowline_testbed::stdio::over_sse::OverSse,
    authority: &Protected,
    token: &str,
) {
    let mut words = authority.words.lock();
    words.resource["resource"] = json!(server.url());
    let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", words.server);
    server.behave(|manners| {
        manners.authorization = Some(format!("Bearer {token}"));
        manners.challenge = Some(format!(
            r#"Bearer error="invalid_token", resource_metadata="{metadata}""#
        ));
    });
}

/// Calls, is asked, and brings a token; the answer.
pub(crate) async fn call_with(client: &Client, request: &Value, token: &str) -> Value {
    let mut events = stream(client, request).await;
    let asked = question(&mut events).await;
    reply(client, &asked, &accept(&json!({"access_token": token}))).await;
    let (_, answer) = events.next_message().await;
    answer
}

/// A call of `bump`.
pub(crate) fn bump(id: u64, key: &str) -> Value {
    let mut request = call(id);
    request["params"] = json!({"name": "bump", "arguments": {"key": key}});
    request
}

#[tokio::test]
async fn a_refusal_of_the_stream_or_of_a_message_is_a_prompt() {
    let authority = Protected::alone().await;
    let play = SsePlay::start(signed).await;
    wants(&play.server, &authority, "good-first");
    let client = session(&play.gateway, &json!({})).await;
    assert_eq!(play.server.sessions(), 0, "the stream is refused");
    let answer = call_with(&client, &bump(1, "first"), "good-first").await;
    assert!(!text(&answer).is_empty(), "{answer}");
    // The stream stays, and messages are refused.
    wants(&play.server, &authority, "good-second");
    let answer = call_with(&client, &bump(2, "second"), "good-second").await;
    assert!(!text(&answer).is_empty(), "{answer}");
    for key in ["bump first", "bump second"] {
        assert_eq!(play.tally.count(key), 1, "{key}");
    }
}
