//! What goes in and out.

use bowline::Gateway;
use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::scripted::{Asked, Scripted, initialize_result};
use serde_json::{Value, json};

use crate::kit::client::{Client, sent};
use crate::kit::gateway::{config, gateway};
use crate::kit::messages::{VERSION, assert_too_large, call, list, note, ready};
use crate::kit::opened::opened_speaking;
use crate::kit::replicas::replicas;
use crate::kit::sse::{REVISION, Sse, opened};
use crate::kit::sse_server::SsePlay;
use crate::kit::wired::{call_of, initialize};

/// A server that the test plays, and a client whose session is `u1` there. The server's stream is open.
pub(super) async fn scripted(version: &str) -> (Gateway, Scripted, Sse, Asked) {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let mut client = Sse::open(&gateway).await;
    let listening = begin(&mut server, &mut client, version, "u1").await;
    (gateway, server, client, listening)
}

/// Opens a session that has this id at the server. The server's stream is open.
pub(super) async fn begin(
    server: &mut Scripted,
    client: &mut Sse,
    version: &str,
    id: &str,
) -> Asked {
    let opening = initialize(version, &json!({}));
    client.say(&opening).await;
    let mut result = initialize_result();
    result["protocolVersion"] = version.into();
    let asked = server.next().await;
    assert_eq!(asked.json(), opening);
    asked.result_with(&[("mcp-session-id", id)], &result);
    assert_eq!(client.answer_to(&opening["id"]).await["result"], result);
    client.say(&ready()).await;
    server.next().await.reply(202, &[], "");
    let listening = server.next().await;
    assert_eq!(
        (
            listening.method.as_str(),
            listening.header("mcp-session-id")
        ),
        ("GET", id)
    );
    listening
}

/// What a server says on one channel comes in its order, whatever reads it here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_overtakes_what_the_server_said_before_it() {
    let play = SsePlay::start(|_| {}).await;
    let mut client = Sse::open(&play.gateway).await;
    client.begin().await;
    // From here on, the server's stream is open.
    client.ask(&list(1)).await;
    let arguments = json!({"method": "notifications/message", "times": 2});
    for number in 0..300 {
        client.say(&call_of(number, "notify", &arguments)).await;
        for _ in 0..2 {
            let next = client.next().await;
            assert_eq!(next["method"], "notifications/message", "{number}: {next}");
        }
        let answer = client.next().await;
        assert_eq!(answer["id"], number, "{answer}");
    }
}

#[tokio::test]
async fn a_server_is_used_as_over_streamable_http() {
    let servers = replicas(1).await;
    let gateway = gateway(&servers.urls[0]).await;
    let mut client = Sse::open(&gateway).await;
    let capabilities = json!({"sampling": {}, "elicitation": {}, "roots": {}});
    let opened = client.begin_with(VERSION, &capabilities).await;
    assert_eq!(opened["result"]["protocolVersion"], VERSION);

    let listed = client.ask(&list(1)).await;
    assert!(listed["result"]["tools"].as_array().unwrap().len() > 5);
    let mut progressing = call_of("p", "test_tool_with_progress", &json!({}));
    progressing["params"]["_meta"] = json!({"progressToken": "mine"});
    client.say(&progressing).await;
    let progress = client.hear_of("notifications/progress").await;
    assert_eq!(progress["params"]["progressToken"], "mine");
    assert!(client.answer_to(&json!("p")).await["result"].is_object());

    let prompt = json!({"prompt": "a\nb"});
    client.say(&call_of(3, "test_sampling", &prompt)).await;
    let asked = client.hear_of("sampling/createMessage").await;
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {
        "role": "assistant", "model": "m", "content": {"type": "text", "text": "ünïcödé\n…"},
    }});
    client.say(&answer).await;
    let said = client.answer_to(&json!(3)).await;
    let text = &said["result"]["content"][0]["text"];
    assert_eq!(text, "LLM response: ünïcödé\n…", "{said}");
}

#[tokio::test]
async fn every_path_leads_to_the_same_server() {
    let (one, other) = (replicas(1).await, replicas(1).await);
    let both = config(&[("s", &one.urls[0]), ("sse", &other.urls[0])]);
    let gateway = Gateway::start(both).await.unwrap();
    for (path, endpoint) in [
        ("/sse/s", "/sse/s/"),
        ("/sse/s/", "/sse/s/"),
        ("/s/sse", "/s/sse/"),
        ("/sse/sse", "/sse/sse/"),
    ] {
        let mut client = Sse::open_as(&gateway, path, None).await;
        assert!(client.endpoint.path().starts_with(endpoint), "{path}");
        let opened = client.begin().await;
        assert!(opened["result"].is_object(), "{path}: {opened}");
        assert!(client.ask(&list(1)).await["result"].is_object(), "{path}");
    }
    // The other transport, by the path that clients guess from; `/mcp/sse` is the server of that name.
    for path in ["/s/mcp", "/mcp/sse", "/mcp/s"] {
        let mut client = Client::at(format!("http://{}{path}", gateway.listen()));
        assert_eq!(client.initialize().await.status, 200, "{path}");
    }
    // All servers as one.
    let mut client = Sse::open_as(&gateway, "/sse", None).await;
    assert!(client.endpoint.path().starts_with("/sse/union/"));
    assert!(client.begin().await["result"].is_object());
    for path in [
        "/sse/none",
        "/none/sse",
        "/s/sse2",
        "/s",
        "/api/sse",
        "/oauth/mcp",
    ] {
        let client = Client::at(format!("http://{}{path}", gateway.listen()));
        assert_eq!(sent(client.get()).await.status, 404, "{path}");
    }
    let only = self::gateway(&one.urls[0]).await;
    let mut client = Sse::open_as(&only, "/sse", None).await;
    assert!(client.endpoint.path().starts_with("/sse/s/"));
    assert!(client.begin().await["result"].is_object());
}

#[tokio::test]
async fn methods_have_their_places() {
    let (gateway, _server, client, _listening) = scripted(REVISION).await;
    let at = |path: &str| Client::at(format!("http://{}{path}", gateway.listen()));
    // What a client of the newer transport tries first, and falls back from.
    let posted = at("/sse/s").send(&initialize(VERSION, &json!({}))).await;
    assert_eq!(
        (posted.status.as_u16(), &posted.headers["allow"]),
        (405, &"GET".parse().unwrap())
    );
    assert_eq!(sent(at("/sse/s").delete()).await.status, 405);
    let got = sent(at(client.endpoint.path()).get()).await;
    assert_eq!(
        (got.status.as_u16(), &got.headers["allow"]),
        (405, &"POST".parse().unwrap())
    );
    let refused = at("/sse/s")
        .request(reqwest::Method::GET)
        .header("accept", "application/json");
    assert_eq!(sent(refused).await.status, 406);
}

#[tokio::test]
async fn nothing_is_opened_at_the_server_before_initialize() {
    let server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let mut client = Sse::open(&gateway).await;
    for request in [list(1), call("x")] {
        let refused = client.ask(&request).await;
        assert_eq!(
            refused["error"]["data"]["reason"], "not_initialized",
            "{refused}"
        );
    }
    server.finish();
}

#[tokio::test]
async fn what_is_no_message_gets_a_status_and_changes_nothing() {
    let (_gateway, mut server, mut client, _listening) = scripted(REVISION).await;
    for (body, status, code) in [
        ("{\"jsonrpc\":", 400, -32700),
        ("17", 400, -32600),
        ("{}", 400, -32600),
        ("", 400, -32700),
    ] {
        let refused = sent(client.post(body)).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (status, code),
            "{body}"
        );
    }
    let text = reqwest::Client::new().post(client.endpoint.clone());
    let text = text
        .header("content-type", "text/plain")
        .body(call(1).to_string());
    assert_eq!(sent(text).await.status, 415);
    // No SDK sends `Accept` here, or all kinds of it.
    let other = client
        .post(call(1).to_string())
        .header("accept", "text/html");
    assert_eq!(sent(other).await.status, 202);
    server.next().await.result(&json!({}));
    client.answer_to(&json!(1)).await;
    let stray = json!({"jsonrpc": "2.0", "id": "made up", "result": {}});
    client.say(&stray).await;
    client.say(&call(2)).await;
    server.next().await.result(&json!({}));
    client.answer_to(&json!(2)).await;
}

#[tokio::test]
async fn calls_run_side_by_side_and_each_is_answered_once() {
    let (_gateway, mut server, mut client, _listening) = scripted(REVISION).await;
    let mut asked = Vec::new();
    for id in 0..20 {
        client.say(&call(id)).await;
        asked.push(server.next().await);
    }
    for one in asked.into_iter().rev() {
        let id = one.json()["id"].clone();
        one.result(&json!({"for": id}));
    }
    for id in 0..20 {
        let answer = client.answer_to(&json!(id)).await;
        assert_eq!(answer["result"]["for"], id);
    }
}

#[tokio::test]
async fn no_request_overtakes_initialized() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let mut client = Sse::open(&gateway).await;
    client.say(&initialize(REVISION, &json!({}))).await;
    client.say(&ready()).await;
    client.say(&call(1)).await;
    server.next().await.initialized(Some("u1"));
    client.answer_to(&json!("init")).await;
    let first = server.next().await;
    assert_eq!(first.rpc_method(), "notifications/initialized");
    first.reply(202, &[], "");
    let mut answered = false;
    while !answered {
        let asked = server.next().await;
        answered = asked.method == "POST";
        match answered {
            true => asked.result(&json!({})),
            false => asked.reply(405, &[], ""),
        }
    }
    client.answer_to(&json!(1)).await;
}

#[tokio::test]
async fn a_cancel_reaches_the_server_and_the_call_is_not_answered() {
    let (_gateway, mut server, mut client, _listening) = scripted(REVISION).await;
    client.say(&call(1)).await;
    let asked = server.next().await;
    let mut cancel = note("notifications/cancelled");
    cancel["params"] = json!({"requestId": 1});
    client.say(&cancel).await;
    let told = server.next().await;
    assert_eq!(told.json(), cancel);
    told.reply(202, &[], "");
    asked.result(&json!({"late": true}));
    client.say(&call(2)).await;
    server.next().await.result(&json!({}));
    client.answer_to(&json!(2)).await;
}

#[tokio::test]
async fn the_servers_own_requests_come_marked_and_their_answers_go_back() {
    let (_gateway, mut server, mut client, listening) = scripted(REVISION).await;
    let mut pen = listening.events();
    let roots = json!({"jsonrpc": "2.0", "id": 7, "method": "roots/list"});
    pen.write(format!("data: {roots}\n\n"));
    let asked = client.hear_of("roots/list").await;
    assert_ne!(asked["id"], 7);
    let mut answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}});
    client.say(&answer).await;
    let told = server.next().await;
    answer["id"] = json!(7);
    assert_eq!(told.json(), answer);
    told.reply(202, &[], "");
}

#[tokio::test]
async fn large_answers_and_every_character_arrive_whole() {
    let tally = Tally::default();
    let server = Counting::start("r", &tally).await.unwrap();
    server.settings(|settings| settings.all_tools = true);
    let gateway = gateway(&server.url()).await;
    let mut client = Sse::open(&gateway).await;
    client.begin().await;
    for tool in ["large", "large_event"] {
        let arguments = json!({"key": tool, "bytes": 66 << 20});
        assert_too_large(&client.ask(&call_of(tool, tool, &arguments)).await);
        let arguments = json!({"key": tool, "bytes": 5 << 20});
        let answer = client.ask(&call_of(tool, tool, &arguments)).await;
        let padding = answer["result"]["padding"].as_str();
        assert_eq!(padding.map(str::len), Some(5 << 20), "{tool}");
    }
    let (_gateway, mut server, mut client, _listening) = scripted(REVISION).await;
    client.say(&call("\u{2028}\n\"")).await;
    let result = json!({"text": "grüße\r\n\u{85}\u{2029}😀\0 data: x\n\nevent: endpoint"});
    server.next().await.result(&result);
    let answer = client.answer_to(&json!("\u{2028}\n\"")).await;
    assert_eq!(answer["result"], result);
    // Line breaks between the tokens of a message are white space.
    client.say(&call(3)).await;
    let spread = "{\r\n\"jsonrpc\": \"2.0\",\n\n\"id\": 3,\n\"result\":\r{}}";
    let json = [("content-type", "application/json")];
    server.next().await.reply(200, &json, spread);
    assert_eq!(client.answer_to(&json!(3)).await["result"], json!({}));
}

#[tokio::test]
async fn two_clients_never_hear_each_other() {
    let (gateway, mut server, mut one, one_listening) = scripted(REVISION).await;
    let mut other = Sse::open(&gateway).await;
    let other_listening = begin(&mut server, &mut other, REVISION, "u2").await;
    let (mut pen, mut others_pen) = (one_listening.events(), other_listening.events());
    pen.write(format!("data: {}\n\n", note("notifications/for_one")));
    others_pen.write(format!("data: {}\n\n", note("notifications/for_other")));
    // The same ids, asked at the same time.
    one.say(&call(1)).await;
    let first = server.next().await;
    other.say(&call(1)).await;
    let second = server.next().await;
    let of = |asked: &Asked| asked.header("mcp-session-id").to_owned();
    assert_eq!((of(&first), of(&second)), ("u1".into(), "u2".into()));
    second.result(&json!({"for": "other"}));
    first.result(&json!({"for": "one"}));
    let heard = |client: Value| client["result"]["for"].clone();
    assert_eq!(heard(one.answer_to(&json!(1)).await), "one");
    assert_eq!(heard(other.answer_to(&json!(1)).await), "other");
    one.hear_of("notifications/for_one").await;
    other.hear_of("notifications/for_other").await;
    gateway.stop().await;
    assert_eq!(one.ended().await, Vec::<Value>::new());
    assert_eq!(other.ended().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_second_initialize_replaces_the_session() {
    let server = Counting::start("r", &Tally::default()).await.unwrap();
    let gateway = gateway(&server.url()).await;
    let mut client = Sse::open(&gateway).await;
    client.begin().await;
    client.begin().await;
    let bump = call_of("b", "bump", &json!({"key": "k"}));
    assert!(client.ask(&bump).await["result"].is_object());
    assert_eq!(server.initializes(), 2);
    drop(client);
    crate::kit::wait::until("both sessions end", || server.deletes() == 2).await;
}

#[tokio::test]
async fn the_query_and_listed_headers_go_along_and_the_token_does_not() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    crate::kit::gateway::only(&mut config).forward_headers = vec!["x-tenant".parse().unwrap()];
    let gateway = Gateway::start(config).await.unwrap();
    let (_http, _events, endpoint) = opened(&gateway, "/sse/s?project=7", None).await;
    assert_eq!(endpoint.query(), None);
    let client = Client::at(endpoint.to_string());
    let post = client
        .post(&initialize(REVISION, &json!({})))
        .header("x-tenant", "t");
    assert_eq!(sent(post).await.status, 202);
    let asked = server.next().await;
    assert!(asked.target.ends_with("?project=7"), "{}", asked.target);
    assert_eq!(asked.header("x-tenant"), "t");
    let token = endpoint.path().rsplit('/').next().unwrap();
    let told = format!("{:?} {}", asked.headers, asked.target);
    assert!(!told.contains(token) && !asked.headers.contains_key("authorization"));
}

#[tokio::test]
async fn a_client_of_streamable_http_may_ask_for_the_old_revision() {
    let (_gateway, mut server, client) = opened_speaking(REVISION, |_| {}).await;
    let post = client
        .post(&call(1))
        .header("mcp-protocol-version", REVISION);
    let (answer, ()) = tokio::join!(sent(post), async {
        let asked = server.next().await;
        assert!(!asked.headers.contains_key("mcp-protocol-version"));
        asked.result(&json!({}));
    });
    assert_eq!(answer.status, 200, "{}", answer.text);
}
