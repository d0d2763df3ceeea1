//! Streams that break again and again: gone on with at a pace, and ended with a word.

use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::scripted::{Asked, Scripted};
use http::Method;
use serde_json::{Value, json};

use crate::kit::client::Client;
use crate::kit::events::Events;
use crate::kit::gateway::only;
use crate::kit::messages::{assert_too_large, call};
use crate::kit::opened::opened_shown;

/// A session whose client knows that the tool `t` only reads, with this budget for recovery.
async fn within(budget: Duration) -> (Gateway, Scripted, Client) {
    opened_shown(|config| only(config).recovery.budget = budget).await
}

const SECOND: Duration = Duration::from_secs(1);

/// What a server was asked.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    calls: usize,
    pings: usize,
    gets: usize,
}

/// Answers pings, and everything else as the test wants it, for ever.
async fn serve(server: &mut Scripted, counts: &mut Counts, mut answer: impl FnMut(Asked)) {
    loop {
        let asked = server.next().await;
        match (&asked.method, asked.rpc_method().as_str()) {
            (_, "ping") => {
                counts.pings += 1;
                asked.result(&json!({}));
                continue;
            }
            (&Method::GET, _) => counts.gets += 1,
            _ => counts.calls += 1,
        }
        answer(asked);
    }
}

/// A call whose answer comes as a stream, and what the server was asked meanwhile.
async fn answers_to(
    server: &mut Scripted,
    client: &Client,
    answer: impl FnMut(Asked),
) -> (Vec<Value>, Counts) {
    let mut counts = Counts::default();
    let told = tokio::select! {
        told = async { Events::new(client.post(&call(7)).send().await.unwrap()).all().await } => told,
        () = serve(server, &mut counts, answer) => unreachable!(),
    };
    (told, counts)
}

fn assert_unknown(told: &[Value]) {
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (&told[0]["id"], &told[0]["error"]["code"]),
        (&json!(7), &json!(-31001))
    );
}

#[tokio::test]
async fn a_safe_call_whose_answer_always_breaks_runs_a_few_times_and_is_told() {
    // With and without something said before it breaks, which is no reason for more executions.
    for said in ["", "data: {\"jsonrpc\":\"2.0\",\"method\":\"one\"}\n\n"] {
        let (_gateway, mut server, client) = within(30 * SECOND).await;
        let (mut told, counts) = answers_to(&mut server, &client, |asked| {
            let mut pen = asked.events();
            pen.write(format!("{said}data: "));
            pen.cut();
        })
        .await;
        told.retain(|message| message["method"] != "one");
        assert_unknown(&told);
        assert!((2..=5).contains(&counts.calls), "{counts:?}");
        assert!(counts.pings <= counts.calls, "{counts:?}");
    }
}

#[tokio::test]
async fn an_event_that_is_too_large_is_not_asked_for_again_and_the_client_hears_why() {
    let (_gateway, mut server, client) = within(30 * SECOND).await;
    let (told, counts) = answers_to(&mut server, &client, |asked| {
        // What nobody waits for is left out.
        let notice =
            json!({"jsonrpc": "2.0", "method": "n", "params": {"x": "x".repeat(65 << 20)}});
        let result = json!({"jsonrpc": "2.0", "result": "x".repeat(65 << 20), "id": 7});
        let mut pen = asked.events();
        pen.write(format!("data: {notice}\n\n"));
        pen.write(format!("data: {result}\n\n"));
    })
    .await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["id"], 7);
    assert_too_large(&told[0]);
    assert_eq!((counts.calls, counts.pings), (1, 0));
}

#[tokio::test]
async fn an_event_of_thirty_mebibytes_passes() {
    let (_gateway, mut server, client) = within(30 * SECOND).await;
    let (told, counts) = answers_to(&mut server, &client, |asked| {
        let result = json!({"jsonrpc": "2.0", "id": 7, "result": {"x": "x".repeat(30 << 20)}});
        asked.events().write(format!("data: {result}\n\n"));
    })
    .await;
    assert_eq!(
        told[0]["result"]["x"].as_str().map(str::len),
        Some(30 << 20)
    );
    assert_eq!(counts.calls, 1);
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_not_asked_for_again() {
    let (_gateway, mut server, client) = within(30 * SECOND).await;
    let (told, counts) = answers_to(&mut server, &client, |asked| {
        let batch = vec![json!({"jsonrpc": "2.0", "method": "n"}); 10_001];
        asked
            .events()
            .write(format!("data: {}\n\n", Value::from(batch)));
    })
    .await;
    assert_unknown(&told);
    assert_eq!(counts.calls, 1);
}

#[tokio::test]
async fn a_result_beside_an_error_that_is_null_is_the_answer() {
    let (_gateway, mut server, client) = within(30 * SECOND).await;
    let (told, counts) = answers_to(&mut server, &client, |asked| {
        let id = asked.json()["id"].clone();
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"ok": true}, "error": null});
        asked.events().write(format!("data: {answer}\n\n"));
    })
    .await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (&told[0]["id"], &told[0]["result"]["ok"]),
        (&json!(7), &json!(true))
    );
    assert_eq!((counts.calls, counts.pings), (1, 0));
}

#[tokio::test]
async fn a_get_whose_stream_is_reset_at_once_is_tried_at_a_pace() {
    let (_gateway, mut server, client) = within(30 * SECOND).await;
    let mut counts = Counts::default();
    let listening = async {
        let events = Events::new(client.get().send().await.unwrap());
        events.all().await
    };
    let cut = |asked: Asked| asked.events().cut();
    tokio::select! {
        told = listening => panic!("given up within two seconds of thirty: {told:?}"),
        () = serve(&mut server, &mut counts, cut) => unreachable!(),
        () = tokio::time::sleep(2 * SECOND) => {}
    }
    assert!((2..30).contains(&counts.gets), "{counts:?}");
}

#[tokio::test]
async fn a_get_that_cannot_be_gone_on_with_ends_within_the_budget() {
    let (_gateway, mut server, client) = within(SECOND).await;
    let mut counts = Counts::default();
    let listening = async { client.listen().await.all().await };
    let told = tokio::select! {
        told = listening => told,
        () = serve(&mut server, &mut counts, |asked| asked.events().cut()) => unreachable!(),
    };
    assert!(told.is_empty(), "{told:?}");
    assert!(counts.gets > 5, "{counts:?}");
}

#[tokio::test]
async fn a_get_that_is_refused_for_a_moment_is_restored() {
    for status in [404, 400, 429] {
        let (_gateway, mut server, client) = within(30 * SECOND).await;
        let mut counts = Counts::default();
        let mut gets = 0;
        let mut pens = Vec::new();
        let answer = |asked: Asked| {
            gets += 1;
            match gets {
                1 => asked.events().cut(),
                2 | 3 => asked.reply(status, &[], "no server is ready"),
                _ => {
                    let mut pen = asked.events();
                    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"heard\"}\n\n");
                    pens.push(pen);
                }
            }
        };
        let listening = async {
            let mut events = Events::new(client.get().send().await.unwrap());
            events.next_message().await.1
        };
        let heard = tokio::select! {
            heard = listening => heard,
            () = serve(&mut server, &mut counts, answer) => unreachable!(),
        };
        assert_eq!(heard["method"], "heard", "after {status}");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_after_every_event_is_served_for_as_long_as_it_says_something() {
    const EVENTS: usize = 150;
    let (_gateway, mut server, client) = within(SECOND).await;
    let started = tokio::time::Instant::now();
    let mut said = 0;
    let (told, counts) = answers_to(&mut server, &client, |asked| {
        assert_eq!(asked.header("last-event-id").parse().unwrap_or(0), said);
        said += 1;
        let mut pen = asked.events();
        if said < EVENTS {
            pen.write(format!(
                "id: {said}\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":{said}}}\n\n"
            ));
            pen.cut();
        } else {
            pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n");
        }
    })
    .await;
    assert_eq!(
        (told.len(), counts.calls, counts.gets),
        (EVENTS, 1, EVENTS - 1)
    );
    assert_eq!(told[EVENTS - 1]["result"], json!({}));
    assert!(started.elapsed() > SECOND, "longer than one budget");
}

#[tokio::test]
async fn an_answer_that_can_be_resumed_but_never_comes_is_told_within_the_budget() {
    let (_gateway, mut server, client) = within(SECOND).await;
    let (told, counts) = answers_to(&mut server, &client, |asked| {
        let is_first = asked.method == Method::POST;
        let mut pen = asked.events();
        if is_first {
            pen.write("id: e1\ndata: \n\n");
        }
        pen.cut();
    })
    .await;
    assert_unknown(&told);
    assert_eq!(counts.calls, 1, "{counts:?}");
    assert!((5..200).contains(&counts.gets), "{counts:?}");
}

// --- numbers of a server's

#[tokio::test]
async fn a_server_that_asks_for_more_time_than_there_is_costs_no_session() {
    for seconds in ["18446744073709551615", "99999999999999999999", "-1"] {
        let (_gateway, mut server, client) = within(SECOND).await;
        let message = call(7);
        let busy = |asked: Asked| {
            let headers = [
                ("retry-after", seconds),
                ("keep-alive", "timeout=18446744073709551615"),
            ];
            asked.reply(503, &headers, "busy");
        };
        let answer = tokio::select! {
            answer = client.send(&message) => answer,
            () = async {
                let lost = server.next().await;
                lost.reply(404, &[("content-type", "text/plain")], "");
                loop {
                    busy(server.next().await);
                }
            } => unreachable!(),
        };
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (503, -31002),
            "{seconds}"
        );
        // What the budget was used for comes back with time.
        let insisting = async { while client.send(&message).await.status != 200 {} };
        tokio::select! {
            () = insisting => {}
            () = async {
                loop {
                    let asked = server.next().await;
                    match asked.rpc_method().as_str() {
                        "initialize" => asked.initialized(Some("u2")),
                        _ => asked.result(&json!({})),
                    }
                }
            } => unreachable!(),
        }
    }
}

#[tokio::test]
async fn odd_numbers_in_cookies_and_events_pass() {
    let (_gateway, mut server, client) = within(30 * SECOND).await;
    let (told, _) = answers_to(&mut server, &client, |asked| {
        if asked.method == Method::GET {
            assert_eq!(asked.header("cookie"), "a=1; b=2");
            let last = "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n";
            return asked.events().write(last);
        }
        let mut pen = asked.begin(
            200,
            &[
                ("content-type", "text/event-stream"),
                ("set-cookie", "a=1; Max-Age=18446744073709551615"),
                ("set-cookie", "b=2; Max-Age=9223372036854775807"),
            ],
        );
        for progress in ["1e999", "-1e999", "1e308", "18446744073709551616"] {
            let params = format!("{{\"progressToken\":1,\"progress\":{progress}}}");
            pen.write(format!(
                "id: e\nretry: 18446744073709551615\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{params}}}\n\n"
            ));
        }
        pen.cut();
    })
    .await;
    // What serde_json cannot hold in a number is not counted by this test's reader.
    assert_eq!(told.last().unwrap()["id"], 7);
}
