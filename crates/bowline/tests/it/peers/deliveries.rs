//! The stream of an HTTP+SSE client is at one gateway, and its messages reach any.

use std::time::Duration;

use bowline::Gateway;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::failures::free_port;
use super::fleet::{Fleet, calling};
use crate::kit::cable::Cable;
use crate::kit::client::{Answer, sent};
use crate::kit::gateway::only;
use crate::kit::messages::{list, ready};
use crate::kit::programs::until_gone;
use crate::kit::sse::{REVISION, Sse};
use crate::kit::wait::until_so;
use crate::kit::wired::initialize;

/// Sends a message of this client to another gateway.
async fn at(client: &Sse, gateway: &Gateway, message: &Value) -> Answer {
    let mut url = client.endpoint.clone();
    let port = gateway.listen().tcp().unwrap().port();
    url.set_port(Some(port)).unwrap();
    sent(client.post_to(url, message.to_string())).await
}

/// The same, and it is accepted.
async fn accepted_at(client: &Sse, gateway: &Gateway, message: &Value) {
    let answer = at(client, gateway, message).await;
    assert_eq!(
        (answer.status.as_u16(), &*answer.text),
        (202, ""),
        "{message}"
    );
}

#[tokio::test]
async fn messages_at_any_gateway_are_answered_on_the_one_stream() {
    let Some(fleet) = Fleet::start(3).await else {
        return;
    };
    let gateways = &fleet.gateways;
    let mut client = Sse::open(&gateways[0]).await;
    let mut other = Sse::open(&gateways[1]).await;
    accepted_at(&client, &gateways[1], &initialize(REVISION, &json!({}))).await;
    let opened = client
        .answer_to(&initialize(REVISION, &json!({}))["id"])
        .await;
    assert!(opened["result"]["serverInfo"].is_object(), "{opened}");
    accepted_at(&client, &gateways[2], &ready()).await;
    other.begin().await;
    for (id, gateway) in [(1, 2), (2, 0), (3, 1), (4, 2)] {
        let bump = calling(id, "bump", &json!({"key": id.to_string()}));
        accepted_at(&client, &gateways[gateway], &bump).await;
        let answer = client.answer_to(&json!(id)).await;
        assert!(answer["result"].is_object(), "{answer}");
        assert_eq!(fleet.tally.count(&format!("bump {id}")), 1);
    }
    // Nobody else hears of it.
    let echo = calling("own", "echo", &json!({"text": "mine"}));
    accepted_at(&other, &gateways[2], &echo).await;
    let answer = other.answer_to(&json!("own")).await;
    assert_eq!(answer["result"]["content"][0]["text"], "mine");
    // One process for each stream.
    assert_eq!(fleet.tally.starts(), 2);
    // What is wrong with a message is said where it is posted.
    let mut url = client.endpoint.clone();
    let port = gateways[1].listen().tcp().unwrap().port();
    url.set_port(Some(port)).unwrap();
    assert_eq!(sent(client.post_to(url, "{")).await.status, 400);
}

#[tokio::test]
async fn a_stream_whose_gateway_is_gone_is_unknown_and_one_that_cannot_be_reached_is_not() {
    let Some(mut fleet) = Fleet::start_with(2, |number, config| {
        // Nothing listens there: the others cannot reach it.
        if number == 0
            && let Some(peers) = &mut config.peers
        {
            peers.advertise = Some("127.0.0.1:1".parse().unwrap());
        }
    })
    .await
    else {
        return;
    };
    let mut client = Sse::open(&fleet.gateways[0]).await;
    client.begin().await;
    let pid = client
        .ask(&calling(1, "peek", &json!({"key": "pid"})))
        .await;
    let pid = pid["result"]["content"][0]["text"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let refused = at(&client, &fleet.gateways[1], &list(2)).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert_eq!(
        refused.json()["error"]["data"]["reason"],
        "owner_unreachable"
    );
    // The stream goes on where it is.
    client.ask(&list(3)).await;
    let first = fleet.gateways.remove(0);
    first.stop().await;
    until_gone(pid).await;
    until_so("the stream is unknown", async || {
        at(&client, &fleet.gateways[0], &list(4)).await.status == 404
    })
    .await;
}

#[tokio::test]
async fn a_message_for_a_stream_elsewhere_waits_no_longer_than_a_call_may() {
    let owner = free_port();
    let cable = Cable::to(owner).await;
    let advertised = cable.address.to_string();
    let Some(fleet) = Fleet::start_with(2, |number, config| {
        only(config).call_timeout = Some(Duration::from_secs(1));
        if number == 0 {
            let peers = config.peers.as_mut().unwrap();
            peers.listen = owner;
            peers.advertise = Some(advertised.clone());
        }
    })
    .await
    else {
        return;
    };
    let mut client = Sse::open(&fleet.gateways[0]).await;
    client.begin().await;
    accepted_at(&client, &fleet.gateways[1], &list(1)).await;
    client.answer_to(&json!(1)).await;
    cable.cut();
    let began = Instant::now();
    let refused = at(&client, &fleet.gateways[1], &list(2)).await;
    assert!(refused.status.is_server_error(), "{refused:?}");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
}
