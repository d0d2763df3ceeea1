//! Bytes pass as they came; only what is Bowline's own is added or kept back.

use bowline::Gateway;
use bowline_testbed::scripted::{Asked, Scripted};
use http::{HeaderName, HeaderValue};
use serde_json::json;

use crate::kit::client::{Client, read};
use crate::kit::events::Events;
use crate::kit::gateway::{config, gateway};
use crate::kit::messages::call;

/// Odd, but JSON: key order, spacing, number formats, escapes and unknown fields.
const ODD_REQUEST: &str = "{ \"zeta\" : [1.0, 1e2,0.10],\"method\":\"tools/c\\u0061ll\" ,\"id\":7.0, \"params\":{\"b\":1,\"a\":\"\\u00e9é\"},\"jsonrpc\":\"2.0\"}\n";

const ODD_RESULT: &str = "\n{\"result\":{\"n\":1.50,\"x\":{\"b\":null,\"a\":\"\\/\"}} ,\"id\":7.0,\"jsonrpc\":\"2.0\",\"extra\":[ ]} ";

#[tokio::test]
async fn json_passes_byte_for_byte_both_ways() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let client = Client::open(&gateway, &mut server, "u").await;
    let (response, ()) = tokio::join!(client.post_text(ODD_REQUEST).send(), async {
        let asked = server.next().await;
        assert_eq!(asked.body, ODD_REQUEST);
        asked.reply(
            200,
            &[("content-type", "application/json; charset=utf-8")],
            ODD_RESULT,
        );
    });
    let answer = read(response.unwrap()).await;
    assert_eq!(answer.text, ODD_RESULT);
    assert_eq!(
        answer.headers["content-type"],
        "application/json; charset=utf-8"
    );
}

#[tokio::test]
async fn events_pass_byte_for_byte_unless_they_carry_a_mark() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let client = Client::open(&gateway, &mut server, "u").await;
    let parts = [
        ": hello\r\n\r\n".to_owned(),
        "retry: 250\nid:\ndata:\n\n".to_owned(),
        format!(
            "event: message\ndata: {}\n\n",
            ODD_RESULT.trim().replace("7.0", "7")
        ),
        "event: odd\rdata: not json\r\r".to_owned(),
    ];
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(7))).await;
    for part in parts {
        pen.write(part.clone());
        assert_eq!(events.next().await, part);
    }
    drop(pen);
    events.ends_cleanly().await;
}

#[tokio::test]
async fn json_that_streams_is_streamed() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let client = Client::open(&gateway, &mut server, "u").await;
    // More than is held back.
    let first = format!("{{\"jsonrpc\":\"2.0\",\"result\":\"{}", "x".repeat(100_000));
    let (response, mut pen) = tokio::join!(client.post(&call(1)).send(), async {
        let mut pen = server
            .next()
            .await
            .begin(200, &[("content-type", "application/json")]);
        pen.write(first.clone());
        pen
    });
    let mut response = response.unwrap();
    let mut arrived = Vec::new();
    while arrived.len() < first.len() {
        arrived.extend(response.chunk().await.unwrap().unwrap());
    }
    pen.write("\",\"id\":1}");
    drop(pen);
    while let Some(chunk) = response.chunk().await.unwrap() {
        arrived.extend(chunk);
    }
    let whole = format!("{first}\",\"id\":1}}");
    assert!(arrived == whole.as_bytes());
}

#[tokio::test]
async fn initialize_as_events_passes_whole() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let client = Client::new(&gateway);
    let result = bowline_testbed::scripted::initialize_result();
    let (response, mut pen) = tokio::join!(
        client
            .post(&crate::kit::messages::initialize_message())
            .send(),
        async {
            let headers = [
                ("content-type", "text/event-stream"),
                ("mcp-session-id", "u"),
            ];
            let mut pen = server.next().await.begin(200, &headers);
            pen.write(": early\n\nretry: 10\n\n");
            pen.write(format!(
                "data: {}\n\n",
                json!({"jsonrpc": "2.0", "id": "init", "result": result})
            ));
            pen
        }
    );
    let mut events = Events::new(response.unwrap());
    assert!(events.response.headers().contains_key("mcp-session-id"));
    assert_eq!(events.next().await, ": early\n\n");
    assert_eq!(events.next().await, "retry: 10\n\n");
    assert_eq!(events.next_message().await.1["result"], result);
    pen.write(": late\n\n");
    assert_eq!(events.next().await, ": late\n\n");
    drop(pen);
    events.ends_cleanly().await;
}

#[tokio::test]
async fn configured_headers_and_url_are_kept_and_the_clients_credentials_are_not() {
    let mut server = Scripted::start().await;
    let url = format!("{}/a%2Fb/../c?key=a%20b&x", server.url());
    let mut config = config(&[("s", &url)]);
    let configured = config.servers.values_mut().next().unwrap();
    configured.headers.insert(
        "authorization",
        HeaderValue::from_static("Bearer configured"),
    );
    configured
        .headers
        .insert("x-tenant", HeaderValue::from_static("t1"));
    let gateway = Gateway::start(config).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u").await;
    let request = client
        .post(&call(1))
        .header("authorization", "Bearer client")
        .header("cookie", "c=1")
        .header("x-custom", "1");
    let (response, ()) = tokio::join!(request.send(), async {
        let asked = server.next().await;
        assert_eq!(asked.target, "/mcp/a%2Fb/../c?key=a%20b&x");
        assert_eq!(asked.header("authorization"), "Bearer configured");
        assert_eq!(asked.header("x-tenant"), "t1");
        assert_eq!(
            asked.header("host"),
            server
                .url()
                .strip_prefix("http://")
                .unwrap()
                .strip_suffix("/mcp")
                .unwrap()
        );
        assert_eq!(asked.header("mcp-protocol-version"), "2025-11-25");
        for absent in ["cookie", "x-custom"] {
            assert_eq!(asked.header(absent), "");
        }
        asked.result(&json!({}));
    });
    assert_eq!(response.unwrap().status(), 200);
    client.delete().send().await.unwrap();
    let asked = server.next().await;
    assert_eq!(
        (asked.header("authorization"), asked.header("x-tenant")),
        ("Bearer configured", "t1")
    );
}

#[tokio::test]
async fn the_clients_query_follows_the_configured_one() {
    let mut server = Scripted::start().await;
    for (configured, asked_for, expected) in [
        ("", "", "/mcp"),
        ("", "?", "/mcp"),
        ("", "?x=1", "/mcp?x=1"),
        ("?a=b", "", "/mcp?a=b"),
        ("?a=b", "?x=1&a=c", "/mcp?a=b&x=1"),
        (
            "/deeper?a",
            "?x=%2F+%zz&&{y}",
            "/mcp/deeper?a&x=%2F+%zz&&{y}",
        ),
    ] {
        let gateway = gateway(&format!("{}{configured}", server.url())).await;
        let mut client = Client::new(&gateway);
        client.url.push_str(asked_for);
        let client = client.opened(&mut server, "u").await;
        let result = |asked: Asked| {
            assert_eq!(asked.target, expected);
            asked.result(&json!({}));
        };
        let answer = client.send_to(&mut server, &call(1), result).await;
        assert_eq!(answer.status, 200);
        let (_events, pen) = client.open_stream(&mut server, client.get()).await;
        drop(pen);
        client.delete().send().await.unwrap();
        let asked = server.next().await;
        assert_eq!(
            (asked.method.as_str(), asked.target.as_str()),
            ("DELETE", expected)
        );
    }
    server.finish();
}

#[tokio::test]
async fn the_query_is_that_of_the_request_at_hand() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let mut client = Client::open(&gateway, &mut server, "u").await;
    let url = client.url.clone();
    for query in ["?n=1", "?n=2", ""] {
        client.url = format!("{url}{query}");
        let (_events, ()) = tokio::join!(client.get().send(), async {
            let asked = server.next().await;
            assert_eq!(asked.target, format!("/mcp{query}"));
            drop(asked.events());
        });
    }
    client.url = format!("{url}?{}", "x".repeat(17_000));
    let answer = client.send(&call(1)).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (414, -32600));
    server.finish();
}

#[tokio::test]
async fn listed_headers_go_along_and_no_others() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    let configured = config.servers.values_mut().next().unwrap();
    let listed = [
        "x-trace",
        "x-tenant",
        "authorization",
        "mcp-session-id",
        "cookie",
    ];
    configured.forward_headers = listed.map(HeaderName::from_static).to_vec();
    let tenant = HeaderValue::from_static("configured");
    configured.headers.insert("x-tenant", tenant);
    let gateway = Gateway::start(config).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u").await;
    for request in [client.post(&call(1)), client.get(), client.delete()] {
        let request = request
            .header("x-trace", "one")
            .header("X-Trace", "two")
            .header("x-tenant", "client's")
            .header("authorization", "Bearer client's")
            .header("cookie", "client's")
            .header("x-other", "client's");
        let (_response, ()) = tokio::join!(request.send(), async {
            let asked = server.next().await;
            let all = |name| asked.headers.get_all(name).iter().collect::<Vec<_>>();
            assert_eq!(all("x-trace"), ["one", "two"]);
            assert_eq!(all("x-tenant"), ["configured"]);
            assert_eq!(all("mcp-session-id"), ["u"]);
            for absent in ["authorization", "cookie", "x-other"] {
                assert_eq!(asked.header(absent), "", "{absent}");
            }
            let result = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
            asked.reply(200, &[("content-type", "application/json")], result);
        });
    }
    server.finish();
}

#[tokio::test]
async fn every_revision_of_the_session_era_is_carried() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    for (revision, named) in [
        ("2025-03-26", ""),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
    ] {
        let mut client = Client::new(&gateway);
        let mut message = crate::kit::messages::initialize_message();
        message["params"]["protocolVersion"] = json!(revision);
        let (opened, ()) = tokio::join!(client.send(&message), async {
            let mut result = bowline_testbed::scripted::initialize_result();
            let asked = server.next().await;
            assert_eq!(asked.json()["params"]["protocolVersion"], revision);
            result["protocolVersion"] = json!(revision);
            asked.result_with(&[("mcp-session-id", "u")], &result);
        });
        client.session = opened.headers.get("mcp-session-id").cloned();
        let request = client
            .post(&call(1))
            .header("mcp-protocol-version", revision);
        let (answer, ()) = tokio::join!(request.send(), async {
            let asked = server.next().await;
            assert_eq!(asked.header("mcp-protocol-version"), named);
            asked.result(&json!({}));
        });
        assert_eq!(answer.unwrap().status(), 200, "{revision}");
    }
}

#[tokio::test]
async fn a_version_before_the_header_existed_is_not_named() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let mut client = Client::new(&gateway);
    tokio::join!(client.initialize(), async {
        let mut result = bowline_testbed::scripted::initialize_result();
        result["protocolVersion"] = json!("2025-03-26");
        server
            .next()
            .await
            .result_with(&[("mcp-session-id", "u")], &result);
    });
    let answer = client
        .send_to(&mut server, &call(1), |asked| {
            assert!(!asked.headers.contains_key("mcp-protocol-version"));
            asked.result(&json!({}));
        })
        .await;
    assert_eq!(answer.status, 200);
}
