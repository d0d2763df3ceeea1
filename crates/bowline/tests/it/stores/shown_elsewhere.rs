//! What may run twice is repeated by every gateway, also one that carried no listing: it lists the tools by itself.
//! None repeats what a later listing took back at another.

use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::scripted::{Asked, PATIENCE};
use serde_json::json;

use super::away::until_away;
use crate::kit::across::{Across, with_grace};
use crate::kit::client::{Answer, Client};
use crate::kit::gateway::{admin, health};
use crate::kit::messages::{call, list};
use crate::kit::opened::{self, tools};
use crate::kit::stores::{command, in_file, in_redis, keys, raw};
use crate::kit::wait::until_so;

/// Lists the tools at a gateway.
async fn listed(across: &mut Across, client: &Client, gateway: usize, read_only: bool) {
    let at = across.at(client, gateway);
    across.server.lists(&tools(read_only));
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
async fn a_gateway_without_a_listing_repeats_what_may_run_twice() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    across.server.lists(&tools(true));
    let (answer, is_repeated) = broken_call(&mut across, &client, 1).await;
    assert_eq!((answer.status.as_u16(), is_repeated), (200, true));
    // Also in another session of this caller's, and at a gateway that comes late.
    let other = Client::open(&across.gateways[1], &mut across.server, "u1").await;
    until_repeats(&mut across, &other, 0, true).await;
    let config = across.config(in_redis(&across.redis));
    across.gateways.push(Gateway::start(config).await.unwrap());
    until_repeats(&mut across, &client, 2, true).await;
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
    for gateway in [1, 0] {
        listed(&mut across, &client, gateway, true).await;
        until_repeats(&mut across, &client, gateway, true).await;
    }
    across.server.lists(&tools(false));
    let (mut events, mut pen) = client.open_stream(&mut across.server, client.get()).await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n");
    events.next_message().await;
    until_repeats(&mut across, &client, 1, false).await;
}

#[tokio::test]
async fn what_is_taken_back_while_redis_hangs_is_repeated_nowhere_once_it_is_back() {
    let mut across = Across::start_with(2, with_grace).await;
    let client = across.open().await;
    listed(&mut across, &client, 0, true).await;
    until_repeats(&mut across, &client, 1, true).await;
    let mut connection = raw(&across.redis).await;
    let before = hints_version(&mut connection).await;
    across.redis.pause().await.unwrap();
    until_away(&across.gateways[0]).await;
    let has_given_up = async |gateway: &Gateway| {
        let timeout = r#"bowline_store_operations_total{operation="load",outcome="timeout"}"#;
        admin(gateway, "/metrics").await.text.contains(timeout)
    };
    assert!(!has_given_up(&across.gateways[0]).await);
    listed(&mut across, &client, 0, false).await;
    // The attempt to write that follows a listing has failed, before it sent anything but a read.
    until_so("the attempt to write fails", async || {
        has_given_up(&across.gateways[0]).await
    })
    .await;
    let (answer, is_repeated) = broken_call(&mut across, &client, 0).await;
    assert_eq!((answer.code(), is_repeated), (-31001, false));
    across.redis.resume().await.unwrap();
    // Nobody lists again: the gateway itself writes what it owes.
    let writing = async {
        while hints_version(&mut connection).await == before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let written = tokio::time::timeout(PATIENCE, writing).await;
    assert!(written.is_ok(), "the hint was never taken back in Redis");
    // While a gateway cannot read Redis, what it saw itself counts.
    until_so("the second gateway reads Redis again", async || {
        health(&across.gateways[1]).await["store"]["status"] == "ok"
    })
    .await;
    let config = across.config(in_redis(&across.redis));
    across.gateways.push(Gateway::start(config).await.unwrap());
    for gateway in [1, 2] {
        let (answer, is_repeated) = broken_call(&mut across, &client, gateway).await;
        assert_eq!((answer.code(), is_repeated), (-31001, false), "{gateway}");
    }
}

/// The version of the one entry of tool hints in Redis.
async fn hints_version(connection: &mut redis::aio::MultiplexedConnection) -> u64 {
    let all = keys(connection).await;
    let hints: Vec<_> = all.iter().filter(|key| key.contains("tools")).collect();
    let [hints] = hints[..] else {
        panic!("not one entry: {all:?}");
    };
    let version = command(&["HGET", hints, "v"]);
    version.query_async(connection).await.unwrap()
}

#[tokio::test]
async fn listings_that_teach_nothing_write_nothing_and_no_caller_learns_from_another() {
    let mut across = Across::start_with(2, |config| {
        for key in ["one", "two"] {
            let caller = bowline::config::Caller::with_key(bowline::config::KeyHash::of(
                key_of(key).as_bytes(),
            ));
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
    across.server.lists(&tools(false));
    for _ in 0..2 {
        let (answer, is_repeated) = broken_call(&mut across, &clients[1], 1).await;
        assert_eq!((answer.code(), is_repeated), (-31001, false));
    }
    let mut connection = raw(&across.redis).await;
    assert_eq!(hints_version(&mut connection).await, 1);
    for gateway in [0, 1] {
        listed(&mut across, &clients[0], gateway, true).await;
    }
    until_repeats(&mut across, &clients[0], 1, true).await;
    assert_eq!(hints_version(&mut connection).await, 1);
}

fn key_of(caller: &str) -> &'static str {
    match caller {
        "one" => "the-key-of-caller-one-0123456789abcdef",
        _ => "the-key-of-caller-two-0123456789abcdef",
    }
}

#[tokio::test]
async fn a_gateway_that_starts_again_with_a_file_lists_again() {
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
    server.lists(&tools(true));
    let message = call(7);
    for _ in 0..2 {
        let answer = client.send_to(&mut server, &message, |asked| asked.result(&json!({})));
        assert_eq!(answer.await.status, 200);
        server.has_listed(1).await;
    }
    let (answer, runs) = opened::broken_call(&mut server, &client).await;
    assert_eq!((answer.status.as_u16(), runs), (200, 2), "{answer:?}");
}
