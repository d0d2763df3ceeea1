//! A server that closes idle connections whenever it likes is no reason not to know whether a call
//! ran.

use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::counting::{Counting, Tally};
use serde_json::json;
use tokio::task::JoinSet;

use crate::client::config;
use crate::stage::client_of;

const SESSIONS: u64 = 3;
const CALLS: u64 = 170;

/// A number between 0 and `below` that depends on nothing but these.
fn dice(session: u64, call: u64, below: u64) -> u64 {
    let mixed = (session * CALLS + call + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 33) % below
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_a_server_closes_at_random_moments_cost_no_call() {
    let tally = Tally::default();
    let server = Counting::start("r", &tally).await.unwrap();
    server.close_idle_connections(Duration::from_millis(50), 4);
    let gateway = Gateway::start(config(&[("s", &server.url())]))
        .await
        .unwrap();
    let mut sessions = JoinSet::new();
    for session in 0..SESSIONS {
        let mut client = client_of(&gateway);
        sessions.spawn(async move {
            let mut wrong = Vec::new();
            assert_eq!(client.open().await.unwrap().status, 200);
            for call in 0..CALLS {
                let pause = dice(session, call, 50_000);
                tokio::time::sleep(Duration::from_micros(pause)).await;
                let key = format!("{session} {call}");
                let answer = client.call(call, "bump", &json!({"key": key})).await;
                let answer = answer.unwrap();
                if answer.status != 200 {
                    wrong.push((key, answer));
                }
            }
            wrong
        });
    }
    let mut wrong = Vec::new();
    while let Some(ended) = sessions.join_next().await {
        wrong.extend(ended.unwrap());
    }
    let closed = server.closed_idle();
    assert!(closed > 50, "only {closed} connections were closed");
    assert!(
        wrong.is_empty(),
        "{} of {}: {wrong:?}",
        wrong.len(),
        SESSIONS * CALLS
    );
    let ran = tally.all();
    assert_eq!(ran.len() as u64, SESSIONS * CALLS);
    assert!(ran.values().all(|executions| executions.len() == 1));
}
