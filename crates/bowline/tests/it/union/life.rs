//! Members live as long as the client's attachment, and no longer. One that is lost costs the others nothing.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::OnLoss;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::kit::client::{Client, sent};
use crate::kit::fake::{
    Fake, TOOLS_CHANGED, begun, client_of, config_of, hear_of, missing, names, text, united,
    united_with, unmarked,
};
use crate::kit::gateway::{admin, with_admin};
use crate::kit::messages::list;
use crate::kit::programs;
use crate::kit::stores::in_file;
use crate::kit::wait::until;

async fn uses(client: &Client, tool: &str) -> Value {
    let answer = client.call("use", tool, &json!({})).await;
    unmarked(answer.messages().pop().unwrap())
}

#[tokio::test]
async fn members_stay_while_their_attachment_is_used_and_end_with_it() {
    const IDLE: Duration = Duration::from_millis(600);
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let mut config = config_of(&[&a, &b]);
    config.limits.session_idle = IDLE;
    let (_gateway, client) = united_with(config).await;
    assert_eq!(names(&client.send(&list(1)).await).len(), 2);
    let ping = json!({"jsonrpc": "2.0", "id": "p", "method": "ping"});
    let began = Instant::now();
    while began.elapsed() < 4 * IDLE {
        assert_eq!(client.send(&ping).await.status, 200);
        tokio::time::sleep(IDLE / 10).await;
    }
    assert_eq!((a.count("DELETE"), b.count("DELETE")), (0, 0));
    assert_eq!(uses(&client, "a__t").await["result"], text("a"));
    assert_eq!((a.count("initialize"), b.count("initialize")), (1, 1));
    a.until("DELETE", 1).await;
    b.until("DELETE", 1).await;
    assert_eq!(client.send(&ping).await.status, 404);
    assert_eq!((a.live().len(), b.live().len()), (0, 0));
}

#[tokio::test]
async fn an_open_stream_is_use() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let mut config = config_of(&[&a, &b]);
    config.limits.session_idle = Duration::from_millis(300);
    let (gateway, client) = united_with(config).await;
    let events = client.listen().await;
    assert_eq!(uses(&client, "a__t").await["result"], text("a"));
    // Opened later and not used: once it has ended, the other would have, too.
    let idle = begun(&gateway).await;
    assert_eq!(uses(&idle, "b__t").await["result"], text("b"));
    b.until("DELETE", 1).await;
    assert_eq!(idle.send(&list(1)).await.status, 404);
    assert_eq!(uses(&client, "a__t").await["result"], text("a"));
    assert_eq!(a.count("DELETE"), 0);
    drop(events);
    a.until("DELETE", 1).await;
}

#[tokio::test]
async fn a_client_ends_all_its_members_and_nobody_elses() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let mut config = config_of(&[&a, &b]);
    with_admin(&mut config);
    let (gateway, client) = united_with(config).await;
    let other = begun(&gateway).await;
    for client in [&client, &other] {
        assert_eq!(names(&client.send(&list(1)).await).len(), 2);
    }
    let events = client.listen().await;
    let shown = admin(&gateway, "/api/sessions").await.json();
    let attachments = shown["attachments"].as_array().unwrap();
    assert_eq!(attachments.len(), 2, "{shown}");
    assert_eq!(attachments[0]["members"].as_array().unwrap().len(), 2);
    assert_eq!(client.end().await.status, 204);
    drop(events.all().await);
    for fake in [&a, &b] {
        fake.until("DELETE", 1).await;
        assert_eq!(fake.live().len(), 1);
    }
    for request in [client.post(&list(2)), client.get(), client.delete()] {
        assert_eq!(sent(request).await.status, 404);
    }
    assert_eq!(uses(&other, "a__t").await["result"], text("a"));
    assert_eq!((a.count("DELETE"), b.count("DELETE")), (1, 1));
}

#[tokio::test]
async fn a_member_that_is_a_process_is_gone_with_the_attachment() {
    let (a, tally) = (Fake::start("a").await, programs::Tally::default());
    let mut config = programs::config_of(programs::command(&tally.path()));
    config.servers.extend(config_of(&[&a]).servers);
    let (_gateway, client) = united_with(config).await;
    let peeked = client.call("pid", "s__peek", &json!({"key": "pid"})).await;
    let pid: u32 = programs::text_of(&peeked).parse().unwrap();
    assert_eq!(tally.pids(), [pid]);
    assert_eq!(client.end().await.status, 204);
    programs::until_gone(pid).await;
}

#[tokio::test]
async fn an_attachment_that_is_too_old_ends_with_its_members() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let mut config = config_of(&[&a, &b]);
    config.limits.session_max_age = Some(Duration::from_secs(1));
    let (_gateway, client) = united_with(config).await;
    assert_eq!(uses(&client, "a__t").await["result"], text("a"));
    let mut events = client.listen().await;
    while events.try_next().await.unwrap().is_some() {}
    let ping = json!({"jsonrpc": "2.0", "id": "p", "method": "ping"});
    assert_eq!(client.send(&ping).await.status, 404);
    a.until("DELETE", 1).await;
    assert_eq!(b.count("initialize"), 0);
}

#[tokio::test]
async fn a_member_is_recovered_and_the_client_does_not_notice() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let (_gateway, client) = united(&[&a, &b]).await;
    assert_eq!(names(&client.send(&list(1)).await).len(), 2);
    a.forget();
    assert_eq!(uses(&client, "a__t").await["result"], text("a"));
    a.forget();
    let answer = client.send(&list(2)).await;
    assert_eq!((names(&answer).len(), missing(&answer)), (2, json!(null)));
    assert_eq!((a.count("initialize"), b.count("initialize")), (3, 1));
}

#[tokio::test]
async fn a_loss_that_has_to_be_told_is_told_once_and_the_next_use_works() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let mut config = config_of(&[&a, &b]);
    for server in config.servers.values_mut() {
        server.recovery.on_loss = OnLoss::Tell;
    }
    let (_gateway, client) = united_with(config).await;
    assert_eq!(names(&client.send(&list(1)).await).len(), 2);
    let mut events = client.listen().await;
    a.forget();
    let told = client.call(2, "a__t", &json!({})).await;
    assert_eq!(
        (told.status.as_u16(), told.code()),
        (200, -31006),
        "{told:?}"
    );
    assert_eq!(told.json()["error"]["data"]["server"], "a");
    hear_of(&mut events, TOOLS_CHANGED).await;
    assert_eq!(uses(&client, "b__t").await["result"], text("b"));
    assert_eq!(uses(&client, "a__t").await["result"], text("a"));
    let answer = client.send(&list(3)).await;
    assert_eq!((names(&answer).len(), missing(&answer)), (2, json!(null)));
    assert_eq!((a.count("initialize"), b.count("initialize")), (2, 1));
    assert_eq!(
        a.count("tools/call"),
        2,
        "the lost one, and the one after it"
    );
}

#[tokio::test]
async fn an_attachment_outlives_its_gateway_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let mut config = config_of(&[&a, &b]);
    config.store = in_file(&directory.path().join("sessions"));
    let (gateway, client) = united_with(config.clone()).await;
    assert_eq!(uses(&client, "a__t").await["result"], text("a"));
    let mut events = client.listen().await;
    a.until_listened(1).await;
    let question = json!({"jsonrpc": "2.0", "id": 7, "method": "roots/list"});
    a.emit(Some("a-one"), &question);
    let (last, asked) = hear_of(&mut events, "roots/list").await;
    gateway.stop().await;
    let gateway = Gateway::start(config).await.unwrap();
    let client = client.moved_to_url(&client_of(&gateway).url);
    // The position, the question's id and the member are as they were.
    let resumed = client.get().header("last-event-id", last.unwrap());
    let _events = resumed.send().await.unwrap();
    a.until_listened(1).await;
    assert_eq!(
        a.asked("GET").pop().unwrap().header("last-event-id"),
        "a-one"
    );
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}});
    assert_eq!(client.send(&answer).await.status, 202);
    a.until("a response", 1).await;
    assert_eq!(a.asked("a response")[0].json()["id"], 7);
    assert_eq!(names(&client.send(&list(2)).await), ["a__t", "b__t"]);
    assert_eq!((a.count("initialize"), b.count("initialize")), (1, 1));
    assert_eq!(client.end().await.status, 204);
    until("both have ended", || a.live().len() + b.live().len() == 0).await;
}

#[tokio::test]
async fn a_second_server_turns_mcp_into_a_union_and_old_sessions_go_on() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let alone = config_of(&[&a]);
    let (gateway, old) = united_with(alone.clone()).await;
    assert_eq!(names(&old.send(&list(1)).await), ["t"]);
    let servers = config_of(&[&a, &b]).servers;
    let both = bowline::config::Config {
        servers,
        ..alone.clone()
    };
    gateway.reload(both).unwrap();
    let of_one = old.call("use", "t", &json!({})).await;
    assert_eq!(of_one.json()["result"], text("a"));
    let new = begun(&gateway).await;
    let mut events = new.listen().await;
    assert_eq!(names(&new.send(&list(1)).await), ["a__t", "b__t"]);
    assert_eq!(names(&old.send(&list(2)).await), ["t"]);
    // And back: the attachment keeps what is left of it.
    gateway.reload(alone).unwrap();
    assert_eq!(uses(&new, "a__t").await["result"], text("a"));
    assert_eq!(names(&new.send(&list(2)).await), ["a__t"]);
    assert_eq!(uses(&new, "b__t").await["error"]["code"], -32602);
    let of_one = old.call("use", "t", &json!({})).await;
    assert_eq!(of_one.json()["result"], text("a"));
    hear_of(&mut events, TOOLS_CHANGED).await;
    // What it had with the other server ends with it.
    assert_eq!(new.end().await.status, 204);
    b.until("DELETE", 1).await;
}

#[tokio::test]
async fn an_attachment_from_before_follows_a_union_that_comes_back() {
    let (a, b, c) = (
        Fake::start("a").await,
        Fake::start("b").await,
        Fake::start("c").await,
    );
    let both = config_of(&[&a, &b]);
    let with = |fakes: &[&Fake]| bowline::config::Config {
        servers: config_of(fakes).servers,
        ..both.clone()
    };
    let (gateway, client) = united_with(both.clone()).await;
    assert_eq!(names(&client.send(&list(1)).await), ["a__t", "b__t"]);
    gateway.reload(with(&[&a])).unwrap();
    assert_eq!(names(&client.send(&list(2)).await), ["a__t"]);
    gateway.reload(with(&[&a, &c])).unwrap();
    assert_eq!(names(&client.send(&list(3)).await), ["a__t", "c__t"]);
    assert_eq!(a.count("initialize"), 1);
}

#[tokio::test]
async fn a_reload_that_adds_a_server_to_a_union_is_told_and_listed() {
    let (a, b, c) = (
        Fake::start("a").await,
        Fake::start("b").await,
        Fake::start("c").await,
    );
    let before = config_of(&[&a, &b]);
    let (gateway, client) = united_with(before.clone()).await;
    assert_eq!(names(&client.send(&list(1)).await), ["a__t", "b__t"]);
    let mut events = client.listen().await;
    let servers = config_of(&[&a, &b, &c]).servers;
    gateway
        .reload(bowline::config::Config { servers, ..before })
        .unwrap();
    hear_of(&mut events, TOOLS_CHANGED).await;
    assert_eq!(
        names(&client.send(&list(2)).await),
        ["a__t", "b__t", "c__t"]
    );
    assert_eq!((a.count("initialize"), c.count("initialize")), (1, 1));
}
