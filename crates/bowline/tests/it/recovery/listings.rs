//! What is learnt of tools: a call whose outcome is unknown goes again only if its caller was shown, by
//! the newest listing and of the server as it is now, that the tool may run twice.

use bowline::Gateway;
use bowline_testbed::scripted::{Asked, PATIENCE, Pen, Scripted};
use reqwest::RequestBuilder;
use serde_json::{Value, json};

use crate::kit::across::Across;
use crate::kit::client::{Answer, Client};
use crate::kit::events::Events;
use crate::kit::gateway::{config, gateway};
use crate::kit::messages::{JSON, call, list, note};
use crate::kit::opened::{BATCHING, broken_call, forgot, opened, opened_speaking, tools};
use crate::kit::stores::in_file;

const CHANGED: &str = "notifications/tools/list_changed";

fn tool(read_only: bool) -> Value {
    tools(read_only)["tools"][0].clone()
}

/// Sends a message, which the server answers like this; a ping may be an earlier call's.
async fn answered(
    server: &mut Scripted,
    client: &Client,
    message: &Value,
    answer: impl FnOnce(Asked),
) -> Answer {
    let (answered, ()) = tokio::join!(client.send(message), async {
        loop {
            let asked = server.next().await;
            match asked.rpc_method().as_str() {
                "ping" => asked.result(&json!({})),
                _ => return answer(asked),
            }
        }
    });
    answered
}

/// The client lists the tools, and is shown this.
async fn shown(server: &mut Scripted, client: &Client, tools: &Value) {
    let message = list("tools");
    let listed = answered(server, client, &message, |asked| asked.result(tools));
    assert_eq!(listed.await.json()["result"], *tools);
}

/// Opens a stream that the test goes on writing; a ping may be an earlier call's.
async fn streamed(server: &mut Scripted, request: RequestBuilder) -> (Events, Pen) {
    let (response, pen) = tokio::join!(request.send(), async {
        loop {
            let asked = server.next().await;
            match asked.rpc_method().as_str() {
                "ping" => asked.result(&json!({})),
                _ => return asked.events(),
            }
        }
    });
    (Events::new(response.unwrap()), pen)
}

/// A call that breaks is repeated, once the gateway's own list confirms that.
async fn repeats(server: &mut Scripted, client: &Client) {
    server.lists(&tools(true));
    let (answer, runs) = broken_call(server, client).await;
    assert_eq!(runs, 2, "{answer:?}");
    assert_eq!(answer.json()["result"], json!({}), "{answer:?}");
}

/// A call that breaks is not repeated: its client is told.
async fn tells(server: &mut Scripted, client: &Client) {
    server.lists(&json!({"tools": []}));
    let (answer, runs) = broken_call(server, client).await;
    assert_eq!((answer.code(), runs), (-31001, 1), "{answer:?}");
}

/// A call finds that the server lost the session: it is opened anew, as `next`.
async fn recovered(server: &mut Scripted, client: &Client, next: &str) {
    let message = call(8);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        loop {
            let asked = server.next().await;
            match (asked.header("mcp-session-id"), asked.rpc_method().as_str()) {
                (id, "ping") if id == next => asked.result(&json!({})),
                (_, "initialize") => asked.initialized(Some(next)),
                (id, _) if id == next => return asked.result(&json!({})),
                _ => forgot(asked),
            }
        }
    });
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// Waits until the gateway of this client has heard of the new generation.
async fn hears(server: &mut Scripted, client: &Client, next: &str) {
    let message = call(9);
    let heard = async {
        loop {
            let mut is_next = false;
            let calling = answered(server, client, &message, |asked| {
                is_next = asked.header("mcp-session-id") == next;
                asked.result(&json!({}));
            });
            calling.await;
            if is_next {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, heard).await.unwrap();
}

#[tokio::test]
async fn an_odd_entry_neither_hides_the_others_nor_keeps_what_they_take_back() {
    let (_gateway, mut server, client) = opened().await;
    for odd in [
        json!({"name": "n", "annotations": null}),
        json!({"name": "n", "annotations": {"readOnlyHint": null}}),
        json!({"name": "n", "annotations": {"idempotentHint": "yes"}}),
        json!({"annotations": {"readOnlyHint": true}}),
        json!(7),
    ] {
        let listing = |read_only| json!({"tools": [odd, tool(read_only), odd]});
        shown(&mut server, &client, &listing(true)).await;
        repeats(&mut server, &client).await;
        shown(&mut server, &client, &listing(false)).await;
        tells(&mut server, &client).await;
    }
    // What cannot be read of the tool itself takes back what was known of it.
    for annotations in [json!(null), json!({"readOnlyHint": "true"})] {
        shown(&mut server, &client, &tools(true)).await;
        repeats(&mut server, &client).await;
        let odd = json!({"tools": [{"name": "t", "annotations": annotations}]});
        shown(&mut server, &client, &odd).await;
        tells(&mut server, &client).await;
    }
    // And what is no listing takes back everything.
    shown(&mut server, &client, &tools(true)).await;
    shown(&mut server, &client, &json!({"tools": {"t": {}}})).await;
    tells(&mut server, &client).await;
}

#[tokio::test]
async fn tools_that_changed_are_told_on_every_kind_of_stream() {
    let (_gateway, mut server, client) = opened().await;
    let (changed, one) = (note(CHANGED), call(1));
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    for events in [
        format!("data: {changed}\n\n"),
        format!("data: {}\n\n", json!([note("x/other"), changed])),
    ] {
        shown(&mut server, &client, &tools(true)).await;
        repeats(&mut server, &client).await;
        let (mut stream, mut pen) = streamed(&mut server, client.get()).await;
        pen.write(events.clone());
        while stream.next_message().await.1["method"] != CHANGED {}
        tells(&mut server, &client).await;

        shown(&mut server, &client, &tools(true)).await;
        repeats(&mut server, &client).await;
        let (mut stream, mut pen) = streamed(&mut server, client.post(&one)).await;
        pen.write(events);
        while stream.next_message().await.1["method"] != CHANGED {}
        tells(&mut server, &client).await;
        pen.write(format!("data: {answer}\n\n"));
        stream.next_message().await;
    }
}

/// A listing of about so many bytes with `t` at its end.
fn large(length: usize, read_only: bool) -> Value {
    let filler = |number| json!({"name": format!("f{number}"), "description": "x".repeat(2000)});
    let mut tools: Vec<_> = (0..length / 2000).map(filler).collect();
    tools.push(tool(read_only));
    json!({"tools": tools})
}

#[tokio::test]
async fn a_listing_is_learnt_however_it_is_framed() {
    for version in ["2025-11-25", "2025-03-26"] {
        let (_gateway, mut server, client) = opened_speaking(version, |_| {}).await;
        let message = list("tools");
        let answer = |length, read_only| {
            let result = large(length, read_only);
            json!({"jsonrpc": "2.0", "id": "tools", "result": result}).to_string()
        };
        for length in [0, 200_000] {
            // Each of these teaches, and takes back what the one before has taught.
            for framing in ["length", "chunks", "events", "array"] {
                for read_only in [true, false] {
                    let body = match framing {
                        "events" => format!("data: {}\n\n", answer(length, read_only)),
                        "array" => format!("[{}]", answer(length, read_only)),
                        _ => answer(length, read_only),
                    };
                    let events = ("content-type", "text/event-stream");
                    if framing == "array" && version == "2025-11-25" {
                        continue;
                    }
                    let listed = answered(&mut server, &client, &message, |asked| match framing {
                        "length" => asked.reply(200, &[JSON], body.clone()),
                        "events" => asked.begin(200, &[events]).write(body.clone()),
                        _ => asked.begin(200, &[JSON]).write(body.clone()),
                    });
                    assert_eq!(listed.await.text, body, "{framing} {length}");
                    match read_only {
                        true => repeats(&mut server, &client).await,
                        false => tells(&mut server, &client).await,
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_listing_that_is_too_large_to_be_looked_into_takes_back_everything() {
    let (_gateway, mut server, client) = opened().await;
    for is_announced in [true, false] {
        shown(&mut server, &client, &tools(true)).await;
        repeats(&mut server, &client).await;
        let result = large(9_000_000, false);
        let body = json!({"jsonrpc": "2.0", "id": "tools", "result": result}).to_string();
        let message = list("tools");
        let listed = answered(&mut server, &client, &message, |asked| match is_announced {
            true => asked.reply(200, &[JSON], body.clone()),
            false => asked.begin(200, &[JSON]).write(body.clone()),
        });
        assert!(listed.await.text == body, "it passes all the same");
        tells(&mut server, &client).await;
    }
}

#[tokio::test]
async fn tools_that_changed_are_told_in_an_array() {
    let (_gateway, mut server, client) = opened_speaking(BATCHING, |_| {}).await;
    shown(&mut server, &client, &tools(true)).await;
    repeats(&mut server, &client).await;
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    let array = json!([note(CHANGED), answer]).to_string();
    let one = call(1);
    let told = answered(&mut server, &client, &one, |asked| {
        asked.reply(200, &[JSON], array);
    });
    assert_eq!(told.await.status, 200);
    tells(&mut server, &client).await;
}

#[tokio::test]
async fn after_a_recovery_nothing_counts_until_there_is_a_new_listing() {
    let (_gateway, mut server, client) = opened().await;
    shown(&mut server, &client, &tools(true)).await;
    repeats(&mut server, &client).await;
    recovered(&mut server, &client, "u2").await;
    // For all that is known it is destructive now.
    tells(&mut server, &client).await;
    shown(&mut server, &client, &tools(false)).await;
    tells(&mut server, &client).await;
    shown(&mut server, &client, &tools(true)).await;
    repeats(&mut server, &client).await;
}

#[tokio::test]
async fn a_listing_of_the_generation_before_teaches_nothing() {
    let (_gateway, mut server, client) = opened().await;
    let message = list("tools");
    let listing = client.post(&message).send();
    let asked = async {
        let asked = server.next().await;
        assert_eq!(asked.rpc_method(), "tools/list");
        recovered(&mut server, &client, "u2").await;
        asked.result(&tools(true));
    };
    let (listed, ()) = tokio::join!(listing, asked);
    assert_eq!(listed.unwrap().status(), 200);
    tells(&mut server, &client).await;
    shown(&mut server, &client, &tools(true)).await;
    repeats(&mut server, &client).await;
}

#[tokio::test]
async fn a_listing_on_a_stream_that_the_client_resumes_takes_back() {
    let (_gateway, mut server, client) = opened().await;
    shown(&mut server, &client, &tools(true)).await;
    repeats(&mut server, &client).await;
    let request = client.post(&list("tools"));
    let (mut events, mut pen) = streamed(&mut server, request).await;
    pen.write(format!("id: e1\ndata: {}\n\n", note("x/begins")));
    let mark = events.next_message().await.0.unwrap();
    drop(events);
    pen.closed().await;
    let request = client.get().header("last-event-id", mark);
    let (mut events, mut pen) = streamed(&mut server, request).await;
    let answer = json!({"jsonrpc": "2.0", "id": "tools", "result": tools(false)});
    pen.write(format!("id: e2\ndata: {answer}\n\n"));
    assert_eq!(events.next_message().await.1, answer);
    tells(&mut server, &client).await;
}

#[tokio::test]
async fn another_server_under_the_same_name_was_never_listed() {
    let (mut old, mut new) = (Scripted::start().await, Scripted::start().await);
    let gateway = gateway(old.url()).await;
    let client = Client::open(&gateway, &mut old, "u1").await;
    shown(&mut old, &client, &tools(true)).await;
    repeats(&mut old, &client).await;
    gateway.reload(config(&[("s", new.url())])).unwrap();
    let newcomer = Client::open(&gateway, &mut new, "n1").await;
    tells(&mut new, &newcomer).await;
    // What the old one, which still has its session, goes on to list is not about the new one.
    shown(&mut old, &client, &tools(true)).await;
    tells(&mut new, &newcomer).await;
    // And the other way round.
    shown(&mut new, &newcomer, &tools(true)).await;
    repeats(&mut new, &newcomer).await;
    tells(&mut old, &client).await;
    // The same server, looked after differently.
    let mut same = config(&[("s", new.url())]);
    let server = same.servers.values_mut().next().unwrap();
    server.recovery.drain_timeout *= 2;
    gateway.reload(same.clone()).unwrap();
    repeats(&mut new, &newcomer).await;
    // And with other words.
    let server = same.servers.values_mut().next().unwrap();
    server.headers.insert("x-tenant", "b".parse().unwrap());
    gateway.reload(same).unwrap();
    tells(&mut new, &newcomer).await;
}

#[tokio::test]
async fn what_a_store_has_is_about_the_server_that_was_configured() {
    let directory = tempfile::tempdir().unwrap();
    let (mut old, mut new) = (Scripted::start().await, Scripted::start().await);
    let start = |url: &str| {
        let mut config = config(&[("s", url)]);
        config.store = in_file(directory.path());
        Gateway::start(config)
    };
    let gateway = start(old.url()).await.unwrap();
    let client = Client::open(&gateway, &mut old, "u1").await;
    shown(&mut old, &client, &tools(true)).await;
    repeats(&mut old, &client).await;
    gateway.stop().await;
    let gateway = start(new.url()).await.unwrap();
    let client = Client::open(&gateway, &mut new, "n1").await;
    tells(&mut new, &client).await;
    shown(&mut new, &client, &tools(true)).await;
    repeats(&mut new, &client).await;
    gateway.stop().await;
    let gateway = start(old.url()).await.unwrap();
    let client = Client::open(&gateway, &mut old, "u2").await;
    tells(&mut old, &client).await;
}

#[tokio::test]
async fn a_recovery_at_one_gateway_drops_what_another_believes() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    let other = across.at(&client, 1);
    let server = &mut across.server;
    shown(server, &client, &tools(true)).await;
    shown(server, &other, &tools(true)).await;
    repeats(server, &client).await;
    repeats(server, &other).await;
    recovered(server, &client, "u2").await;
    hears(server, &other, "u2").await;
    tells(server, &other).await;
    tells(server, &client).await;
    // A new listing at either counts for both.
    shown(server, &other, &tools(true)).await;
    repeats(server, &other).await;
    recovered(server, &other, "u3").await;
    hears(server, &client, "u3").await;
    tells(server, &client).await;
}
