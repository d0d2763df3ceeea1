//! What the gateway tells those who come to its pages and routes, and its log, about somebody's sign-in; and
//! that crowds of them are in nobody's way.

use bowline::config::{Caller, Flow, KeyHash};
use bowline_testbed::redis::Redis;
use serde_json::json;

use super::delivery::{flow_of, link_of, on, visit};
use crate::kit::asking::{API_TOKEN, gateway, pass_on, question, session, stream};
use crate::kit::browser::set_out;
use crate::kit::log::Log;
use crate::kit::messages::call;
use crate::kit::protected::Protected;
use crate::kit::signing::OAuthStage;
use crate::kit::stores::send_away;

// === Who is counted ===

#[tokio::test]
async fn strangers_use_up_the_visits_of_nobody_who_is_known() {
    let server = Protected::alone().await;
    let gateway = gateway(&server, Flow::Drive, |config| {
        let key = KeyHash::of(b"the-key-of-ann");
        config
            .callers
            .insert("ann".parse().unwrap(), Caller::with_key(key));
    })
    .await;
    let token = format!("Bearer {API_TOKEN}");
    let paths = [
        "/oauth/start?flow=a",
        "/oauth/callback?state=a&code=b",
        "/api/mcp-oauth/pending",
    ];
    let headers: [&[(&str, &str)]; 2] = [&[("authorization", "Bearer wrong")], &[]];
    for headers in headers {
        for path in paths {
            let mut visits = 0;
            // One more is let in every tenth of a second, which a visit may take.
            while visit(&gateway, path, headers).await.status != 429 {
                visits += 1;
                assert!(visits < 200, "{path}");
            }
        }
    }
    for _ in 0..100 {
        assert_eq!(pass_on(&gateway, "unknown", "c").await, 404);
        let key = [("authorization", "Bearer the-key-of-ann")];
        let pending = visit(&gateway, "/api/mcp-oauth/pending", &key).await;
        assert_eq!(pending.status, 200);
        for known in [key[0].1, &token] {
            let known = [("authorization", known)];
            let page = visit(&gateway, "/oauth/start?flow=a", &known).await;
            assert_ne!(page.status, 429);
        }
        let question = format!("http://{}/api/sessions/x/elicitation", gateway.listen());
        let request = reqwest::Client::new()
            .post(question)
            .header("authorization", &token)
            .body(r#"{"action": "cancel"}"#);
        assert_eq!(request.send().await.unwrap().status(), 404);
    }
}

#[tokio::test]
async fn what_pages_of_others_fetch_is_refused_and_not_counted() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let link = stage.link(&client).await;
    let path = link.split_once("/oauth").unwrap().1;
    let path = format!("/oauth{path}");
    for _ in 0..100 {
        for part in ["image", "iframe", "empty", "script"] {
            let told = visit(&stage.gateway, &path, &[("sec-fetch-dest", part)]).await;
            assert_eq!(told.status, 403, "{part}");
        }
    }
    let told = visit(&stage.gateway, &path, &[("sec-fetch-dest", "document")]).await;
    assert_eq!(told.status, 200);
}

#[tokio::test]
async fn what_pages_of_others_have_fetched_ahead_is_refused_and_not_counted() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let link = stage.link(&client).await;
    let path = format!("/oauth{}", link.split_once("/oauth").unwrap().1);
    let document = [
        ("sec-fetch-dest", "document"),
        ("sec-fetch-mode", "navigate"),
    ];
    for _ in 0..20 {
        for ahead in [
            ("sec-purpose", "prefetch"),
            ("sec-purpose", "prefetch;prerender"),
            ("sec-purpose", "Prefetch; anonymous-client-ip"),
            ("purpose", "prefetch"),
            ("x-moz", "prefetch"),
            ("sec-fetch-mode", "no-cors"),
        ] {
            let headers = [ahead, ("sec-fetch-site", "cross-site"), document[0]];
            let told = visit(&stage.gateway, &path, &headers).await;
            assert_eq!(told.status, 403, "{ahead:?}");
        }
    }
    // Node's `fetch` says that, and nothing of where it comes from: it is no page.
    let script = [("sec-fetch-mode", "cors")];
    assert_eq!(visit(&stage.gateway, &path, &script).await.status, 200);
    // A person who comes by another site's link does go here.
    let person = [("sec-fetch-site", "cross-site"), document[0], document[1]];
    assert_eq!(visit(&stage.gateway, &path, &person).await.status, 200);
}

// === What is told ===

#[tokio::test]
async fn a_log_names_a_flow_and_nobody_gets_from_there_to_its_link() {
    let log = Log::default();
    let stage = OAuthStage::set().await;
    let _keeping = log.keep();
    let client = stage.client(None).await;
    let link = stage.link(&client).await;
    stage.sign_in(&client, "the-code").await;
    let begun = log.lines_with("sign-in started");
    let ended = log.lines_with("sign-in ended");
    assert_eq!((begun.len(), ended.len()), (1, 1));
    let flow = link.split("flow=").nth(1).unwrap();
    assert!(!log.contains(flow));
    let named = begun[0].split("flow=").nth(1).unwrap();
    let named = named.split_whitespace().next().unwrap();
    assert_eq!(named.len(), 16, "{named}");
    assert!(ended[0].contains(named), "{ended:?}");
    let start = format!("/oauth/start?flow={named}");
    assert_eq!(visit(&stage.gateway, &start, &[]).await.status, 404);
}

#[tokio::test]
async fn what_the_authorization_server_says_is_shown_to_whoever_waits_and_runs_nowhere() {
    let server = Protected::alone().await;
    for (error, description, said) in [
        (
            "access_denied",
            "Ask%20%22IT%22%20%3Cscript%3Ealert(1)%3C/script%3E%0D%0Afirst",
            "Ask 'IT' <script>alert(1)</script> first",
        ),
        (
            "temporarily_unavailable",
            "Closed%20until%20%3Cb%3Enoon",
            "Closed until <b>noon",
        ),
    ] {
        let gateway = gateway(&server, Flow::Managed, |_| {}).await;
        let client = session(&gateway, &json!({"url": {}})).await;
        let mut events = stream(&client, &call(1)).await;
        let (state, cookie) = set_out(link_of(&question(&mut events).await))
            .await
            .unwrap();
        let back =
            format!("/oauth/callback?state={state}&error={error}&error_description={description}");
        let page = visit(&gateway, &back, &[("cookie", &cookie)]).await;
        let escaped = said.replace('<', "&lt;").replace('>', "&gt;");
        let escaped = escaped.replace('\'', "&#39;");
        assert!(page.text.contains(&escaped), "{}", page.text);
        for markup in ["<script", "<b>"] {
            assert!(!page.text.contains(markup), "{}", page.text);
        }
        let (_, withdrawn) = events.next_message().await;
        assert_eq!(withdrawn["method"], "notifications/cancelled");
        let refused = events.next_message().await.1;
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("\"{said}\"")), "{message}");
    }
}

#[tokio::test]
async fn what_a_store_says_is_told_to_no_visitor() {
    let redis = Redis::start().await.unwrap();
    let server = Protected::alone().await;
    let managed = on(&redis, &server, Flow::Managed).await;
    let client = session(&managed, &json!({"url": {}})).await;
    let mut events = stream(&client, &call(1)).await;
    let link = link_of(&question(&mut events).await).to_owned();
    let (state, cookie) = set_out(&link).await.unwrap();
    send_away(&redis).await;
    let token = format!("Bearer {API_TOKEN}");
    let flow = flow_of(&state);
    for (path, header) in [
        (format!("/oauth/start?flow={flow}"), ("accept", "text/html")),
        (
            format!("/oauth/callback?state={state}&code=c"),
            ("cookie", cookie.as_str()),
        ),
        (
            "/api/mcp-oauth/pending".to_owned(),
            ("authorization", token.as_str()),
        ),
    ] {
        let told = visit(&managed, &path, &[header]).await;
        assert_eq!(told.status, 503, "{path}: {}", told.text);
        let words = told.text.to_ascii_lowercase();
        for word in ["masterdown", "master", "replica", "redis", "127.0.0.1"] {
            assert!(!words.contains(word), "{path}: {words}");
        }
    }
}
