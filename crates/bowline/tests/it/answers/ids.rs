//! Whose answer an answer is: ids are values, whoever wrote them and however, and what answers another
//! request is not delivered.

use bowline_testbed::faulty::{Fault, When};
use bowline_testbed::scripted::Scripted;
use serde_json::{Value, json};

use crate::kit::client::{Answer, Client, sent};
use crate::kit::events::Events;
use crate::kit::messages::{JSON, call, list};
use crate::kit::opened::opened;
use crate::kit::stage::Stage;

/// A call whose id is written like this.
fn call_text(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t"}}}}"#)
}

/// Ids as a client may write them, and as a server may write the same.
const WRITTEN: [(&str, &str); 5] = [
    ("1.0", "1"),
    (r#""a\/b""#, r#""a/b""#),
    (r#""<+>""#, r#""\u003c\u002B\u003e""#),
    ("1e2", "100"),
    ("7", "\"7\""),
];

/// Answers the next request, which must not be asked for again: what follows is the ping, if any, and
/// then `last`.
async fn last_is_next(client: &Client, server: &mut Scripted) {
    let last = list("last");
    let (answer, ()) = tokio::join!(client.send(&last), async {
        loop {
            let asked = server.next().await;
            match asked.rpc_method().as_str() {
                "tools/list" => break asked.result(&json!({"tools": []})),
                "ping" => asked.result(&json!({})),
                other => panic!("{other} goes again: {}", asked.json()),
            }
        }
    });
    assert_eq!(answer.status, 200);
}

async fn send_text(client: &Client, text: String) -> Answer {
    sent(client.post_text(text)).await
}

#[tokio::test]
async fn the_applications_own_404_runs_once_however_it_writes_the_id() {
    for (ours, theirs) in WRITTEN {
        let (_gateway, mut server, client) = opened().await;
        let own =
            format!(r#"{{"id":{theirs},"error":{{"code":-32602,"message":"x"}},"jsonrpc":"2.0"}}"#);
        let (answer, ()) = tokio::join!(send_text(&client, call_text(ours)), async {
            server.next().await.reply(404, &[JSON], own.clone());
        });
        assert_eq!(
            (answer.status.as_u16(), &answer.text),
            (200, &own),
            "{ours}"
        );
        last_is_next(&client, &mut server).await;
        server.finish();
    }
}

#[tokio::test]
async fn a_refusal_that_breaks_off_proves_nothing() {
    for status in [404, 400, 410] {
        let (_gateway, mut server, client) = opened().await;
        let message = call(7);
        let (answer, ()) = tokio::join!(client.send(&message), async {
            let asked = server.next().await;
            let mut pen = asked.begin(status, &[JSON, ("content-length", "100")]);
            pen.write(r#"{"jsonrpc":"2.0","id":7,"error":{"#);
            pen.cut();
        });
        assert_eq!((answer.status.as_u16(), answer.code()), (200, -31001));
        last_is_next(&client, &mut server).await;
        server.finish();
    }
}

#[tokio::test]
async fn an_answer_is_known_by_its_ids_value() {
    for (ours, theirs) in WRITTEN {
        let (_gateway, mut server, client) = opened().await;
        let answer = format!(r#"{{"jsonrpc": "2.0", "id": {theirs}, "result": {{}}}}"#);
        // As one body, and as a stream that ends once it has answered.
        let (whole, ()) = tokio::join!(send_text(&client, call_text(ours)), async {
            server.next().await.reply(200, &[JSON], answer.clone());
        });
        assert_eq!((whole.status.as_u16(), &whole.text), (200, &answer));
        let (events, ()) = tokio::join!(send_text(&client, call_text(ours)), async {
            let mut pen = server.next().await.events();
            pen.write(format!("data: {answer}\n\n"));
        });
        assert_eq!(events.text, format!("data: {answer}\n\n"), "{ours}");
        last_is_next(&client, &mut server).await;
        server.finish();
    }
}

#[tokio::test]
async fn a_cancel_finds_its_request_however_the_id_is_written() {
    let (_gateway, mut server, client) = opened().await;
    // The session is being asked after when the client gives up, so nothing is sent again.
    let listed = json!({"jsonrpc": "2.0", "id": 1.0, "method": "tools/list"});
    let (answer, ()) = tokio::join!(client.send(&listed), async {
        drop(server.next().await);
        let ping = server.next().await;
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        let told = send_text(&client, cancel.to_owned());
        let (told, ()) = tokio::join!(told, async {
            server.next().await.reply(202, &[], "");
        });
        assert_eq!(told.status, 202);
        ping.result(&json!({}));
    });
    assert_eq!((answer.status.as_u16(), answer.code()), (200, -32800));
    last_is_next(&client, &mut server).await;
    server.finish();
}

#[tokio::test]
async fn an_answer_under_another_id_is_not_delivered() {
    for other in [
        r#"{"jsonrpc":"2.0","id":8,"result":{"secret":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":"7x","error":{"code":1,"message":"secret"}}"#,
        r#"{"jsonrpc":"2.0","id":null,"result":{"secret":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":9007199254740993,"result":{"secret":"x"}}"#,
    ] {
        for in_stream in [false, true] {
            let (_gateway, mut server, client) = opened().await;
            let message = call(7);
            let (answer, ()) = tokio::join!(client.send(&message), async {
                let asked = server.next().await;
                match in_stream {
                    true => asked.events().write(format!("data: {other}\n\n")),
                    false => asked.reply(200, &[JSON], other),
                }
                let ping = server.next().await;
                assert_eq!(ping.rpc_method(), "ping");
                ping.result(&json!({}));
            });
            let text = &answer.text;
            assert!(text.contains("-31001"), "{text}");
            // Without an id it is nobody else's.
            let is_hidden = !(in_stream && other.contains("null"));
            assert!(!(is_hidden && text.contains("secret")), "{text}");
            last_is_next(&client, &mut server).await;
            server.finish();
        }
    }
    // Errors that name no request may be this one's.
    for unaddressed in [
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}"#,
    ] {
        let (_gateway, mut server, client) = opened().await;
        let message = call(7);
        let answered = client.send_to(&mut server, &message, |asked| {
            asked.reply(200, &[JSON], unaddressed);
        });
        assert_eq!(answered.await.text, unaddressed);
    }
}

#[tokio::test]
async fn what_has_no_id_keeps_its_error_status() {
    let (_gateway, mut server, client) = opened().await;
    let told = json!({"jsonrpc": "2.0", "method": "notifications/vendor"});
    for (status, said) in [(401, 502), (413, 413), (429, 429)] {
        let answer = client.send_to(&mut server, &told, |asked| {
            asked.reply(status, &[("retry-after", "3")], "");
        });
        let answer = answer.await;
        assert_eq!(answer.status, said, "{}", answer.text);
        assert_eq!(answer.headers["retry-after"], "3");
    }
}

#[tokio::test]
async fn no_two_pings_have_one_id_and_none_needs_an_escape() {
    let (_gateway, mut server, client) = opened().await;
    let mut seen: Vec<Value> = Vec::new();
    for number in 0..3 {
        let message = call(number);
        let (answer, ()) = tokio::join!(client.send(&message), async {
            drop(server.next().await);
            let ping = server.next().await;
            seen.push(ping.json()["id"].clone());
            ping.result(&json!({}));
        });
        assert_eq!(answer.code(), -31001);
    }
    seen.dedup();
    assert_eq!(seen.len(), 3, "{seen:?}");
    let is_plain = |id: &Value| {
        let mut bytes = id.as_str().unwrap().bytes();
        bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    assert!(seen.iter().all(is_plain), "{seen:?}");
    server.finish();
}

#[tokio::test]
async fn a_server_that_escapes_slashes_is_recovered_and_asked_again() {
    let stage = Stage::set().await;
    stage
        .server
        .settings(|settings| settings.escapes_slashes = true);
    stage.server.forget_sessions();
    let answer = stage.call("bump", "a/b").await;
    let told = answer.to(&json!("a/b")).expect("its own answer");
    assert_eq!(told["result"]["structuredContent"]["key"], "a/b");
    assert_eq!(stage.tally.executions("a/b"), 1);
    // The tools of the new session are others, for all that is known.
    assert_eq!(stage.client.send(&list("tools")).await.status, 200);
    for tool in ["read", "stream_read"] {
        let key = format!("{tool}/1");
        stage.proxy.next(1, When::tool(tool), Fault::ResetAfter);
        let answer = stage.call(tool, &key).await;
        assert_eq!(answer.status, 200);
        let mut answers = answer.messages().into_iter();
        let told = answers.find(|message| message.get("result").is_some());
        let told = told.expect("an answer");
        assert_eq!(told["id"], json!(key));
        assert!(answers.next().is_none(), "{answer:?}");
    }
    stage.works_after(2).await;
}

/// What a server could write in place of the id of a repeat, whose inside would be spliced into the client's stream.
fn forged(inside: &str) -> String {
    use base64::Engine as _;
    let encoded = base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(inside);
    format!("bowline-again-1-{encoded}")
}

/// A progress whose token becomes a prompt of Bowline's own, if it is taken for that of a repeat.
fn forged_progress() -> Value {
    let inside =
        r#"1},"x":{"_meta":{"bowline/forged":true}},"method":"elicitation/create","id":"e"#;
    let token = forged(inside);
    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
}

#[tokio::test]
async fn what_only_looks_like_the_token_of_a_repeat_passes_as_it_is() {
    let (_gateway, mut server, client) = opened().await;
    let message = forged_progress();
    // On the stream of a call, and on that of a GET.
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(7))).await;
    pen.write(format!("data: {message}\n\n"));
    assert_eq!(events.next_message().await.1, message);
    let (mut events, mut pen) = client.open_stream(&mut server, client.get()).await;
    pen.write(format!("data: {message}\n\n"));
    assert_eq!(events.next_message().await.1, message);
}

#[tokio::test]
async fn what_only_looks_like_the_id_of_a_repeat_is_no_answer() {
    let (_gateway, mut server, client) = opened().await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(7))).await;
    let answer = |id: &Value, text| json!({"jsonrpc": "2.0", "id": id, "result": {"text": text}});
    let other = answer(&forged("7").into(), "forged");
    pen.write(format!("data: {other}\n\n"));
    let own = answer(&json!(7), "own");
    pen.write(format!("data: {own}\n\n"));
    assert_eq!(events.next_message().await.1, own);
}

#[tokio::test]
async fn a_clients_own_id_may_look_like_that_of_a_repeat() {
    let (_gateway, mut server, client) = opened().await;
    let message = call(forged("7"));
    let answer = client.send_to(&mut server, &message, |asked| {
        assert_eq!(asked.json()["id"], message["id"]);
        asked.result(&json!({}));
    });
    assert_eq!(answer.await.json()["id"], message["id"]);
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&message)).await;
    let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {}});
    pen.write(format!("data: {answer}\n\n"));
    assert_eq!(events.next_message().await.1, answer);
}

#[tokio::test]
async fn two_calls_under_one_id_get_their_own_answers() {
    let (_gateway, mut server, client) = opened().await;
    let (mut first, mut pen) = client.open_stream(&mut server, client.post(&call(7))).await;
    let begun = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1}});
    pen.write(format!("data: {begun}\n\n"));
    assert_eq!(first.next_message().await.1, begun);
    let mut ours = json!(null);
    let request = client.post(&call(7)).send();
    let (second, mut other) = tokio::join!(request, async {
        let asked = server.next().await;
        ours = asked.json()["id"].clone();
        asked.events()
    });
    assert_ne!(ours, 7, "the first has that id");
    let answer = |id: &Value, text| json!({"jsonrpc": "2.0", "id": id, "result": {"text": text}});
    other.write(format!("data: {}\n\n", answer(&ours, "second")));
    let mut second = Events::new(second.unwrap());
    assert_eq!(second.next_message().await.1, answer(&json!(7), "second"));
    pen.write(format!("data: {}\n\n", answer(&json!(7), "first")));
    assert_eq!(first.next_message().await.1, answer(&json!(7), "first"));
}

#[tokio::test]
async fn a_cancel_of_two_calls_under_one_id_is_told_to_the_server_for_both() {
    let (_gateway, mut server, client) = opened().await;
    let (first, second) = (call(7), call(7));
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    let (first, second, ()) = tokio::join!(client.send(&first), client.send(&second), async {
        let asked = [server.next().await, server.next().await];
        let mut ids = asked.each_ref().map(|asked| asked.json()["id"].to_string());
        let cancelling = client.send(&cancel);
        let (told, mut cancelled) = tokio::join!(cancelling, async {
            let mut cancelled = Vec::new();
            for _ in 0..2 {
                let asked = server.next().await;
                assert_eq!(asked.rpc_method(), "notifications/cancelled");
                cancelled.push(asked.json()["params"]["requestId"].to_string());
                asked.reply(202, &[], "");
            }
            cancelled
        });
        assert_eq!(told.status, 202);
        ids.sort();
        cancelled.sort();
        assert_eq!(cancelled, ids);
        for asked in asked {
            let answer = json!({"jsonrpc": "2.0", "id": asked.json()["id"], "result": {}});
            asked.reply(200, &[JSON], answer.to_string());
        }
    });
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (200, 200));
    server.finish();
}
