//! What one server lists does not keep clients from what the others list: pages are few, end, and can be asked for.

use serde_json::{Value, json};

use crate::kit::client::Client;
use crate::kit::fake::{Fake, missing, united};
use crate::kit::messages::request;

/// The pages of a list, and what the last one says of servers.
async fn pages(client: &Client, method: &str, key: &str) -> (Vec<Vec<Value>>, Value) {
    let (mut pages, mut params) = (Vec::new(), json!({}));
    loop {
        let answer = client.send(&request(1, method, params)).await;
        let result = &answer.json()["result"];
        let items = result[key].as_array();
        let items = items.unwrap_or_else(|| panic!("{method}: {}", answer.status));
        pages.push(items.clone());
        let Some(next) = result["nextCursor"].as_str() else {
            return (pages, missing(&answer));
        };
        assert!(next.len() < 256, "a cursor of {} bytes", next.len());
        assert!(pages.len() < 10, "pages of {method} without an end");
        params = json!({"cursor": next});
    }
}

#[tokio::test]
async fn a_long_name_or_uri_is_left_out_and_cursors_are_short() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let long = "x".repeat(100_000);
    let schema = json!({"type": "object"});
    let large = "d".repeat(4_200_000);
    a.result(
        "tools/list",
        json!({"tools": [
            {"name": "x".repeat(2048), "inputSchema": schema},
            {"name": long, "inputSchema": schema},
            {"name": "t", "inputSchema": schema, "description": large},
        ]}),
    );
    a.result(
        "resources/list",
        json!({"resources": [
            {"uri": format!("a:{long}"), "name": "r"}, {"uri": "a:1", "name": "r"},
            {"uri": "a:2", "name": "r", "description": large},
        ]}),
    );
    b.result(
        "resources/list",
        json!({"resources": [{"uri": "b:1", "name": "r"}]}),
    );
    let (_gateway, client) = united(&[&a, &b]).await;
    let (tools, said) = pages(&client, "tools/list", "tools").await;
    let of_page = |page: &[Value], key| -> Vec<String> {
        let names = page.iter().map(|item| item[key].as_str().unwrap());
        names.map(str::to_owned).collect()
    };
    assert_eq!((tools.len(), tools[0].len()), (3, 1));
    assert_eq!(of_page(&tools[2], "name"), ["b__t"]);
    let left_out = json!([{"name": "x".repeat(64), "why": "its `name` has more than 2048 bytes"}]);
    assert_eq!(said["a"]["left_out"], left_out);
    let (resources, said) = pages(&client, "resources/list", "resources").await;
    let uris: Vec<_> = resources.iter().map(|page| of_page(page, "uri")).collect();
    assert_eq!(uris, [["a:1"], ["a:2"], ["b:1"]]);
    assert_eq!(said["a"]["left_out_count"], 1);
}

#[tokio::test]
async fn what_a_server_lists_twice_counts_once() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let lists = [
        ("tools/list", "tools", "name"),
        ("prompts/list", "prompts", "name"),
        ("resources/list", "resources", "uri"),
        (
            "resources/templates/list",
            "resourceTemplates",
            "uriTemplate",
        ),
    ];
    for (fake, times) in [(&a, 1100), (&b, 1)] {
        for (method, items, key) in lists {
            let mut item = json!({"name": "t", "inputSchema": {"type": "object"}});
            item[key] = format!("{}-t", fake.name).into();
            fake.result(method, json!({items: vec![item; times]}));
        }
    }
    let (_gateway, client) = united(&[&a, &b]).await;
    for (method, items, key) in lists {
        let (pages, said) = pages(&client, method, items).await;
        let all: Vec<_> = pages.iter().flatten().map(|item| &item[key]).collect();
        assert_eq!(all.len(), 2, "{method}");
        assert_eq!(said["a"]["left_out_count"], 1099);
        let why = format!("another before it has the same `{key}`");
        assert_eq!(said["a"]["left_out"][0], json!({"name": "a-t", "why": why}));
    }
}
