//! What an operator sees and does: metrics, the list of sessions, reload, and a stop under load.

use std::net::SocketAddr;
use std::time::Duration;

use bowline::Gateway;
use bowline::config::{Config, KeyHash, Server};
use bowline_testbed::scripted::Scripted;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::kit::client::{Answer, Client, read, sent};
use crate::kit::gateway::{config, with_admin};
use crate::kit::messages::{call, initialize_message};
use crate::kit::replicas::replicas;

fn operated(servers: &[(&str, &str)]) -> Config {
    let mut config = config(servers);
    with_admin(&mut config);
    config
}

async fn ask(gateway: &Gateway, path: &str, token: Option<&str>) -> Answer {
    let client = Client::at(format!("http://{}{path}", gateway.admin().unwrap()));
    let mut request = client.request(Method::GET);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    sent(request).await
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(operated(&[("s", server.url())]))
        .await
        .unwrap();
    let client = Client::open(&gateway, &mut server, "u").await;
    for id in 0..3 {
        client
            .send_to(&mut server, &call(id), |asked| asked.result(&json!({})))
            .await;
    }
    Client::new(&gateway).send(&call(9)).await;
    let text = ask(&gateway, "/metrics", None).await.text;
    for line in [
        r#"bowline_sessions{server="s"} 1"#,
        r#"bowline_sessions_opened_total{server="s"} 1"#,
        r#"bowline_requests_total{server="s",method="POST",status="200"} 4"#,
        r#"bowline_requests_total{server="s",method="POST",status="400"} 1"#,
        r#"bowline_refusals_total{reason="session_required"} 1"#,
        r#"bowline_answer_seconds_count{server="s"} 5"#,
        "bowline_endpoint_up{server=\"s\"",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    client.delete().send().await.unwrap();
    assert_eq!(server.next().await.method, "DELETE");
    let text = ask(&gateway, "/metrics", None).await.text;
    assert!(
        text.contains(r#"bowline_sessions_ended_total{server="s",reason="deleted"} 1"#),
        "{text}"
    );
}

#[tokio::test]
async fn sessions_are_listed_without_secrets_and_only_with_the_token() {
    let mut server = Scripted::start().await;
    let mut config = operated(&[("s", server.url())]);
    config.api_token = Some(KeyHash::of(b"operator"));
    let gateway = Gateway::start(config).await.unwrap();
    let client = Client::open(&gateway, &mut server, "upstream-secret").await;
    let (_events, _pen) = client.open_stream(&mut server, client.get()).await;
    for token in [None, Some("guess"), Some("")] {
        let refused = ask(&gateway, "/api/sessions", token).await;
        assert_eq!(refused.status, 401);
        assert!(!refused.text.contains("sessions\""), "{}", refused.text);
    }
    let told = ask(&gateway, "/api/sessions", Some("operator")).await;
    let id = client.session.as_ref().unwrap().to_str().unwrap();
    assert!(
        !told.text.contains(id) && !told.text.contains("secret"),
        "{}",
        told.text
    );
    let sessions = told.json()["sessions"].clone();
    assert_eq!(sessions.as_array().unwrap().len(), 1);
    let one = &sessions[0];
    assert_eq!(
        (&one["server"], &one["version"], &one["streams"]),
        (&json!("s"), &json!("2025-11-25"), &json!(1))
    );
    assert_eq!(one["session"].as_str().unwrap().len(), 16);
    assert_eq!(
        ask(&gateway, "/health", None).await.status,
        200,
        "health needs no token"
    );
}

#[tokio::test]
async fn the_operators_listener_has_a_guard_too() {
    let gateway = Gateway::start(operated(&[])).await.unwrap();
    let client = Client::at(format!("http://{}/api/sessions", gateway.admin().unwrap()));
    for (name, value) in [("host", "evil.example"), ("origin", "http://evil.example")] {
        let refused = client
            .request(Method::GET)
            .header(name, value)
            .send()
            .await
            .unwrap();
        assert_eq!(refused.status(), 403);
    }
}

#[tokio::test]
async fn a_rebound_name_reads_nothing_of_an_operators_listener_that_others_reach() {
    for token in [None, Some(KeyHash::of(b"token"))] {
        let mut config = operated(&[]);
        config.admin = Some("0.0.0.0:0".parse().unwrap());
        config.api_token = token;
        config.hosts = vec!["gw.internal".to_owned()];
        let gateway = Gateway::start(config).await.unwrap();
        let port = gateway.admin().unwrap().tcp().unwrap().port();
        for path in ["/health", "/ready", "/metrics", "/api/sessions"] {
            let client = Client::at(format!("http://127.0.0.1:{port}{path}"));
            let status = async |host: &str| {
                let request = client.request(Method::GET).header("host", host);
                request.send().await.unwrap().status().as_u16()
            };
            assert_eq!(status("evil.example").await, 403, "{path}");
            assert_ne!(status("gw.internal:6271").await, 403, "{path}");
            assert_ne!(status("10.0.0.1").await, 403, "{path}");
        }
    }
}

#[tokio::test]
async fn a_reload_keeps_sessions_and_drains_what_is_gone() {
    let (mut one, mut two) = (Scripted::start().await, Scripted::start().await);
    let gateway = Gateway::start(config(&[("s", one.url())])).await.unwrap();
    let client = Client::open(&gateway, &mut one, "u").await;
    let reload = |servers: &[(&str, &str)]| {
        let mut next = config(servers);
        for server in next.servers.values_mut() {
            server.headers.insert("x-new", "1".parse().unwrap());
        }
        gateway.reload(next).unwrap();
    };

    // The server moves: its session stays where it is, with the new headers; new ones follow.
    reload(&[("s", two.url()), ("more", two.url())]);
    let message = call(1);
    let answer = client.send_to(&mut one, &message, |asked| {
        assert_eq!(asked.header("x-new"), "1");
        asked.result(&json!({}));
    });
    assert_eq!(answer.await.status, 200);
    Client::open(&gateway, &mut two, "v").await;
    let mut more = Client::at(format!("http://{}/mcp/more", gateway.listen()));
    tokio::join!(more.initialize(), async {
        two.next().await.initialized(Some("w"))
    });

    // The server goes: its sessions go on, and it takes no new ones.
    reload(&[("more", two.url())]);
    let message = call(2);
    let answer = client.send_to(&mut one, &message, |asked| asked.result(&json!({})));
    assert_eq!(answer.await.status, 200);
    let refused = Client::new(&gateway).initialize().await;
    assert_eq!(
        (
            refused.status.as_u16(),
            refused.json()["error"]["data"]["reason"].clone()
        ),
        (404, json!("no_such_server"))
    );

    let mut elsewhere = config(&[]);
    elsewhere.listen = "127.0.0.1:1".parse().unwrap();
    elsewhere.limits.sessions = 1;
    let error = gateway.reload(elsewhere).unwrap_err();
    assert_eq!(error.keys, ["listen", "limits"]);
    one.finish();
    two.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_under_load_drops_no_session() {
    let behind = replicas(2).await;
    let mut first = config(&[]);
    let at = |urls: &[String]| Server::from_urls(&urls.join(",")).unwrap();
    first.servers.insert("s".parse().unwrap(), at(&behind.urls));
    let gateway = Gateway::start(first.clone()).await.unwrap();
    let mut calling: JoinSet<u32> = JoinSet::new();
    for _ in 0..16 {
        let mut client = Client::new(&gateway);
        assert_eq!(client.initialize().await.status, 200);
        client
            .send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        calling.spawn(async move {
            for expected in 1..=50 {
                let count = json!({"jsonrpc": "2.0", "id": expected, "method": "tools/call", "params": {"name": "count"}});
                let answer = client.send(&count).await;
                assert!(answer.text.contains(&format!(r#""text":"{expected}""#)), "{} {}", answer.status, answer.text);
            }
            50
        });
    }
    let mut reloads = 0;
    while !calling.is_empty() {
        let mut next = first.clone();
        next.servers.insert(
            "s".parse().unwrap(),
            at(&behind.urls[reloads % 2..=reloads % 2]),
        );
        gateway.reload(next).unwrap();
        reloads += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
        while let Some(done) = calling.try_join_next() {
            assert_eq!(done.unwrap(), 50);
        }
    }
    assert!(reloads > 5, "{reloads}");
    assert!(
        behind
            .replicas
            .iter()
            .all(|replica| replica.observed().strays() == 0)
    );
}

/// 64 sessions calling and 64 streams open: no call that was sent is answered with an error, and
/// everything is over within the deadline.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_under_load_breaks_no_call() {
    let behind = replicas(2).await;
    let mut config = config(&[]);
    config.servers.insert(
        "s".parse().unwrap(),
        Server::from_urls(&behind.urls.join(",")).unwrap(),
    );
    config.stop_timeout = Duration::from_secs(20);
    let gateway = Gateway::start(config).await.unwrap();
    let mut calling: JoinSet<(u32, Vec<String>)> = JoinSet::new();
    let mut streaming: JoinSet<()> = JoinSet::new();
    for _ in 0..64 {
        let mut client = Client::new(&gateway);
        assert_eq!(client.initialize().await.status, 200);
        client
            .send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        let stream = client.get().send().await.unwrap();
        streaming.spawn(async move {
            let mut stream = stream;
            while stream.chunk().await.expect("a polite end").is_some() {}
        });
        calling.spawn(async move {
            let (mut answered, mut wrong) = (0, Vec::new());
            loop {
                // Clients think, and a machine that only ever computes tests its scheduler.
                tokio::time::sleep(Duration::from_millis(100)).await;
                let count = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "count"}});
                match client.post(&count).send().await {
                    Ok(response) => {
                        let answer = read(response).await;
                        answered += 1;
                        if answer.status != 200 || !answer.text.contains("result") {
                            wrong.push(format!("{} {}", answer.status, answer.text));
                        }
                    }
                    // No connection any more: this call was never sent.
                    Err(error) if error.is_connect() => return (answered, wrong),
                    Err(error) => {
                        wrong.push(format!("{error:?}"));
                        return (answered, wrong);
                    }
                }
            }
        });
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let started = tokio::time::Instant::now();
    gateway.stop().await;
    assert!(started.elapsed() < Duration::from_secs(20));
    let mut total = 0;
    while let Some(ended) = calling.join_next().await {
        let (answered, wrong) = ended.unwrap();
        assert_eq!(wrong, [""; 0]);
        total += answered;
    }
    assert!(total > 64, "{total}");
    streaming.join_all().await;
}

#[tokio::test]
async fn a_stopping_gateway_says_so() {
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(operated(&[("s", server.url())]))
        .await
        .unwrap();
    let client = Client::open(&gateway, &mut server, "u").await;
    let admin = gateway.admin().unwrap().clone();
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(1))).await;
    // A connection that is open already goes on being served until it is closed.
    let stopping = JoinSet::from_iter([gateway.stop()]);
    let again = client.post(&initialize_message());
    match again.send().await {
        Ok(refused) => {
            assert_eq!(refused.status(), 503);
            assert!(refused.headers().contains_key("retry-after"));
        }
        Err(error) => assert!(error.is_connect(), "{error:?}"),
    }
    // The operator can still ask, and hears the truth.
    let ready = Client::at(format!("http://{admin}/ready"))
        .request(Method::GET)
        .send()
        .await;
    assert_eq!(ready.unwrap().status(), 503);
    let health = Client::at(format!("http://{admin}/health"))
        .request(Method::GET)
        .send()
        .await;
    assert_eq!(read(health.unwrap()).await.json()["status"], "stopping");
    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n");
    drop(pen);
    events.next().await;
    events.ends_cleanly().await;
    stopping.join_all().await;
}

#[tokio::test]
async fn a_health_check_that_names_no_host_is_answered() {
    let server = Scripted::start().await;
    let gateway = Gateway::start(operated(&[("s", server.url())]))
        .await
        .unwrap();
    let admin = gateway.admin().unwrap().tcp().unwrap();
    // As HAProxy's `option httpchk GET /ready` sends it, and its `http-check send ver HTTP/1.1`.
    for (version, headers) in [("1.0", ""), ("1.1", "connection: close\r\n")] {
        let request = format!("GET /ready HTTP/{version}\r\n{headers}\r\n");
        let answer = raw(admin, &request).await;
        assert!(answer.contains(" 200 "), "{answer}");
        // Whoever sends an origin is a browser.
        let request =
            format!("GET /ready HTTP/{version}\r\norigin: http://evil.example\r\n{headers}\r\n");
        assert!(raw(admin, &request).await.contains(" 403 "));
        let request = format!("GET /mcp HTTP/{version}\r\n{headers}\r\n");
        let answer = raw(gateway.listen().tcp().unwrap(), &request).await;
        assert!(answer.contains(" 403 "), "{answer}");
    }
}

/// What answers these bytes.
#[expect(clippy::disallowed_methods, reason = "HTTP clients always name a host")]
async fn raw(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
