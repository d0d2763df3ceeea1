//! Servers that misbehave on their stream: bounded, told, and no other session notices.

use serde_json::json;

use crate::kit::log::Log;
use crate::kit::messages::{assert_too_large, note};
use crate::kit::programs::text_of;
use crate::kit::sse_server::SsePlay;
use crate::kit::wait::until;

#[tokio::test]
async fn answers_to_requests_that_were_not_made_are_dropped_and_logged_once() {
    let log = Log::default();
    let _kept = log.keep();
    let play = SsePlay::open().await;
    for id in 0..100 {
        let stray = format!("data: {{\"jsonrpc\":\"2.0\",\"id\":\"s{id}\",\"result\":{{}}}}\n\n");
        play.server.inject(stray.as_bytes());
    }
    let answer = play.call("echo", &json!({"text": "x"})).await;
    assert_eq!(text_of(&answer), "x");
    let told = "an answer to a request that was not made";
    assert_eq!(log.lines_with(told).len(), 1);
    assert_eq!(play.tally.starts(), 1);
}

#[tokio::test]
async fn what_is_no_message_is_dropped() {
    let play = SsePlay::open().await;
    for odd in [
        &b": ping - 2026-11-18 00:00:00\n\n"[..],
        b"data: hello\n\n",
        b"data\n\n",
        b"event: ping\ndata: {}\n\n",
        b"event: message\ndata: \xff\xfe\n\n",
        b"id: 7\nretry: 1\n\n",
        b"data: {\"level\":\"info\"}\n\n",
        b"data: []\n\n",
    ] {
        play.server.inject(odd);
    }
    let answer = play.call("echo", &json!({"text": "x"})).await;
    assert_eq!(text_of(&answer), "x");
    assert_eq!(play.tally.starts(), 1);
}

/// As servers do that answer every message.
#[tokio::test]
async fn an_error_without_an_id_after_a_notification_ends_no_call() {
    let play = SsePlay::open().await;
    let failing = async {
        play.tally.until("wait k", 1).await;
        let changed = note("notifications/roots/list_changed");
        assert_eq!(play.client.send(&changed).await.status, 202);
        let error =
            json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32601, "message": "?"}});
        play.server.inject(format!("data: {error}\n\n").as_bytes());
        std::fs::write(play.tally.path().with_extension("go"), "").unwrap();
    };
    let wait = json!({"key": "k"});
    let (answer, ()) = tokio::join!(play.call("wait", &wait), failing);
    assert_eq!((answer.failure(), text_of(&answer)), (None, "x".to_owned()));
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_told_and_the_session_goes_on() {
    for how in ["cut", "latin"] {
        let arguments = json!({"key": "k", "how": how});
        let play = SsePlay::open().await;
        let answer = play.call("garble", &arguments).await;
        assert_eq!(answer.failure(), Some(-31001), "{how}: {answer:?}");
        assert_eq!(play.tally.count("garble k"), 1);
        // Another session: a ping that waits at the same time could be what the next answer was for.
        let play = SsePlay::open().await;
        let answer = play.call("garble_once", &arguments).await;
        assert_eq!(text_of(&answer), "answered", "{how}");
        assert_eq!(play.tally.starts(), 1);
    }
}

/// An answer of 65 MiB, and 1 GiB without a line's end: it is told whose that is, and the session goes on.
#[tokio::test]
async fn an_event_that_is_too_large_is_told_and_its_stream_goes_on() {
    let play = SsePlay::open().await;
    let mut other = crate::kit::client::Client::new(&play.gateway);
    let block = vec![b'x'; 1 << 20];
    let answer = play.call("large", &json!({"bytes": 30 << 20})).await;
    assert_eq!(text_of(&answer).len(), 30 << 20);
    let answer = play.call("large", &json!({"bytes": 65 << 20})).await;
    assert_too_large(&answer.messages()[0]);
    for (round, blocks) in [(1, 66), (2, 1024)] {
        let hang = json!({"key": format!("k{round}")});
        let flooding = async {
            play.tally.until(&format!("hang k{round}"), 1).await;
            // Not those of the session that is recovered.
            let streams = play.server.streams();
            streams.write(b"data: ");
            for _ in 0..blocks {
                if !streams.write(&block) {
                    break;
                }
                tokio::task::yield_now().await;
            }
            streams.write(b"\n\n");
        };
        let (answer, ()) = tokio::join!(play.call("hang", &hang), flooding);
        assert_too_large(&answer.messages()[0]);
        let answer = play.call("echo", &json!({"text": "x"})).await;
        assert_eq!(text_of(&answer), "x");
    }
    assert_eq!(play.tally.starts(), 1);
    assert_eq!(other.begin().await.status, 200);
}

#[tokio::test]
async fn a_server_that_takes_a_message_and_says_nothing_keeps_nobody_else_waiting() {
    let play = SsePlay::open().await;
    let hang = json!({"key": "k"});
    let calls = async {
        play.tally.until("hang k", 1).await;
        for _ in 0..5 {
            let answer = play.client.call(1, "echo", &json!({"text": "x"})).await;
            assert_eq!(text_of(&answer), "x");
        }
        play.server.forget();
    };
    let (answer, ()) = tokio::join!(play.call("hang", &hang), calls);
    assert_eq!(answer.failure(), Some(-31001));
    until("one session", || play.server.sessions() == 1).await;
}
