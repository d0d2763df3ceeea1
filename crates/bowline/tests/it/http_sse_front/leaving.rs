//! What it means that a stream ends.

use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::scripted::Scripted;
use serde_json::json;
use tokio::task::JoinSet;

use super::conversations::{begin, scripted};
use crate::kit::client::Client;
use crate::kit::gateway::{config, gateway};
use crate::kit::messages::{call, list, note};
use crate::kit::sse::{REVISION, Sse, opened};
use crate::kit::wait::{until, until_so};
use crate::kit::wired::initialize;

#[tokio::test]
async fn the_end_of_the_stream_ends_the_session_at_the_server() {
    let (gateway, mut server, client, _listening) = scripted(REVISION).await;
    let url = client.endpoint.to_string();
    drop(client);
    let end = server.next().await;
    let told = (end.method.as_str(), end.header("mcp-session-id"));
    assert_eq!(told, ("DELETE", "u1"));
    end.reply(200, &[], "");
    // The client's own URL leads nowhere then.
    let late = Client::at(url).send(&call(1)).await;
    assert_eq!((late.status.as_u16(), late.code()), (404, -32001));
    gateway.stop().await;
    server.finish();
}

#[tokio::test]
async fn what_was_sent_goes_on_and_the_session_ends_after_it() {
    let (_gateway, mut server, client, _listening) = scripted(REVISION).await;
    client.say(&call(1)).await;
    let asked = server.next().await;
    drop(client);
    // The call is still wanted, and nothing else comes before it is done.
    let (mut asked, early) = (Some(asked), Duration::from_millis(300));
    let end = match tokio::time::timeout(early, server.next()).await {
        Err(_) => {
            asked.take().unwrap().result(&json!({"content": []}));
            server.next().await
        }
        Ok(early) => panic!("{early:?}"),
    };
    assert_eq!(end.method, "DELETE");
    end.reply(200, &[], "");
    server.finish();
}

#[tokio::test]
async fn nothing_new_is_sent_for_a_client_that_left() {
    let tally = Tally::default();
    let server = Counting::start("r", &tally).await.unwrap();
    let gateway = gateway(&server.url()).await;
    let mut client = Sse::open(&gateway).await;
    client.begin().await;
    server.die().await;
    let bump = crate::kit::wired::call_of("k", "bump", &json!({"key": "k"}));
    client.say(&bump).await;
    let url = client.endpoint.to_string();
    drop(client);
    until_so("the gateway noticed", async || {
        Client::at(url.clone()).send(&list(1)).await.status == 404
    })
    .await;
    server.come_back().unwrap();
    gateway.stop().await;
    assert_eq!(tally.executions("k"), 0);
}

#[tokio::test]
async fn one_that_leaves_during_initialize_leaves_nothing_behind() {
    let server = Counting::start("r", &Tally::default()).await.unwrap();
    let gateway = gateway(&server.url()).await;
    for _ in 0..10 {
        let client = Sse::open(&gateway).await;
        client.say(&initialize(REVISION, &json!({}))).await;
        drop(client);
    }
    until("every session that began has ended", || {
        server.initializes() == server.deletes()
    })
    .await;
    gateway.stop().await;
    assert_eq!(server.initializes(), server.deletes());
    assert!(server.sessions().is_empty());
}

#[tokio::test]
async fn a_second_stream_is_another_session() {
    let (gateway, mut server, one, _listening) = scripted(REVISION).await;
    let mut other = Sse::open(&gateway).await;
    assert_ne!(one.endpoint, other.endpoint);
    let _listening = begin(&mut server, &mut other, REVISION, "u2").await;
    drop(other);
    let end = server.next().await;
    assert_eq!(end.header("mcp-session-id"), "u2");
    end.reply(200, &[], "");
    one.say(&call(1)).await;
    assert_eq!(server.next().await.header("mcp-session-id"), "u1");
}

#[tokio::test]
async fn a_stop_lets_calls_finish_and_ends_streams_cleanly() {
    let (gateway, mut server, mut client, listening) = scripted(REVISION).await;
    let mut pen = listening.events();
    let ask = json!({"jsonrpc": "2.0", "id": 1, "method": "roots/list"});
    client.say(&call(1)).await;
    let mut asked = server.next().await.events();
    pen.write(format!("data: {}\n\n", note("notifications/x")));
    client.hear_of("notifications/x").await;
    let stopping = JoinSet::from_iter([gateway.stop()]);
    // Its server's stream ends at once; what was asked is still answered, with the client's help.
    pen.closed().await;
    asked.write(format!("data: {ask}\n\n"));
    let question = client.hear_of("roots/list").await;
    client
        .say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {}}))
        .await;
    let told = server.next().await;
    assert_eq!(told.json()["id"], 1);
    told.reply(202, &[], "");
    let done = json!({"jsonrpc": "2.0", "id": 1, "result": {"done": true}});
    asked.write(format!("data: {done}\n\n"));
    drop(asked);
    let last = client.ended().await;
    assert_eq!(last, [done]);
    let end = server.next().await;
    assert_eq!(end.method, "DELETE");
    end.reply(200, &[], "");
    stopping.join_all().await;
}

#[tokio::test]
async fn a_gateway_that_stops_takes_no_new_streams_and_no_new_requests() {
    let (gateway, mut server, client, listening) = scripted(REVISION).await;
    let pen = listening.events();
    client.say(&call(1)).await;
    let asked = server.next().await;
    // Connections that are open already: new ones are not accepted.
    let at = Client::at(format!("http://{}/sse/s", gateway.listen()));
    assert_eq!(crate::kit::client::sent(at.delete()).await.status, 405);
    let stopping = JoinSet::from_iter([gateway.stop()]);
    pen.closed().await;
    let refused = [
        client.send(&call(2)).await,
        crate::kit::client::sent(at.get()).await,
    ];
    for refused in refused {
        assert_eq!(refused.status, 503, "{}", refused.text);
        assert!(refused.headers.contains_key("retry-after"));
    }
    asked.result(&json!({}));
    assert_eq!(client.ended().await.len(), 1);
    let end = server.next().await;
    assert_eq!(end.method, "DELETE");
    end.reply(200, &[], "");
    stopping.join_all().await;
}

#[tokio::test]
async fn a_stream_without_initialize_ends() {
    let server = Scripted::start().await;
    let gateway = Gateway::start(config(&[("s", server.url())]))
        .await
        .unwrap();
    let (_, mut events, _) = opened(&gateway, "/sse/s", None).await;
    let waited = tokio::time::timeout(Duration::from_secs(40), async {
        loop {
            // A heartbeat, and then the end.
            match events.response.chunk().await.unwrap() {
                Some(chunk) => assert_eq!(&chunk[..], b": keep-alive\n\n"),
                None => return,
            }
        }
    });
    waited.await.expect("an end in time");
    server.finish();
}
