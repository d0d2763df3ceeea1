//! A server that lets nobody in without a token, with its authorization server at the same address, and
//! clients that can be asked to sign in there.

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline::Gateway;
use bowline::config::{Config, Flow, KeyHash, ServerOAuth};
use bowline_testbed::leaks::{self, Scan};
use bowline_testbed::scripted::{Asked, Pen, Scripted};
use http::HeaderValue;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::client::{Client, Events, config, read};

/// What it takes for an access token: whatever begins like this.
pub(crate) const GOOD: &str = "good-";
/// Where people come back to in drive-flow.
pub(crate) const REDIRECT: &str = "http://127.0.0.1:9/done";
pub(crate) const API_TOKEN: &str = "the-api-token";

/// The server, and what it was asked.
pub(crate) struct Guarded {
    pub(crate) url: String,
    pub(crate) issuer: String,
    book: Arc<Mutex<Book>>,
    _scan: Scan,
    _serving: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Book {
    token_requests: Vec<BTreeMap<String, String>>,
    registrations: usize,
    tool_calls: usize,
    /// Whether exchanges are held, and those that are.
    is_holding: bool,
    held: Vec<Asked>,
    /// Whether calls and GET are answered with streams that nobody ends, and those.
    is_streaming: bool,
    streams: Vec<Pen>,
}

impl Guarded {
    pub(crate) async fn start() -> Self {
        Self::start_as(true).await
    }

    /// One whose authorization server registers clients, or does not.
    pub(crate) async fn start_as(registers: bool) -> Self {
        let scan = Scan::begin();
        let mut script = Scripted::start().await;
        let url = script.url().to_owned();
        let issuer = url.replace("/mcp", "");
        let book = Arc::new(Mutex::new(Book::default()));
        let (own, at) = (Arc::clone(&book), issuer.clone());
        let serving = TaskTracker::new().spawn(async move {
            loop {
                answer(script.next().await, &at, registers, &own);
            }
        });
        Self {
            url,
            issuer,
            book,
            _scan: scan,
            _serving: AbortOnDropHandle::new(serving),
        }
    }

    /// The forms that came to the token endpoint.
    pub(crate) fn token_requests(&self) -> Vec<BTreeMap<String, String>> {
        self.book.lock().token_requests.clone()
    }

    /// Answers no token request from now on.
    pub(crate) fn hold_exchanges(&self) {
        self.book.lock().is_holding = true;
    }

    /// How many token requests wait for their answers.
    pub(crate) fn held_exchanges(&self) -> usize {
        self.book.lock().held.len()
    }

    /// Answers the token requests that wait, and those to come.
    pub(crate) fn let_exchanges_go(&self) {
        let held = {
            let mut book = self.book.lock();
            book.is_holding = false;
            std::mem::take(&mut book.held)
        };
        for asked in held {
            exchange(asked, &self.book);
        }
    }

    /// Answers calls and GET with streams that it does not end, from now on.
    pub(crate) fn stream(&self) {
        self.book.lock().is_streaming = true;
    }

    /// How many of them somebody reads.
    pub(crate) fn open_streams(&self) -> usize {
        let book = self.book.lock();
        book.streams.iter().filter(|pen| pen.is_open()).count()
    }

    pub(crate) fn registrations(&self) -> usize {
        self.book.lock().registrations
    }

    pub(crate) fn tool_calls(&self) -> usize {
        self.book.lock().tool_calls
    }
}

fn answer(asked: Asked, issuer: &str, registers: bool, book: &Mutex<Book>) {
    let json = [("content-type", "application/json")];
    let path = asked.target.split('?').next().unwrap().to_owned();
    match path.as_str() {
        "/.well-known/oauth-protected-resource/mcp" => {
            let document =
                json!({"resource": format!("{issuer}/mcp"), "authorization_servers": [issuer]});
            asked.reply(200, &json, document.to_string());
        }
        "/.well-known/oauth-authorization-server" => {
            let mut document = json!({
                "issuer": issuer,
                "authorization_endpoint": format!("{issuer}/authorize"),
                "token_endpoint": format!("{issuer}/token"),
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["client_secret_post", "none"],
            });
            if registers {
                document["registration_endpoint"] = format!("{issuer}/register").into();
            }
            asked.reply(200, &json, document.to_string());
        }
        "/register" => {
            book.lock().registrations += 1;
            let mut client = asked.json();
            client["client_id"] = "registered".into();
            asked.reply(201, &json, client.to_string());
        }
        "/token" if book.lock().is_holding => book.lock().held.push(asked),
        "/token" => exchange(asked, book),
        "/mcp" => mcp(asked, book),
        _ => asked.reply(404, &[], ""),
    }
}

fn exchange(asked: Asked, book: &Mutex<Book>) {
    let form: BTreeMap<String, String> = url::form_urlencoded::parse(&asked.body)
        .into_owned()
        .collect();
    for name in ["code", "code_verifier", "client_secret", "refresh_token"] {
        leaks::note(name, form.get(name).map_or("", String::as_str));
    }
    let number = {
        let mut book = book.lock();
        book.token_requests.push(form);
        book.token_requests.len()
    };
    let token = format!("{GOOD}{number}");
    leaks::note("token", &token);
    let tokens = json!({"access_token": token, "token_type": "Bearer", "expires_in": 3600});
    let json = [("content-type", "application/json")];
    asked.reply(200, &json, tokens.to_string());
}

fn mcp(asked: Asked, book: &Mutex<Book>) {
    let bearer = asked.header("authorization").to_owned();
    if !bearer.starts_with(&format!("Bearer {GOOD}")) {
        asked.reply(401, &[("www-authenticate", "Bearer realm=\"mcp\"")], "");
        return;
    }
    match (asked.method.as_str(), asked.rpc_method().as_str()) {
        ("POST", "initialize") => asked.initialized(Some("upstream")),
        ("POST", "tools/call") | ("GET", _) if book.lock().is_streaming => {
            let mut pen = asked.events();
            pen.write(": here\n\n");
            book.lock().streams.push(pen);
        }
        ("POST", "tools/call") => {
            book.lock().tool_calls += 1;
            let text = bearer.trim_start_matches("Bearer ");
            asked.result(&json!({"content": [{"type": "text", "text": text}]}));
        }
        ("POST", _) => asked.reply(202, &[], ""),
        _ => asked.reply(405, &[], ""),
    }
}

/// How people sign in, by the flow's name: with nothing else configured.
pub(crate) fn oauth(flow: Flow) -> ServerOAuth {
    match flow {
        Flow::Drive => ServerOAuth::drive(REDIRECT.parse().unwrap()),
        flow => ServerOAuth {
            flow,
            ..ServerOAuth::default()
        },
    }
}

/// A gateway before it.
pub(crate) async fn gateway(
    server: &Guarded,
    flow: Flow,
    change: impl FnOnce(&mut Config),
) -> Gateway {
    let mut config = config(&[("s", &server.url)]);
    config.api_token = Some(KeyHash::of(API_TOKEN.as_bytes()));
    for server in config.servers.values_mut() {
        server.oauth = Some(oauth(flow));
    }
    change(&mut config);
    Gateway::start(config).await.unwrap()
}

/// A session of a client that can be asked like this.
pub(crate) async fn session(gateway: &Gateway, elicitation: &Value) -> Client {
    let mut client = Client::new(gateway);
    let message = initialize(elicitation);
    let opened = read(client.post(&message).send().await.unwrap()).await;
    assert_eq!(opened.status, 200, "{}", opened.text);
    client.session = opened.headers.get("mcp-session-id").cloned();
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(client.send(&initialized).await.status, 202);
    client
}

pub(crate) fn initialize(elicitation: &Value) -> Value {
    let mut capabilities = json!({});
    if !elicitation.is_null() {
        capabilities["elicitation"] = elicitation.clone();
    }
    json!({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "clientInfo": {"name": "test", "version": "1"},
    }})
}

/// Sends a request whose answer streams.
pub(crate) async fn stream(client: &Client, message: &Value) -> Events {
    Events::new(client.post(message).send().await.unwrap())
}

/// The next message, which has to be a question.
pub(crate) async fn question(events: &mut Events) -> Value {
    let (_, question) = events.next_message().await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let params = &question["params"];
    let meta = &params["_meta"];
    for (kind, secret) in [
        ("flow", &params["elicitationId"]),
        ("state", &meta["bowline/state"]),
    ] {
        leaks::note(kind, secret.as_str().unwrap_or_default());
    }
    for url in [&params["url"], &meta["bowline/authorize_url"]] {
        leaks::note_url(url.as_str().unwrap_or_default());
    }
    question
}

/// Answers a question.
pub(crate) async fn reply(client: &Client, question: &Value, result: &Value) {
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
    for name in ["access_token", "refresh_token", "client_secret"] {
        leaks::note(name, result["content"][name].as_str().unwrap_or_default());
    }
    assert_eq!(client.send(&answer).await.status, 202);
}

pub(crate) fn accept(content: &Value) -> Value {
    json!({"action": "accept", "content": content})
}

/// The text of a tool's result.
pub(crate) fn text(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("not a result: {answer}"))
}

/// Passes an authorization server's answer on; the status.
pub(crate) async fn pass_on(gateway: &Gateway, state: &str, code: &str) -> u16 {
    let at = gateway.listen();
    let url = format!("http://{at}/api/mcp-oauth/callback?state={state}&code={code}");
    let sent = reqwest::Client::new()
        .post(url)
        .bearer_auth(API_TOKEN)
        .send();
    sent.await.unwrap().status().as_u16()
}

/// Does what a person's browser does with a link to the start page; the last status.
pub(crate) async fn browse(gateway: &Gateway, link: &str) -> u16 {
    match set_out(link).await {
        Ok((state, cookie)) => come_back(gateway, &state, &cookie).await,
        Err(status) => status,
    }
}

/// Opens the start page: the state that goes to the authorization server, and the cookie. The status,
/// if there is no such page.
pub(crate) async fn set_out(link: &str) -> Result<(String, String), u16> {
    let follows_nothing = reqwest::redirect::Policy::none();
    let browser = reqwest::Client::builder().redirect(follows_nothing).build();
    let page = browser.unwrap().post(link).send().await.unwrap();
    if page.status() != 303 {
        return Err(page.status().as_u16());
    }
    let cookie: HeaderValue = page.headers()["set-cookie"].clone();
    let cookie = cookie
        .to_str()
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let location = page.headers()["location"].to_str().unwrap();
    leaks::note("cookie", cookie.split('=').nth(1).unwrap_or_default());
    leaks::note_url(location);
    Ok((query(location, "state"), cookie))
}

/// Comes back from the authorization server with this cookie; the status.
pub(crate) async fn come_back(gateway: &Gateway, state: &str, cookie: &str) -> u16 {
    let at = gateway.listen();
    let back = format!("http://{at}/oauth/callback?state={state}&code=the-code");
    let request = reqwest::Client::new().get(back).header("cookie", cookie);
    request.send().await.unwrap().status().as_u16()
}

/// A value in a URL's query.
pub(crate) fn query(url: &str, name: &str) -> String {
    let url = url::Url::parse(url).unwrap();
    let mut pairs = url.query_pairs();
    let found = pairs.find(|(known, _)| known == name);
    found
        .unwrap_or_else(|| panic!("no {name} in {url}"))
        .1
        .into()
}
