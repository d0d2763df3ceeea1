//! Servers that want a sign-in: the browser of this machine is opened once, and calls wait for it.

use std::path::Path;
use std::time::Duration;

use bowline::Bridge;
use bowline::config::{Config, StoreKind};
use bowline::login::GrantManager;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::kit::browser::Browser;
use crate::kit::gateway::{config, only};
use crate::kit::messages::list;
use crate::kit::protected::Protected;
use crate::kit::wait::until_so;
use crate::kit::wired::{Wired, call_of};

const SIGN_IN_NEEDED: i64 = -31003;

/// A person's machine: where grants are, and the links that were opened in a browser.
struct Machine {
    server: Protected,
    state: TempDir,
    open: mpsc::UnboundedSender<String>,
    opened: mpsc::UnboundedReceiver<String>,
}

impl Machine {
    async fn new() -> Self {
        let (open, opened) = mpsc::unbounded_channel();
        Self {
            server: Protected::alone().await,
            state: tempfile::tempdir().unwrap(),
            open,
            opened,
        }
    }

    fn config(&self) -> Config {
        let mut config = config(&[("s", &self.server.url())]);
        config.store.kind = kept_in(self.state.path());
        config
    }

    /// A client whose bridge can open a browser.
    async fn client(&self) -> Wired {
        self.client_with(self.config(), true, &json!({})).await
    }

    async fn client_with(&self, config: Config, has_browser: bool, capabilities: &Value) -> Wired {
        let (name, server) = config.servers.clone().pop_first().unwrap();
        let open = self.open.clone();
        let browser: bowline::OpenBrowser =
            Box::new(move |link| open.send(link.to_owned()).is_ok());
        let browser = Some(browser).filter(|_| has_browser);
        let bridge = Bridge::start(config, name, server, browser).await;
        let mut client = Wired::of(bridge.unwrap());
        client.begin_with("2025-11-25", capabilities).await;
        client
    }

    /// The next link that is opened in a browser.
    async fn next_link(&mut self) -> String {
        let link = tokio::time::timeout(Duration::from_secs(30), self.opened.recv()).await;
        link.expect("a browser in time").unwrap()
    }

    /// Whether no browser was opened that nobody has looked at.
    fn is_quiet(&mut self) -> bool {
        self.opened.try_recv().is_err()
    }
}

fn kept_in(directory: &Path) -> StoreKind {
    StoreKind::File {
        path: directory.to_owned(),
    }
}

/// Follows a link to the authorization server; where its answer goes.
async fn follow(link: &str) -> (String, String) {
    let led = Browser::new().get(link).await;
    assert_eq!(led.status, 303, "{}", led.text);
    let location = led.headers["location"].to_str().unwrap();
    bowline_testbed::leaks::note_url(location);
    let url = url::Url::parse(location).unwrap();
    let of = |name: &str| {
        let mut query = url.query_pairs();
        query.find(|(it, _)| it == name).unwrap().1.into_owned()
    };
    (of("redirect_uri"), of("state"))
}

/// Signs in with a link; the page that the browser shows last.
async fn sign_in(link: &str) -> String {
    let (back, state) = follow(link).await;
    let answer = [("state", state.as_str()), ("code", "c")];
    let back = url::Url::parse_with_params(&back, answer).unwrap();
    let page = Browser::new().get(back.as_str()).await;
    assert_eq!(page.status, 200, "{}", page.text);
    page.text
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
}

fn whoami(id: i64) -> Value {
    call_of(id, "whoami", &json!({}))
}

#[tokio::test]
async fn calls_wait_for_one_sign_in_in_one_browser() {
    let mut machine = Machine::new().await;
    let mut client = machine.client().await;
    client.say(&whoami(1)).await;
    client.say(&whoami(2)).await;
    let link = machine.next_link().await;
    // The link has no secret, because all users can see the arguments of a browser.
    assert!(!link.contains("state"), "{link}");
    client.say(&whoami(3)).await;
    assert!(sign_in(&link).await.contains("signed in"));
    for id in 1..=3 {
        assert_eq!(text(&client.answer_to(&json!(id)).await), "good-1");
    }
    assert!(machine.is_quiet());
    assert_eq!(machine.server.tool_calls(), 3);
}

#[tokio::test]
async fn a_second_bridge_uses_the_sign_in_of_the_first_and_opens_no_browser() {
    let mut machine = Machine::new().await;
    let (mut one, mut other) = (machine.client().await, machine.client().await);
    one.say(&whoami(1)).await;
    let link = machine.next_link().await;
    other.say(&whoami(1)).await;
    // It has a link of its own by then.
    until_so("two registrations", async || {
        machine.server.registrations() == 2
    })
    .await;
    sign_in(&link).await;
    for client in [&mut one, &mut other] {
        assert_eq!(text(&client.answer_to(&json!(1)).await), "good-1");
    }
    assert!(machine.is_quiet());
    assert_eq!(machine.server.token_requests().len(), 1);
}

#[tokio::test]
async fn the_next_bridge_opens_the_browser_if_the_first_is_gone() {
    let mut machine = Machine::new().await;
    let (mut one, mut other) = (machine.client().await, machine.client().await);
    one.say(&whoami(1)).await;
    let dead = machine.next_link().await;
    other.say(&whoami(1)).await;
    one.stop();
    one.ended().await;
    let link = machine.next_link().await;
    assert_ne!(link, dead);
    sign_in(&link).await;
    assert_eq!(text(&other.answer_to(&json!(1)).await), "good-1");
}

#[tokio::test]
async fn a_login_on_the_command_line_ends_the_wait() {
    let mut machine = Machine::new().await;
    let mut client = machine.client().await;
    client.say(&whoami(1)).await;
    machine.next_link().await;
    let config = machine.config();
    let desk = GrantManager::open(&config).await.unwrap();
    let (_, server) = config.servers.first_key_value().unwrap();
    let login = desk.begin("s", server).await.unwrap();
    let link = login.browser_link().unwrap().to_owned();
    let (finished, _) = tokio::join!(login.finish(), sign_in(&link));
    finished.unwrap();
    assert_eq!(text(&client.answer_to(&json!(1)).await), "good-1");
    // The next bridge finds the token there.
    let mut next = machine.client().await;
    assert_eq!(text(&next.ask(&whoami(1)).await), "good-1");
    assert!(machine.is_quiet());
}

#[tokio::test]
async fn a_client_whose_user_takes_long_gets_the_link_and_hears_of_the_sign_in() {
    let mut machine = Machine::new().await;
    let mut config = machine.config();
    config.oauth.hold = Duration::from_secs(2);
    let mut client = machine.client_with(config, true, &json!({})).await;
    let refused = client.ask(&whoami(1)).await;
    let link = machine.next_link().await;
    assert_eq!(refused["error"]["code"], SIGN_IN_NEEDED);
    assert_eq!(refused["error"]["data"]["url"], link);
    let listed = client.ask(&list(2)).await;
    assert_eq!(listed["result"]["tools"][0]["name"], "sign_in");
    let tool = client.ask(&call_of(3, "sign_in", &json!({}))).await;
    assert!(text(&tool).contains(&link), "{tool}");
    // The flow is still that of the first request.
    assert!(machine.is_quiet());
    sign_in(&link).await;
    client.hear_of("notifications/tools/list_changed").await;
    assert_eq!(text(&client.ask(&whoami(4)).await), "good-1");
}

#[tokio::test]
async fn a_ping_asks_nobody_to_sign_in() {
    let mut machine = Machine::new().await;
    let mut client = machine.client().await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(client.ask(&ping).await["result"], json!({}));
    assert!(machine.is_quiet());
    assert_eq!(machine.server.registrations(), 0);
}

#[tokio::test]
async fn without_a_browser_the_client_shows_the_link() {
    let machine = Machine::new().await;
    let elicits = json!({"elicitation": {"url": {}}});
    let config = machine.config();
    let mut client = machine.client_with(config, false, &elicits).await;
    client.say(&whoami(1)).await;
    let asked = client.hear_of("elicitation/create").await;
    let link = asked["params"]["url"].as_str().unwrap();
    sign_in(link).await;
    assert_eq!(text(&client.answer_to(&json!(1)).await), "good-1");
    // A client that can show nothing gets it as an error.
    let other = Machine::new().await;
    let config = other.config();
    let mut client = other.client_with(config, false, &json!({})).await;
    let refused = client.ask(&whoami(1)).await;
    assert_eq!(refused["error"]["code"], SIGN_IN_NEEDED);
    let link = refused["error"]["data"]["url"].as_str().unwrap();
    sign_in(link).await;
    client.hear_of("notifications/tools/list_changed").await;
    assert_eq!(text(&client.ask(&whoami(2)).await), "good-1");
}

#[tokio::test]
async fn a_client_that_leaves_during_a_sign_in_takes_the_listener_with_it() {
    let mut machine = Machine::new().await;
    let mut client = machine.client().await;
    client.say(&whoami(1)).await;
    let link = machine.next_link().await;
    let (back, _) = follow(&link).await;
    client.stop();
    client.ended().await;
    assert!(reqwest::get(back).await.unwrap_err().is_connect());
}

#[tokio::test]
async fn a_no_is_remembered_until_the_tool_is_called() {
    let mut machine = Machine::new().await;
    let mut client = machine.client().await;
    client.say(&whoami(1)).await;
    let (back, state) = follow(&machine.next_link().await).await;
    let no = [("state", state.as_str()), ("error", "access_denied")];
    let back = url::Url::parse_with_params(&back, no).unwrap();
    Browser::new().get(back.as_str()).await;
    let refused = client.answer_to(&json!(1)).await;
    assert_eq!(refused["error"]["code"], SIGN_IN_NEEDED, "{refused}");
    let refused = client.ask(&whoami(2)).await;
    assert_eq!(refused["error"]["code"], SIGN_IN_NEEDED, "{refused}");
    assert!(machine.is_quiet());
    client.ask(&call_of(3, "sign_in", &json!({}))).await;
    sign_in(&machine.next_link().await).await;
    assert_eq!(text(&client.ask(&whoami(4)).await), "good-1");
}

/// What failed fails again, so neither every call nor every use of the tool opens a browser.
#[tokio::test]
async fn a_sign_in_that_fails_opens_no_second_browser_for_a_while() {
    let mut machine = Machine::new().await;
    let mut client = machine.client().await;
    client.say(&whoami(1)).await;
    let (back, state) = follow(&machine.next_link().await).await;
    let failed = [("state", state.as_str()), ("error", "server_error")];
    let back = url::Url::parse_with_params(&back, failed).unwrap();
    Browser::new().get(back.as_str()).await;
    client.answer_to(&json!(1)).await;
    for id in 2..10 {
        let refused = client.ask(&whoami(id)).await;
        assert_eq!(refused["error"]["code"], SIGN_IN_NEEDED, "{refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("server_error"), "{message}");
    }
    for id in 10..13 {
        let tool = client.ask(&call_of(id, "sign_in", &json!({}))).await;
        assert_eq!(tool["result"]["isError"], true, "{tool}");
        let said = text(&tool);
        assert!(said.contains("server_error"), "{said}");
        assert!(said.contains("it can be tried again in "), "{said}");
    }
    assert!(machine.is_quiet());
}

/// The grant that is refused is no sign-in by somebody else.
#[tokio::test]
async fn a_token_that_the_server_takes_no_more_is_asked_for_in_a_browser_again() {
    let mut machine = Machine::new().await;
    let mut client = machine.client().await;
    client.say(&whoami(1)).await;
    sign_in(&machine.next_link().await).await;
    assert_eq!(text(&client.answer_to(&json!(1)).await), "good-1");
    machine.server.words.lock().only_token = Some("good-2".to_owned());
    client.say(&whoami(2)).await;
    let (back, state) = follow(&machine.next_link().await).await;
    // The token is not sent any more, and the next call knows of it all the same.
    let no = [("state", state.as_str()), ("error", "access_denied")];
    let back = url::Url::parse_with_params(&back, no).unwrap();
    Browser::new().get(back.as_str()).await;
    client.answer_to(&json!(2)).await;
    client.say(&call_of(3, "sign_in", &json!({}))).await;
    sign_in(&machine.next_link().await).await;
    client.answer_to(&json!(3)).await;
    assert_eq!(text(&client.ask(&whoami(4)).await), "good-2");
    assert!(machine.is_quiet());
}

#[tokio::test]
async fn a_server_that_accepts_no_token_opens_one_browser() {
    let mut machine = Machine::new().await;
    machine.server.words.lock().only_token = Some("none".to_owned());
    let mut client = machine.client().await;
    client.say(&whoami(1)).await;
    sign_in(&machine.next_link().await).await;
    client.answer_to(&json!(1)).await;
    for id in 2..5 {
        let refused = client.ask(&whoami(id)).await;
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("does not accept its token"), "{message}");
        client.ask(&call_of(10 + id, "sign_in", &json!({}))).await;
    }
    assert!(machine.is_quiet());
}

#[tokio::test]
async fn more_scopes_are_asked_for_in_a_browser_and_serve_a_second_bridge() {
    let mut machine = Machine::new().await;
    let (mut one, mut other) = (machine.client().await, machine.client().await);
    one.say(&whoami(1)).await;
    sign_in(&machine.next_link().await).await;
    assert_eq!(text(&one.answer_to(&json!(1)).await), "good-1");
    assert_eq!(text(&other.ask(&whoami(1)).await), "good-1");
    let wanting = r#"Bearer error="insufficient_scope", scope="write""#;
    machine.server.words.lock().never_enough = Some(wanting.to_owned());
    one.say(&whoami(2)).await;
    let link = machine.next_link().await;
    let refused = machine.server.server.seen().len();
    other.say(&whoami(2)).await;
    until_so("both were refused", async || {
        machine.server.server.seen().len() > refused
    })
    .await;
    machine.server.words.lock().never_enough = None;
    sign_in(&link).await;
    for client in [&mut one, &mut other] {
        assert_eq!(text(&client.answer_to(&json!(2)).await), "good-2");
    }
    assert!(machine.is_quiet());
}

#[tokio::test]
async fn a_wrong_state_ends_no_sign_in_and_is_named() {
    let mut machine = Machine::new().await;
    let mut config = machine.config();
    config.oauth.hold = Duration::from_secs(4);
    let mut client = machine.client_with(config, true, &json!({})).await;
    client.say(&whoami(1)).await;
    let link = machine.next_link().await;
    let (back, _) = follow(&link).await;
    let forged = [("state", "forged"), ("code", "c")];
    let back = url::Url::parse_with_params(&back, forged).unwrap();
    let page = Browser::new().get(back.as_str()).await;
    assert_eq!(page.status, 400);
    assert!(page.text.contains("<code>state</code>"), "{}", page.text);
    let refused = client.answer_to(&json!(1)).await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("wrong `state`"), "{message}");
    sign_in(&link).await;
    assert_eq!(text(&client.ask(&whoami(2)).await), "good-1");
}

#[tokio::test]
async fn a_sign_in_that_nobody_finishes_ends_at_its_deadline() {
    let mut machine = Machine::new().await;
    let mut config = machine.config();
    config.oauth.deadline = Duration::from_secs(4);
    let mut client = machine.client_with(config, true, &json!({})).await;
    let refused = client.ask(&whoami(1)).await;
    assert_eq!(refused["error"]["code"], SIGN_IN_NEEDED, "{refused}");
    let link = machine.next_link().await;
    // The next call begins another one.
    client.say(&whoami(2)).await;
    assert_ne!(machine.next_link().await, link);
}

#[tokio::test]
async fn a_key_of_the_servers_own_takes_the_place_of_a_sign_in() {
    let mut machine = Machine::new().await;
    let mut config = machine.config();
    let key = bowline::config::Header::parse("Authorization: Bearer wrong", &|_| None).unwrap();
    only(&mut config).set_headers(&[key]).unwrap();
    let (name, server) = config.servers.clone().pop_first().unwrap();
    let open = machine.open.clone();
    let browser: bowline::OpenBrowser = Box::new(move |link| open.send(link.to_owned()).is_ok());
    let bridge = Bridge::start(config, name, server, Some(browser)).await;
    let mut client = Wired::of(bridge.unwrap());
    let opened = client.begin().await;
    assert!(opened["error"].is_object(), "{opened}");
    assert!(machine.is_quiet());
}

#[tokio::test]
async fn eight_bridges_with_one_token_that_is_refused_refresh_it_once() {
    let mut machine = Machine::new().await;
    machine.server.words.lock().refresh_token = Some("renews".to_owned());
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(machine.client().await);
    }
    clients[0].say(&whoami(1)).await;
    sign_in(&machine.next_link().await).await;
    clients[0].answer_to(&json!(1)).await;
    for client in &mut clients {
        assert_eq!(text(&client.ask(&whoami(2)).await), "good-1");
    }
    machine.server.words.lock().only_token = Some("good-2".to_owned());
    for client in &mut clients {
        client.say(&whoami(3)).await;
    }
    for client in &mut clients {
        assert_eq!(text(&client.answer_to(&json!(3)).await), "good-2");
    }
    assert_eq!(machine.server.token_requests().len(), 2);
    assert!(machine.is_quiet());
}
