//! A client whose every request arrives at another gateway has one session all the same: its calls, what it
//! cancels, what it answers, its end and its cookies.

use bowline_testbed::scripted::initialize_result;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use crate::kit::across::Across;
use crate::kit::client::Client;
use crate::kit::messages::call;
use crate::kit::opened::forgot;

fn cancelled(id: impl Into<Value>) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id.into()}})
}

#[tokio::test]
async fn a_cancel_elsewhere_reaches_the_server() {
    let mut across = Across::start(3).await;
    let client = across.open().await;
    let (at_b, at_c) = (across.at(&client, 1), across.at(&client, 2));
    let (message, cancel) = (call(7), cancelled(7));
    let running = TaskTracker::new().spawn(async move { at_b.send(&message).await });
    let asked = across.server.next().await;
    let told = at_c.send_to(&mut across.server, &cancel, |asked| {
        assert_eq!(asked.rpc_method(), "notifications/cancelled");
        assert_eq!(asked.json()["params"]["requestId"], 7);
        assert_eq!(asked.header("mcp-session-id"), "u1");
        asked.reply(202, &[], "");
    });
    assert_eq!(told.await.status, 202);
    // What was sent ends by its own outcome.
    asked.result(&json!({}));
    assert_eq!(running.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_cancel_elsewhere_reaches_a_repeat_under_the_id_that_the_server_knows() {
    let mut across = Across::start(3).await;
    let client = across.open().await;
    across.works_at(&client, 2, "u1").await;
    let (at_b, at_c) = (across.at(&client, 1), across.at(&client, 2));
    let message =
        json!({"jsonrpc": "2.0", "id": 7, "method": "resources/read", "params": {"uri": "x:y"}});
    let running = TaskTracker::new().spawn(async move { at_b.send(&message).await });
    drop(across.server.next().await);
    across.server.next().await.result(&json!({}));
    let again = across.server.next().await;
    let ours = again.json()["id"].clone();
    assert_ne!(ours, 7);
    let cancel = cancelled(7);
    let (told, heard) = tokio::join!(at_c.send(&cancel), async {
        let mut heard = Vec::new();
        for _ in 0..2 {
            let asked = across.server.next().await;
            assert_eq!(asked.rpc_method(), "notifications/cancelled");
            assert_eq!(asked.header("mcp-session-id"), "u1");
            heard.push(asked.json()["params"]["requestId"].clone());
            asked.reply(202, &[], "");
        }
        heard
    });
    assert_eq!(told.status, 202);
    // The first may still be under way: the client's own id is cancelled as well.
    assert!(
        heard.contains(&ours) && heard.contains(&json!(7)),
        "{heard:?}"
    );
    again.result(&json!({}));
    assert_eq!(running.await.unwrap().status, 200);
    across.server.finish();
}

#[tokio::test]
async fn a_cancel_elsewhere_stops_what_waits_for_a_recovery() {
    let mut across = Across::start(3).await;
    let client = across.open().await;
    across.works_at(&client, 2, "u1").await;
    let (at_b, at_c) = (across.at(&client, 1), across.at(&client, 2));
    let message = call(7);
    let running = TaskTracker::new().spawn(async move { at_b.send(&message).await });
    forgot(across.server.next().await);
    let initialize = across.server.next().await;
    assert_eq!(initialize.rpc_method(), "initialize");
    // C does not know of the loss, and tells the server: it has nothing to say to it.
    let cancel = cancelled(7);
    let told = at_c.send_to(&mut across.server, &cancel, |asked| {
        assert_eq!(asked.rpc_method(), "notifications/cancelled");
        asked.reply(202, &[], "");
    });
    assert_eq!(told.await.status, 202);
    // The request is answered before the server has been opened again, and is never sent to it.
    let answer = running.await.unwrap();
    assert!(!answer.text.contains("result"), "{answer:?}");
    initialize.initialized(Some("u2"));
    // Nobody waits for the flight any more: its session may go or stay, and the next call works.
    let probe = call("probe");
    let sending = TaskTracker::new().spawn({
        let client = client.clone();
        async move { client.send(&probe).await }
    });
    loop {
        let asked = across.server.next().await;
        assert_ne!(asked.json()["id"], 7, "sent although it was cancelled");
        match (asked.method.as_str(), asked.rpc_method().as_str()) {
            ("DELETE", _) => asked.reply(204, &[], ""),
            (_, "initialize") => asked.initialized(Some("u3")),
            _ if asked.header("mcp-session-id") == "u1" => forgot(asked),
            _ => {
                asked.result(&json!({}));
                break;
            }
        }
    }
    assert_eq!(sending.await.unwrap().status, 200);
}

#[tokio::test]
async fn what_the_server_asks_on_one_gateway_is_answered_through_another() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    let (mut events, mut pen) = client.open_stream(&mut across.server, client.get()).await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":41,\"method\":\"roots/list\"}\n\n");
    let (_, question) = events.next_message().await;
    assert_eq!(question["method"], "roots/list");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}});
    let answered = across.at(&client, 1);
    let answered = answered.send_to(&mut across.server, &answer, |asked| {
        assert_eq!(asked.json()["id"], 41);
        assert_eq!(asked.header("mcp-session-id"), "u1");
        asked.reply(202, &[], "");
    });
    assert_eq!(answered.await.status, 202);
    across.server.finish();
}

/// Calls at a gateway until the cookie that the server gets is this one.
async fn until_cookie(across: &mut Across, client: &Client, cookie: &str) {
    for attempt in 0..60 {
        let mut got = String::new();
        let message = call(attempt);
        let sent = client.send_to(&mut across.server, &message, |asked| {
            asked.header("cookie").clone_into(&mut got);
            asked.result(&json!({}));
        });
        assert_eq!(sent.await.status, 200);
        if got == cookie {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{cookie} never came");
}

#[tokio::test]
async fn a_cookie_goes_along_and_so_does_the_one_that_replaces_it() {
    let mut across = Across::start(3).await;
    let mut client = Client::new(&across.gateways[0]);
    let (opened, ()) = tokio::join!(client.initialize(), async {
        let asked = across.server.next().await;
        let headers = [("mcp-session-id", "u1"), ("set-cookie", "SRV=r1; path=/")];
        asked.result_with(&headers, &initialize_result());
    });
    assert_eq!(opened.status, 200);
    let (at_b, at_c) = (across.at(&client, 1), across.at(&client, 2));
    let message = call("first");
    for other in [&at_b, &at_c] {
        let answer = other.send_to(&mut across.server, &message, |asked| {
            assert_eq!(asked.header("cookie"), "SRV=r1");
            asked.result(&json!({}));
        });
        assert_eq!(answer.await.status, 200);
    }
    // The balancer has another replica for it: B is told, and the others go there, too.
    let answer = at_b.send_to(&mut across.server, &message, |asked| {
        asked.result_with(&[("set-cookie", "SRV=r2; path=/")], &json!({}));
    });
    assert_eq!(answer.await.status, 200);
    until_cookie(&mut across, &at_c, "SRV=r2").await;
    until_cookie(&mut across, &client, "SRV=r2").await;
    until_cookie(&mut across, &at_b, "SRV=r2").await;
}

#[tokio::test]
async fn a_call_whose_client_left_in_the_middle_of_a_recovery_holds_nobody_up() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    let (message, again) = (call(1), call(2));
    let leaving = TaskTracker::new().spawn({
        let client = client.clone();
        async move { client.send(&message).await }
    });
    forgot(across.server.next().await);
    let initialize = across.server.next().await;
    assert_eq!(initialize.rpc_method(), "initialize");
    leaving.abort();
    initialize.given_up().await;
    // Long before its turn would be over.
    let at_b = across.at(&client, 1);
    let (answer, took) = tokio::join!(at_b.send(&again), async {
        let began = tokio::time::Instant::now();
        forgot(across.server.next().await);
        across.server.next().await.initialized(Some("u2"));
        across.server.next().await.result(&json!({}));
        began.elapsed()
    });
    assert_eq!(answer.status, 200);
    assert!(took < std::time::Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn what_was_said_at_several_gateways_is_restored_by_another() {
    let mut across = Across::start(3).await;
    let mut client = Client::new(&across.gateways[0]);
    let mut result = initialize_result();
    result["capabilities"] = json!({"logging": {}, "resources": {"subscribe": true}});
    let (opened, ()) = tokio::join!(client.initialize(), async {
        let asked = across.server.next().await;
        asked.result_with(&[("mcp-session-id", "u1")], &result);
    });
    assert_eq!(opened.status, 200);
    let said = [
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": "debug"}}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": "x:one"}}),
        json!({"jsonrpc": "2.0", "id": 3, "method": "resources/subscribe", "params": {"uri": "x:two"}}),
    ];
    for (gateway, message) in [0, 1, 0, 1].into_iter().zip(&said) {
        let at = across.at(&client, gateway);
        let answer = at.send_to(
            &mut across.server,
            message,
            |asked| match asked.json()["id"].is_null() {
                true => asked.reply(202, &[], ""),
                false => asked.result(&json!({})),
            },
        );
        assert!(answer.await.status.is_success());
    }
    let (at_c, message) = (across.at(&client, 2), call(9));
    let (answer, restored) = tokio::join!(at_c.send(&message), async {
        forgot(across.server.next().await);
        let asked = across.server.next().await;
        assert_eq!(asked.rpc_method(), "initialize");
        asked.result_with(&[("mcp-session-id", "u2")], &result);
        let mut restored = Vec::new();
        loop {
            let asked = across.server.next().await;
            assert_eq!(asked.header("mcp-session-id"), "u2");
            let (message, method) = (asked.json(), asked.rpc_method());
            match message["id"].is_null() {
                true => asked.reply(202, &[], ""),
                false => asked.result(&json!({})),
            }
            if method == "tools/call" {
                return restored;
            }
            restored.push((method, message["params"].clone()));
        }
    });
    assert_eq!(answer.status, 200);
    for message in &said[1..] {
        let wanted = (
            message["method"].as_str().unwrap().to_owned(),
            message["params"].clone(),
        );
        assert!(restored.contains(&wanted), "{wanted:?} in {restored:?}");
    }
    assert_eq!(restored[0].0, "notifications/initialized");
    assert_eq!(restored.len(), 4, "{restored:?}");
    // And the others have gone along, or do when they meet the loss: nobody opens it once more.
    for gateway in [0, 1] {
        let (at, message) = (across.at(&client, gateway), call(10));
        let (answer, ()) = tokio::join!(at.send(&message), async {
            let mut asked = across.server.next().await;
            if asked.header("mcp-session-id") == "u1" {
                forgot(asked);
                asked = across.server.next().await;
            }
            assert_eq!(asked.header("mcp-session-id"), "u2");
            asked.result(&json!({}));
        });
        assert_eq!(answer.status, 200);
    }
    across.server.finish();
}
