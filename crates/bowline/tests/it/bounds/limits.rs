//! Limits answer 503 with Retry-After, and what was freed can be used again.

use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::scripted::Scripted;
use serde_json::json;

use crate::kit::client::{Client, sent};
use crate::kit::gateway::config;
use crate::kit::messages::{call, initialize_message};

#[tokio::test]
async fn sessions() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.limits.sessions = 2;
    let gateway = Gateway::start(config).await.unwrap();
    let first = Client::open(&gateway, &mut server, "1").await;
    Client::open(&gateway, &mut server, "2").await;
    let refused = Client::new(&gateway).initialize().await;
    assert_eq!((refused.status.as_u16(), refused.code()), (503, -31005));
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(refused.json()["id"], initialize_message()["id"]);
    first.delete().send().await.unwrap();
    assert_eq!(server.next().await.method, "DELETE");
    Client::open(&gateway, &mut server, "3").await;
    assert_eq!(Client::new(&gateway).initialize().await.status, 503);
    server.finish();
}

#[tokio::test]
async fn an_initialize_that_failed_takes_no_place() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.limits.sessions = 1;
    let gateway = Gateway::start(config).await.unwrap();
    for _ in 0..3 {
        let mut client = Client::new(&gateway);
        tokio::join!(client.initialize(), async {
            server.next().await.reply(500, &[], "");
        });
    }
    Client::open(&gateway, &mut server, "u").await;
    server.finish();
}

#[tokio::test]
async fn streams() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.limits.streams = 1;
    let gateway = Gateway::start(config).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u").await;
    let other = Client::open(&gateway, &mut server, "v").await;
    let (events, pen) = client.open_stream(&mut server, client.get()).await;
    for request in [other.get(), other.post(&call(1))] {
        let refused = sent(request).await;
        assert_eq!((refused.status.as_u16(), refused.code()), (503, -31005));
        assert!(refused.headers.contains_key("retry-after"));
    }
    drop(events);
    pen.closed().await;
    let answer = other
        .send_to(&mut server, &call(2), |asked| asked.result(&json!({})))
        .await;
    assert_eq!(answer.status, 200);
    server.finish();
}

#[tokio::test]
async fn what_goes_on_without_its_client_keeps_its_place_for_a_while() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.limits.streams = 1;
    let gateway = Gateway::start(config).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u").await;
    // Without event ids the stream is read to its end after its client left.
    let (events, mut pen) = client.open_stream(&mut server, client.post(&call(1))).await;
    drop(events);
    for id in 2..6 {
        assert_eq!(client.send(&call(id)).await.status, 503);
    }
    pen.write("data: {}\n\n");
    drop(pen);
    served_again(&client, &mut server).await;
    server.finish();
}

/// The server never ends what it was asked, and its clients have left.
#[tokio::test]
async fn what_goes_on_without_its_client_gives_way_in_time() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.limits.streams = 1;
    let settings = config.servers.values_mut().next().unwrap();
    settings.recovery.budget = Duration::from_secs(1);
    let gateway = Gateway::start(config).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u").await;
    let (events, pen) = client.open_stream(&mut server, client.post(&call(1))).await;
    drop(events);
    served_again(&client, &mut server).await;
    pen.closed().await;
    let unanswered = tokio::task::JoinSet::from_iter([client.post(&call(2)).send()]);
    let asked = server.next().await;
    drop(unanswered);
    served_again(&client, &mut server).await;
    asked.given_up().await;
    server.finish();
}

async fn served_again(client: &Client, server: &mut Scripted) {
    let next = async {
        let mut id = 10;
        while client.send(&call(id)).await.status == 503 {
            id += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::join!(next, async { server.next().await.result(&json!({})) });
}
