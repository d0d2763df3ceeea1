//! A leg's cookies: from the first answer on, on every method, and nobody else's.

use bowline::Gateway;
use bowline_testbed::scripted::Scripted;
use serde_json::json;

use crate::kit::client::Client;
use crate::kit::gateway::{config, gateway};
use crate::kit::messages::call;

#[tokio::test]
async fn a_cookie_is_sent_from_the_first_answer_on_with_every_method() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let mut client = Client::new(&gateway);
    let (opened, ()) = tokio::join!(client.initialize(), async {
        let asked = server.next().await;
        assert_eq!(asked.header("cookie"), "");
        let headers = [
            ("mcp-session-id", "u"),
            ("set-cookie", "SRV=r1; path=/; HttpOnly"),
        ];
        asked.result_with(&headers, &bowline_testbed::scripted::initialize_result());
    });
    assert!(!opened.headers.contains_key("set-cookie"));

    let answer = client
        .send_to(&mut server, &call(1), |asked| {
            assert_eq!(asked.header("cookie"), "SRV=r1");
            // An error's cookie counts, too.
            asked.reply(
                500,
                &[
                    ("content-type", "application/json"),
                    ("set-cookie", "SRV=r2; path=/"),
                ],
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"x"}}"#,
            );
        })
        .await;
    assert_eq!(answer.status, 500);
    assert!(!answer.headers.contains_key("set-cookie"));

    let (stream, ()) = tokio::join!(client.get().send(), async {
        let asked = server.next().await;
        assert_eq!(asked.header("cookie"), "SRV=r2");
        let headers = [
            ("content-type", "text/event-stream"),
            ("set-cookie", "SRV=r3; path=/"),
        ];
        asked.reply(200, &headers, ": hello\n\n");
    });
    assert!(!stream.unwrap().headers().contains_key("set-cookie"));
    // So does the cookie of a refusal.
    let again = call(2);
    let refused = client.send_to(&mut server, &again, |asked| {
        assert_eq!(asked.header("cookie"), "SRV=r3");
        asked.reply(401, &[("set-cookie", "SRV=r4; path=/")], "");
    });
    assert_eq!(refused.await.code(), -31003);
    client
        .send_to(
            &mut server,
            &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            |asked| {
                assert_eq!(asked.header("cookie"), "SRV=r4", "the balancer pinned anew");
                asked.reply(202, &[], "");
            },
        )
        .await;
    client.delete().send().await.unwrap();
    let asked = server.next().await;
    assert_eq!(
        (asked.method.as_str(), asked.header("cookie")),
        ("DELETE", "SRV=r4")
    );
    server.finish();
}

#[tokio::test]
async fn cookies_stay_with_their_session_and_their_server() {
    let (mut one, mut two) = (Scripted::start().await, Scripted::start().await);
    let gateway = Gateway::start(config(&[("one", one.url()), ("two", two.url())]))
        .await
        .unwrap();
    let at = |name: &str| Client::at(format!("http://{}/mcp/{name}", gateway.listen()));
    let (mut first, mut second, mut other) = (at("one"), at("one"), at("two"));
    tokio::join!(first.initialize(), async {
        let headers = [
            ("mcp-session-id", "u1"),
            ("set-cookie", "SRV=r1; path=/; Domain=127.0.0.1"),
        ];
        one.next()
            .await
            .result_with(&headers, &bowline_testbed::scripted::initialize_result());
    });
    tokio::join!(second.initialize(), async {
        let asked = one.next().await;
        assert_eq!(asked.header("cookie"), "");
        asked.initialized(Some("u2"));
    });
    tokio::join!(other.initialize(), async {
        let asked = two.next().await;
        assert_eq!(asked.header("cookie"), "");
        asked.initialized(Some("u3"));
    });
    for (client, server, cookie) in [(&first, 1, "SRV=r1"), (&second, 1, ""), (&other, 2, "")] {
        let server = if server == 1 { &mut one } else { &mut two };
        let check = |asked: bowline_testbed::scripted::Asked| {
            assert_eq!(asked.header("cookie"), cookie);
            asked.result(&json!({}));
        };
        assert_eq!(client.send_to(server, &call(1), check).await.status, 200);
    }
}
