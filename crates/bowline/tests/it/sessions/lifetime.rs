//! Sessions end when nobody uses them; an open stream and a running call are use.

use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::scripted::Scripted;
use serde_json::json;

use crate::kit::client::Client;
use crate::kit::gateway::config;
use crate::kit::messages::call;

#[tokio::test]
async fn an_idle_session_expires_here_and_at_the_server() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.limits.session_idle = Duration::from_millis(300);
    let gateway = Gateway::start(config).await.unwrap();
    let streaming = Client::open(&gateway, &mut server, "streaming").await;
    let (_events, _pen) = streaming.open_stream(&mut server, streaming.get()).await;
    let calling = Client::open(&gateway, &mut server, "calling").await;
    let request = calling.post(&call(1)).send();
    let running = tokio::task::JoinSet::from_iter([request]);
    let asked = server.next().await;
    // Opened last and used least: once it has expired, the others would have, too.
    let idle = Client::open(&gateway, &mut server, "idle").await;
    let deleted = server.next().await;
    assert_eq!(
        (deleted.method.as_str(), deleted.header("mcp-session-id")),
        ("DELETE", "idle")
    );
    deleted.reply(204, &[], "");
    assert_eq!(idle.send(&call(1)).await.status, 404);

    asked.result(&json!({}));
    assert_eq!(running.join_all().await[0].as_ref().unwrap().status(), 200);
    let answer = streaming
        .send_to(&mut server, &call(2), |asked| asked.result(&json!({})))
        .await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_session_that_is_too_old_ends_with_its_streams() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.limits.session_max_age = Some(Duration::from_secs(1));
    let gateway = Gateway::start(config).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u").await;
    let (events, pen) = client.open_stream(&mut server, client.get()).await;
    let (answer, answering) = client.open_stream(&mut server, client.post(&call(1))).await;
    let ((), (), (), ()) = tokio::join!(
        events.ends_cleanly(),
        answer.ends_cleanly(),
        pen.closed(),
        answering.closed(),
    );
    let deleted = server.next().await;
    assert_eq!(
        (deleted.method.as_str(), deleted.header("mcp-session-id")),
        ("DELETE", "u")
    );
    deleted.reply(204, &[], "");
    assert_eq!(client.send(&call(2)).await.status, 404);
}

#[tokio::test]
async fn stopping_ends_streams_cleanly_and_does_not_wait_for_idle_connections() {
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(config(&[("s", server.url())]))
        .await
        .unwrap();
    let client = Client::open(&gateway, &mut server, "u").await;
    let answer = client
        .send_to(&mut server, &call(1), |asked| asked.result(&json!({})))
        .await;
    assert_eq!(answer.status, 200);
    let (events, pen) = client.open_stream(&mut server, client.get()).await;
    let stopped = tokio::time::timeout(Duration::from_secs(3), gateway.stop());
    let (stopped, ()) = tokio::join!(stopped, events.ends_cleanly());
    stopped.expect("a stop that waits for nothing");
    pen.closed().await;
}

#[tokio::test]
async fn stopping_lets_answers_finish_and_opens_nothing_new() {
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(config(&[("s", server.url())]))
        .await
        .unwrap();
    let client = Client::open(&gateway, &mut server, "u").await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(1))).await;
    let whole = client.post(&call(2)).send();
    let whole = tokio::task::JoinSet::from_iter([whole]);
    let asked = server.next().await;
    let (standalone, _pen) = client.open_stream(&mut server, client.get()).await;
    let stopping = tokio::task::JoinSet::from_iter([gateway.stop()]);
    standalone.ends_cleanly().await;
    // A new connection is not taken any more, and that is how the client learns of it.
    assert!(
        Client::at(client.url.clone())
            .post(&call(3))
            .send()
            .await
            .is_err()
    );
    asked.result(&json!({}));
    assert_eq!(whole.join_all().await[0].as_ref().unwrap().status(), 200);
    let answer = "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n";
    pen.write(answer);
    drop(pen);
    assert_eq!(events.next().await, answer);
    events.ends_cleanly().await;
    stopping.join_all().await;
}

#[tokio::test]
async fn stopping_ends_what_does_not_finish_in_time() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.stop_timeout = Duration::from_millis(100);
    let gateway = Gateway::start(config).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u").await;
    let (events, _pen) = client.open_stream(&mut server, client.post(&call(1))).await;
    let stopped = tokio::time::timeout(Duration::from_secs(3), gateway.stop());
    let (stopped, ()) = tokio::join!(stopped, events.ends_cleanly());
    stopped.expect("a stop with a deadline");
}

#[tokio::test]
async fn a_call_that_never_ends_does_not_hold_a_session_whose_client_left() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.limits.session_idle = Duration::from_millis(200);
    let gateway = Gateway::start(config).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u").await;
    let request = client.post(&call(1)).send();
    let running = tokio::task::JoinSet::from_iter([request]);
    let hung = server.next().await;
    drop(running);
    let deleted = server.next().await;
    assert_eq!(
        (deleted.method.as_str(), deleted.header("mcp-session-id")),
        ("DELETE", "u")
    );
    drop(hung);
}

#[tokio::test]
async fn an_answer_of_a_session_that_ended_meanwhile_is_still_the_answer() {
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(config(&[("s", server.url())]))
        .await
        .unwrap();
    let client = Client::open(&gateway, &mut server, "u").await;
    let message = call(1);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        let asked = server.next().await;
        assert_eq!(client.delete().send().await.unwrap().status(), 204);
        let mut pen = asked.events();
        pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n");
    });
    assert_eq!(answer.status, 200);
    assert!(answer.text.contains("result"), "{}", answer.text);
}

#[tokio::test]
async fn a_body_that_is_cut_by_the_sessions_end_is_not_taken_for_whole() {
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(config(&[("s", server.url())]))
        .await
        .unwrap();
    let client = Client::open(&gateway, &mut server, "u").await;
    let (response, pen) = tokio::join!(client.post(&call(1)).send(), async {
        let mut pen = server
            .next()
            .await
            .begin(200, &[("content-type", "application/json")]);
        // More than is held back.
        pen.write(format!("{{\"id\":1,\"result\":\"{}", "x".repeat(100_000)));
        pen
    });
    let mut response = response.unwrap();
    assert!(
        response
            .chunk()
            .await
            .unwrap()
            .unwrap()
            .starts_with(b"{\"id")
    );
    client.delete().send().await.unwrap();
    while let Ok(chunk) = response.chunk().await {
        assert!(chunk.is_some(), "a clean end");
    }
    pen.closed().await;
}

#[tokio::test]
async fn ending_a_session_does_not_wait_for_the_server_and_the_server_is_not_waited_for_for_ever() {
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(config(&[("s", server.url())]))
        .await
        .unwrap();
    let mut client = Client::open(&gateway, &mut server, "u").await;
    // The only server is at `/mcp`, too.
    client.url = client.url.replace("/mcp/s", "/mcp");
    let answer = client
        .send_to(&mut server, &call(1), |asked| asked.result(&json!({})))
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(client.delete().send().await.unwrap().status(), 204);
    let unanswered = server.next().await;
    assert_eq!(unanswered.method, "DELETE");
    assert_eq!(
        client.send(&call(2)).await.status,
        404,
        "ended before the server has said a word"
    );
    unanswered.given_up().await;
}
