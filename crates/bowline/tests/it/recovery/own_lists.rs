//! A call that may run twice is answered at every loss of its server, whether or not the client lists the tools:
//! Bowline lists them by itself in each generation. One that must not run twice never does.

use bowline::Gateway;
use bowline_testbed::scripted::{Asked, Scripted};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::kit::across::Across;
use crate::kit::client::{Answer, Client};
use crate::kit::gateway::config;
use crate::kit::messages::{call, list, note};
use crate::kit::opened::{broken_call, forgot, opened, opened_shown, tools};

/// Calls `t` while the server is killed under the first attempt, after it ran. The answer, once the session lives
/// on as `next`, and how often the call ran.
async fn lost_call(server: &mut Scripted, client: &Client, next: &str) -> (Answer, usize) {
    let message = call(7);
    let sent = client.send(&message);
    tokio::pin!(sent);
    let (mut runs, mut answer, mut is_opened) = (0, None, false);
    loop {
        tokio::select! {
            sent = &mut sent, if answer.is_none() => answer = Some(sent),
            asked = server.next() => {
                is_opened |= asked.rpc_method() == "initialize";
                runs += usize::from(asked.rpc_method() == "tools/call");
                after_kill(asked, next);
            }
        }
        if is_opened && let Some(answer) = answer.take() {
            return (answer, runs);
        }
    }
}

/// What a server says that was killed and knows one new session.
fn after_kill(asked: Asked, next: &str) {
    let is_next = asked.header("mcp-session-id") == next;
    match asked.rpc_method().as_str() {
        "initialize" => asked.initialized(Some(next)),
        "notifications/initialized" => asked.reply(202, &[], ""),
        "tools/call" if !is_next => drop(asked),
        _ if is_next => asked.result(&json!({})),
        _ => forgot(asked),
    }
}

/// The code of an error; null if it is none.
fn code_of(answer: &Answer) -> Value {
    answer.json()["error"]["code"].clone()
}

/// A call that works. What the server sent before it is read after it.
async fn works(server: &mut Scripted, client: &Client) {
    let message = call(8);
    let answer = client.send_to(server, &message, |asked| asked.result(&json!({})));
    assert_eq!(answer.await.status, 200);
}

async fn is_answered_at_every_loss(server: &mut Scripted, client: &Client) {
    for next in ["u2", "u3", "u4"] {
        let listed = server.own_lists();
        let (answer, runs) = lost_call(server, client, next).await;
        assert_eq!(
            (code_of(&answer), runs),
            (Value::Null, 2),
            "{next}: {answer:?}"
        );
        server.has_listed(listed + 1).await;
        works(server, client).await;
    }
}

#[tokio::test]
async fn a_safe_call_is_answered_at_every_loss_after_one_list() {
    let (_gateway, mut server, client) = opened_shown(|_| {}).await;
    server.lists(&tools(true));
    is_answered_at_every_loss(&mut server, &client).await;
    assert_eq!(server.own_lists(), 3, "one list in each generation");
}

#[tokio::test]
async fn a_safe_call_is_answered_at_every_loss_without_any_list() {
    let (_gateway, mut server, client) = opened().await;
    server.lists(&tools(true));
    for _ in 0..3 {
        works(&mut server, &client).await;
        server.has_listed(1).await;
    }
    is_answered_at_every_loss(&mut server, &client).await;
    assert_eq!(server.own_lists(), 4, "one list in each generation");
}

#[tokio::test]
async fn a_safe_call_is_answered_at_every_loss_at_a_gateway_that_took_over() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    let other = across.at(&client, 1);
    across.server.lists(&tools(true));
    works(&mut across.server, &client).await;
    across.server.has_listed(1).await;
    drop(across.gateways.remove(0));
    for _ in 0..2 {
        works(&mut across.server, &other).await;
        across.server.has_listed(2).await;
    }
    is_answered_at_every_loss(&mut across.server, &other).await;
}

#[tokio::test]
async fn a_tool_that_a_restart_made_unsafe_never_runs_twice() {
    let (_gateway, mut server, client) = opened_shown(|_| {}).await;
    server.lists(&tools(false));
    for next in ["u2", "u3", "u4"] {
        let (answer, runs) = lost_call(&mut server, &client, next).await;
        assert_eq!((code_of(&answer), runs), (json!(-31001), 1), "{answer:?}");
    }
    // What it is now says nothing of the call before.
    server.lists(&tools(true));
    let (answer, runs) = lost_call(&mut server, &client, "u5").await;
    assert_eq!((code_of(&answer), runs), (json!(-31001), 1), "{answer:?}");
}

#[tokio::test]
async fn a_tool_that_became_unsafe_without_a_word_is_not_repeated() {
    // The session lives on: the server keeps sessions, or issues no id.
    for id in [Some("u1"), None] {
        for (read_only, expected) in [(true, (Value::Null, 2)), (false, (json!(-31001), 1))] {
            let mut server = Scripted::start().await;
            let gateway = Gateway::start(config(&[("s", server.url())]))
                .await
                .unwrap();
            let mut client = Client::new(&gateway);
            let opening = async { server.next().await.initialized(id) };
            let (opened, ()) = tokio::join!(client.initialize(), opening);
            assert_eq!(opened.status, 200);
            let message = list(1);
            let listed = client.send_to(&mut server, &message, |asked| asked.result(&tools(true)));
            assert_eq!(listed.await.status, 200);
            server.lists(&tools(read_only));
            let (answer, runs) = broken_call(&mut server, &client).await;
            assert_eq!((code_of(&answer), runs), expected, "{id:?}: {answer:?}");
            assert_eq!(server.own_lists(), 1);
        }
    }
}

#[tokio::test]
async fn a_list_that_does_not_say_that_a_tool_is_safe_confirms_nothing() {
    let one = |name: &str, next: &str| json!({"tools": [{"name": name, "annotations": {"readOnlyHint": true}}], "nextCursor": next});
    for said in [
        json!({"tools": []}),
        json!({"tools": {}}),
        json!({}),
        one("t", "c"),
    ] {
        let (_gateway, mut server, client) = opened_shown(|_| {}).await;
        server.lists(&said);
        let (answer, runs) = broken_call(&mut server, &client).await;
        assert_eq!((code_of(&answer), runs), (json!(-31001), 1), "{said}");
    }
}

#[tokio::test]
async fn a_change_that_is_heard_during_a_recovery_counts() {
    let (_gateway, mut server, client) = opened_shown(|_| {}).await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.get()).await;
    let message = call(7);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        drop(server.next().await);
        let ping = server.next().await;
        assert_eq!(ping.rpc_method(), "ping");
        let changed = note("notifications/tools/list_changed");
        pen.write(format!("data: {changed}\n\n"));
        events.next_message().await;
        ping.result(&json!({}));
    });
    assert_eq!(code_of(&answer), json!(-31001), "{answer:?}");
    server.finish();
}

#[tokio::test]
async fn calls_that_break_together_share_a_list() {
    let (_gateway, mut server, client) = opened_shown(|_| {}).await;
    let (mut calling, mut begun) = (JoinSet::new(), Vec::new());
    for id in 0..20 {
        calling.spawn(client.post(&call(id)).send());
        begun.push(server.next().await);
    }
    drop(begun);
    loop {
        tokio::select! {
            answer = calling.join_next() => match answer {
                Some(answer) => assert_eq!(answer.unwrap().unwrap().status(), 200),
                None => break,
            },
            asked = server.next() => asked.result(&json!({})),
        }
    }
    assert!(
        (1..=10).contains(&server.own_lists()),
        "{} lists",
        server.own_lists()
    );
}

#[tokio::test]
async fn what_a_tenant_is_shown_says_nothing_of_the_sessions_own_tools() {
    let (_gateway, mut server, client) = opened().await;
    let mut beta = client.clone();
    beta.url += "?tenant=beta";
    let message = list(1);
    let listed = beta.send_to(&mut server, &message, |asked| asked.result(&tools(true)));
    assert_eq!(listed.await.status, 200);
    server.lists(&tools(false));
    let (answer, runs) = broken_call(&mut server, &client).await;
    assert_eq!((code_of(&answer), runs), (json!(-31001), 1), "{answer:?}");
}

#[tokio::test]
async fn tools_that_changed_are_listed_again() {
    let (_gateway, mut server, client) = opened_shown(|_| {}).await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.get()).await;
    for (read_only, expected) in [(true, 2), (false, 1)] {
        server.lists(&tools(read_only));
        let listed = server.own_lists();
        let changed = note("notifications/tools/list_changed");
        pen.write(format!("data: {changed}\n\n"));
        events.next_message().await;
        works(&mut server, &client).await;
        server.has_listed(listed + 1).await;
        works(&mut server, &client).await;
        let (answer, runs) = broken_call(&mut server, &client).await;
        assert_eq!(runs, expected, "{answer:?}");
    }
}

#[tokio::test]
async fn a_crowd_that_recovers_at_once_lists_once() {
    let (gateway, mut server, first) = opened_shown(|_| {}).await;
    server.lists(&tools(true));
    let mut clients = vec![first];
    for _ in 1..40 {
        clients.push(Client::open(&gateway, &mut server, "u1").await);
    }
    let message = call(7);
    let mut calling = JoinSet::new();
    for client in &clients {
        calling.spawn(client.post(&message).send());
    }
    loop {
        tokio::select! {
            answer = calling.join_next() => match answer {
                Some(answer) => assert_eq!(answer.unwrap().unwrap().status(), 200),
                None => break,
            },
            asked = server.next() => match asked.header("mcp-session-id") == "u1" {
                true => forgot(asked),
                false => after_kill(asked, "u2"),
            },
        }
    }
    server.has_listed(1).await;
    assert!(server.own_lists() <= 4, "{} lists", server.own_lists());
}
