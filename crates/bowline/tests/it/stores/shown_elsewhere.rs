//! What a caller was shown of a server's tools holds at every gateway: one that carried no listing
//! repeats what may run twice, and none repeats what a later listing took back.

use bowline::Gateway;
use bowline_testbed::scripted::Asked;
use serde_json::json;

use crate::kit::across::Across;
use crate::kit::client::{Answer, Client};
use crate::kit::messages::{call, list};
use crate::kit::opened::{self, tools};
use crate::kit::stores::{in_file, keys, raw};

/// Lists the tools at a gateway.
async fn listed(across: &mut Across, client: &Client, gateway: usize, read_only: bool) {
    let at = across.at(client, gateway);
    let message = list("tools");
    let listed = at.send(&message);
    tokio::pin!(listed);
    loop {
        tokio::select! {
            answer = &mut listed => return assert_eq!(answer.status, 200),
            asked = across.server.next() => asked.result(&tools(read_only)),
        }
    }
}

/// Calls the tool at a gateway while the server breaks the connection under the first attempt. The
/// answer, and whether the call went again.
async fn broken_call(across: &mut Across, client: &Client, gateway: usize) -> (Answer, bool) {
    let at = across.at(client, gateway);
    let (answer, runs) = opened::broken_call(&mut across.server, &at).await;
    (answer, runs > 1)
}

/// Breaks calls at a gateway until that has this outcome: what is learnt is shared behind an answer.
async fn until_repeats(across: &mut Across, client: &Client, gateway: usize, wanted: bool) {
    for _ in 0..100 {
        let (answer, is_repeated) = broken_call(across, client, gateway).await;
        match is_repeated {
            true => assert_eq!(answer.status, 200, "{answer:?}"),
            false => assert_eq!(answer.code(), -31001, "{answer:?}"),
        }
        if is_repeated == wanted {
            return;
        }
    }
    panic!("never {wanted}");
}

#[tokio::test]
async fn a_gateway_without_a_listing_repeats_what_another_has_shown() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    let (answer, is_repeated) = broken_call(&mut across, &client, 1).await;
    assert_eq!((answer.code(), is_repeated), (-31001, false));
    listed(&mut across, &client, 0, true).await;
    until_repeats(&mut across, &client, 1, true).await;
    // Also in another session of this caller's, and at a gateway that comes late.
    let other = Client::open(&across.gateways[1], &mut across.server, "u1").await;
    until_repeats(&mut across, &other, 0, true).await;
    let config = across.config(crate::kit::stores::in_redis(&across.redis));
    across.gateways.push(Gateway::start(config).await.unwrap());
    let (answer, is_repeated) = broken_call(&mut across, &client, 2).await;
    assert_eq!((answer.status.as_u16(), is_repeated), (200, true));
}

#[tokio::test]
async fn what_a_later_listing_takes_back_is_repeated_nowhere() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    for gateway in [0, 1] {
        listed(&mut across, &client, gateway, true).await;
        until_repeats(&mut across, &client, 1 - gateway, true).await;
    }
    listed(&mut across, &client, 0, false).await;
    until_repeats(&mut across, &client, 0, false).await;
    until_repeats(&mut across, &client, 1, false).await;
    // And so is nothing that the server says has changed.
    listed(&mut across, &client, 1, true).await;
    until_repeats(&mut across, &client, 0, true).await;
    let (mut events, mut pen) = client.open_stream(&mut across.server, client.get()).await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n");
    events.next_message().await;
    until_repeats(&mut across, &client, 1, false).await;
}

#[tokio::test]
async fn listings_that_teach_nothing_write_nothing_and_no_caller_learns_from_another() {
    let mut across = Across::start_with(2, |config| {
        for key in ["one", "two"] {
            let caller = bowline::config::Caller {
                key: bowline::config::KeyHash::of(key_of(key).as_bytes()),
            };
            config.callers.insert(key.parse().unwrap(), caller);
        }
    })
    .await;
    let mut clients = Vec::new();
    for caller in ["one", "two"] {
        let client = Client::new(&across.gateways[0]).with_key(key_of(caller));
        clients.push(client.opened(&mut across.server, "u1").await);
    }
    listed(&mut across, &clients[0], 0, true).await;
    until_repeats(&mut across, &clients[0], 1, true).await;
    let (answer, is_repeated) = broken_call(&mut across, &clients[1], 1).await;
    assert_eq!((answer.code(), is_repeated), (-31001, false));
    let mut connection = raw(&across.redis).await;
    let all = keys(&mut connection).await;
    let shown: Vec<_> = all.iter().filter(|key| key.contains("tools")).collect();
    assert_eq!(shown.len(), 1, "{all:?}");
    for gateway in [0, 1] {
        listed(&mut across, &clients[0], gateway, true).await;
    }
    until_repeats(&mut across, &clients[0], 1, true).await;
    let version: u64 = crate::kit::stores::command(&["HGET", shown[0], "v"])
        .query_async(&mut connection)
        .await
        .unwrap();
    assert_eq!(version, 1);
}

fn key_of(caller: &str) -> &'static str {
    match caller {
        "one" => "the-key-of-caller-one-0123456789abcdef",
        _ => "the-key-of-caller-two-0123456789abcdef",
    }
}

#[tokio::test]
async fn what_was_shown_outlives_a_gateway_with_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = bowline_testbed::scripted::Scripted::start().await;
    let start = |url: String| {
        let mut config = crate::kit::gateway::config(&[("s", &url)]);
        config.store = in_file(directory.path());
        Gateway::start(config)
    };
    let gateway = start(server.url().to_owned()).await.unwrap();
    let mut client = Client::open(&gateway, &mut server, "u1").await;
    let listing = |asked: Asked| asked.result(&tools(true));
    let message = list("tools");
    let listed = client.send_to(&mut server, &message, listing);
    assert_eq!(listed.await.status, 200);
    gateway.stop().await;
    let gateway = start(server.url().to_owned()).await.unwrap();
    client = client.moved_to(&gateway);
    let message = call(7);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        drop(server.next().await);
        server.next().await.result(&json!({}));
        server.next().await.result(&json!({}));
    });
    assert_eq!(answer.status, 200, "{answer:?}");
    server.finish();
}
