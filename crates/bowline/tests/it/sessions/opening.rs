//! `initialize` finds a server that answers it, if there is one, and a server that hangs is found out.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::{Config, Server};
use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::faulty::{Canned, Fault, Faulty, When};
use bowline_testbed::scripted::Scripted;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use crate::kit::client::Client;
use crate::kit::gateway::{admin, config, gateway, with_admin};
use crate::kit::messages::{JSON, call, initialize_message};
use crate::kit::wait::{until, until_so};

/// A configuration with one server, whose recovery may take so long, and an admin listener.
fn over(server: Server, budget: Duration) -> Config {
    let mut config = config(&[]);
    let server = Server {
        recovery: bowline::config::Recovery {
            budget,
            ..server.recovery.clone()
        },
        ..server
    };
    config.servers.insert("s".parse().unwrap(), server);
    with_admin(&mut config);
    config
}

async fn asked(gateway: &Gateway, path: &str) -> (u16, Value) {
    let answer = admin(gateway, path).await;
    (answer.status.as_u16(), answer.json())
}

async fn status(gateway: &Gateway) -> Value {
    asked(gateway, "/health").await.1["servers"]["s"]["status"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_one_of_two_replicas_broken_every_client_gets_its_session() {
    for fault in [
        Fault::ResetBefore,
        Fault::ResetAfter,
        Fault::Cut(10),
        Fault::Answer(Canned::plain(502, "Bad Gateway")),
        Fault::Answer(Canned::json(504, r#"{"detail":"upstream timed out"}"#)),
    ] {
        let tally = Tally::default();
        let well = Counting::start("well", &tally).await.unwrap();
        let behind = Counting::start("broken", &tally).await.unwrap();
        let broken = Faulty::start(behind.address()).await.unwrap();
        broken.always(When::rpc("initialize"), fault.clone());
        let urls = format!("{},{}", broken.url(), well.url());
        let config = over(Server::from_urls(&urls).unwrap(), Duration::from_secs(30));
        let gateway = Gateway::start(config).await.unwrap();
        for number in 0..12 {
            let mut client = Client::new(&gateway);
            let opened = client.begin().await;
            assert_eq!(opened.status, 200, "{fault:?}, client {number}: {opened:?}");
        }
        assert!(broken.requests() > 0, "nobody was sent there");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_all_replicas_rest_that_have_failed_a_client_waits_for_the_first() {
    let tally = Tally::default();
    let (mut servers, mut proxies) = (Vec::new(), Vec::new());
    for name in ["one", "two"] {
        let server = Counting::start(name, &tally).await.unwrap();
        proxies.push(Faulty::start(server.address()).await.unwrap());
        servers.push(server);
    }
    let urls = format!("{},{}", proxies[0].url(), proxies[1].url());
    let config = over(Server::from_urls(&urls).unwrap(), Duration::from_secs(30));
    let gateway = Gateway::start(config).await.unwrap();
    // Until both are ejected, which takes three failures in a row of each.
    let broken: Vec<_> = proxies
        .iter()
        .map(|proxy| proxy.always(When::rpc("initialize"), Fault::ResetBefore))
        .collect();
    let mut first = Client::new(&gateway);
    let opening = TaskTracker::new().spawn(async move { first.begin().await });
    until_so("both rest", async || {
        status(&gateway).await == "unavailable"
    })
    .await;
    proxies.iter().for_each(Faulty::pass);
    drop(broken);
    for number in 0..4 {
        let mut client = Client::new(&gateway);
        let opened = client.begin().await;
        assert_eq!(opened.status, 200, "client {number}: {opened:?}");
    }
    assert_eq!(opening.await.unwrap().status, 200);
}

#[tokio::test]
async fn the_only_server_is_asked_again_and_what_it_opened_in_vain_is_ended() {
    let mut server = Scripted::start().await;
    let config = over(
        Server::from_url(server.url()).unwrap(),
        Duration::from_secs(30),
    );
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Client::new(&gateway);
    let (opened, ()) = tokio::join!(client.initialize(), async {
        drop(server.next().await);
        server.next().await.reply(503, &[], "");
        let headers = [
            ("content-type", "application/json"),
            ("mcp-session-id", "in-vain"),
            ("content-length", "100"),
        ];
        let mut pen = server.next().await.begin(200, &headers);
        pen.write("{\"jsonrpc\":");
        // What was written has left.
        tokio::time::sleep(Duration::from_millis(200)).await;
        pen.cut();
        let mut others = [server.next().await, server.next().await];
        others.sort_by_key(|asked| asked.method == "POST");
        let [deleted, opening] = others;
        assert_eq!(
            (deleted.method.as_str(), deleted.header("mcp-session-id")),
            ("DELETE", "in-vain")
        );
        deleted.reply(200, &[], "");
        assert_eq!(opening.json(), initialize_message());
        opening.initialized(Some("u"));
    });
    assert_eq!(opened.status, 200, "{}", opened.text);
    let answer = client
        .send_to(&mut server, &call(1), |asked| {
            assert_eq!(asked.header("mcp-session-id"), "u");
            asked.result(&json!({}));
        })
        .await;
    assert_eq!(answer.status, 200);
    server.finish();
}

#[tokio::test]
async fn the_servers_own_answer_is_not_asked_for_again_and_trying_ends() {
    let mut server = Scripted::start().await;
    let config = over(
        Server::from_url(server.url()).unwrap(),
        Duration::from_millis(300),
    );
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Client::new(&gateway);
    let own =
        json!({"jsonrpc": "2.0", "id": "init", "error": {"code": -32000, "message": "not now"}});
    let (answer, ()) = tokio::join!(client.initialize(), async {
        let json = [("content-type", "application/json")];
        server.next().await.reply(503, &json, own.to_string());
    });
    assert_eq!((answer.status.as_u16(), answer.json()), (503, own));
    let always_broken = async {
        loop {
            drop(server.next().await);
        }
    };
    let answer = tokio::select! {
        answer = client.initialize() => answer,
        () = always_broken => panic!("it goes on for ever"),
    };
    assert_eq!((answer.status.as_u16(), answer.code()), (503, -31002));
    assert!(answer.headers.contains_key("retry-after"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_connections_and_answers_nothing_is_found_out_and_comes_back() {
    let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = hanging.local_addr().unwrap();
    let url = format!("http://{address}/mcp");
    let config = over(Server::from_url(&url).unwrap(), Duration::from_millis(600));
    let gateway = Gateway::start(config).await.unwrap();
    assert_eq!(status(&gateway).await, "ok");
    let first = Client::new(&gateway);
    let first = first.post(&initialize_message());
    let _first = tokio_util::task::AbortOnDropHandle::new(TaskTracker::new().spawn(first.send()));
    until_so("found out", async || {
        status(&gateway).await == "unavailable"
    })
    .await;
    let (_, health) = asked(&gateway, "/health").await;
    let told = &health["servers"]["s"]["endpoints"][0];
    assert_eq!(told["status"], "ejected", "{health}");
    assert!(
        told["reason"].as_str().unwrap().contains("does not answer"),
        "{health}"
    );
    // It stays so, whatever connections say.
    for _ in 0..3 {
        let refused = Client::new(&gateway).initialize().await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (503, -31002),
            "{}",
            refused.text
        );
        assert!(refused.headers.contains_key("retry-after"));
        assert_eq!(asked(&gateway, "/ready").await.0, 503);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    drop(hanging);
    let tally = Tally::default();
    let server = Counting::start("back", &tally).await.unwrap();
    let listener = TcpListener::bind(address).await.unwrap();
    let pass = TaskTracker::new().spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            #[expect(clippy::disallowed_methods, reason = "this is the way to the server")]
            let mut there = tokio::net::TcpStream::connect(server.address())
                .await
                .unwrap();
            TaskTracker::new().spawn(async move {
                tokio::io::copy_bidirectional(&mut client, &mut there)
                    .await
                    .is_ok()
            });
        }
    });
    let _pass = tokio_util::task::AbortOnDropHandle::new(pass);
    until_so("back", async || status(&gateway).await == "ok").await;
    let mut client = Client::new(&gateway);
    assert_eq!(client.begin().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_one_replica_hangs_others_take_the_sessions() {
    let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tally = Tally::default();
    let well = Counting::start("well", &tally).await.unwrap();
    let urls = format!(
        "http://{}/mcp,{}",
        hanging.local_addr().unwrap(),
        well.url()
    );
    let config = over(Server::from_urls(&urls).unwrap(), Duration::from_secs(1));
    let gateway = Gateway::start(config).await.unwrap();
    for _ in 0..12 {
        let mut client = Client::new(&gateway);
        let opened = client.begin().await;
        assert_eq!(opened.status, 200, "{opened:?}");
    }
    until("all are there", || well.initializes() == 12).await;
}

#[tokio::test]
async fn a_server_that_is_slow_to_open_and_answers_otherwise_is_not_refused() {
    let mut server = Scripted::start().await;
    let config = over(
        Server::from_url(server.url()).unwrap(),
        Duration::from_millis(600),
    );
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Client::new(&gateway);
    let (opened, ()) = tokio::join!(client.initialize(), async {
        let opening = server.next().await;
        let look = server.next().await;
        assert_eq!(
            (look.method.as_str(), look.target.as_str()),
            ("OPTIONS", "*")
        );
        look.reply(404, &[], "");
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert_eq!(status(&gateway).await, "ok");
        opening.initialized(Some("u"));
    });
    assert_eq!(opened.status, 200, "{}", opened.text);
    server.finish();
}

#[tokio::test]
async fn a_declined_initialize_opens_nothing() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let mut client = Client::new(&gateway);
    let error = json!({"jsonrpc": "2.0", "id": "init", "error": {"code": -32602, "message": "no"}})
        .to_string();
    for status in [200, 400] {
        let (answer, ()) = tokio::join!(client.initialize(), async {
            server
                .next()
                .await
                .reply(status, &[JSON, ("mcp-session-id", "u")], error.clone());
        });
        assert_eq!(
            (answer.status.as_u16(), answer.text.as_str()),
            (status, error.as_str())
        );
        assert!(client.session.is_none());
    }
    let (answer, ()) = tokio::join!(client.initialize(), async {
        server.next().await.reply(200, &[JSON], "{\"half");
    });
    assert_eq!(answer.status, 502);
    server.finish();
}

#[tokio::test]
async fn a_declined_initialize_on_a_stream_does_not_wait_for_the_streams_end() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let mut client = Client::new(&gateway);
    let error = json!({"jsonrpc": "2.0", "id": "init", "error": {"code": -32602, "message": "no"}});
    let (answer, pen) = tokio::join!(client.initialize(), async {
        let mut pen = server.next().await.events();
        pen.write(format!("data: {error}\n\n"));
        pen
    });
    assert_eq!(answer.text, format!("data: {error}\n\n"));
    assert!(client.session.is_none());
    pen.closed().await;
}

#[tokio::test]
async fn an_initialize_that_a_silent_server_gets_has_the_length_of_the_budget() {
    let mut server = Scripted::start().await;
    let only = Server::from_url(server.url()).unwrap();
    let gateway = Gateway::start(over(only, Duration::from_secs(2)))
        .await
        .unwrap();
    let mut client = Client::new(&gateway);
    let opening = tokio::time::timeout(Duration::from_secs(40), client.initialize());
    let (answer, _unanswered) = tokio::join!(opening, server.next());
    let answer = answer.expect("an answer long before a minute");
    assert_eq!(answer.code(), -31004, "{answer:?}");
}
