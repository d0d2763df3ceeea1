//! A server that cannot be asked neither delays nor empties the lists of the others, and its absence is said.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::Config;
use bowline_testbed::answering::{Gate, Said};
use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::scripted::PATIENCE;
use serde_json::json;
use tokio::time::Instant;

use crate::kit::fake::{
    Fake, TOOLS_CHANGED, begun, config_of, hear_of, missing, names, refusal, united, united_with,
};
use crate::kit::gateway::{health, with_admin};
use crate::kit::messages::{call, list};
use crate::kit::sse::Sse;
use crate::kit::wait::until_so;

/// The tools of a counting server in a union.
const COUNTING: [&str; 4] = ["c__read", "c__bump", "c__slow", "c__stream_read"];

/// The same with one more server.
fn with_server(mut config: Config, name: &str, url: &str) -> Config {
    let server = bowline::config::Server::from_url(url).unwrap();
    config.servers.insert(name.parse().unwrap(), server);
    config
}

#[tokio::test]
async fn a_hanging_server_delays_a_list_once_and_comes_back_by_itself() {
    const LIMIT: Duration = Duration::from_secs(3);
    let (a, h) = (Fake::start("a").await, Fake::start("h").await);
    let gate = Gate::default();
    gate.close();
    let own = gate.clone();
    h.on("tools/list", move |seen| {
        let said =
            seen.result(&json!({"tools": [{"name": "late", "inputSchema": {"type": "object"}}]}));
        said.behind(&own)
    });
    let mut config = config_of(&[&a, &h]);
    config
        .servers
        .values_mut()
        .for_each(|it| it.list_timeout = LIMIT);
    with_admin(&mut config);
    let (gateway, client) = united_with(config).await;
    let mut events = client.listen().await;
    for (id, least, most) in [(1, LIMIT, 3 * LIMIT), (2, Duration::ZERO, LIMIT / 2)] {
        let began = Instant::now();
        let answer = client.send(&list(id)).await;
        let took = began.elapsed();
        assert!(took >= least && took < most, "list {id} took {took:?}");
        assert_eq!(names(&answer), ["a__t"]);
        let told = &missing(&answer)["h"];
        assert_eq!(
            (&told["state"], &told["reason"]),
            (&json!("absent"), &json!("deadline")),
            "{told}"
        );
    }
    // Nor does it delay every new client so long.
    let newcomer = begun(&gateway).await;
    let began = Instant::now();
    let answer = newcomer.send(&list(1)).await;
    let took = began.elapsed();
    assert!(took < LIMIT, "the list of a new client took {took:?}");
    assert_eq!(missing(&answer)["h"]["reason"], "deadline", "{answer:?}");
    let shown = health(&gateway).await;
    let told = &shown["servers"]["h"]["missing"];
    assert_eq!(told["reason"], "deadline", "{shown}");
    gate.open();
    hear_of(&mut events, TOOLS_CHANGED).await;
    let answer = client.send(&list(3)).await;
    assert_eq!(names(&answer), ["a__t", "h__late"]);
    assert_eq!(missing(&answer), json!(null));
    assert_eq!(health(&gateway).await["servers"]["h"].get("missing"), None);
}

#[tokio::test]
async fn who_is_missing_is_said_with_the_reason_and_comes_back_without_a_reconnect() {
    let (a, n, e) = (
        Fake::start("a").await,
        Fake::start("n").await,
        Fake::start("e").await,
    );
    n.on("tools/list", |_| {
        Said::json_text("<html>not what you think</html>")
    });
    e.on("tools/list", |seen| refusal(seen, -32603, "out of order"));
    let counting = Counting::start("c", &Tally::default()).await.unwrap();
    counting.die().await;
    let mut config = with_server(config_of(&[&a, &n, &e]), "c", &counting.url());
    with_admin(&mut config);
    for server in config.servers.values_mut() {
        server.recovery.budget = Duration::from_secs(1);
    }
    let (gateway, client) = united_with(config).await;
    let mut events = client.listen().await;
    let answer = client.send(&list(1)).await;
    assert_eq!(names(&answer), ["a__t"]);
    let told = missing(&answer);
    for server in ["c", "e", "n"] {
        assert_eq!(told[server]["state"], "absent", "{told}");
        assert!(told[server]["reason"].is_string(), "{told}");
    }
    assert_eq!(told.as_object().unwrap().len(), 3, "{told}");
    assert!(
        told["e"]["message"]
            .as_str()
            .unwrap()
            .contains("out of order"),
        "{told}"
    );
    let shown = health(&gateway).await;
    assert!(shown.to_string().contains("out of order"), "{shown}");
    counting.come_back().unwrap();
    e.result("tools/list", json!({"tools": []}));
    n.result("tools/list", json!({"tools": []}));
    hear_of(&mut events, TOOLS_CHANGED).await;
    until_so("all are back", async || {
        missing(&client.send(&list(2)).await) == json!(null)
    })
    .await;
    let answer = client.send(&list(3)).await;
    assert_eq!(names(&answer), [&["a__t"], &COUNTING[..]].concat());
    let shown = health(&gateway).await;
    assert!(!shown.to_string().contains("out of order"), "{shown}");
    assert_eq!(counting.initializes(), 1);
}

#[tokio::test]
async fn what_a_server_said_last_is_served_as_stale() {
    let a = Fake::start("a").await;
    let counting = Counting::start("c", &Tally::default()).await.unwrap();
    let mut config = with_server(config_of(&[&a]), "c", &counting.url());
    for server in config.servers.values_mut() {
        server.recovery.budget = Duration::from_secs(1);
        server.required = true;
    }
    let (gateway, client) = united_with(config).await;
    let all = [&["a__t"], &COUNTING[..]].concat();
    let answer = client.send(&list(1)).await;
    assert_eq!(
        (names(&answer), missing(&answer)),
        (all.iter().map(|it| (*it).to_owned()).collect(), json!(null))
    );
    counting.die().await;
    // Also in an attachment that never reached the server.
    for client in [client, begun(&gateway).await] {
        let answer = client.send(&list(2)).await;
        assert_eq!(names(&answer), all);
        assert_eq!(missing(&answer)["c"]["state"], "stale", "{}", answer.text);
    }
}

#[tokio::test]
async fn no_list_is_given_without_a_server_that_is_required() {
    let a = Fake::start("a").await;
    let counting = Counting::start("c", &Tally::default()).await.unwrap();
    counting.die().await;
    let mut config = with_server(config_of(&[&a]), "c", &counting.url());
    let required = config.servers.get_mut("c").unwrap();
    required.required = true;
    required.recovery.budget = Duration::from_secs(1);
    let (_gateway, client) = united_with(config).await;
    let answer = client.send(&list(1)).await;
    assert_eq!(answer.code(), -31002, "{}", answer.text);
    let data = &answer.json()["error"]["data"];
    assert_eq!(
        (&data["reason"], &data["server"]),
        (&json!("required_server"), &json!("c"))
    );
    // What is there can be used.
    let called = client.call(2, "a__t", &json!({})).await;
    assert_eq!(called.json()["result"]["content"][0]["text"], "a");
    counting.come_back().unwrap();
    let came_back = tokio::time::timeout(PATIENCE, async {
        while client.send(&list(3)).await.json().get("result").is_none() {}
    });
    came_back.await.expect("the server to be listed again");
}

#[tokio::test]
async fn a_list_without_an_end_ends_and_says_so() {
    let (a, c, e) = (
        Fake::start("a").await,
        Fake::start("c").await,
        Fake::start("e").await,
    );
    c.on("tools/list", |seen| {
        let next = match seen.json()["params"]["cursor"].as_str() {
            Some("one") => "two",
            _ => "one",
        };
        seen.result(&json!({"tools": [{"name": format!("before_{next}"), "inputSchema": {"type": "object"}}], "nextCursor": next}))
    });
    e.on("tools/list", |seen| {
        let cursor = seen.json()["params"]["cursor"].as_str().unwrap_or("0").to_owned();
        let page: usize = cursor.parse().unwrap();
        let next = (page + 1).to_string();
        seen.result(&json!({"tools": [{"name": format!("p{page}"), "inputSchema": {"type": "object"}}], "nextCursor": next}))
    });
    let (_gateway, client) = united(&[&a, &c, &e]).await;
    let answer = client.send(&list(1)).await;
    let told = missing(&answer);
    for (server, why, pages) in [(&c, "repeat", 3), (&e, "100 pages", 100)] {
        let said = &told[server.name];
        assert_eq!(said["state"], "incomplete", "{told}");
        assert!(said["message"].as_str().unwrap().contains(why), "{told}");
        assert_eq!(server.count("tools/list"), pages);
        assert!(server.count("ping") == 0);
    }
    let listed = names(&answer);
    assert_eq!(listed[0], "a__t");
    assert_eq!(
        listed.iter().filter(|it| it.starts_with("e__p")).count(),
        100
    );
    assert_eq!(told.as_object().unwrap().len(), 2);
    let bad =
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"cursor": "made up"}});
    assert_eq!(client.send(&bad).await.code(), -32602);
}

#[tokio::test]
async fn a_list_whose_second_page_is_refused_is_incomplete_and_an_empty_cursor_ends_one() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let page = |name: &str, next: &str| json!({"tools": [{"name": name, "inputSchema": {"type": "object"}}], "nextCursor": next});
    let first = page("one", "two");
    a.on(
        "tools/list",
        move |seen| match seen.json()["params"]["cursor"].is_null() {
            true => seen.result(&first),
            false => refusal(seen, -32601, "no such method"),
        },
    );
    b.result("tools/list", page("all", ""));
    let (_gateway, client) = united(&[&a, &b]).await;
    let answer = client.send(&list(1)).await;
    assert_eq!(names(&answer), ["a__one", "b__all"]);
    let told = missing(&answer);
    assert_eq!(told["a"]["state"], "incomplete", "{told}");
    assert_eq!(told.get("b"), None, "{told}");
    assert_eq!((a.count("tools/list"), b.count("tools/list")), (2, 1));
}

#[tokio::test]
async fn many_tools_over_pages_come_back_over_pages_byte_for_byte_but_for_the_name() {
    const PAGE: usize = 100;
    const TOOLS: usize = 1300;
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let raw = |prefix: &str, number: usize| {
        format!(
            r#"{{ "title":"T {number}","name" : "{prefix}n{number}","icons":[{{"src":"data:image/png;base64,AA=="}}],  "outputSchema":{{"type":"object","properties":{{"z":{{"minimum":1.50}}}},"x-a":1e2}},"inputSchema":{{"type":"object"}},"annotations":{{"readOnlyHint":true}},"_meta":{{"x/y":[1, 2]}},"unheard\u002dof":{{"b":0,"a":"\/é"}}}}"#
        )
    };
    b.on("tools/list", move |seen| {
        let message = seen.json();
        let cursor = message["params"]["cursor"].as_str();
        let first: usize = cursor.map_or(0, |cursor| cursor.parse().unwrap());
        let tools: Vec<String> = (first..first + PAGE)
            .map(|number| raw("", number))
            .collect();
        let next = match first + PAGE < TOOLS {
            true => format!(r#","nextCursor":"{}""#, first + PAGE),
            false => String::new(),
        };
        let (id, tools) = (&message["id"], tools.join(","));
        Said::json_text(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{tools}]{next}}}}}"#
        ))
    });
    let (gateway, client) = united(&[&a, &b]).await;
    let (mut all, mut texts, mut cursor) = (Vec::new(), String::new(), None);
    loop {
        let mut message = list(all.len());
        if let Some(cursor) = &cursor {
            message["params"] = json!({"cursor": cursor});
        }
        let answer = client.send(&message).await;
        all.extend(names(&answer));
        texts += &answer.text;
        match answer.json()["result"].get("nextCursor") {
            Some(next) => cursor = Some(next.clone()),
            None => break,
        }
    }
    assert_eq!(all.len(), TOOLS + 1);
    assert!(cursor.is_some(), "one page only");
    for number in 0..TOOLS {
        assert!(texts.contains(&raw("b__", number)), "tool {number}");
    }
    // A cursor holds in another attachment.
    let mut message = list(1);
    message["params"] = json!({"cursor": cursor});
    let rest = begun(&gateway).await.send(&message).await;
    assert_eq!(names(&rest), all[all.len() - names(&rest).len()..]);
}

#[tokio::test]
async fn a_server_without_a_list_is_not_asked_for_it_and_not_missing() {
    let (a, b, c) = (
        Fake::start("a").await,
        Fake::start("b").await,
        Fake::start("c").await,
    );
    a.declare(json!({"tools": {}}));
    b.on("prompts/list", |seen| {
        refusal(seen, -32601, "no such method")
    });
    c.result(
        "prompts/list",
        json!({"prompts": [{"name": "p", "title": "P"}]}),
    );
    let (_gateway, client) = united(&[&a, &b, &c]).await;
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "prompts/list"});
    let answer = client.send(&message).await;
    assert_eq!(
        answer.json()["result"],
        json!({"prompts": [{"name": "c__p", "title": "P"}]})
    );
    assert_eq!((a.count("prompts/list"), b.count("prompts/list")), (0, 1));
}

#[tokio::test]
async fn a_gateway_that_knows_no_server_alive_still_answers() {
    let counting = Counting::start("c", &Tally::default()).await.unwrap();
    let other = Counting::start("d", &Tally::default()).await.unwrap();
    counting.die().await;
    other.die().await;
    let mut config = with_server(config_of(&[]), "c", &counting.url());
    config = with_server(config, "d", &other.url());
    for server in config.servers.values_mut() {
        server.recovery.budget = Duration::from_secs(1);
    }
    let gateway = Gateway::start(config).await.unwrap();
    let client = begun(&gateway).await;
    let answer = client.send(&list(1)).await;
    assert_eq!(names(&answer), Vec::<String>::new());
    assert_eq!(missing(&answer).as_object().unwrap().len(), 2);
}

#[tokio::test]
async fn a_call_to_a_server_that_is_away_is_answered_in_band_and_at_once_on_every_front() {
    let a = Fake::start("a").await;
    let counting = Counting::start("c", &Tally::default()).await.unwrap();
    counting.die().await;
    let (gateway, client) = united_with(with_server(config_of(&[&a]), "c", &counting.url())).await;
    let mut call = call(1);
    call["params"]["name"] = "c__read".into();
    let answer = client.send(&call).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(!answer.headers.contains_key("retry-after"), "{answer:?}");
    let over_sse = async {
        let mut client = Sse::open_as(&gateway, "/sse", None).await;
        client.begin().await;
        client.ask(&call).await
    };
    let began = Instant::now();
    for answer in [answer.json(), over_sse.await] {
        assert_eq!(answer["id"], 1, "{answer}");
        assert_eq!(answer["error"]["code"], -31002, "{answer}");
        assert_eq!(answer["error"]["data"]["server"], "c", "{answer}");
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
}
