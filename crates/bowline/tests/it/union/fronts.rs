//! The union at every door: `/mcp`, `/sse`, under a name of its own, and with a server that wants its callers signed
//! in.

use std::time::Duration;

use bowline::config::{Command, Flow, Union, UnionNames};
use bowline::{Bridge, Gateway};
use bowline_testbed::answering::{Gate, Said};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::kit::asking::{self, oauth, question, reply, stream};
use crate::kit::browser::browse;
use crate::kit::client::{Client, sent};
use crate::kit::fake::{
    Fake, TOOLS_CHANGED, client_of, config_of, hear_of, missing, names, text, united_with, unmarked,
};
use crate::kit::log::Log;
use crate::kit::messages::{call, cancel, list, note, ready};
use crate::kit::programs;
use crate::kit::protected::Protected;
use crate::kit::sse::Sse;
use crate::kit::sse_server::seen_ended;
use crate::kit::wired::Wired;

fn call_of(id: impl Into<Value>, tool: &str) -> Value {
    let mut call = call(id);
    call["params"]["name"] = tool.into();
    call
}

/// Two servers at `/mcp`, and in the other order and bare at `/mcp/dev`.
async fn named(a: &Fake, b: &Fake) -> Gateway {
    let mut config = config_of(&[a, b]);
    let dev = Union {
        servers: ["b", "a"].map(|name| name.parse().unwrap()).into(),
        names: UnionNames::Bare,
        ..Union::default()
    };
    config.unions.insert("dev".parse().unwrap(), dev);
    Gateway::start(config).await.unwrap()
}

#[tokio::test]
async fn a_union_with_a_name_has_its_own_path_names_and_attachments() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let only = json!({"tools": [{"name": "only", "inputSchema": {"type": "object"}}]});
    a.result("tools/list", only);
    let gateway = named(&a, &b).await;
    let at = |path: &str| Client::at(format!("http://{}{path}", gateway.listen()));
    let (mut whole, mut dev, mut routed) = (at("/mcp"), at("/mcp/dev"), at("/mcp/a"));
    for client in [&mut whole, &mut dev, &mut routed] {
        assert_eq!(client.begin().await.status, 200);
    }
    assert_eq!(names(&whole.send(&list(1)).await), ["a__only", "b__t"]);
    assert_eq!(names(&dev.send(&list(1)).await), ["t", "only"]);
    assert_eq!(names(&routed.send(&list(1)).await), ["only"]);
    assert_eq!(
        unmarked(dev.send(&call_of(2, "only")).await.json())["result"],
        text("a")
    );
    let astray = [
        whole.moved_to_url(&dev.url),
        dev.moved_to_url(&whole.url),
        dev.moved_to_url(&routed.url),
    ];
    for client in astray {
        assert_eq!(sent(client.post(&list(3))).await.status, 404);
    }
    assert_eq!((a.live().len(), b.live().len()), (3, 2));
}

#[tokio::test]
async fn a_client_of_http_sse_uses_the_union() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let gateway = named(&a, &b).await;
    for (path, listed, tool) in [
        ("/sse", ["a__t", "b__t"], "b__t"),
        ("/sse/dev", ["b__t", "a__t"], "b__t"),
    ] {
        let mut client = Sse::open_as(&gateway, path, None).await;
        let opened = client.begin().await;
        assert_eq!(opened["result"]["serverInfo"]["name"], "bowline");
        let answer = client.ask(&list(1)).await;
        let tools = answer["result"]["tools"].as_array().unwrap();
        let tools: Vec<&Value> = tools.iter().map(|tool| &tool["name"]).collect();
        assert_eq!(tools, listed, "{path}");
        assert_eq!(
            unmarked(client.ask(&call_of(2, tool)).await)["result"],
            text("b")
        );
        let (sessions_a, sessions_b) = (a.live().len(), b.live().len());
        assert_eq!((sessions_a, sessions_b), (1, 1));
        // What servers say and ask arrives on the same stream, and answers go back.
        a.until_listened(1).await;
        b.until_listened(1).await;
        b.emit(
            None,
            &json!({"jsonrpc": "2.0", "id": 9, "method": "roots/list"}),
        );
        let asked = client.hear_of("roots/list").await;
        let before = b.count("a response");
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}});
        client.say(&answer).await;
        b.until("a response", before + 1).await;
        assert_eq!(b.asked("a response")[before].json()["id"], 9);
        a.emit(None, &note(TOOLS_CHANGED));
        client.hear_of(TOOLS_CHANGED).await;
        let ended = a.count("DELETE");
        drop(client);
        a.until("DELETE", ended + 1).await;
        b.until("DELETE", ended + 1).await;
    }
}

#[tokio::test]
async fn a_member_that_cannot_start_is_told_at_once_at_every_door() {
    let a = Fake::start("a").await;
    let mut config = programs::config_of(Command::new("/no/such/program", Vec::new()));
    config.servers.extend(config_of(&[&a]).servers);
    let bridge = Bridge::start_union(config.clone(), None, None);
    let mut wired = Wired::of(bridge.await.unwrap());
    let gateway = Gateway::start(config).await.unwrap();
    let mut streamed = Sse::open_as(&gateway, "/sse", None).await;
    wired.begin().await;
    streamed.begin().await;
    let (began, call) = (Instant::now(), call_of(1, "s__t"));
    let (by_stdio, by_sse) = tokio::join!(wired.ask(&call), streamed.ask(&call));
    assert!(began.elapsed() < Duration::from_secs(20), "it waited");
    for told in [by_stdio, by_sse] {
        assert_eq!(told["error"]["data"]["server"], "s", "{told}");
    }
    let call = call_of(2, "a__t");
    assert_eq!(unmarked(streamed.ask(&call).await)["result"], text("a"));
}

/// A client that can be asked like this, of a union with a server that wants its callers signed in.
async fn signing(a: &Fake, server: &Protected, elicitation: &Value) -> (Gateway, Client) {
    let mut config = config_of(&[a]);
    let mut signed = bowline::config::Server::from_url(&server.url()).unwrap();
    signed.oauth = Some(oauth(Flow::Managed));
    config.servers.insert("s".parse().unwrap(), signed);
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = client_of(&gateway);
    let opened = client.initialize_as(&asking::initialize(elicitation)).await;
    assert_eq!(opened.status, 200);
    assert_eq!(client.send(&ready()).await.status, 202);
    (gateway, client)
}

#[tokio::test]
async fn a_list_offers_to_sign_in_and_only_a_call_asks() {
    let (a, server) = (Fake::start("a").await, Protected::alone().await);
    let (gateway, client) = signing(&a, &server, &json!({"url": {}})).await;
    let mut listening = client.listen().await;
    for id in [1, 2] {
        let began = Instant::now();
        let answer = client.send(&list(id)).await;
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
        assert_eq!(answer.messages().len(), 1, "{answer:?}");
        assert_eq!(names(&answer), ["a__t", "s__sign_in"]);
        let told = &missing(&answer)["s"];
        assert_eq!(told["state"], "absent", "{told}");
        assert_eq!(told["reason"], "sign_in_needed", "{told}");
    }
    let mut events = stream(&client, &call_of(3, "s__t")).await;
    let asked = question(&mut events).await;
    reply(&client, &asked, &json!({"action": "accept"})).await;
    let link = asked["params"]["url"].as_str().unwrap();
    assert_eq!(browse(&gateway, link).await, 200);
    let answer = loop {
        let (_, message) = events.next_message().await;
        if message["id"] == 3 {
            break message;
        }
    };
    assert_eq!(unmarked(answer)["result"], text("good-1"));
    hear_of(&mut listening, TOOLS_CHANGED).await;
    // This server answers everything with a text.
    let answer = client.send(&list(4)).await;
    assert_eq!(names(&answer), ["a__t"]);
    assert_eq!(missing(&answer)["s"]["reason"], "upstream_declined");
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_signs_in_by_the_tool() {
    let (a, server) = (Fake::start("a").await, Protected::alone().await);
    let (gateway, client) = signing(&a, &server, &json!(null)).await;
    assert_eq!(names(&client.send(&list(1)).await), ["a__t", "s__sign_in"]);
    assert_eq!(
        unmarked(client.send(&call_of(2, "a__t")).await.json())["result"],
        text("a")
    );
    let told = client.send(&call_of(3, "s__sign_in")).await;
    let said = told.json().to_string();
    let start = said.find("http://").expect(&said);
    let link: String = said[start..]
        .chars()
        .take_while(|it| !" \\\"".contains(*it))
        .collect();
    bowline_testbed::leaks::note_url(&link);
    assert_eq!(browse(&gateway, &link).await, 200, "{said}");
    let answer = client.send(&call_of(4, "s__t")).await;
    assert_eq!(
        unmarked(answer.json())["result"],
        text("good-1"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_server_over_http_sse_is_a_member_like_any_other() {
    use bowline_testbed::counting::{Counting, Tally};
    let log = Log::default();
    let _kept = log.keep();
    let (a, tally) = (Fake::start("a").await, Tally::default());
    let counting = Counting::start("c", &tally).await.unwrap();
    let mut config = config_of(&[&a]);
    let old = bowline::config::Server::from_url(&counting.sse_url()).unwrap();
    config.servers.insert("c".parse().unwrap(), old);
    let (_gateway, client) = united_with(config).await;
    let answer = client.send(&list(1)).await;
    assert_eq!((names(&answer).len(), missing(&answer)), (5, json!(null)));
    let called = client.call(2, "c__bump", &json!({"key": "k"})).await;
    assert_eq!(
        called.messages().pop().unwrap()["result"]["structuredContent"]["key"],
        "k"
    );
    assert_eq!(tally.executions("k"), 1);
    // Its stream is its session: it is lost, opened again, and the client does not notice.
    counting.cut_streams();
    seen_ended(&log, 1).await;
    let called = client.call(3, "c__bump", &json!({"key": "l"})).await;
    assert_eq!(
        called.messages().pop().unwrap()["result"]["structuredContent"]["key"],
        "l",
        "{called:?}"
    );
    assert_eq!(tally.executions("l"), 1);
}

#[tokio::test]
async fn a_cancel_over_http_sse_reaches_the_member_although_it_waits_behind_another_message() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let gate = Gate::default();
    gate.close();
    let own = gate.clone();
    let changed = "notifications/roots/list_changed";
    a.on(changed, move |_| Said::status(202).behind(&own));
    // The stream could be resumed, so it is closed when nobody reads it, and the call is forgotten.
    let (pens, begun) = (Mutex::new(Vec::new()), note("notifications/message"));
    b.on("tools/call", move |_| {
        let (said, mut pen) = Said::events();
        pen.write(format!("id: 1\ndata: {begun}\n\n"));
        pens.lock().push(pen);
        said
    });
    let gateway = named(&a, &b).await;
    let mut client = Sse::open_as(&gateway, "/sse", None).await;
    client.begin().await;
    client.ask(&call_of(1, "a__t")).await;
    client.say(&call_of("long", "b__t")).await;
    client.hear_of("notifications/message").await;
    client.say(&note(changed)).await;
    client.say(&cancel("long")).await;
    b.until("notifications/cancelled", 1).await;
    assert_eq!(b.params("notifications/cancelled")[0]["requestId"], "long");
    gate.open();
}
