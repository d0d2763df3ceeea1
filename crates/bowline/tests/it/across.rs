//! A client whose every request arrives at another gateway has one session all the same: its stream,
//! its calls, what it cancels, what it answers, its end and its cookies.

use bowline::Gateway;
use bowline::config::{Config, Store};
use bowline_testbed::redis::Redis;
use bowline_testbed::scripted::{Asked, Pen, Scripted, initialize_result};
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use crate::client::{Client, call, config};
use crate::kept::in_redis;
use crate::store_away::{command, raw};

/// Gateways on one Redis before a server that the test plays.
pub(crate) struct Across {
    pub(crate) redis: Redis,
    pub(crate) server: Scripted,
    pub(crate) gateways: Vec<Gateway>,
}

impl Across {
    pub(crate) async fn start(gateways: usize) -> Self {
        Self::start_with(gateways, |_| {}).await
    }

    pub(crate) async fn start_with(gateways: usize, change: impl Fn(&mut Config)) -> Self {
        let mut across = Self {
            redis: Redis::start_with(&["--enable-debug-command", "local"])
                .await
                .unwrap(),
            server: Scripted::start().await,
            gateways: Vec::new(),
        };
        for _ in 0..gateways {
            let mut config = across.config(in_redis(&across.redis));
            change(&mut config);
            across.gateways.push(Gateway::start(config).await.unwrap());
        }
        across
    }

    pub(crate) fn config(&self, store: Store) -> Config {
        Config {
            store,
            ..config(&[("s", self.server.url())])
        }
    }

    pub(crate) async fn open(&mut self) -> Client {
        Client::open(&self.gateways[0], &mut self.server, "u1").await
    }

    /// The same client at another gateway.
    pub(crate) fn at(&self, client: &Client, gateway: usize) -> Client {
        let listen = self.gateways[gateway].listen();
        let mut client = client.clone();
        client.url = format!("http://{listen}/mcp/s");
        client
    }

    /// Shows that the session works at a gateway, on this upstream session.
    pub(crate) async fn works_at(&mut self, client: &Client, gateway: usize, upstream: &str) {
        let client = self.at(client, gateway);
        let message = call("works");
        let answer = client.send_to(&mut self.server, &message, |asked| {
            assert_eq!(asked.header("mcp-session-id"), upstream);
            asked.result(&json!({}));
        });
        assert_eq!(answer.await.status, 200);
    }
}

pub(crate) fn forgot(asked: Asked) {
    asked.reply(404, &[("content-type", "text/plain")], "Session not found");
}

fn cancelled(id: impl Into<Value>) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id.into()}})
}

#[tokio::test]
async fn calls_elsewhere_leave_the_stream_alone_and_an_end_elsewhere_ends_it() {
    let mut across = Across::start(4).await;
    let client = across.open().await;
    let (mut events, mut pen) = client.open_stream(&mut across.server, client.get()).await;
    across.works_at(&client, 1, "u1").await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"x/here\"}\n\n");
    assert_eq!(events.next_message().await.1["method"], "x/here");

    let at_d = across.at(&client, 3);
    let (ended, ()) = tokio::join!(at_d.delete().send(), async {
        let asked = across.server.next().await;
        assert_eq!(asked.method, "DELETE");
        assert_eq!(asked.header("mcp-session-id"), "u1");
        asked.reply(204, &[], "");
    });
    assert_eq!(ended.unwrap().status(), 204);
    events.ends_cleanly().await;
    assert_eq!(client.send(&call(1)).await.status, 404);
    across.server.finish();
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

/// Opens a session whose tools can change, and ends the handshake.
async fn open_changing(across: &mut Across) -> Client {
    let mut client = Client::new(&across.gateways[0]);
    let mut result = initialize_result();
    result["capabilities"] = json!({"tools": {"listChanged": true}});
    let (opened, ()) = tokio::join!(client.initialize(), async {
        let asked = across.server.next().await;
        asked.result_with(&[("mcp-session-id", "u1")], &result);
    });
    assert_eq!(opened.status, 200);
    client
}

#[tokio::test]
async fn a_question_that_was_answered_elsewhere_is_not_taken_back() {
    let mut across = Across::start(2).await;
    let client = open_changing(&mut across).await;
    let (mut events, mut pen) = client.open_stream(&mut across.server, client.get()).await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":41,\"method\":\"roots/list\"}\n\n");
    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":42,\"method\":\"roots/list\"}\n\n");
    let (_, answered) = events.next_message().await;
    let (_, open) = events.next_message().await;
    let answer = json!({"jsonrpc": "2.0", "id": answered["id"], "result": {"roots": []}});
    let at_b = across.at(&client, 1);
    let told = at_b.send_to(&mut across.server, &answer, |asked| {
        assert_eq!(asked.json()["id"], 41);
        asked.reply(202, &[], "");
    });
    assert_eq!(told.await.status, 202);
    let _pen = recover_at(&mut across, &client, 1, true).await;
    // What the lost session asked is taken back, but for what it was told.
    let mut taken_back = Vec::new();
    loop {
        let (_, message) = events.next_message().await;
        match message["method"].as_str() {
            Some("notifications/cancelled") => {
                taken_back.push(message["params"]["requestId"].clone());
            }
            _ => break assert_eq!(message["method"], CHANGED),
        }
    }
    assert_eq!(taken_back, [open["id"].clone()]);
    across.server.finish();
}

/// Loses the session by a call at a gateway, and opens it again as `u2`. Where a stream is open, its
/// next one is returned.
async fn recover_at(
    across: &mut Across,
    client: &Client,
    gateway: usize,
    listens: bool,
) -> Option<Pen> {
    let at = across.at(client, gateway);
    let message = call("loser");
    let (answer, pen) = tokio::join!(at.send(&message), async {
        forgot(across.server.next().await);
        let mut result = initialize_result();
        result["capabilities"] = json!({"tools": {"listChanged": true}});
        let asked = across.server.next().await;
        assert_eq!(asked.rpc_method(), "initialize");
        asked.result_with(&[("mcp-session-id", "u2")], &result);
        let mut pen = None;
        for _ in 0..=usize::from(listens) {
            let asked = across.server.next().await;
            assert_eq!(asked.header("mcp-session-id"), "u2");
            match asked.method.as_str() {
                "GET" => pen = Some(asked.events()),
                _ => asked.result(&json!({})),
            }
        }
        pen
    });
    assert_eq!(answer.status, 200, "{answer:?}");
    pen
}

const CHANGED: &str = "notifications/tools/list_changed";

#[tokio::test]
async fn a_recovery_elsewhere_is_told_on_the_stream_and_moves_it() {
    let mut across = Across::start(2).await;
    let client = open_changing(&mut across).await;
    let (mut events, _old) = client.open_stream(&mut across.server, client.get()).await;
    let mut pen = recover_at(&mut across, &client, 1, true).await.unwrap();
    assert_eq!(events.next_message().await.1["method"], CHANGED);
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"x/here\"}\n\n");
    assert_eq!(events.next_message().await.1["method"], "x/here");
    across.server.finish();
}

#[tokio::test]
async fn a_recovery_is_told_on_a_stream_that_opens_later_where_nobody_knew_the_session() {
    let mut across = Across::start(3).await;
    let client = open_changing(&mut across).await;
    recover_at(&mut across, &client, 1, false).await;
    let at_c = across.at(&client, 2);
    let (mut events, _pen) = at_c.open_stream(&mut across.server, at_c.get()).await;
    assert_eq!(events.next_message().await.1["method"], CHANGED);
}

#[tokio::test]
async fn a_second_stream_elsewhere_ends_the_first() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    let (first, _pen) = client.open_stream(&mut across.server, client.get()).await;
    let at_b = across.at(&client, 1);
    let (mut second, mut pen) = at_b.open_stream(&mut across.server, at_b.get()).await;
    first.ends_cleanly().await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"x/here\"}\n\n");
    assert_eq!(second.next_message().await.1["method"], "x/here");
    across.server.finish();
}

#[tokio::test]
async fn a_second_stream_elsewhere_ends_the_first_also_where_it_was_not_heard_of() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    let (mut first, mut pen) = client.open_stream(&mut across.server, client.get()).await;
    let mut connection = raw(&across.redis).await;
    for words in [
        &["ACL", "SETUSER", "default", "-subscribe"][..],
        &["CLIENT", "KILL", "TYPE", "pubsub"],
    ] {
        command(words).exec_async(&mut connection).await.unwrap();
    }
    let at_b = across.at(&client, 1);
    let (_second, _pen) = at_b.open_stream(&mut across.server, at_b.get()).await;
    // Its gateway knows nothing of it.
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"x/here\"}\n\n");
    assert_eq!(first.next_message().await.1["method"], "x/here");
    let hear_again = command(&["ACL", "SETUSER", "default", "+subscribe"]);
    hear_again.exec_async(&mut connection).await.unwrap();
    first.ends_cleanly().await;
    across.server.finish();
}

/// What a stream of a GET comes to.
enum Fate {
    Ended,
    /// In which round.
    Heard(Value),
}

#[tokio::test]
async fn of_streams_that_are_opened_everywhere_at_once_one_stays() {
    let mut across = Across::start(3).await;
    let client = across.open().await;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let tasks = TaskTracker::new();
    let mut pens: Vec<Pen> = Vec::new();
    for round in 0..10 {
        for gateway in 0..3 {
            let (at, tell) = (across.at(&client, gateway), tell.clone());
            tasks.spawn(async move {
                let mut events = crate::client::Events::new(at.get().send().await.unwrap());
                while let Some(event) = events.try_next().await.unwrap() {
                    let data = event.data().unwrap_or_default().into_owned();
                    let mut message: Value = serde_json::from_slice(&data).unwrap_or_default();
                    tell.send(Fate::Heard(message["params"].take())).unwrap();
                }
                tell.send(Fate::Ended).unwrap();
            });
        }
        // All but one end: the one of the last round, too.
        let (mut ends, mut heard) = (0, false);
        let all_but_one = if round == 0 { 2 } else { 3 };
        while !heard {
            tokio::select! {
                asked = across.server.next() => {
                    assert_eq!(asked.method, "GET");
                    pens.push(asked.events());
                }
                fate = told.recv() => match fate.unwrap() {
                    Fate::Ended => ends += 1,
                    Fate::Heard(params) => heard |= params == json!([round]),
                },
            }
            assert!(ends <= all_but_one, "they ended each other");
            if ends == all_but_one {
                let here = json!({"jsonrpc": "2.0", "method": "x/here", "params": [round]});
                for pen in &mut pens {
                    pen.write(format!("data: {here}\n\n"));
                }
            }
        }
        assert_eq!(ends, all_but_one);
    }
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
async fn a_call_whose_stream_broke_is_resumed_at_another_gateway() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    let message = call(7);
    let (mut events, mut pen) = client
        .open_stream(&mut across.server, client.post(&message))
        .await;
    pen.write("id: e1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"x/progress\"}\n\n");
    let mark = events.next_message().await.0.unwrap();
    drop(events);
    let at_b = across.at(&client, 1);
    let resumed = at_b.get().header("last-event-id", mark).send();
    let (resumed, pen) = tokio::join!(resumed, async {
        let asked = across.server.next().await;
        assert_eq!(asked.method, "GET");
        assert_eq!(asked.header("last-event-id"), "e1");
        assert_eq!(asked.header("mcp-session-id"), "u1");
        let mut pen = asked.events();
        pen.write("id: e2\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n");
        pen
    });
    let mut events = crate::client::Events::new(resumed.unwrap());
    assert_eq!(events.next_message().await.1["id"], 7);
    drop(pen);
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
