//! How many connections there may be, and how many of strangers from one address.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::{Limits, ListenAddress};
use bowline_testbed::scripted::{PATIENCE, Scripted};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::kit::client::Client;
use crate::kit::gateway::{config, with_admin};
use crate::kit::messages::call;

async fn gateway(server: &Scripted, change: impl FnOnce(&mut Limits)) -> Gateway {
    let mut config = config(&[("s", server.url())]);
    with_admin(&mut config);
    change(&mut config.limits);
    Gateway::start(config).await.unwrap()
}

/// A connection whose request does not come to its end.
async fn unfinished(address: &ListenAddress) -> TcpStream {
    #[expect(clippy::disallowed_methods, reason = "a client's own")]
    let mut stream = TcpStream::connect(address.tcp().unwrap()).await.unwrap();
    let head = b"POST /mcp/s HTTP/1.1\r\nhost: localhost\r\nx-slow: ";
    stream.write_all(head).await.unwrap();
    stream
}

/// Everything that the gateway says on a connection before it closes it.
async fn said(stream: &mut TcpStream) -> String {
    let mut said = String::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut said)).await;
    read.expect("an end").unwrap();
    said
}

/// Whether the gateway waits for more on a connection.
async fn is_held(stream: &mut TcpStream) -> bool {
    let read = tokio::time::timeout(Duration::from_millis(50), stream.read_u8()).await;
    read.is_err()
}

#[tokio::test]
async fn of_unfinished_requests_of_an_address_the_oldest_gives_way() {
    let mut server = Scripted::start().await;
    let gateway = gateway(&server, |limits| limits.connections_per_address = 3).await;
    let mut held = Vec::new();
    let mut client = None;
    for number in 0..3 {
        let mut stream = unfinished(gateway.listen()).await;
        assert!(is_held(&mut stream).await);
        held.push(stream);
        if number == 1 {
            // Whose request was let in is no stranger: its place is another's.
            client = Some(Client::open(&gateway, &mut server, "u").await);
        }
    }
    // One more takes the place of the oldest, so that nobody is locked out by somebody who only waits.
    let mut fourth = unfinished(gateway.listen()).await;
    assert!(is_held(&mut fourth).await);
    assert_eq!(said(&mut held.remove(0)).await, "");
    for stream in &mut held {
        assert!(is_held(stream).await);
    }
    // Those who are in are not concerned, and neither is the operator.
    let answer = client
        .unwrap()
        .send_to(&mut server, &call(1), |asked| asked.result(&json!({})))
        .await;
    assert_eq!(answer.status, 200);
    let health = format!("http://{}/health", gateway.admin().unwrap());
    assert_eq!(reqwest::get(health).await.unwrap().status(), 200);
    server.finish();
}

#[tokio::test]
async fn connections_whose_requests_were_let_in_are_as_many_as_there_may_be() {
    let mut server = Scripted::start().await;
    let gateway = gateway(&server, |limits| limits.connections_per_address = 1).await;
    let mut clients = Vec::new();
    for number in 0..5 {
        // Each with a connection of its own, which it keeps.
        clients.push(Client::open(&gateway, &mut server, &number.to_string()).await);
    }
    server.finish();
}

#[tokio::test]
async fn a_balancer_has_strangers_of_many_addresses() {
    let server = Scripted::start().await;
    let gateway = gateway(&server, |limits| {
        limits.connections_per_address = 1;
        limits.proxies = vec!["127.0.0.0/8".parse().unwrap()];
    })
    .await;
    let mut held = Vec::new();
    for _ in 0..5 {
        let mut stream = unfinished(gateway.listen()).await;
        assert!(is_held(&mut stream).await);
        held.push(stream);
    }
}

#[tokio::test]
async fn there_are_only_so_many_connections() {
    let server = Scripted::start().await;
    let gateway = gateway(&server, |limits| limits.connections = 2).await;
    let _held = [
        unfinished(gateway.listen()).await,
        unfinished(gateway.listen()).await,
    ];
    for _ in 0..50 {
        let told = said(&mut unfinished(gateway.listen()).await).await;
        assert!(told.contains("\"too_many_connections\""), "{told}");
    }
    let health = format!("http://{}/health", gateway.admin().unwrap());
    assert_eq!(reqwest::get(health).await.unwrap().status(), 200);
    let metrics = format!("http://{}/metrics", gateway.admin().unwrap());
    let metrics = reqwest::get(metrics).await.unwrap().text().await.unwrap();
    let counted = "bowline_refusals_total{reason=\"too_many_connections\"} 50";
    assert!(metrics.contains(counted), "{metrics}");
}

/// Asks the operator's question, which has little time.
async fn is_healthy(gateway: &Gateway) {
    let health = format!("http://{}/health", gateway.admin().unwrap());
    // A connection of its own, as a probe has.
    let asked = tokio::time::timeout(Duration::from_secs(5), reqwest::get(health)).await;
    let answer = asked.expect("an answer in time").unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn hundreds_of_unfinished_requests_do_not_keep_the_operator_out() {
    let server = Scripted::start().await;
    let gateway = gateway(&server, |_| {}).await;
    let mut held = Vec::new();
    for address in [gateway.listen(), gateway.admin().unwrap()] {
        for _ in 0..600 {
            held.push(unfinished(address).await);
        }
        is_healthy(&gateway).await;
    }
    server.finish();
}

#[tokio::test]
async fn all_who_come_at_once_and_find_no_room_are_told() {
    let server = Scripted::start().await;
    let gateway = gateway(&server, |limits| limits.connections = 20).await;
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(unfinished(gateway.listen()).await);
    }
    let body = call(1).to_string();
    let length = body.len();
    let request = format!(
        "POST /mcp/s HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    let mut crowd = Vec::new();
    for _ in 0..50 {
        #[expect(clippy::disallowed_methods, reason = "a client's own")]
        let mut stream = TcpStream::connect(gateway.listen().tcp().unwrap())
            .await
            .unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        crowd.push(stream);
    }
    // Nobody has left while the others came.
    for stream in &mut crowd {
        let told = said(stream).await;
        assert!(told.starts_with("HTTP/1.1 503 "), "{told}");
        assert!(told.contains("\r\nretry-after: "), "{told}");
        assert!(told.contains("\"too_many_connections\""), "{told}");
    }
    server.finish();
}
