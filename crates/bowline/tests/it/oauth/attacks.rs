//! What somebody may try who knows a link or a state, or has a browser of their own: nobody gets another's
//! token.

use std::collections::BTreeMap;

use bowline::config::{Caller, CallerName, KeyHash, ServerOAuth};
use serde_json::{Value, json};

use crate::kit::browser::Browser;
use crate::kit::client::Client;
use crate::kit::events::Events;
use crate::kit::messages::{call, initialize_message};
use crate::kit::signing::{OAuthStage, token_of};

fn callers() -> BTreeMap<CallerName, Caller> {
    let caller = |name: &str| {
        let key = KeyHash::of(format!("k-{name}").as_bytes());
        (name.parse().unwrap(), Caller::with_key(key))
    };
    BTreeMap::from([caller("ann"), caller("bob")])
}

async fn with_callers() -> OAuthStage {
    OAuthStage::set_with(|_| {}, |config| config.callers = callers()).await
}

#[tokio::test]
async fn a_page_leads_where_the_flow_does_whatever_its_query_says() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let link = stage.link(&client).await;
    let evil = "https://evil.example/";
    let names = ["redirect_uri", "next", "url", "return_to", "authorize_url"];
    let more: String = names.map(|name| format!("&{name}={evil}")).concat();
    let mut browser = Browser::new();
    let opened = browser.open(&format!("{link}{more}")).await;
    let authority = stage.words.lock().authority.clone();
    assert_eq!(
        opened.authorize_url.origin().ascii_serialization(),
        authority
    );
    assert!(!opened.authorize_url.as_str().contains("evil.example"));
    let callback = format!("http://{}/oauth/callback", stage.gateway.listen());
    for query in [
        format!("error={evil}&state={}&iss={authority}{more}", "unknown"),
        format!("error=%3Cscript%3Ealert&state=unknown{more}"),
        format!("code=code&state={}&iss={authority}{more}", opened.state),
    ] {
        let page = browser.get(&format!("{callback}?{query}")).await;
        assert!(!page.headers.contains_key("location"));
        assert!(!page.headers.contains_key("refresh"));
        assert!(!page.text.contains("evil.example"), "{}", page.text);
        assert!(!page.text.contains("<script>alert"), "{}", page.text);
    }
    let query = format!("code=code&state={}&iss={authority}{more}", opened.state);
    let page = browser.submit(&format!("{callback}?{query}")).await;
    assert!(!page.text.contains("evil.example"), "{}", page.text);
    assert_eq!(token_of(&client).await, "token-code");
}

#[tokio::test]
async fn forged_and_replayed_states_are_nobodys() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let link = stage.link(&client).await;
    let mut browser = Browser::new();
    let opened = browser.open(&link).await;
    let flow = link.split("flow=").nth(1).unwrap();
    let mut longer = opened.state.clone();
    longer.push('A');
    let shorter = &opened.state[1..];
    let mut pages = Vec::new();
    for forged in ["forged", flow, longer.as_str(), shorter] {
        pages.push(stage.come_back(&browser, forged, "stolen").await);
    }
    assert_eq!(stage.token_requests().len(), 0);
    let page = stage.come_back(&browser, &opened.state, "code").await;
    assert_eq!(page.status, 200);
    pages.push(stage.come_back(&browser, &opened.state, "stolen").await);
    for page in &pages {
        assert_eq!((page.status.as_u16(), &page.text), (404, &pages[0].text));
    }
    assert_eq!(stage.token_requests().len(), 1);
    assert_eq!(token_of(&client).await, "token-code");
}

#[tokio::test]
async fn an_answer_is_taken_from_the_browser_that_opened_the_link_alone() {
    let stage = with_callers().await;
    let ann = stage.client(Some("k-ann")).await;
    let bob = stage.client(Some("k-bob")).await;
    let (mut anns, mut bobs) = (Browser::new(), Browser::new());
    let opened = anns.open(&stage.link(&ann).await).await;
    let others = bobs.open(&stage.link(&bob).await).await;
    let mixed = anns.clone().with_values_of(&bobs);
    for browser in [&Browser::new(), &bobs, &mixed] {
        let page = stage.come_back(browser, &opened.state, "stolen").await;
        assert_eq!(page.status, 404);
    }
    assert_eq!(stage.token_requests().len(), 0);
    let page = stage.come_back(&anns, &opened.state, "ann").await;
    assert_eq!(page.status, 200);
    let page = stage.come_back(&bobs, &others.state, "bob").await;
    assert_eq!(page.status, 200);
    assert_eq!(token_of(&ann).await, "token-ann");
    assert_eq!(token_of(&bob).await, "token-bob");
}

/// A client of the caller with this key that can fill in forms; its call, which waits; and what it is
/// asked.
async fn asked(stage: &OAuthStage, key: &'static str) -> (Client, Events, Value) {
    let mut client = Client::new(&stage.gateway).with_key(key);
    let mut initialize = initialize_message();
    initialize["params"]["capabilities"] = json!({"elicitation": {}});
    let opened = client.send(&initialize).await;
    client.session = opened.headers.get("mcp-session-id").cloned();
    let mut events = Events::new(client.post(&call(1)).send().await.unwrap());
    let question = events.next_message().await.1;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    (client, events, question)
}

#[tokio::test]
async fn a_host_answers_for_its_own_caller_alone() {
    let stage = OAuthStage::set_with(
        |_| {},
        |config| {
            config.callers = callers();
            let server = config.servers.values_mut().next().unwrap();
            let elsewhere = "https://host.example/done".parse().unwrap();
            server.oauth = Some(ServerOAuth::drive(elsewhere));
        },
    )
    .await;
    let (ann, mut answered, for_ann) = asked(&stage, "k-ann").await;
    let (bob, _held, for_bob) = asked(&stage, "k-bob").await;
    let state = for_ann["params"]["_meta"]["bowline/state"].clone();
    assert_ne!(state, for_bob["params"]["_meta"]["bowline/state"]);
    let answer = |question: &Value, code: &str| {
        let content = json!({"code": code, "state": state});
        let result = json!({"action": "accept", "content": content});
        json!({"jsonrpc": "2.0", "id": question["id"], "result": result})
    };
    // Another's state in an answer of one's own, and an answer to another's question.
    for question in [&for_bob, &for_ann] {
        bob.send(&answer(question, "stolen")).await;
    }
    let decline = json!({"jsonrpc": "2.0", "id": for_ann["id"], "result": {"action": "decline"}});
    bob.send(&decline).await;
    assert_eq!(stage.token_requests().len(), 0);
    assert_eq!(ann.send(&answer(&for_ann, "ann")).await.status, 202);
    let told = answered.next_message().await.1;
    assert_eq!(told["result"]["content"][0]["text"], "token-ann", "{told}");
    assert_eq!(stage.token_requests().len(), 1);
}

#[tokio::test]
async fn a_link_is_the_first_browsers_until_its_caller_asks_for_another() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let link = stage.link(&client).await;
    let mut first = Browser::new();
    let opened = first.open(&link).await;
    let second = Browser::new();
    for page in [second.get(&link).await, second.submit(&link).await] {
        assert_eq!(page.status, 404);
        assert!(!page.text.contains(&opened.state));
        assert!(!page.headers.contains_key("set-cookie"));
    }
    // Nor does its cookie get anybody the state: other ports of the host see it, too.
    for page in [first.get(&link).await, first.submit(&link).await] {
        assert_eq!(page.status, 404);
        assert!(page.text.contains("<code>sign_in</code>"), "{}", page.text);
        assert!(!page.text.contains(&opened.state));
        assert!(!page.headers.contains_key("location"));
        assert!(!page.headers.contains_key("set-cookie"));
    }
    // A link that something opened in passing is no use to the person whom it was for.
    let sign_in =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "sign_in"}});
    let told = client.send(&sign_in).await.text;
    assert!(told.contains("/oauth/start?flow="), "{told}");
    assert!(!told.contains(&link), "{told}");
    let mut third = Browser::new();
    let opened = third.open(&stage.link(&client).await).await;
    let page = stage.come_back(&third, &opened.state, "code").await;
    assert_eq!(page.status, 200);
    assert_eq!(token_of(&client).await, "token-code");
}

#[tokio::test]
async fn the_start_page_says_who_asks_for_what() {
    let stage = with_callers().await;
    let client = stage.client(Some("k-ann")).await;
    let (browser, link) = (Browser::new(), stage.link(&client).await);
    let page = browser.get(&link).await;
    let words = stage.words.lock().clone();
    for known in [
        &words.server[7..],
        &words.authority[7..],
        "ann",
        "<strong>s</strong>",
    ] {
        assert!(page.text.contains(known), "{known}: {}", page.text);
    }
    let set_out = browser.submit(&link).await;
    let cookie = set_out.headers["set-cookie"].to_str().unwrap();
    for part in ["HttpOnly", "SameSite=Lax", "Path=/oauth"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert_eq!(page.headers["referrer-policy"], "same-origin");
    assert_eq!(set_out.headers["referrer-policy"], "no-referrer");
    assert_eq!(page.headers["cache-control"], "no-store");
}

#[tokio::test]
async fn other_pages_and_rebound_names_reach_none_of_these_routes() {
    let stage = OAuthStage::set().await;
    let http = reqwest::Client::new();
    for (method, path) in [
        ("GET", "/oauth/start?flow=a"),
        ("GET", "/oauth/callback?state=a&code=b"),
        ("POST", "/api/mcp-oauth/callback?state=a&code=b"),
        ("GET", "/api/mcp-oauth/pending"),
    ] {
        let url = format!("http://{}{path}", stage.gateway.listen());
        let method: reqwest::Method = method.parse().unwrap();
        for (name, value) in [("origin", "https://evil.example"), ("host", "evil.example")] {
            let request = http.request(method.clone(), &url).header(name, value);
            let status = request.send().await.unwrap().status();
            assert_eq!(status, 403, "{path}, {name}");
        }
        let status = http.request(method, &url).send().await.unwrap().status();
        assert_ne!(status, 403, "{path}");
    }
}

#[tokio::test]
async fn strangers_knock_only_so_often() {
    let stage = OAuthStage::set().await;
    let browser = Browser::new();
    let mut statuses = Vec::new();
    for path in ["/oauth/callback?state=a&code=b", "/oauth/start?flow=a"]
        .into_iter()
        .cycle()
        .take(200)
    {
        let url = format!("http://{}{path}", stage.gateway.listen());
        statuses.push(browser.get(&url).await.status.as_u16());
        if statuses.last() == Some(&429) {
            break;
        }
    }
    assert_eq!(statuses.pop(), Some(429));
    assert!(statuses.len() >= 50 && statuses.iter().all(|status| *status == 404));
    // Sessions are none the worse.
    stage.client(None).await;
}

// === Whose token goes where ===

#[tokio::test]
async fn another_callers_grant_is_never_used() {
    let stage = with_callers().await;
    let ann = stage.client(Some("k-ann")).await;
    let bob = stage.client(Some("k-bob")).await;
    stage.sign_in(&ann, "ann").await;
    assert_eq!(token_of(&ann).await, "token-ann");
    let answer = bob.send(&call(1)).await;
    assert_eq!(answer.code(), -31003, "{}", answer.text);
    let later = stage.client(Some("k-bob")).await;
    assert_eq!(later.send(&call(1)).await.code(), -31003);
    let pending = |key: &'static str| {
        let mut client = Client::at(format!(
            "http://{}/api/mcp-oauth/pending",
            stage.gateway.listen()
        ));
        client.key = Some(key);
        async move {
            let answer = client.get().send().await.unwrap();
            answer.json::<Value>().await.unwrap()["pending"].clone()
        }
    };
    assert_eq!(pending("k-ann").await, json!([]));
    assert_eq!(pending("k-bob").await.as_array().unwrap().len(), 1);
    stage.sign_in(&bob, "bob").await;
    assert_eq!(token_of(&bob).await, "token-bob");
    assert_eq!(token_of(&ann).await, "token-ann");
}
