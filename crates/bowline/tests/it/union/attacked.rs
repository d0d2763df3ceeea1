//! What an adversary found: servers that say odd things, lists that change in the middle, and losses that nobody met.

use bowline::config::{OnLoss, UnionNames};
use bowline_testbed::answering::Said;
use serde_json::{Value, json};

use crate::kit::client::Client;
use crate::kit::fake::{
    Fake, TOOLS_CHANGED, begun, config_of, hear_of, missing, names, refusal, text, united,
    united_with, unmarked,
};
use crate::kit::gateway::{health, with_admin};
use crate::kit::messages::list;

fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

fn request(id: u32, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

async fn result_of(client: &Client, name: &str) -> Value {
    let answer = client.call("use", name, &json!({})).await;
    unmarked(answer.messages().pop().unwrap())
}

#[tokio::test]
async fn a_loss_that_a_list_met_is_told_to_the_next_call_and_once() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let mut config = config_of(&[&a, &b]);
    for server in config.servers.values_mut() {
        server.recovery.on_loss = OnLoss::Tell;
    }
    let (_gateway, client) = united_with(config).await;
    assert_eq!(result_of(&client, "a__t").await["result"], text("a"));
    a.forget();
    let answer = client.send(&list(1)).await;
    assert_eq!(missing(&answer)["a"]["reason"], "upstream_session_lost");
    let answer = client.send(&list(2)).await;
    assert_eq!((names(&answer).len(), missing(&answer)), (2, json!(null)));
    assert_eq!(result_of(&client, "b__t").await["result"], text("b"));
    assert_eq!(result_of(&client, "a__t").await["error"]["code"], -31006);
    assert_eq!(result_of(&client, "a__t").await["result"], text("a"));
    assert_eq!(a.count("tools/call"), 2, "what was told did not run");
}

#[tokio::test]
async fn a_loss_that_the_stream_met_is_told_to_the_next_call() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let mut config = config_of(&[&a, &b]);
    for server in config.servers.values_mut() {
        server.recovery.on_loss = OnLoss::Tell;
    }
    let (_gateway, client) = united_with(config).await;
    let mut events = client.listen().await;
    assert_eq!(result_of(&client, "a__t").await["result"], text("a"));
    a.until("GET", 1).await;
    a.forget();
    hear_of(&mut events, TOOLS_CHANGED).await;
    assert_eq!(result_of(&client, "a__t").await["error"]["code"], -31006);
    assert_eq!(result_of(&client, "a__t").await["result"], text("a"));
}

#[tokio::test]
async fn what_clients_refuse_is_left_out_and_named_each_of_it() {
    let object = json!({"type": "object"});
    let odd = json!([
        {"name": "without"},
        {"name": "lenient", "inputSchema": {"type": "object", "properties": {"x": true}}},
        {"name": "described", "inputSchema": object, "description": 5},
        {"name": "text", "inputSchema": {"type": "string"}},
        {"name": "broken", "inputSchema": {"properties": 7}},
        {"inputSchema": object},
        7,
    ]);
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    b.result("tools/list", json!({"tools": odd}));
    let mut config = config_of(&[&a, &b]);
    with_admin(&mut config);
    let (gateway, client) = united_with(config).await;
    let answer = client.send(&list(1)).await;
    let shown = ["a__t", "b__without", "b__lenient", "b__described"];
    assert_eq!(names(&answer), shown);
    let tools = answer.json()["result"]["tools"].clone();
    assert_eq!(
        tools[1],
        json!({"name": "b__without", "inputSchema": object})
    );
    assert_eq!(tools[2]["inputSchema"]["properties"], json!({"x": {}}));
    assert_eq!(
        tools[3],
        json!({"name": "b__described", "inputSchema": object})
    );
    let said = missing(&answer)["b"].clone();
    assert_eq!(
        (said["state"].as_str(), &said["left_out_count"]),
        (Some("incomplete"), &json!(5))
    );
    let left_out = json!([
        {"name": "described", "field": "description", "why": "`description` is no text"},
        {"name": "text", "why": "`inputSchema`: it is no schema of an object"},
        {"name": "broken", "why": "`inputSchema`: its `properties` are no object"},
        {"name": "", "why": "it does not have one `name`"},
        {"name": "", "why": "it does not have one `name`"},
    ]);
    assert_eq!(said["left_out"], left_out);
    let health = health(&gateway).await;
    assert_eq!(health["servers"]["b"]["left_out"]["tools"], left_out);
    assert_eq!(health["servers"]["a"]["left_out"], json!(null));
    // Many are named up to a bound, and counted.
    let many: Vec<_> = (0..1000)
        .map(|at| json!({"name": format!("t{at}"), "inputSchema": {"type": 1}}))
        .collect();
    b.result("tools/list", json!({"tools": many}));
    let said = missing(&client.send(&list(2)).await)["b"].clone();
    assert_eq!(said["left_out"].as_array().unwrap().len(), 100);
    assert_eq!(said["left_out_count"], 1000);
    // And when all is well nothing is said.
    b.result("tools/list", json!({"tools": [tool("good")]}));
    let answer = client.send(&list(3)).await;
    assert_eq!(missing(&answer), json!(null));
    assert_eq!(
        self::health(&gateway).await["servers"]["b"]["left_out"],
        json!(null)
    );
}

#[tokio::test]
async fn an_answer_without_a_list_is_none() {
    for none in [json!({}), json!({"tools": null}), json!({"tools": {}})] {
        let (a, b) = (Fake::start("a").await, Fake::start("b").await);
        b.result("tools/list", none.clone());
        let (_gateway, client) = united(&[&a, &b]).await;
        let answer = client.send(&list(1)).await;
        assert_eq!(names(&answer), ["a__t"]);
        assert_eq!(
            missing(&answer)["b"]["reason"],
            "upstream_declined",
            "{none}"
        );
    }
}

#[tokio::test]
async fn what_a_server_asks_beside_a_list_reaches_the_client_and_its_answer_the_server() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    b.on("tools/list", |seen| {
        let asks = json!({"jsonrpc": "2.0", "id": "roots-1", "method": "roots/list"});
        let answer =
            json!({"jsonrpc": "2.0", "id": seen.json()["id"], "result": {"tools": [tool("good")]}});
        let (said, mut pen) = Said::events();
        pen.write(format!("data: {asks}\n\ndata: {answer}\n\n"));
        said
    });
    let (_gateway, client) = united(&[&a, &b]).await;
    let mut events = client.listen().await;
    assert_eq!(names(&client.send(&list(1)).await), ["a__t", "b__good"]);
    let (_, asked) = hear_of(&mut events, "roots/list").await;
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}});
    assert_eq!(client.send(&answer).await.status, 202);
    let is_answer = |seen: &bowline_testbed::answering::Seen| seen.json()["id"] == "roots-1";
    assert!(
        b.asked("a response").iter().any(is_answer),
        "{:?}",
        b.methods()
    );
    assert!(!a.asked("a response").iter().any(is_answer));
}

#[tokio::test]
async fn what_a_server_said_beside_a_list_goes_with_the_server() {
    let servers = [Fake::start("a").await, Fake::start("b").await];
    for server in &servers {
        server.on("tools/list", |seen| {
            let asks = json!({"jsonrpc": "2.0", "id": "roots-1", "method": "roots/list"});
            let answer =
                json!({"jsonrpc": "2.0", "id": seen.json()["id"], "result": {"tools": []}});
            let (said, mut pen) = Said::events();
            pen.write(format!("data: {asks}\n\ndata: {answer}\n\n"));
            said
        });
    }
    let [a, b] = &servers;
    let (gateway, client) = united(&[a, b]).await;
    assert_eq!(client.send(&list(1)).await.status, 200);
    gateway.reload(config_of(&[a])).unwrap();
    let mut events = client.listen().await;
    let (_, asked) = hear_of(&mut events, "roots/list").await;
    assert_eq!(asked["params"]["_meta"]["bowline/server"], "a", "{asked}");
    client.send(&list(2)).await;
    let (_, asked) = hear_of(&mut events, "roots/list").await;
    assert_eq!(asked["params"]["_meta"]["bowline/server"], "a", "{asked}");
}

#[tokio::test]
async fn a_name_that_a_client_was_shown_is_not_another_servers_after_a_reload() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    a.result("tools/list", json!({"tools": [tool("pay")]}));
    b.result("tools/list", json!({"tools": [tool("a-pay")]}));
    let mut config = config_of(&[&a, &b]);
    config.union.names = UnionNames::Bare;
    let (gateway, client) = united_with(config.clone()).await;
    assert_eq!(names(&client.send(&list(1)).await), ["pay", "a-pay"]);
    config.union.separator = "-".to_owned();
    gateway.reload(config).unwrap();
    let refused = result_of(&client, "a-pay").await;
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("`a-pay` of `b` or `pay` of `a`"),
        "{refused}"
    );
    assert!(a.asked("tools/call").is_empty() && b.asked("tools/call").is_empty());
}

#[tokio::test]
async fn a_prefixed_name_is_not_another_tools_after_a_reload_until_the_next_list() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    a.result("tools/list", json!({"tools": [tool("pay"), tool("_pay")]}));
    let prefixed = |of_a: Option<&str>, of_b: Option<&str>, separator: &str| {
        let mut config = config_of(&[&a, &b]);
        config.union.separator = separator.to_owned();
        for (name, prefix) in [("a", of_a), ("b", of_b)] {
            config.servers.get_mut(name).unwrap().prefix = prefix.map(str::to_owned);
        }
        config
    };
    for (before, after, name, meanings) in [
        (
            prefixed(Some("x"), None, "__"),
            prefixed(None, Some("x"), "__"),
            "x__t",
            "`t` of `a` or `t` of `b`",
        ),
        (
            prefixed(Some("x"), Some("y"), "__"),
            prefixed(Some("y"), Some("x"), "__"),
            "y__t",
            "`t` of `b` or `t` of `a`",
        ),
        (
            prefixed(None, None, "__"),
            prefixed(None, None, "_"),
            "a__pay",
            "`pay` of `a` or `_pay` of `a`",
        ),
        // What nobody has by its prefix now could be somebody's bare name.
        (
            prefixed(None, None, "_"),
            prefixed(None, None, "__"),
            "b_t",
            "may mean `t` of `b`;",
        ),
    ] {
        let (gateway, client) = united_with(before).await;
        client.send(&list(1)).await;
        gateway.reload(after).unwrap();
        let refused = result_of(&client, name).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let why = refused["error"]["message"].as_str().unwrap();
        assert!(why.contains(meanings), "{why}");
        assert_eq!((a.count("tools/call"), b.count("tools/call")), (0, 0));
        // Prompts were not listed yet, and their names may be known from before.
        let prompt = request(2, "prompts/get", &json!({"name": name}));
        assert_eq!(client.send(&prompt).await.code(), -32602);
        assert_eq!((a.count("prompts/get"), b.count("prompts/get")), (0, 0));
    }
    // The next list says what it means.
    let swapped = prefixed(Some("b"), Some("a"), "__");
    let (gateway, client) = united_with(prefixed(None, None, "__")).await;
    client.send(&list(1)).await;
    gateway.reload(swapped).unwrap();
    assert_eq!(result_of(&client, "b__t").await["error"]["code"], -32602);
    assert_eq!(
        names(&client.send(&list(2)).await),
        ["b__pay", "b___pay", "a__t"]
    );
    assert_eq!(result_of(&client, "a__t").await["result"], text("b"));
}

#[tokio::test]
async fn the_pages_of_one_list_have_names_of_one_configuration() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let many: Vec<Value> = (0..1500)
        .map(|number| tool(&format!("n{number}")))
        .collect();
    a.result("tools/list", json!({"tools": many}));
    let (gateway, client) = united(&[&a, &b]).await;
    let page = client.send(&list(1)).await.json();
    let mut swapped = config_of(&[&a, &b]);
    for (name, prefix) in [("a", "b"), ("b", "a")] {
        swapped.servers.get_mut(name).unwrap().prefix = Some(prefix.to_owned());
    }
    gateway.reload(swapped).unwrap();
    let cursor = &page["result"]["nextCursor"];
    let next = request(2, "tools/list", &json!({"cursor": cursor}));
    assert_eq!(client.send(&next).await.code(), -32602);
    assert_eq!(result_of(&client, "a__n1").await["error"]["code"], -32602);
    assert_eq!((a.count("tools/call"), b.count("tools/call")), (0, 0));
}

#[tokio::test]
async fn a_bare_name_means_what_this_client_was_shown() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    a.result("tools/list", json!({"tools": [tool("del")]}));
    b.result("tools/list", json!({"tools": []}));
    let mut config = config_of(&[&a, &b]);
    config.union.names = UnionNames::Bare;
    let (gateway, first) = united_with(config).await;
    assert_eq!(names(&first.send(&list(1)).await), ["del"]);
    a.result("tools/list", json!({"tools": []}));
    b.result("tools/list", json!({"tools": [tool("del")]}));
    let second = begun(&gateway).await;
    assert_eq!(names(&second.send(&list(1)).await), ["del"]);
    assert_eq!(result_of(&first, "del").await["result"], text("a"));
    assert_eq!(result_of(&second, "del").await["result"], text("b"));
    // Until it lists again.
    assert_eq!(names(&first.send(&list(2)).await), ["del"]);
    assert_eq!(result_of(&first, "del").await["result"], text("b"));
}

#[tokio::test]
async fn a_bare_name_is_nobodys_while_a_server_that_may_have_it_is_away() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    a.on("tools/list", |seen| refusal(seen, -32603, "away"));
    b.result("tools/list", json!({"tools": [tool("del")]}));
    let mut config = config_of(&[&a, &b]);
    config.union.names = UnionNames::Bare;
    let (_gateway, client) = united_with(config).await;
    for (name, candidates) in [("del", "use `a__del` or `b__del`"), ("add", "use `a__add`")] {
        let refused = result_of(&client, name).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let why = refused["error"]["message"].as_str().unwrap();
        assert!(why.contains("`a` could not be listed"), "{why}");
        assert!(why.ends_with(candidates), "{why}");
    }
    assert_eq!((a.count("tools/call"), b.count("tools/call")), (0, 0));
    assert_eq!(result_of(&client, "b__del").await["result"], text("b"));
    // A list that was cut has not told all its names.
    a.on("tools/list", |seen| {
        match seen.json()["params"]["cursor"].as_str() {
            None => seen.result(&json!({"tools": [], "nextCursor": "next"})),
            Some(_) => refusal(seen, -32601, "no such method"),
        }
    });
    assert_eq!(result_of(&client, "del").await["error"]["code"], -32602);
    // Once it is known that it has none of this name, it is b's.
    a.result("tools/list", json!({"tools": []}));
    assert_eq!(result_of(&client, "del").await["result"], text("b"));
}

#[tokio::test]
async fn a_server_that_hangs_on_the_log_level_holds_nobody_up() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    b.on("logging/setLevel", |_| {
        let (said, pen) = Said::events();
        // Held open for as long as the test runs.
        std::mem::forget(pen);
        said
    });
    let (_gateway, client) = united(&[&a, &b]).await;
    for name in ["a__t", "b__t"] {
        assert!(result_of(&client, name).await["result"].is_object());
    }
    let set = request(1, "logging/setLevel", &json!({"level": "debug"}));
    assert_eq!(client.send(&set).await.json()["result"], json!({}));
    assert_eq!(a.count("logging/setLevel"), 1);
    assert_eq!(result_of(&client, "b__t").await["result"], text("b"));
}

#[tokio::test]
async fn a_cursor_is_of_one_list_and_null_is_none() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let many: Vec<Value> = (0..1500)
        .map(|number| tool(&format!("n{number}")))
        .collect();
    a.result("tools/list", json!({"tools": many}));
    let (_gateway, client) = united(&[&a, &b]).await;
    let first = request(1, "tools/list", &json!({"cursor": null}));
    let page = client.send(&first).await.json();
    let cursor = &page["result"]["nextCursor"];
    assert!(cursor.is_string(), "{page}");
    let elsewhere = request(2, "prompts/list", &json!({"cursor": cursor}));
    assert_eq!(client.send(&elsewhere).await.code(), -32602);
    // All but the last hundred of what the first page had is gone.
    let left: Vec<Value> = (900..1500)
        .map(|number| tool(&format!("n{number}")))
        .collect();
    a.result("tools/list", json!({"tools": left}));
    let next = request(3, "tools/list", &json!({"cursor": cursor}));
    let rest = names(&client.send(&next).await);
    assert!((1000..1500).all(|number| rest.contains(&format!("a__n{number}"))));
    let without_it: Vec<Value> = (1200..1500)
        .map(|number| tool(&format!("n{number}")))
        .collect();
    a.result("tools/list", json!({"tools": without_it}));
    let rest = names(&client.send(&next).await);
    assert!((1200..1500).all(|number| rest.contains(&format!("a__n{number}"))));
}

#[tokio::test]
async fn a_client_follows_the_union_through_reloads() {
    let (a, b, d) = (
        Fake::start("a").await,
        Fake::start("b").await,
        Fake::start("d").await,
    );
    let (gateway, client) = united(&[&a, &b]).await;
    assert_eq!(names(&client.send(&list(1)).await), ["a__t", "b__t"]);
    for (servers, shown) in [
        (&[&a][..], &["a__t"][..]),
        (&[&b], &["b__t"]),
        (&[&a, &d], &["a__t", "d__t"]),
    ] {
        gateway.reload(config_of(servers)).unwrap();
        assert_eq!(names(&client.send(&list(2)).await), shown);
    }
    assert_eq!(result_of(&client, "d__t").await["result"], text("d"));
    assert_eq!(result_of(&client, "b__t").await["error"]["code"], -32602);
}
