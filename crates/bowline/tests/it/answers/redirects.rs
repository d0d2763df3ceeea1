//! Redirects within a server's origin: followed where nothing ran or it may run twice, and those for
//! good are remembered.

use bowline::Gateway;
use bowline_testbed::scripted::Scripted;
use serde_json::json;

use crate::kit::client::{Answer, Client};
use crate::kit::gateway::{config, gateway};
use crate::kit::messages::{call, list};
use crate::kit::opened::{opened_shown, tools};

/// Opens a session while the server redirects `initialize` with this status.
async fn opened_behind(status: u16, gateway: &Gateway, server: &mut Scripted) -> Client {
    let mut client = Client::new(gateway);
    let (answer, ()) = tokio::join!(client.initialize(), async {
        let first = server.next().await;
        assert_eq!(first.target, "/mcp");
        first.reply(status, &[("location", "/moved/mcp")], "");
        let second = server.next().await;
        assert_eq!(
            (second.target.as_str(), second.method.as_str()),
            ("/moved/mcp", "POST")
        );
        assert_eq!(second.rpc_method(), "initialize");
        second.initialized(Some("u"));
    });
    assert_eq!(answer.status, 200, "{}", answer.text);
    client
}

/// A call that the server answers at this target.
async fn called_at(target: &str, client: &Client, server: &mut Scripted) -> Answer {
    let message = call(7);
    client
        .send_to(server, &message, |asked| {
            assert_eq!(asked.target, target);
            asked.result(&json!({}));
        })
        .await
}

#[tokio::test]
async fn a_call_that_may_not_run_twice_is_not_sent_where_a_redirect_does_not_say_that_it_did_not() {
    for status in [301, 302, 303] {
        let mut server = Scripted::start().await;
        let gateway = gateway(server.url()).await;
        let client = Client::open(&gateway, &mut server, "u").await;
        let answer = client
            .send_to(&mut server, &call(7), |asked| {
                // It has run, and this is what a form's handler says then.
                asked.reply(status, &[("location", "/done")], "");
            })
            .await;
        assert_eq!(answer.code(), -31001, "{}", answer.text);
        assert!(answer.text.contains(&status.to_string()), "{}", answer.text);
        server.finish();
    }
}

#[tokio::test]
async fn a_redirect_whose_body_is_the_calls_own_answer_is_not_followed() {
    for status in [300, 301, 302, 303, 307, 308] {
        let mut server = Scripted::start().await;
        let gateway = gateway(server.url()).await;
        let client = Client::open(&gateway, &mut server, "u").await;
        let answer = client
            .send_to(&mut server, &call(7), |asked| {
                let ran = json!({"jsonrpc": "2.0", "id": asked.json()["id"], "result": {"ran": 1}});
                let headers = [("location", "/done"), ("content-type", "application/json")];
                asked.reply(status, &headers, ran.to_string());
            })
            .await;
        assert_eq!(answer.status, 200, "{status}: {}", answer.text);
        assert_eq!(answer.json()["result"]["ran"], 1, "{status}");
        server.finish();
    }
}

/// Nobody knows whether it was the call's own answer.
#[tokio::test]
async fn a_redirect_whose_body_is_cut_is_not_followed() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let client = Client::open(&gateway, &mut server, "u").await;
    let answer = client
        .send_to(&mut server, &call(7), |asked| {
            let headers = [("location", "/done"), ("content-type", "application/json")];
            asked.reply(307, &headers, "{\"jsonrpc\":\"2.0\",\"id\":");
        })
        .await;
    assert_eq!(answer.code(), -31001, "{}", answer.text);
    // It was not sent again: the session is asked after.
    assert_eq!(server.next().await.rpc_method(), "ping");
}

#[tokio::test]
async fn what_may_run_twice_follows_every_redirect_within_the_origin() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let client = Client::open(&gateway, &mut server, "u").await;
    for status in [302, 303, 307] {
        let message = list(7);
        let (answer, ()) = tokio::join!(client.send(&message), async {
            loop {
                let asked = server.next().await;
                assert_eq!(
                    (asked.method.as_str(), asked.rpc_method().as_str()),
                    ("POST", "tools/list")
                );
                if asked.target == "/there" {
                    return asked.result(&json!({"tools": []}));
                }
                asked.reply(status, &[("location", "/there")], "");
            }
        });
        assert_eq!(answer.status, 200, "{status}: {}", answer.text);
    }
    server.finish();
}

#[tokio::test]
async fn a_tool_that_is_not_safe_any_more_is_not_sent_where_a_redirect_does_not_say_that_it_did_not_run()
 {
    for status in [301, 302, 303] {
        for is_safe in [true, false] {
            let (_gateway, mut server, client) = opened_shown(|_| {}).await;
            server.lists(&tools(is_safe));
            let message = call(7);
            let (answer, ()) = tokio::join!(client.send(&message), async {
                let moved = [("location", "/moved/mcp")];
                server.next().await.reply(status, &moved, "");
                if is_safe {
                    server.next().await.reply(status, &moved, "");
                    let again = server.next().await;
                    assert_eq!(again.target, "/moved/mcp");
                    again.result(&json!({}));
                }
            });
            assert_eq!(answer.failure(), (!is_safe).then_some(-31001), "{status}");
            server.finish();
        }
    }
}

#[tokio::test]
async fn a_redirect_for_good_is_remembered_until_the_configuration_changes() {
    for status in [301, 308] {
        let mut server = Scripted::start().await;
        let gateway = gateway(server.url()).await;
        let client = opened_behind(status, &gateway, &mut server).await;
        // What may not run twice meets no redirect.
        assert_eq!(
            called_at("/moved/mcp", &client, &mut server).await.status,
            200
        );
        gateway.reload(config(&[("s", server.url())])).unwrap();
        assert_eq!(called_at("/mcp", &client, &mut server).await.status, 200);
        server.finish();
    }
    for status in [302, 303, 307] {
        let mut server = Scripted::start().await;
        let gateway = gateway(server.url()).await;
        let client = opened_behind(status, &gateway, &mut server).await;
        assert_eq!(called_at("/mcp", &client, &mut server).await.status, 200);
        server.finish();
    }
}

#[tokio::test]
async fn what_was_remembered_and_is_not_there_is_forgotten() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    opened_behind(301, &gateway, &mut server).await;
    let mut client = Client::new(&gateway);
    let (answer, ()) = tokio::join!(client.initialize(), async {
        let asked = server.next().await;
        assert_eq!(asked.target, "/moved/mcp");
        asked.reply(404, &[], "");
        // It is asked whether it speaks HTTP+SSE.
        let asked = server.next().await;
        assert_eq!(
            (asked.method.as_str(), asked.target.as_str()),
            ("GET", "/mcp")
        );
        asked.reply(404, &[], "");
    });
    assert_ne!(answer.status, 200);
    let (answer, ()) = tokio::join!(client.initialize(), async {
        let asked = server.next().await;
        assert_eq!(asked.target, "/mcp");
        asked.initialized(Some("v"));
    });
    assert_eq!(answer.status, 200);
    server.finish();
}

#[tokio::test]
async fn what_is_one_callers_own_is_not_remembered_for_others() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let mut alice = Client::at(format!("http://{}/mcp/s?tenant=alice", gateway.listen()));
    let (answer, ()) = tokio::join!(alice.initialize(), async {
        let asked = server.next().await;
        assert_eq!(asked.target, "/mcp?tenant=alice");
        asked.reply(301, &[("location", "/alice/mcp?tenant=alice")], "");
        server.next().await.initialized(Some("u"));
    });
    assert_eq!(answer.status, 200);
    let mut bob = Client::new(&gateway);
    let (answer, ()) = tokio::join!(bob.initialize(), async {
        let asked = server.next().await;
        assert_eq!(asked.target, "/mcp");
        asked.initialized(Some("v"));
    });
    assert_eq!(answer.status, 200);
    // Another spelling of the path is everybody's, without the query.
    let (answer, ()) = tokio::join!(alice.initialize(), async {
        let asked = server.next().await;
        asked.reply(301, &[("location", "/mcp/?tenant=alice")], "");
        server.next().await.initialized(Some("w"));
    });
    assert_eq!(answer.status, 200);
    assert_eq!(called_at("/mcp/", &bob, &mut server).await.status, 200);
    server.finish();
}

#[tokio::test]
async fn where_one_sessions_call_was_led_no_other_session_goes() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let ann = Client::open(&gateway, &mut server, "u1").await;
    let bob = Client::open(&gateway, &mut server, "u2").await;
    let message = call(7);
    let (answer, ()) = tokio::join!(ann.send(&message), async {
        let asked = server.next().await;
        asked.reply(308, &[("location", "/tenants/ann/mcp")], "");
        let asked = server.next().await;
        assert_eq!(asked.target, "/tenants/ann/mcp");
        asked.result(&json!({}));
    });
    assert_eq!(answer.status, 200);
    called_at("/mcp", &bob, &mut server).await;
}

#[tokio::test]
async fn what_moved_back_is_found_there() {
    for status in [400, 405, 503] {
        let mut server = Scripted::start().await;
        let gateway = gateway(server.url()).await;
        let _first = opened_behind(308, &gateway, &mut server).await;
        let mut next = Client::new(&gateway);
        let (answer, ()) = tokio::join!(next.initialize(), async {
            let asked = server.next().await;
            assert_eq!(asked.target, "/moved/mcp");
            asked.reply(status, &[], "");
            let asked = server.next().await;
            assert_eq!(asked.target, "/mcp");
            match status {
                // Tried again at once: there.
                503 => asked.initialized(Some("u2")),
                // It is asked whether it speaks HTTP+SSE.
                _ => {
                    assert_eq!(asked.method, "GET");
                    asked.reply(405, &[], "");
                }
            }
        });
        if status == 503 {
            assert_eq!(answer.status, 200, "{}", answer.text);
            continue;
        }
        let other = Client::open(&gateway, &mut server, "u3").await;
        called_at("/mcp", &other, &mut server).await;
    }
}
