//! A sign-in that an owner meets is asked for where the client is.

use bowline::Gateway;
use bowline_testbed::redis::Redis;
use bowline_testbed::stdio::over_sse::OverSse;
use serde_json::json;

use super::fleet::{SECRET, peers};
use crate::http_sse::signing_in::{bump, call_with, signed, wants};
use crate::kit::asking::{session, text};
use crate::kit::gateway::config;
use crate::kit::programs::Tally;
use crate::kit::protected::Protected;
use crate::kit::stores::in_redis;

#[tokio::test]
async fn a_sign_in_that_an_owner_meets_is_a_prompt_where_the_client_is() {
    let Ok(redis) = Redis::start().await else {
        bowline_testbed::skip("no Redis");
        return;
    };
    let (tally, authority) = (Tally::default(), Protected::alone().await);
    let server = OverSse::start(tally.path()).await.unwrap();
    let mut gateways = Vec::new();
    for _ in 0..3 {
        let mut config = config(&[("s", &server.url())]);
        signed(&mut config);
        config.store = in_redis(&redis);
        config.peers = Some(peers(SECRET));
        gateways.push(Gateway::start(config).await.unwrap());
    }
    wants(&server, &authority, "good-first");
    let client = session(&gateways[0], &json!({})).await;
    let answer = call_with(&client, &bump(1, "first"), "good-first").await;
    assert!(!text(&answer).is_empty(), "{answer}");
    // The stream lives in the first gateway, where its messages are refused from now on.
    for (number, token) in [(1, "good-second"), (2, "good-third")] {
        wants(&server, &authority, token);
        let client = client.moved_to(&gateways[number]);
        let answer = call_with(&client, &bump(2, token), token).await;
        assert!(!text(&answer).is_empty(), "{answer}");
        assert_eq!(tally.count(&format!("bump {token}")), 1);
    }
}
