//! Tools of servers that insist on the session id that they issued are there, every time.

use bowline::Gateway;
use bowline_testbed::faulty::Faulty;
use bowline_testbed::strict::Strict;
use serde_json::json;

use crate::kit::fake::{Fake, begun, config_of, missing, names, united};
use crate::kit::gateway::config;
use crate::kit::messages::list;

#[tokio::test]
async fn tools_of_strict_servers_are_there_every_time_and_ids_never_cross() {
    let a = Strict::with_tools(Some("of-a-0"), &["x", "y"]).await;
    let b = Strict::with_tools(Some("of-b-0"), &["x"]).await;
    let address = |it: &Strict| it.url()["http://".len()..].replace("/mcp", "");
    let proxy = Faulty::start(address(&a).parse().unwrap()).await.unwrap();
    let gateway = Gateway::start(config(&[("a", &proxy.url()), ("b", b.url())]))
        .await
        .unwrap();
    let (first, second) = (begun(&gateway).await, begun(&gateway).await);
    for round in 1..=4 {
        for client in [&first, &second] {
            let answer = client.send(&list(round)).await;
            assert_eq!(names(&answer), ["a__x", "a__y", "b__x"], "round {round}");
            assert_eq!(missing(&answer), json!(null), "{}", answer.text);
            let called = client.call(round, "b__x", &json!({})).await;
            assert_eq!(called.messages()[0]["result"]["content"][0]["text"], "done");
        }
        match round {
            1 => a.restart("of-a-1"),
            2 => {
                b.restart("of-b-1");
                proxy.break_connections();
            }
            _ => {
                a.restart(&format!("of-a-{round}"));
                b.restart(&format!("of-b-{round}"));
            }
        }
    }
    for (server, own) in [(&a, "of-a-"), (&b, "of-b-")] {
        let observed = server.observed();
        assert_eq!(observed.complaints, Vec::<String>::new());
        let is_own = |id: &http::HeaderValue| id.to_str().unwrap().starts_with(own);
        assert!(observed.session_ids.iter().all(is_own), "{observed:?}");
        let lists = observed.methods.iter().filter(|it| *it == "tools/list");
        assert!(lists.count() >= 8, "{:?}", observed.methods);
    }
}

#[tokio::test]
async fn a_client_is_answered_at_once_and_servers_are_opened_when_they_are_used() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let (_gateway, client) = united(&[&a, &b]).await;
    let ping = json!({"jsonrpc": "2.0", "id": "p", "method": "ping"});
    assert_eq!(client.send(&ping).await.json()["result"], json!({}));
    assert_eq!((a.count("initialize"), b.count("initialize")), (0, 0));
    let answer = client.call(1, "b__t", &json!({})).await;
    assert_eq!(answer.json()["result"]["content"][0]["text"], "b");
    assert_eq!((a.count("initialize"), b.count("initialize")), (0, 1));
    assert_eq!(b.params("tools/call")[0]["name"], "t");
    assert_eq!(b.count("ping") + a.count("ping"), 0);
    assert_eq!(b.count("notifications/initialized"), 1);
}

#[tokio::test]
async fn the_answer_to_initialize_has_our_name_and_what_servers_said_before() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    b.on("initialize", |seen| {
        seen.result(
            &json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "b", "version": "1"}, "instructions": "Use t well."}),
        )
    });
    let (gateway, client) = united(&[&a, &b]).await;
    // An older revision is fine for a member.
    assert_eq!(names(&client.send(&list(1)).await), ["a__t", "b__t"]);
    let mut second = begun(&gateway).await;
    let result = second.begin().await.json()["result"].clone();
    assert_eq!(result["serverInfo"]["name"], "bowline");
    assert_eq!(result["protocolVersion"], "2025-11-25");
    assert_eq!(result["instructions"], "# b\n\n> Use t well.");
    assert_eq!(result["capabilities"]["resources"]["subscribe"], true);
}

#[tokio::test]
async fn bare_names_are_bare_where_they_are_unambiguous() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let own = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    a.result("tools/list", json!({"tools": [own("t"), own("only_a")]}));
    b.result("tools/list", json!({"tools": [own("only_b"), own("t")]}));
    let mut config = config_of(&[&a, &b]);
    config.union.names = bowline::config::UnionNames::Bare;
    let gateway = Gateway::start(config).await.unwrap();
    let client = begun(&gateway).await;
    // Also before anything was listed.
    let early = client.call(1, "only_b", &json!({})).await;
    assert_eq!(early.json()["result"]["content"][0]["text"], "b");
    let listed = names(&client.send(&list(2)).await);
    assert_eq!(listed, ["a__t", "only_a", "only_b", "b__t"]);
    for (name, server) in [("a__t", "a"), ("only_a", "a"), ("b__t", "b")] {
        let answer = client.call(3, name, &json!({})).await;
        assert_eq!(answer.json()["result"]["content"][0]["text"], server);
    }
    let refused = client.call(4, "t", &json!({})).await;
    assert_eq!(refused.code(), -32602);
    for candidate in ["a__t", "b__t"] {
        assert!(refused.text.contains(candidate), "{}", refused.text);
    }
    assert_eq!((a.count("tools/call"), b.count("tools/call")), (2, 2));
}

#[tokio::test]
async fn a_name_that_models_refuse_has_another_which_leads_to_its_tool() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let odd = ["bad name!", "<script>", "repo.list", "工具", "bad_name_"];
    let tools = odd.map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
    b.result("tools/list", json!({"tools": tools}));
    let (gateway, client) = united(&[&a, &b]).await;
    let listed = names(&client.send(&list(1)).await);
    let is_plain = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    for (name, own) in listed[1..].iter().zip(odd) {
        assert!(
            name.starts_with("b__") && name.chars().all(is_plain),
            "{name}"
        );
        // In another attachment, which has listed nothing.
        let other = begun(&gateway).await;
        assert_eq!(other.call(2, name, &json!({})).await.status, 200);
        let called = b.params("tools/call").pop().unwrap();
        assert_eq!(called["name"], own);
    }
    assert_eq!((listed.len(), &*listed[5]), (6, "b__bad_name_"));
    let again = Gateway::start(config_of(&[&a, &b])).await.unwrap();
    let client = begun(&again).await;
    assert_eq!(names(&client.send(&list(1)).await), listed);
}

#[tokio::test]
async fn a_long_name_is_cut_and_still_leads_to_its_tool() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let long = |end: char| format!("{}{end}", "long_".repeat(20));
    let tools =
        [long('1'), long('2')].map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
    b.result("tools/list", json!({"tools": tools}));
    let (gateway, client) = united(&[&a, &b]).await;
    let listed = names(&client.send(&list(1)).await);
    assert_eq!(listed.len(), 3, "{listed:?}");
    for (name, own) in listed[1..].iter().zip([long('1'), long('2')]) {
        assert_eq!(name.len(), 64, "{name}");
        // In another attachment, which has listed nothing.
        let other = begun(&gateway).await;
        assert_eq!(other.call(2, name, &json!({})).await.status, 200);
        let called = b.params("tools/call").pop().unwrap();
        assert_eq!(called["name"], own.as_str());
    }
}
