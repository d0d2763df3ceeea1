//! Several gateways on one store: the stream is at one of them, and a message may reach any.

use serde_json::json;

use super::conversations::begin;
use crate::kit::across::Across;
use crate::kit::client::sent;
use crate::kit::messages::{call, list};
use crate::kit::sse::{REVISION, Sse};
use crate::kit::wait::until_so;

#[tokio::test]
async fn a_message_at_another_gateway_is_told_where_the_stream_is_while_it_is_there() {
    let mut across = Across::start(2).await;
    let mut client = Sse::open(&across.gateways[0]).await;
    let _listening = begin(&mut across.server, &mut client, REVISION, "u1").await;
    let mut elsewhere = client.endpoint.clone();
    let other = across.gateways[1].listen().tcp().unwrap();
    elsewhere.set_port(Some(other.port())).unwrap();
    let refused = sent(client.post_to(elsewhere.clone(), list(1).to_string())).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert_eq!(
        refused.json()["error"]["data"]["reason"],
        "stream_elsewhere"
    );
    assert!(refused.text.contains("same gateway"), "{}", refused.text);
    assert!(refused.headers.contains_key("retry-after"));
    // Nothing was sent, and the stream goes on where it is.
    client.say(&call(2)).await;
    let asked = across.server.next().await;
    assert_eq!(asked.json()["id"], 2);
    asked.result(&json!({}));
    client.answer_to(&json!(2)).await;
    // A token that is no token is unknown everywhere.
    let changed = format!("{}x", elsewhere.as_str()).parse().unwrap();
    let unknown = sent(client.post_to(changed, list(1).to_string())).await;
    assert_eq!(unknown.status, 404);
    let first = across.gateways.remove(0);
    let late = client.post_to(elsewhere, list(1).to_string());
    let (_, end) = tokio::join!(first.stop(), async {
        let end = across.server.next().await;
        assert_eq!(end.method, "DELETE");
        end.reply(200, &[], "");
    });
    let () = end;
    until_so("its gateway is gone", async || {
        sent(late.try_clone().unwrap()).await.status == 404
    })
    .await;
}
