//! What the store costs and how it fares, in numbers.

use bowline::Gateway;
use bowline_testbed::scripted::Scripted;

use crate::kit::across::{Across, with_grace};
use crate::kit::client::Client;
use crate::kit::gateway::{admin, config, with_admin};
use crate::kit::wait::until_so;

async fn metrics(gateway: &Gateway) -> String {
    admin(gateway, "/metrics").await.text
}

fn assert_has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn what_the_store_is_asked_is_counted_and_timed() {
    let mut across = Across::start_with(2, with_grace).await;
    let client = across.open().await;
    for _ in 0..3 {
        across.works_at(&client, 1, "u1").await;
    }
    assert_has(
        &metrics(&across.gateways[0]).await,
        &[
            r#"bowline_store_operations_total{operation="create",outcome="ok"} 1"#,
            r#"bowline_store_seconds_count{operation="create"} 1"#,
            r#"bowline_store_reachable{kind="redis"} 1"#,
            r#"bowline_near_cache_sessions{kind="redis"} 1"#,
            r#"bowline_near_cache_loads_total{kind="redis"} 0"#,
        ],
    );
    let at_b = metrics(&across.gateways[1]).await;
    assert_has(
        &at_b,
        &[
            r#"bowline_store_operations_total{operation="load",outcome="ok"}"#,
            r#"bowline_near_cache_sessions{kind="redis"} 1"#,
            r#"bowline_near_cache_loads_total{kind="redis"} 1"#,
        ],
    );
    assert!(!at_b.contains(r#"operation="create""#), "{at_b}");
    across.redis.pause().await.unwrap();
    until_so("away", async || {
        let text = metrics(&across.gateways[0]).await;
        text.contains(r#"bowline_store_reachable{kind="redis"} 0"#)
            && text.contains(r#"outcome="timeout"}"#)
    })
    .await;
}

#[tokio::test]
async fn where_there_is_no_store_none_is_told_of() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    with_admin(&mut config);
    let gateway = Gateway::start(config).await.unwrap();
    Client::open(&gateway, &mut server, "u").await;
    let text = metrics(&gateway).await;
    assert!(!text.contains("bowline_store_reachable{"), "{text}");
    assert!(!text.contains("bowline_near_cache_sessions{"), "{text}");
}
