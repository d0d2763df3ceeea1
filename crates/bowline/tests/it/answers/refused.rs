//! Refusals that may be the answer: what they prove, and what they do not.

use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::scripted::Scripted;
use serde_json::{Value, json};

use super::odd::{OWN, next_but_pings};
use crate::kit::client::Client;
use crate::kit::gateway::config;
use crate::kit::messages::{JSON, call, list};
use crate::kit::opened::opened;

// === Refusals

/// Sends a call that its server answers like this, and looks that it is not sent again.
async fn refused(status: u16, content_type: &str, body: &str) -> (u16, Value) {
    let (_gateway, mut server, client) = opened().await;
    let message = call(7);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        let asked = server.next().await;
        asked.reply(status, &[("content-type", content_type)], body.to_owned());
    });
    let last = list("last");
    let (next, ()) = tokio::join!(client.send(&last), async {
        loop {
            let asked = server.next().await;
            match asked.rpc_method().as_str() {
                "tools/list" => break asked.result(&json!({"tools": []})),
                "ping" => asked.result(&json!({})),
                other => panic!("{other} goes again after {status} {body}"),
            }
        }
    });
    assert_eq!(next.status, 200);
    (answer.status.as_u16(), answer.json())
}

#[tokio::test]
async fn a_refusal_in_events_may_be_the_answer() {
    for status in [404, 400, 410] {
        for body in [
            format!("data: {OWN}\n\n"),
            format!("data: {{\"jsonrpc\":\"2.0\",\"method\":\"news\"}}\n\ndata: {OWN}\n\n"),
            format!("\u{feff}event: message\rid: 1\rdata: {OWN}\r\r"),
            format!(": hello\n\ndata: {}\ndata: {}\n\n", &OWN[..17], &OWN[17..]),
        ] {
            let (told, answer) = refused(status, "text/event-stream", &body).await;
            let expected = if status == 404 { 200 } else { status };
            assert_eq!(
                (told, &answer["error"]["code"]),
                (expected, &json!(-32602)),
                "{body}"
            );
        }
    }
}

#[tokio::test]
async fn a_refusal_that_others_may_read_as_the_answer_proves_nothing() {
    for (content_type, body) in [
        (
            "application/json",
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"","data":NaN}}"#,
        ),
        (
            "application/json",
            "{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"message\":\"a\nb\"}}",
        ),
        (
            "application/json",
            r#"{"jsonrpc":"2.0","id":7,"error":{},}"#,
        ),
        ("application/json", "{\0\"\0i\0d\0\"\0:\0\x37\0}\0"),
        ("text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":7,"),
        (
            "text/event-stream",
            "data: {\"jsonrpc\":\"2.0\",\"id\":7,\n\n",
        ),
    ] {
        let (status, answer) = refused(404, content_type, body).await;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (200, &json!(-31001)),
            "{body}"
        );
    }
    // Two ids, of which each peer may read another.
    let twice = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"x"},"id":null}"#;
    let (status, answer) = refused(404, "application/json", twice).await;
    assert_eq!((status, &answer["error"]["code"]), (200, &json!(-32602)));
}

#[tokio::test]
async fn a_refused_repeat_of_what_may_run_twice_is_told_as_it_is() {
    for status in [400, 429] {
        let (_gateway, mut server, client) = opened().await;
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": "resources/read", "params": {"uri": "a:b"}});
        let serving = async {
            // It may have run, and may run twice.
            drop(next_but_pings(&mut server).await);
            let again = next_but_pings(&mut server).await;
            again.reply(status, &[("content-type", "text/plain")], "no");
            let third = next_but_pings(&mut server).await;
            panic!("it goes again: {}", third.json());
        };
        let answer = tokio::select! {
            answer = client.send(&message) => answer,
            () = serving => unreachable!(),
        };
        assert_eq!(answer.status, status);
    }
}

#[tokio::test]
async fn a_refused_repeat_does_not_deny_what_ran_before_it() {
    let (_gateway, mut server, client) = opened().await;
    let tools =
        |safe: bool| json!({"tools": [{"name": "t", "annotations": {"readOnlyHint": safe}}]});
    let first = list(1);
    let listed = client.send_to(&mut server, &first, |asked| asked.result(&tools(true)));
    assert_eq!(listed.await.status, 200);
    let message =
        json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "t"}});
    let serving = async {
        drop(next_but_pings(&mut server).await);
        let again = next_but_pings(&mut server).await;
        // Meanwhile the client learns that it may not run twice.
        let second = list(2);
        let listed = client.send_to(&mut server, &second, |asked| asked.result(&tools(false)));
        assert_eq!(listed.await.status, 200);
        again.reply(400, &[("content-type", "text/plain")], "no");
        let third = next_but_pings(&mut server).await;
        panic!("it goes again: {}", third.json());
    };
    let answer = tokio::select! {
        answer = client.send(&message) => answer,
        () = serving => unreachable!(),
    };
    assert_eq!((answer.status.as_u16(), answer.code()), (200, -31001));
}

#[tokio::test]
async fn a_refusal_that_stalls_is_not_waited_for_without_end() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    let recovery = &mut config.servers.values_mut().next().unwrap().recovery;
    recovery.budget = Duration::from_secs(1);
    let gateway = Gateway::start(config).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u1").await;
    let message = call(7);
    let (answer, _stalled) = tokio::join!(client.send(&message), async {
        let asked = server.next().await;
        let mut pen = asked.begin(404, &[JSON, ("content-length", "100")]);
        pen.write(r#"{"jsonrpc""#);
        pen
    });
    assert_eq!((answer.status.as_u16(), answer.code()), (200, -31001));
}
