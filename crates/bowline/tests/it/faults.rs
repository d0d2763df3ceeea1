//! What goes wrong behind the gateway is told as it is, without secrets and without pretending.

use bowline_testbed::scripted::{Asked, Scripted};
use serde_json::json;
use tokio::net::TcpListener;

use crate::client::{Answer, Client, call, gateway};
use bowline::Gateway;

const JSON: (&str, &str) = ("content-type", "application/json");

async fn opened() -> (Gateway, Scripted, Client) {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let client = Client::open(&gateway, &mut server, "upstream-secret").await;
    (gateway, server, client)
}

/// What the client hears when the server answers a call like this.
async fn heard(answer: impl FnOnce(Asked)) -> Answer {
    let (_gateway, mut server, client) = opened().await;
    let heard = client.send_to(&mut server, &call(7), answer).await;
    server.finish();
    assert!(!heard.text.contains("upstream-secret"), "{}", heard.text);
    heard
}

#[tokio::test]
async fn a_servers_demand_for_credentials_is_not_ours() {
    for status in [401, 403] {
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
        assert_eq!(answer.status, 502);
        assert!(!answer.headers.contains_key("www-authenticate"));
        assert!(answer.text.contains(&status.to_string()), "{}", answer.text);
        assert!(!answer.text.contains("evil"), "{}", answer.text);
        assert_eq!(answer.json()["id"], 7);
        assert_eq!(answer.json()["error"]["data"]["server"], "s");
    }
}

#[tokio::test]
async fn redirects_are_refused() {
    for status in [301, 302, 303, 307, 308] {
        let answer = heard(|asked| asked.reply(status, &[("location", "/elsewhere")], "")).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (502, -31002));
        assert!(!answer.headers.contains_key("location"));
    }
}

#[tokio::test]
async fn a_session_that_the_server_forgot_is_over() {
    let (_gateway, mut server, client) = opened().await;
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
    assert_eq!((answer.status.as_u16(), answer.text), (404, text));
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
    for (status, told) in [(200, 502), (400, 502), (500, 502), (503, 503), (504, 504)] {
        let answer =
            heard(|asked| asked.reply(status, &[("content-type", "text/html")], page)).await;
        assert_eq!(answer.status, told);
        assert!(!answer.text.contains("html"), "{}", answer.text);
        assert!(answer.text.contains(&status.to_string()), "{}", answer.text);
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
    assert_eq!((answer.status.as_u16(), answer.code()), (502, -31001));
    let data = &answer.json()["error"]["data"];
    assert_eq!(
        (&data["reason"], &data["server"], &data["generation"]),
        (&json!("outcome_unknown"), &json!("s"), &json!(1))
    );
    // The same in the middle of a body whose length was announced.
    let answer = heard(|asked| {
        let mut pen = asked.begin(200, &[JSON, ("content-length", "100")]);
        pen.write("{\"jsonrpc\":");
        pen.cut();
    })
    .await;
    assert_eq!((answer.status.as_u16(), answer.code()), (502, -31001));
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
