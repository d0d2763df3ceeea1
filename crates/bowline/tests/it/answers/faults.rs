//! What goes wrong behind the gateway is told as it is, without secrets and without pretending.

use bowline::Gateway;
use bowline::config::OnLoss;
use bowline_testbed::scripted::{Asked, Scripted};
use serde_json::json;
use tokio::net::TcpListener;

use crate::kit::client::{Answer, Client};
use crate::kit::gateway::{config, gateway, only};
use crate::kit::messages::{JSON, call};
use crate::kit::opened::opened_as;

/// The id that the server issues, which nobody is to hear.
const SECRET: &str = "upstream-secret";

/// A session whose client is told of a lost session rather than its being mended.
async fn opened_and_told() -> (Gateway, Scripted, Client) {
    opened_as(SECRET, |config| {
        only(config).recovery.on_loss = OnLoss::Tell
    })
    .await
}

/// What the client hears when the server answers a call like this.
async fn heard(answer: impl FnOnce(Asked)) -> Answer {
    let (_gateway, mut server, client) = opened_and_told().await;
    let heard = client.send_to(&mut server, &call(7), answer).await;
    assert!(!heard.text.contains(SECRET), "{}", heard.text);
    heard
}

#[tokio::test]
async fn a_servers_demand_for_credentials_is_not_ours() {
    for (status, told) in [(401, 200), (403, 502)] {
        let answer = heard(|asked| {
            let headers = [
                JSON,
                (
                    "www-authenticate",
                    "Bearer resource_metadata=\"http://evil.example\"",
                ),
            ];
            asked.reply(status, &headers, "{\"secret\":1}");
        })
        .await;
        assert_eq!(answer.status, told);
        assert!(!answer.headers.contains_key("www-authenticate"));
        assert!(answer.text.contains(&status.to_string()), "{}", answer.text);
        assert!(!answer.text.contains("evil"), "{}", answer.text);
        assert_eq!(answer.json()["id"], 7);
        assert_eq!(answer.json()["error"]["data"]["server"], "s");
    }
}

#[tokio::test]
async fn redirects_to_elsewhere_are_refused() {
    for status in [301, 302, 303, 307, 308] {
        let location = [("location", "http://evil.example/mcp")];
        let answer = heard(|asked| asked.reply(status, &location, "")).await;
        let told = match status {
            307 | 308 => (502, -31002),
            _ => (200, -31001),
        };
        assert_eq!((answer.status.as_u16(), answer.code()), told, "{status}");
        assert!(!answer.headers.contains_key("location"));
        assert!(!answer.text.contains("evil"), "{}", answer.text);
    }
    let answer = heard(|asked| asked.reply(307, &[], "")).await;
    assert_eq!(answer.status, 502, "a redirect to nowhere");
}

#[tokio::test]
async fn redirects_within_the_origin_are_followed_with_everything_but_not_for_ever() {
    let (_gateway, mut server, client) = opened_as(SECRET, |_| {}).await;
    let message = call(7);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        let first = server.next().await;
        let body = first.body.clone();
        let headers = [("location", "/moved?x=1"), ("set-cookie", "SRV=r1; path=/")];
        first.reply(308, &headers, "");
        let second = server.next().await;
        assert_eq!(
            (second.method.as_str(), second.target.as_str()),
            ("POST", "/moved?x=1")
        );
        assert_eq!(second.body, body);
        assert_eq!(second.header("mcp-session-id"), SECRET);
        assert_eq!(second.header("cookie"), "SRV=r1");
        second.result(&json!({}));
    });
    assert_eq!(answer.status, 200);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        for _ in 0..6 {
            server
                .next()
                .await
                .reply(307, &[("location", "/again")], "");
        }
    });
    assert_eq!(answer.status, 502);
    assert!(answer.text.contains("more than 5 times"), "{}", answer.text);
    server.finish();
}

#[tokio::test]
async fn a_compressed_answer_that_nobody_asked_for_is_not_passed_on() {
    let answer = heard(|asked| {
        assert_eq!(asked.header("accept-encoding"), "identity");
        asked.reply(200, &[JSON, ("content-encoding", "gzip")], "\x1f\x08");
    })
    .await;
    assert_eq!(answer.code(), -31001, "it came, so the call ran");
    assert!(answer.text.contains("compressed (gzip)"), "{}", answer.text);
}

#[tokio::test]
async fn a_server_that_speaks_http2_only_is_told_as_such() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = gateway(&format!("http://{}/mcp", listener.local_addr().unwrap())).await;
    let mut client = Client::new(&gateway);
    let (answer, ()) = tokio::join!(client.initialize(), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        // SETTINGS with one setting, then GOAWAY.
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100];
        let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        stream.write_all(&settings).await.unwrap();
        stream.write_all(&goaway).await.unwrap();
    });
    assert_eq!((answer.status.as_u16(), answer.code()), (502, -31002));
    assert!(
        answer.text.contains("speaks HTTP/2 only"),
        "{}",
        answer.text
    );
}

#[tokio::test]
async fn a_session_that_the_server_forgot_is_over() {
    let (_gateway, mut server, client) = opened_and_told().await;
    let forgot = |asked: Asked| {
        asked.reply(
            404,
            &[("content-type", "text/plain")],
            "Not Found: Session not found",
        )
    };
    let answer = client.send_to(&mut server, &call(7), forgot).await;
    assert_eq!(
        (
            answer.status.as_u16(),
            answer.code(),
            answer.json()["id"].clone()
        ),
        (404, -32001, json!(7))
    );
    assert_eq!(
        client.send(&call(8)).await.status,
        404,
        "and the server is not asked again"
    );
    server.finish();
}

#[tokio::test]
async fn a_404_that_is_the_applications_own_answer_passes() {
    let own =
        json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32601, "message": "no such method"}});
    let text = own.to_string();
    let answer = heard(|asked| asked.reply(404, &[JSON], text.clone())).await;
    assert_eq!(
        (answer.status.as_u16(), answer.text),
        (200, text),
        "a client would take 404 for the end of its session"
    );
    // Somebody else's id, or the code that means "no session", is no such answer.
    for other in [
        json!({"id": 8, "error": {"code": -32601}}),
        json!({"id": 7, "error": {"code": -32001}}),
    ] {
        let mut other = other;
        other["jsonrpc"] = json!("2.0");
        let answer = heard(|asked| asked.reply(404, &[JSON], other.to_string())).await;
        assert_eq!(answer.code(), -32001);
    }
}

#[tokio::test]
async fn the_servers_own_errors_pass_untouched() {
    let body = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"mine","data":1.0}}"#;
    for status in [200, 400, 409, 429, 500, 503] {
        let answer = heard(|asked| asked.reply(status, &[JSON], body)).await;
        assert_eq!(
            (answer.status.as_u16(), answer.text.as_str()),
            (status, body)
        );
    }
}

#[tokio::test]
async fn what_is_not_mcp_is_not_passed_on() {
    let page = "<html>log in</html>";
    for status in [200, 201, 500, 502, 503, 504] {
        let headers = [("content-type", "text/html"), ("retry-after", "1")];
        let answer = heard(|asked| asked.reply(status, &headers, page)).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (200, -31001),
            "what the server did is not known"
        );
        assert!(
            !answer.headers.contains_key("retry-after"),
            "it would invite a second run"
        );
        assert!(!answer.text.contains("html"), "{}", answer.text);
        assert!(answer.text.contains(&status.to_string()), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_refusal_that_is_not_mcp_keeps_its_status_and_says_when_to_come_back() {
    for status in [402, 405, 409, 413, 415, 429] {
        let headers = [("content-type", "text/html"), ("retry-after", "17")];
        let answer = heard(|asked| asked.reply(status, &headers, "<html>no</html>")).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (status, -31002));
        let error = &answer.json()["error"]["data"];
        assert_eq!(error["reason"], "upstream_declined");
        assert_eq!(answer.json()["id"], 7);
        assert_eq!(answer.headers["retry-after"], "17");
        assert!(!answer.text.contains("html"), "{}", answer.text);
    }
    // What the server says in JSON-RPC is passed on as it is, with or without the request's id.
    for id in ["null", "7", "\"server-error\""] {
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"slow"}}}}"#);
        let headers = [JSON, ("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")];
        let answer = heard(|asked| asked.reply(429, &headers, body.clone())).await;
        assert_eq!((answer.status.as_u16(), &answer.text), (429, &body));
        assert_eq!(
            answer.headers["retry-after"],
            "Wed, 21 Oct 2015 07:28:00 GMT"
        );
    }
}

#[tokio::test]
async fn nobody_there_is_503_and_worth_another_try() {
    let address = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let gateway = gateway(&format!("http://{address}/mcp?key=hidden")).await;
    let answer = Client::new(&gateway).initialize().await;
    assert_eq!((answer.status.as_u16(), answer.code()), (503, -31002));
    assert!(answer.headers.contains_key("retry-after"));
    assert!(answer.text.contains("refused"), "{}", answer.text);
    assert!(!answer.text.contains("hidden"), "{}", answer.text);
}

#[tokio::test]
async fn a_server_that_breaks_off_leaves_the_outcome_unknown() {
    let answer = heard(drop).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (200, -31001));
    let data = &answer.json()["error"]["data"];
    assert_eq!(
        (&data["reason"], &data["server"], &data["generation"]),
        (&json!("outcome_unknown"), &json!("s"), &json!(1))
    );
    // The same in the middle of a body whose length was announced.
    let (_gateway, mut server, client) = opened_and_told().await;
    let message = call(7);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        let asked = server.next().await;
        let mut pen = asked.begin(200, &[JSON, ("content-length", "100")]);
        pen.write("{\"jsonrpc\":");
        // What was written has left.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        pen.cut();
    });
    assert_eq!((answer.status.as_u16(), answer.code()), (200, -31001));
    assert!(answer.text.contains("answer broke off"), "{}", answer.text);
}

#[tokio::test]
async fn a_server_without_a_route_for_get_keeps_its_session() {
    let (_gateway, mut server, client) = opened_and_told().await;
    let (stream, ()) = tokio::join!(client.get().send(), async {
        server
            .next()
            .await
            .reply(404, &[("content-type", "text/html")], "Cannot GET /mcp");
        let ping = server.next().await;
        assert_eq!(ping.rpc_method(), "ping");
        ping.result(&json!({}));
    });
    assert_eq!(stream.unwrap().status(), 200);
    // One that has lost the session says so to the ping, too.
    let (stream, ()) = tokio::join!(client.get().send(), async {
        server.next().await.reply(404, &[], "");
        server.next().await.reply(404, &[], "");
    });
    assert_eq!(stream.unwrap().status(), 404);
    assert_eq!(client.send(&call(8)).await.status, 404);
    server.finish();
}

#[tokio::test]
async fn an_answer_that_came_too_early_blocks_nobody() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = gateway(&format!("http://{}/mcp", listener.local_addr().unwrap())).await;
    let answer = |status: &str, body: &str| {
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let result = json!({"jsonrpc": "2.0", "id": "init", "result": bowline_testbed::scripted::initialize_result_without_tools()}).to_string();
    let mut client = Client::new(&gateway);
    let (_, mut first) = tokio::join!(client.initialize(), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        stream
            .write_all(answer("200 OK", &result).as_bytes())
            .await
            .unwrap();
        stream
    });
    let mut large = call(1);
    large["params"]["arguments"]["text"] = json!("x".repeat(7 << 20));
    let (refused, ()) = tokio::join!(client.send(&large), async {
        assert!(first.read(&mut [0; 4096]).await.unwrap() > 0);
        first
            .write_all(answer("413 Payload Too Large", "{}").as_bytes())
            .await
            .unwrap();
    });
    assert_eq!(refused.status, 413);
    // The rest of the large request is still stuck in the first connection.
    let small = call(2);
    let (answered, ()) = tokio::join!(client.send(&small), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        stream
            .write_all(answer("200 OK", r#"{"jsonrpc":"2.0","id":2,"result":{}}"#).as_bytes())
            .await
            .unwrap();
    });
    assert_eq!(answered.status, 200);
}

#[tokio::test]
async fn connect_timeout_bounds_the_connection_and_not_the_answer() {
    // Takes connections and never says a word of TLS.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut slow = Scripted::start().await;
    let silent_url = format!("https://{}/mcp", silent.local_addr().unwrap());
    let mut config = config(&[("silent", &silent_url), ("s", slow.url())]);
    let limit = std::time::Duration::from_millis(200);
    config
        .servers
        .values_mut()
        .for_each(|server| server.connect_timeout = limit);
    let gateway = Gateway::start(config).await.unwrap();
    let started = tokio::time::Instant::now();
    let answer = Client::at(format!("http://{}/mcp/silent", gateway.listen()))
        .initialize()
        .await;
    assert_eq!((answer.status.as_u16(), answer.code()), (503, -31002));
    assert!(started.elapsed() < limit * 10, "{:?}", started.elapsed());
    // A server may think for longer than a connection may take.
    let mut client = Client::new(&gateway);
    let (answer, ()) = tokio::join!(client.initialize(), async {
        let asked = slow.next().await;
        tokio::time::sleep(limit * 2).await;
        asked.initialized(Some("u"));
    });
    assert_eq!(answer.status, 200);
}
