//! Who may bring a sign-in's answer, to which flow, and that nobody else is in the way.

use aws_lc_rs::digest::{SHA256, digest};
use bowline::Gateway;
use bowline::config::{Caller, Flow, KeyHash};
use bowline_testbed::leaks;
use bowline_testbed::redis::Redis;
use serde_json::{Value, json};

use crate::client::{Answer, Client, call, read};
use crate::guarded::{
    API_TOKEN, Guarded, come_back, gateway, oauth, pass_on, question, reply, session, set_out,
    stream, text,
};
use crate::kept::in_redis;
use crate::log::Log;
use crate::oauth_stage::{Browser, OAuthStage, token_of};
use crate::stage::until;
use crate::store_away::send_away;

/// The id of the flow with this state.
fn flow_of(state: &str) -> String {
    let hash = digest(&SHA256, state.as_bytes());
    let bytes = hash.as_ref()[..16].iter();
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

async fn visit(gateway: &Gateway, path: &str, headers: &[(&'static str, &str)]) -> Answer {
    let url = format!("http://{}{path}", gateway.listen());
    let mut request = reqwest::Client::new().get(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    read(request.send().await.unwrap()).await
}

fn state_of(question: &Value) -> &str {
    question["params"]["_meta"]["bowline/state"]
        .as_str()
        .unwrap()
}

fn link_of(question: &Value) -> &str {
    question["params"]["url"].as_str().unwrap()
}

/// The tool that asks for another link.
fn sign_in() -> Value {
    let mut sign_in = call("again");
    sign_in["params"]["name"] = "sign_in".into();
    sign_in
}

/// The link in what the tool says.
async fn another_link(client: &Client) -> String {
    let told = client.send(&sign_in()).await.json();
    let words = text(&told).rsplit(' ').next().unwrap();
    leaks::note_url(words);
    words.to_owned()
}

// === With the API token alone ===

#[tokio::test]
async fn a_host_s_flow_is_answered_with_the_api_token_and_in_no_other_way() {
    let server = Guarded::start().await;
    let gateway = gateway(&server, Flow::Drive, |_| {}).await;
    let client = session(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    let state = state_of(&asked);
    let flow = flow_of(state);
    // The pages of managed sign-ins know nothing of it, whoever knows its id or its state.
    let start = format!("http://{}/oauth/start?flow={flow}", gateway.listen());
    assert_eq!(set_out(&start).await, Err(404));
    let page = visit(&gateway, &format!("/oauth/start?flow={flow}"), &[]).await;
    assert_eq!(page.status, 404);
    assert!(!page.text.contains(state), "{}", page.text);
    let cookie = format!("bowline-sign-in-{flow}=anything");
    for cookie in ["", &cookie] {
        assert_eq!(come_back(&gateway, state, cookie).await, 404);
    }
    // Its link has the state.
    let pending = "/api/mcp-oauth/pending";
    let wrong = [("authorization", "Bearer wrong")];
    for headers in [&[][..], &wrong] {
        let told = visit(&gateway, pending, headers).await;
        assert_eq!(told.status, 401);
        assert!(!told.text.contains(state), "{}", told.text);
    }
    let token = format!("Bearer {API_TOKEN}");
    let told = visit(&gateway, pending, &[("authorization", &token)]).await;
    assert!(told.text.contains(state), "{}", told.text);
    assert_eq!(server.token_requests().len(), 0);
    assert_eq!(pass_on(&gateway, state, "c").await, 200);
}

// === The kind of a flow ===

async fn on(redis: &Redis, server: &Guarded, flow: Flow) -> Gateway {
    gateway(server, flow, |config| config.store = in_redis(redis)).await
}

#[tokio::test]
async fn another_gateway_knows_whose_page_people_come_back_to() {
    let redis = Redis::start().await.unwrap();
    let server = Guarded::start().await;
    // Each is its own `public_url`.
    let one = on(&redis, &server, Flow::Managed).await;
    let other = on(&redis, &server, Flow::Managed).await;
    let client = session(&one, &json!({"url": {}})).await;
    let mut events = stream(&client, &call(1)).await;
    let link = link_of(&question(&mut events).await).to_owned();
    let beside = session(&other, &json!({"url": {}, "form": {}})).await;
    let mut others = stream(&beside, &call(1)).await;
    let asked = question(&mut others).await;
    assert_eq!(link_of(&asked), link);
    let (state, cookie) = set_out(&link).await.unwrap();
    assert!(!asked.to_string().contains(&state), "{asked}");
    // Only by the browser, at whichever of them.
    for gateway in [&one, &other] {
        assert_eq!(pass_on(gateway, &state, "c").await, 404);
        assert_eq!(come_back(gateway, &state, "").await, 404);
    }
    assert_eq!(server.token_requests().len(), 0);
    assert_eq!(come_back(&one, &state, &cookie).await, 200);
    for events in [&mut events, &mut others] {
        let (_, withdrawn) = events.next_message().await;
        assert_eq!(withdrawn["method"], "notifications/cancelled");
        assert_eq!(text(&events.next_message().await.1), "good-1");
    }
}

#[tokio::test]
async fn a_gateway_of_another_kind_replaces_a_flow_and_does_not_misread_it() {
    let redis = Redis::start().await.unwrap();
    let server = Guarded::start().await;
    let managed = on(&redis, &server, Flow::Managed).await;
    let driven = on(&redis, &server, Flow::Drive).await;
    let client = session(&managed, &json!({"url": {}})).await;
    let mut events = stream(&client, &call(1)).await;
    let link = link_of(&question(&mut events).await).to_owned();
    let (old, cookie) = set_out(&link).await.unwrap();
    // It is met here, too, and nobody but its browser answers it.
    assert_eq!(pass_on(&driven, &old, "c").await, 404);
    let host = session(&driven, &json!({})).await;
    let mut hosts = stream(&host, &call(1)).await;
    let asked = question(&mut hosts).await;
    assert_ne!(state_of(&asked), old);
    assert_eq!(come_back(&managed, &old, &cookie).await, 404);
    assert_eq!(pass_on(&managed, state_of(&asked), "c").await, 200);
    assert_eq!(server.token_requests().len(), 1);
}

#[tokio::test]
async fn a_flow_of_before_a_reload_is_not_taken_for_one_of_after_it() {
    let server = Guarded::start().await;
    let gateway = gateway(&server, Flow::Managed, |_| {}).await;
    let client = session(&gateway, &json!({"url": {}, "form": {}})).await;
    let mut events = stream(&client, &call(1)).await;
    let (old, cookie) = set_out(link_of(&question(&mut events).await))
        .await
        .unwrap();
    let mut config = crate::client::config(&[("s", &server.url)]);
    config.api_token = Some(KeyHash::of(API_TOKEN.as_bytes()));
    for server in config.servers.values_mut() {
        server.oauth = Some(oauth(Flow::Drive));
    }
    gateway.reload(config).unwrap();
    assert_eq!(pass_on(&gateway, &old, "c").await, 404);
    let later = session(&gateway, &json!({})).await;
    let mut others = stream(&later, &call(2)).await;
    let asked = question(&mut others).await;
    assert_ne!(state_of(&asked), old);
    assert_eq!(come_back(&gateway, &old, &cookie).await, 404);
    assert_eq!(pass_on(&gateway, state_of(&asked), "c").await, 200);
}

// === One flow of a caller at a server ===

#[tokio::test]
async fn a_replaced_flow_signs_nobody_in_and_declines_nothing() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let mut attacker = Browser::new();
    let old = attacker.open(&stage.link(&client).await).await;
    let link = another_link(&client).await;
    let issuer = stage.words.lock().authority.clone();
    let no = [
        ("state", &*old.state),
        ("error", "access_denied"),
        ("iss", &*issuer),
    ];
    // Neither while the new one waits,
    assert_eq!(stage.callback(&attacker, &no).await.status, 404);
    let page = stage.come_back(&attacker, &old.state, "attacker").await;
    assert_eq!(page.status, 404);
    assert_eq!(stage.link(&client).await, link);
    let mut owner = Browser::new();
    let new = owner.open(&link).await;
    let page = stage.come_back(&owner, &new.state, "owner").await;
    assert_eq!(page.status, 200);
    // nor once that is done.
    let page = stage.come_back(&attacker, &old.state, "attacker").await;
    assert_eq!(page.status, 404);
    assert_eq!(stage.callback(&attacker, &no).await.status, 404);
    assert_eq!(token_of(&client).await, "token-owner");
    assert_eq!(stage.token_requests(), 1);
}

#[tokio::test]
async fn a_flow_that_a_step_up_replaced_is_dead_too() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "first").await;
    let wanting = |scope: &str| {
        let challenge = format!(r#"Bearer error="insufficient_scope", scope="{scope}""#);
        stage.words.lock().never_enough = Some(challenge);
    };
    wanting("write");
    let mut attacker = Browser::new();
    let old = attacker.open(&stage.link(&client).await).await;
    wanting("admin");
    let mut owner = Browser::new();
    let new = owner.open(&stage.link(&client).await).await;
    assert_ne!(new.state, old.state);
    let page = stage.come_back(&attacker, &old.state, "attacker").await;
    assert_eq!(page.status, 404);
    let page = stage.come_back(&owner, &new.state, "owner").await;
    assert_eq!(page.status, 200);
    stage.words.lock().never_enough = None;
    assert_eq!(token_of(&client).await, "token-owner");
    assert_eq!(stage.token_requests(), 2);
}

#[tokio::test]
async fn an_exchange_that_is_overtaken_by_another_link_brings_nothing() {
    let server = Guarded::start().await;
    let gateway = gateway(&server, Flow::Managed, |_| {}).await;
    let client = session(&gateway, &Value::Null).await;
    let told = client.send(&call(1)).await.json();
    let link = told["error"]["data"]["url"].as_str().unwrap();
    let (old, cookie) = set_out(link).await.unwrap();
    server.hold_exchanges();
    let attacker = come_back(&gateway, &old, &cookie);
    let owner = async {
        until("the exchange", || server.held_exchanges() == 1).await;
        let link = another_link(&client).await;
        let (new, cookie) = set_out(&link).await.unwrap();
        let owner = come_back(&gateway, &new, &cookie);
        let both = async {
            until("both exchanges", || server.held_exchanges() == 2).await;
            server.let_exchanges_go();
        };
        tokio::join!(owner, both).0
    };
    let (attacker, owner) = tokio::join!(attacker, owner);
    assert_eq!((attacker, owner), (502, 200));
    // The owner's exchange was the second.
    assert_eq!(text(&client.send(&call(2)).await.json()), "good-2");
}

#[tokio::test]
async fn requests_wait_for_an_exchange_that_is_under_way() {
    let server = Guarded::start().await;
    let gateway = gateway(&server, Flow::Drive, |_| {}).await;
    let client = session(&gateway, &json!({})).await;
    let mut events = stream(&client, &call(1)).await;
    let asked = question(&mut events).await;
    server.hold_exchanges();
    let content = json!({"code": "the-code", "state": state_of(&asked)});
    let answer = json!({"action": "accept", "content": content});
    let answered = reply(&client, &asked, &answer);
    let meanwhile = async {
        until("the exchange", || server.held_exchanges() == 1).await;
        // The client was asked once, and is not asked for another sign-in.
        let mut later = stream(&client, &call(2)).await;
        server.let_exchanges_go();
        assert_eq!(text(&later.next_message().await.1), "good-1");
    };
    tokio::join!(answered, meanwhile);
    assert_eq!(text(&events.next_message().await.1), "good-1");
    assert_eq!(server.token_requests().len(), 1);
}

// === Who is counted ===

#[tokio::test]
async fn strangers_use_up_the_visits_of_nobody_who_is_known() {
    let server = Guarded::start().await;
    let gateway = gateway(&server, Flow::Drive, |config| {
        let key = KeyHash::of(b"the-key-of-ann");
        config
            .callers
            .insert("ann".parse().unwrap(), Caller { key });
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
    let begun = log.lines_with("sign-in begun");
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
    let server = Guarded::start().await;
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
    let server = Guarded::start().await;
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
