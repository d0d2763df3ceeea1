//! What somebody may try who writes a server's documents, knows a link or a state, or has a browser of
//! their own: nobody gets another's token, and the gateway knocks nowhere for them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bowline::config::{Caller, CallerName, KeyHash, Server, ServerOAuth};
use http::HeaderValue;
use serde_json::{Value, json};

use crate::client::{Client, Events, call, initialize_message};
use crate::oauth_stage::{Browser, OAuthStage, Words, token_of};

fn callers() -> BTreeMap<CallerName, Caller> {
    let caller = |name: &str| {
        let key = KeyHash::of(format!("k-{name}").as_bytes());
        (name.parse().unwrap(), Caller { key })
    };
    BTreeMap::from([caller("ann"), caller("bob")])
}

async fn with_callers() -> OAuthStage {
    OAuthStage::set_with(|_| {}, |config| config.callers = callers()).await
}

// === Where documents lead ===

/// What a server says instead of the truth.
type Twist = fn(&mut Words);

#[tokio::test]
async fn documents_that_lead_behind_the_gateway_are_not_followed() {
    let twists: [(&str, Twist); 5] = [
        ("resource_metadata", |words| {
            let forbidden = words.forbidden();
            words.challenge = format!(r#"Bearer resource_metadata="{forbidden}/document""#);
        }),
        ("authorization_servers", |words| {
            words.resource["authorization_servers"] = json!([words.forbidden()]);
        }),
        ("a redirect of the server's document", |words| {
            let there = format!("{}/document", words.forbidden());
            words
                .redirects
                .insert("/.well-known/oauth-protected-resource/mcp", there);
        }),
        ("a redirect of the authorization server's", |words| {
            let there = format!("{}/document", words.forbidden());
            words
                .redirects
                .insert("/.well-known/oauth-authorization-server", there);
        }),
        ("the clouds' metadata", |words| {
            words.resource["authorization_servers"] = json!(["http://169.254.169.254/latest"]);
        }),
    ];
    for (what, twist) in twists {
        let stage = OAuthStage::saying(twist).await;
        let client = stage.client(None).await;
        let why = stage.refusal(&client).await;
        assert!(
            why.contains("has no address that may be reached from here"),
            "{what}: {why}"
        );
        assert!(stage.stranger.seen().is_empty(), "{what}");
    }
}

#[tokio::test]
async fn the_operator_can_let_documents_lead_there() {
    let twist = |words: &mut Words| {
        words.resource["authorization_servers"] = json!([words.forbidden()]);
    };
    let stage = OAuthStage::set_with(twist, |config| {
        let server = config.servers.values_mut().next().unwrap();
        server.oauth.as_mut().unwrap().allow_private = true;
    })
    .await;
    let client = stage.client(None).await;
    stage.refusal(&client).await;
    assert!(!stage.stranger.seen().is_empty(), "nobody would have heard");
}

#[tokio::test]
async fn a_token_endpoint_behind_the_gateway_gets_no_code() {
    let forbidden = RefCell::new(String::new());
    let twist = |words: &mut Words| {
        *forbidden.borrow_mut() = words.forbidden();
        words.metadata["token_endpoint"] = json!(format!("{}/token", words.forbidden()));
    };
    let stage = OAuthStage::set_with(twist, |config| {
        let server = config.servers.values_mut().next().unwrap();
        server.oauth.as_mut().unwrap().endpoints_elsewhere = vec![forbidden.take()];
    })
    .await;
    let client = stage.client(None).await;
    let mut browser = Browser::new();
    let opened = browser.open(&stage.link(&client).await).await;
    let page = stage.come_back(&browser, &opened.state, "code").await;
    assert_eq!(page.status, 502);
    assert!(page.text.contains("no address that may"), "{}", page.text);
    assert!(stage.stranger.seen().is_empty());
}

#[tokio::test]
async fn a_token_request_is_not_redirected_anywhere() {
    let stage = OAuthStage::saying(|words| {
        let there = format!("{}/token", words.stranger);
        words.redirects.insert("/token", there);
    })
    .await;
    let client = stage.client(None).await;
    let mut browser = Browser::new();
    let opened = browser.open(&stage.link(&client).await).await;
    let page = stage.come_back(&browser, &opened.state, "code").await;
    assert_eq!(page.status, 502, "{}", page.text);
    assert!(stage.stranger.seen().is_empty());
}

#[tokio::test]
async fn people_are_led_to_pages_only() {
    for endpoint in [
        "javascript:alert(1)//",
        "data:text/html,hello",
        "file:///etc/passwd",
        "vbscript:msgbox",
        "http://user:password@127.0.0.1/authorize",
        "http:/authorize",
        "/authorize",
        "http://127.0.0.1/authorize\nSet-Cookie: a=b",
        "http://127.0.0.1/authorize?<script>",
        "",
    ] {
        let stage = OAuthStage::saying(|words| {
            words.metadata["authorization_endpoint"] = json!(endpoint);
        })
        .await;
        let client = stage.client(None).await;
        let why = stage.refusal(&client).await;
        assert!(why.contains("authorization server"), "{endpoint:?}: {why}");
    }
}

#[tokio::test]
async fn what_a_shell_or_a_page_would_run_stays_part_of_the_url() {
    let stage = OAuthStage::saying(|words| {
        let tricky = "/a\"onclick=\"alert(1);$(id)?a='$(id)'&b=%22%3E%3Cscript%3E";
        words.metadata["authorization_endpoint"] = json!(format!("{}{tricky}", words.authority));
    })
    .await;
    let client = stage.client(None).await;
    let link = stage.link(&client).await;
    let mut browser = Browser::new();
    let opened = browser.open(&link).await;
    let authority = stage.words.lock().authority.clone();
    let origin = opened.authorize_url.origin().ascii_serialization();
    assert_eq!(origin, authority);
    let mut query = opened.authorize_url.query_pairs();
    assert_eq!(query.next().unwrap().1, "'$(id)'");
    assert_eq!(query.next().unwrap().1, "\"><script>");
    let page = browser.get(&link).await;
    assert!(!page.text.contains("<script"), "{}", page.text);
    assert!(!page.text.contains("\"onclick"), "{}", page.text);
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'none'"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    // Browsers hold the redirects behind a form against it, and those lead anywhere.
    assert!(!policy.contains("form-action"), "{policy}");
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
        format!("error=%3Cscript%3E&state=unknown{more}"),
        format!("code=code&state={}&iss={authority}{more}", opened.state),
    ] {
        let page = browser.get(&format!("{callback}?{query}")).await;
        assert!(!page.headers.contains_key("location"));
        assert!(!page.headers.contains_key("refresh"));
        assert!(!page.text.contains("evil.example"), "{}", page.text);
        assert!(!page.text.contains("<script"), "{}", page.text);
    }
    assert_eq!(token_of(&client).await, "token-code");
}

// === Whose answer is taken ===

#[tokio::test]
async fn another_issuers_answer_is_not_taken_and_costs_the_flow_nothing() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let mut browser = Browser::new();
    let opened = browser.open(&stage.link(&client).await).await;
    let state = opened.state.as_str();
    let slash = format!("{}/", stage.words.lock().authority);
    for query in [
        &[("state", state), ("code", "code")][..],
        &[
            ("state", state),
            ("code", "code"),
            ("iss", "https://evil.example"),
        ],
        &[("state", state), ("code", "code"), ("iss", &slash)],
        &[
            ("state", state),
            ("error", "access_denied"),
            ("iss", "https://evil.example"),
        ],
        &[("state", state), ("error", "access_denied")],
    ] {
        assert_eq!(
            stage.callback(&browser, query).await.status,
            400,
            "{query:?}"
        );
    }
    assert_eq!(stage.token_requests(), 0);
    assert_eq!(stage.come_back(&browser, state, "code").await.status, 200);
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
    assert_eq!(stage.token_requests(), 0);
    let page = stage.come_back(&browser, &opened.state, "code").await;
    assert_eq!(page.status, 200);
    pages.push(stage.come_back(&browser, &opened.state, "stolen").await);
    for page in &pages {
        assert_eq!((page.status.as_u16(), &page.text), (404, &pages[0].text));
    }
    assert_eq!(stage.token_requests(), 1);
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
    assert_eq!(stage.token_requests(), 0);
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
    let mut client = Client::new(&stage.gateway);
    client.key = Some(key);
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
    assert_eq!(stage.token_requests(), 0);
    assert_eq!(ann.send(&answer(&for_ann, "ann")).await.status, 202);
    let told = answered.next_message().await.1;
    assert_eq!(told["result"]["content"][0]["text"], "token-ann", "{told}");
    assert_eq!(stage.token_requests(), 1);
}

#[tokio::test]
async fn a_link_is_the_first_browsers_until_its_caller_asks_for_another() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let link = stage.link(&client).await;
    let mut first = Browser::new();
    let opened = first.open(&link).await;
    let second = Browser::new();
    for page in [second.get(&link).await, second.set_out(&link).await] {
        assert_eq!(page.status, 404);
        assert!(!page.text.contains(&opened.state));
        assert!(!page.headers.contains_key("set-cookie"));
    }
    // The one that has it may look again.
    assert_eq!(first.open(&link).await.state, opened.state);
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
    let set_out = browser.set_out(&link).await;
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

#[tokio::test]
async fn a_token_stays_at_its_server() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "code").await;
    assert_eq!(token_of(&client).await, "token-code");
    let there = format!("{}/mcp", stage.words.lock().stranger);
    stage.words.lock().redirects.insert("/mcp", there);
    let answer = client.send(&call(2)).await;
    assert!(answer.json().get("error").is_some(), "{}", answer.text);
    assert!(stage.stranger.seen().is_empty(), "a redirect was followed");
}

#[tokio::test]
async fn a_server_at_another_place_is_signed_in_at_anew() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "code").await;
    assert_eq!(token_of(&client).await, "token-code");
    let mut config = crate::client::config(&[]);
    let there = format!("{}/mcp", stage.words.lock().stranger);
    let mut moved = Server::from_url(&there).unwrap();
    moved.oauth = Some(ServerOAuth::default());
    config.servers.insert("s".parse().unwrap(), moved);
    stage.gateway.reload(config).unwrap();
    drop(Client::new(&stage.gateway).initialize().await);
    drop(client.send(&call(2)).await);
    let seen = stage.stranger.seen();
    assert!(!seen.is_empty(), "nothing went to the new place");
    for seen in seen {
        assert_eq!(seen.header("authorization"), "", "{seen}");
        assert_eq!(seen.header("cookie"), "", "{seen}");
    }
}

#[tokio::test]
async fn cookies_and_configured_headers_stay_at_their_server() {
    let stage = OAuthStage::set_with(
        |_| {},
        |config| {
            let server = config.servers.values_mut().next().unwrap();
            let key = HeaderValue::from_static("of the server");
            server.headers.insert("x-key", key);
        },
    )
    .await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "first").await;
    assert_eq!(token_of(&client).await, "token-first");
    // Signed in anew, now that there are cookies.
    stage.words.lock().only_token = Some("token-second".to_owned());
    stage.sign_in(&client, "second").await;
    assert_eq!(token_of(&client).await, "token-second");
    let at_server = stage.server.seen_at("/mcp");
    let last = at_server.last().unwrap();
    assert_eq!(last.header("cookie"), "stays-here=of-token-second");
    stage.accounts_are_apart();
    assert_eq!(last.header("x-key"), "of the server");
    assert!(stage.token_requests() == 2);
    for seen in stage.authority.seen() {
        assert_eq!(seen.header("cookie"), "", "{seen}");
        assert_eq!(seen.header("x-key"), "", "{seen}");
        assert!(
            !seen.header("authorization").starts_with("Bearer"),
            "{seen}"
        );
    }
}
