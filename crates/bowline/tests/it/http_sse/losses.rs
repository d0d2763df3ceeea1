//! A stream that ends takes its session with it, and the client does not notice; nothing runs twice.

use std::sync::Arc;
use std::time::Duration;

use bowline::Gateway;
use bowline::config::Transport;
use bowline_testbed::scripted::{Scripted, initialize_result};
use serde_json::json;
use tokio::sync::Notify;

use crate::kit::client::Client;
use crate::kit::gateway::{config, only};
use crate::kit::log::Log;
use crate::kit::messages::{call, note};
use crate::kit::programs::text_of;
use crate::kit::sse_server::{SsePlay, reason, seen_ended};
use crate::kit::wait::until;

#[tokio::test]
async fn a_session_that_was_lost_between_calls_is_replaced() {
    let log = Log::default();
    let _kept = log.keep();
    let play = SsePlay::open().await;
    for round in 1..=3 {
        match round {
            1 => play.server.forget(),
            2 => play.server.end_streams(),
            // The stream stays open, and the message URL is gone: that is a 404.
            _ => play.server.forget_in_silence(),
        }
        seen_ended(&log, round.min(2)).await;
        let key = format!("round {round}");
        let answer = play.call("bump", &json!({"key": key})).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(play.tally.count(&format!("bump {key}")), 1);
        assert_eq!(play.tally.starts(), round + 1);
    }
    play.assert_no_complaints();
}

/// The server has run the call, and whatever it had to say about that is lost with its stream.
#[tokio::test]
async fn a_refusal_after_the_stream_has_ended_proves_nothing() {
    for status in [400, 401, 404, 405, 410, 429] {
        let log = Log::default();
        let _kept = log.keep();
        let play = SsePlay::open().await;
        let refuses = Arc::<Notify>::default();
        play.server.behave(|manners| {
            manners.post = Some((status, true));
            manners.refuses_at = Some(Arc::clone(&refuses));
        });
        let refusing = async {
            play.tally.until("hang k", 1).await;
            play.server.behave(|manners| manners.post = None);
            play.server.end_streams();
            seen_ended(&log, 1).await;
            refuses.notify_one();
        };
        let hang = json!({"key": "k"});
        let (answer, ()) = tokio::join!(play.call("hang", &hang), refusing);
        assert_eq!(answer.failure(), Some(-31001), "{status}: {answer:?}");
        assert_eq!(play.tally.count("hang k"), 1, "{status}");
    }
}

#[tokio::test]
async fn a_message_url_that_is_gone_is_a_lost_session() {
    for status in [404, 410] {
        let play = SsePlay::open().await;
        play.server
            .behave(|manners| manners.post = Some((status, false)));
        let healing = async {
            until("another stream", || play.server.gets() > 1).await;
            play.server.behave(|manners| manners.post = None);
        };
        let bump = json!({"key": "k"});
        let (answer, ()) = tokio::join!(play.call("bump", &bump), healing);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(play.tally.count("bump k"), 1);
    }
}

/// As behind a load balancer that is not sticky.
#[tokio::test]
async fn streams_whose_next_message_is_unknown_are_not_opened_for_ever() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    only(&mut config).transport = Transport::Sse;
    only(&mut config).recovery.budget = Duration::from_secs(6);
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Client::new(&gateway);
    let calling = async {
        assert_eq!(client.begin().await.status, 200);
        client.send(&call(7)).await
    };
    tokio::pin!(calling);
    let mut streams = Vec::new();
    let answer = loop {
        let asked = tokio::select! {
            answer = &mut calling => break answer,
            asked = server.next() => asked,
        };
        match (asked.method.as_str(), asked.rpc_method().as_str()) {
            ("GET", _) => {
                let mut stream = asked.events();
                stream.write("event: endpoint\ndata: /messages\n\n");
                streams.push(stream);
            }
            (_, "initialize") => {
                let id = asked.json()["id"].clone();
                let answer = json!({"jsonrpc": "2.0", "id": id, "result": initialize_result()});
                asked.reply(202, &[], "");
                let stream = streams.last_mut().unwrap();
                stream.write(format!("event: message\ndata: {answer}\n\n"));
            }
            _ => asked.reply(404, &[], "no such session"),
        }
    };
    assert_eq!(reason(&answer).0, "not_sticky", "{answer:?}");
    assert!(streams.len() <= 7, "{} streams", streams.len());
}

/// Servers that have lost a session also answer 400; a ping decides.
#[tokio::test]
async fn a_400_to_everything_is_a_lost_session() {
    let play = SsePlay::open().await;
    play.server
        .behave(|manners| manners.post = Some((400, false)));
    let healing = async {
        until("another stream", || play.server.gets() > 1).await;
        play.server.behave(|manners| manners.post = None);
    };
    let bump = json!({"key": "k"});
    let (answer, ()) = tokio::join!(play.call("bump", &bump), healing);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(play.tally.count("bump k"), 1);
}

#[tokio::test]
async fn a_break_in_the_middle_of_a_call() {
    let play = SsePlay::open().await;
    let hang = json!({"key": "k"});
    let breaking = async {
        play.tally.until("hang k", 1).await;
        play.server.forget();
    };
    let (answer, ()) = tokio::join!(play.call("hang", &hang), breaking);
    assert_eq!(answer.failure(), Some(-31001), "{answer:?}");
    play.learn_tools().await;
    let breaking = async {
        play.tally.until("hang_once k", 1).await;
        play.server.end_streams();
    };
    let (answer, ()) = tokio::join!(play.call("hang_once", &hang), breaking);
    assert_eq!(text_of(&answer), "answered");
    assert_eq!(play.tally.count("hang k"), 1);
    assert_eq!(play.tally.count("hang_once k"), 2);
    assert_eq!(play.tally.starts(), 3);
}

#[tokio::test]
async fn a_safe_call_is_answered_at_every_break_without_a_list() {
    let play = SsePlay::open().await;
    for round in 1..=3 {
        for _ in 0..2 {
            let before = play.call("peek", &json!({"key": "before"})).await;
            assert_eq!(before.status, 200, "{before:?}");
            play.tally.until("listed", round).await;
        }
        let key = format!("round {round}");
        let noted = format!("hang_once {key}");
        let breaking = async {
            play.tally.until(&noted, 1).await;
            play.server.end_streams();
        };
        let arguments = json!({"key": key});
        let (answer, ()) = tokio::join!(play.call("hang_once", &arguments), breaking);
        assert_eq!(text_of(&answer), "answered");
        assert_eq!(play.tally.count(&noted), 2);
    }
    play.assert_no_complaints();
}

#[tokio::test]
async fn the_stream_of_a_get_goes_on_with_the_next_session() {
    let play = SsePlay::open().await;
    let mut get = play.client.listen().await;
    play.server.forget();
    // The stream itself notices, and its client hears that lists may have changed.
    while get.next_message().await.1["method"] != "notifications/tools/list_changed" {}
    let arguments = json!({"method": "notifications/message"});
    // Until the stream is read from the new session, the call's own stream has what comes.
    while play.call("notify", &arguments).await.messages().len() > 1 {}
    while get.next_message().await.1["method"] != "notifications/message" {}
    assert_eq!(play.tally.starts(), 2);
}

#[tokio::test]
async fn a_notification_to_a_session_that_is_gone_recovers_it() {
    let play = SsePlay::open().await;
    play.server.forget();
    let changed = note("notifications/roots/list_changed");
    assert_eq!(play.client.send(&changed).await.status, 202);
    play.tally
        .until("heard notifications/roots/list_changed", 1)
        .await;
    assert_eq!(play.tally.starts(), 2);
}

#[tokio::test]
async fn where_the_client_is_to_be_told_it_gets_a_404() {
    let play = SsePlay::open_with(|config| {
        only(config).recovery.on_loss = bowline::config::OnLoss::Tell;
    })
    .await;
    play.server.forget();
    let answer = play.call("echo", &json!({"text": "x"})).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (404, -32001));
    assert_eq!(play.tally.starts(), 1);
}
