//! A client whose streams and requests arrive at different gateways has one session all the same: its stream
//! goes on, is told of what happened elsewhere, and is one.

use bowline_testbed::scripted::{Pen, initialize_result};
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use crate::kit::across::Across;
use crate::kit::client::Client;
use crate::kit::messages::call;
use crate::kit::opened::forgot;
use crate::kit::stores::{command, raw};

#[tokio::test]
async fn calls_elsewhere_leave_the_stream_alone_and_an_end_elsewhere_ends_it() {
    let mut across = Across::start(4).await;
    let client = across.open().await;
    let (mut events, mut pen) = client.open_stream(&mut across.server, client.get()).await;
    across.works_at(&client, 1, "u1").await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"x/here\"}\n\n");
    assert_eq!(events.next_message().await.1["method"], "x/here");

    let at_d = across.at(&client, 3);
    let (ended, ()) = tokio::join!(at_d.delete().send(), async {
        let asked = across.server.next().await;
        assert_eq!(asked.method, "DELETE");
        assert_eq!(asked.header("mcp-session-id"), "u1");
        asked.reply(204, &[], "");
    });
    assert_eq!(ended.unwrap().status(), 204);
    events.ends_cleanly().await;
    assert_eq!(client.send(&call(1)).await.status, 404);
    across.server.finish();
}

/// Opens a session whose tools can change, and ends the handshake.
async fn open_changing(across: &mut Across) -> Client {
    let mut client = Client::new(&across.gateways[0]);
    let mut result = initialize_result();
    result["capabilities"] = json!({"tools": {"listChanged": true}});
    let (opened, ()) = tokio::join!(client.initialize(), async {
        let asked = across.server.next().await;
        asked.result_with(&[("mcp-session-id", "u1")], &result);
    });
    assert_eq!(opened.status, 200);
    client
}

#[tokio::test]
async fn a_question_that_was_answered_elsewhere_is_not_taken_back() {
    let mut across = Across::start(2).await;
    let client = open_changing(&mut across).await;
    let (mut events, mut pen) = client.open_stream(&mut across.server, client.get()).await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":41,\"method\":\"roots/list\"}\n\n");
    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":42,\"method\":\"roots/list\"}\n\n");
    let (_, answered) = events.next_message().await;
    let (_, open) = events.next_message().await;
    let answer = json!({"jsonrpc": "2.0", "id": answered["id"], "result": {"roots": []}});
    let at_b = across.at(&client, 1);
    let told = at_b.send_to(&mut across.server, &answer, |asked| {
        assert_eq!(asked.json()["id"], 41);
        asked.reply(202, &[], "");
    });
    assert_eq!(told.await.status, 202);
    let _pen = recover_at(&mut across, &client, 1, true).await;
    // What the lost session asked is taken back, but for what it was told.
    let mut taken_back = Vec::new();
    loop {
        let (_, message) = events.next_message().await;
        match message["method"].as_str() {
            Some("notifications/cancelled") => {
                taken_back.push(message["params"]["requestId"].clone());
            }
            _ => break assert_eq!(message["method"], CHANGED),
        }
    }
    assert_eq!(taken_back, [open["id"].clone()]);
    across.server.finish();
}

/// Loses the session by a call at a gateway, and opens it again as `u2`. Where a stream is open, its
/// next one is returned.
async fn recover_at(
    across: &mut Across,
    client: &Client,
    gateway: usize,
    listens: bool,
) -> Option<Pen> {
    let at = across.at(client, gateway);
    let message = call("loser");
    let (answer, pen) = tokio::join!(at.send(&message), async {
        forgot(across.server.next().await);
        let mut result = initialize_result();
        result["capabilities"] = json!({"tools": {"listChanged": true}});
        let asked = across.server.next().await;
        assert_eq!(asked.rpc_method(), "initialize");
        asked.result_with(&[("mcp-session-id", "u2")], &result);
        let mut pen = None;
        for _ in 0..=usize::from(listens) {
            let asked = across.server.next().await;
            assert_eq!(asked.header("mcp-session-id"), "u2");
            match asked.method.as_str() {
                "GET" => pen = Some(asked.events()),
                _ => asked.result(&json!({})),
            }
        }
        pen
    });
    assert_eq!(answer.status, 200, "{answer:?}");
    pen
}

const CHANGED: &str = "notifications/tools/list_changed";

#[tokio::test]
async fn a_recovery_elsewhere_is_told_on_the_stream_and_moves_it() {
    let mut across = Across::start(2).await;
    let client = open_changing(&mut across).await;
    let (mut events, _old) = client.open_stream(&mut across.server, client.get()).await;
    let mut pen = recover_at(&mut across, &client, 1, true).await.unwrap();
    assert_eq!(events.next_message().await.1["method"], CHANGED);
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"x/here\"}\n\n");
    assert_eq!(events.next_message().await.1["method"], "x/here");
    across.server.finish();
}

#[tokio::test]
async fn a_recovery_is_told_on_a_stream_that_opens_later_where_nobody_knew_the_session() {
    let mut across = Across::start(3).await;
    let client = open_changing(&mut across).await;
    recover_at(&mut across, &client, 1, false).await;
    let at_c = across.at(&client, 2);
    let (mut events, _pen) = at_c.open_stream(&mut across.server, at_c.get()).await;
    assert_eq!(events.next_message().await.1["method"], CHANGED);
}

#[tokio::test]
async fn a_second_stream_elsewhere_ends_the_first() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    let (first, _pen) = client.open_stream(&mut across.server, client.get()).await;
    let at_b = across.at(&client, 1);
    let (mut second, mut pen) = at_b.open_stream(&mut across.server, at_b.get()).await;
    first.ends_cleanly().await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"x/here\"}\n\n");
    assert_eq!(second.next_message().await.1["method"], "x/here");
    across.server.finish();
}

#[tokio::test]
async fn a_second_stream_elsewhere_ends_the_first_also_where_it_was_not_heard_of() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    let (mut first, mut pen) = client.open_stream(&mut across.server, client.get()).await;
    let mut connection = raw(&across.redis).await;
    for words in [
        &["ACL", "SETUSER", "default", "-subscribe"][..],
        &["CLIENT", "KILL", "TYPE", "pubsub"],
    ] {
        command(words).exec_async(&mut connection).await.unwrap();
    }
    let at_b = across.at(&client, 1);
    let (_second, _pen) = at_b.open_stream(&mut across.server, at_b.get()).await;
    // Its gateway knows nothing of it.
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"x/here\"}\n\n");
    assert_eq!(first.next_message().await.1["method"], "x/here");
    let hear_again = command(&["ACL", "SETUSER", "default", "+subscribe"]);
    hear_again.exec_async(&mut connection).await.unwrap();
    first.ends_cleanly().await;
    across.server.finish();
}

/// What a stream of a GET comes to.
enum Fate {
    Ended,
    /// In which round.
    Heard(Value),
}

#[tokio::test]
async fn of_streams_that_are_opened_everywhere_at_once_one_stays() {
    let mut across = Across::start(3).await;
    let client = across.open().await;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let tasks = TaskTracker::new();
    let mut pens: Vec<Pen> = Vec::new();
    for round in 0..10 {
        for gateway in 0..3 {
            let (at, tell) = (across.at(&client, gateway), tell.clone());
            tasks.spawn(async move {
                let mut events = crate::kit::events::Events::new(at.get().send().await.unwrap());
                while let Some(event) = events.try_next().await.unwrap() {
                    let data = event.data().unwrap_or_default();
                    let mut message: Value = serde_json::from_slice(&data).unwrap_or_default();
                    tell.send(Fate::Heard(message["params"].take())).unwrap();
                }
                tell.send(Fate::Ended).unwrap();
            });
        }
        // All but one end: the one of the last round, too.
        let (mut ends, mut heard) = (0, false);
        let all_but_one = if round == 0 { 2 } else { 3 };
        while !heard {
            tokio::select! {
                asked = across.server.next() => {
                    assert_eq!(asked.method, "GET");
                    pens.push(asked.events());
                }
                fate = told.recv() => match fate.unwrap() {
                    Fate::Ended => ends += 1,
                    Fate::Heard(params) => heard |= params == json!([round]),
                },
            }
            assert!(ends <= all_but_one, "they ended each other");
            if ends == all_but_one {
                let here = json!({"jsonrpc": "2.0", "method": "x/here", "params": [round]});
                for pen in &mut pens {
                    pen.write(format!("data: {here}\n\n"));
                }
            }
        }
        assert_eq!(ends, all_but_one);
    }
}

#[tokio::test]
async fn a_call_whose_stream_broke_is_resumed_at_another_gateway() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    let message = call(7);
    let (mut events, mut pen) = client
        .open_stream(&mut across.server, client.post(&message))
        .await;
    pen.write("id: e1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"x/progress\"}\n\n");
    let mark = events.next_message().await.0.unwrap();
    drop(events);
    let at_b = across.at(&client, 1);
    let resumed = at_b.get().header("last-event-id", mark).send();
    let (resumed, pen) = tokio::join!(resumed, async {
        let asked = across.server.next().await;
        assert_eq!(asked.method, "GET");
        assert_eq!(asked.header("last-event-id"), "e1");
        assert_eq!(asked.header("mcp-session-id"), "u1");
        let mut pen = asked.events();
        pen.write("id: e2\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n");
        pen
    });
    let mut events = crate::kit::events::Events::new(resumed.unwrap());
    assert_eq!(events.next_message().await.1["id"], 7);
    drop(pen);
}
