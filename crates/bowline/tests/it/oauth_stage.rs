//! A gateway before a server that wants its callers signed in, with an authorization server and
//! browsers. What the two servers publish and say is the test's to twist.

use std::collections::HashMap;
use std::sync::Arc;

use bowline::Gateway;
use bowline::config::{Config, ServerOAuth};
use bowline_testbed::answering::{Answering, Said, Seen};
use bowline_testbed::leaks::{self, Scan};
use bowline_testbed::scripted::initialize_result;
use parking_lot::Mutex;
use reqwest::redirect::Policy;
use serde_json::{Value, json};
use url::Url;

use crate::client::{Answer, Client, call, config, read};

const RESOURCE: &str = "/.well-known/oauth-protected-resource/mcp";
const AUTHORITY: &str = "/.well-known/oauth-authorization-server";

/// Everything from the client to the authorization server.
pub(crate) struct OAuthStage {
    pub(crate) server: Answering,
    pub(crate) authority: Answering,
    /// Somebody who is not to hear of anything.
    pub(crate) stranger: Answering,
    pub(crate) words: Arc<Mutex<Words>>,
    pub(crate) gateway: Gateway,
    _scan: Scan,
}

/// What the server and its authorization server say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    /// The origins of both, and the stranger's.
    pub(crate) server: String,
    pub(crate) authority: String,
    pub(crate) stranger: String,
    /// `WWW-Authenticate` of the server's 401.
    pub(crate) challenge: String,
    /// The server's own document, and the authorization server's.
    pub(crate) resource: Value,
    pub(crate) metadata: Value,
    /// Where a path leads instead, at either server.
    pub(crate) redirects: HashMap<&'static str, String>,
    /// `WWW-Authenticate` of a 403 to every call of a tool.
    pub(crate) never_enough: Option<String>,
    /// The only token that the server takes; any, if there is none.
    pub(crate) only_token: Option<String>,
    /// The id that whoever registers next gets, and those that nobody knows any more.
    pub(crate) client_id: String,
    pub(crate) forgotten: Vec<String>,
    /// The refresh token that comes with every access token.
    pub(crate) refresh_token: Option<String>,
    /// How many seconds tokens live that can be renewed; others live for an hour.
    pub(crate) expires_in: Option<u64>,
}

/// A browser with cookies of its own. It follows nothing by itself.
#[derive(Clone)]
pub(crate) struct Browser {
    http: reqwest::Client,
    cookies: HashMap<String, String>,
}

/// A start page that was opened.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) authorize_url: Url,
    pub(crate) state: String,
}

impl OAuthStage {
    pub(crate) async fn set() -> Self {
        Self::set_with(|_| {}, |_| {}).await
    }

    /// With words as the test wants them.
    pub(crate) async fn saying(twist: impl FnOnce(&mut Words)) -> Self {
        Self::set_with(twist, |_| {}).await
    }

    /// With words and a configuration as the test wants them.
    pub(crate) async fn set_with(
        twist: impl FnOnce(&mut Words),
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let scan = Scan::begin();
        let words: Arc<Mutex<Words>> = Arc::default();
        let says = |rule: fn(&Words, &Seen) -> Said| {
            let words = Arc::clone(&words);
            move |seen: &Seen| rule(&words.lock(), seen)
        };
        let server = Answering::start(says(server_says)).await;
        let authority = Answering::start(says(authority_says)).await;
        let stranger = Answering::start(|_: &Seen| Said::json(&json!({}))).await;
        {
            let mut words = words.lock();
            *words = Words::honest(&server, &authority, &stranger);
            twist(&mut words);
        }
        let mut config = config(&[("s", &format!("http://{}/mcp", server.address()))]);
        let configured = config.servers.values_mut().next().unwrap();
        configured.oauth = Some(ServerOAuth::default());
        change(&mut config);
        Self {
            server,
            authority,
            stranger,
            words,
            gateway: Gateway::start(config).await.unwrap(),
            _scan: scan,
        }
    }

    /// A client of the caller with this key, whose session is open.
    pub(crate) async fn client(&self, key: Option<&'static str>) -> Client {
        let mut client = Client::new(&self.gateway);
        client.key = key;
        assert_eq!(client.initialize().await.status, 200);
        client
    }

    /// Where the client's user has to sign in.
    pub(crate) async fn link(&self, client: &Client) -> String {
        let answer = client.send(&call(1)).await;
        assert_eq!(answer.code(), -31003, "{}", answer.text);
        let link = answer.json()["error"]["data"]["url"].clone();
        leaks::note_url(link.as_str().expect(&answer.text));
        link.as_str().expect(&answer.text).to_owned()
    }

    /// Why the client's user cannot sign in.
    pub(crate) async fn refusal(&self, client: &Client) -> String {
        let answer = client.send(&call(1)).await;
        assert_eq!(answer.code(), -31003, "{}", answer.text);
        let error = &answer.json()["error"];
        let is_offered = !error["data"]["url"].is_null();
        assert!(!is_offered, "{}", self.words.lock().metadata);
        error["message"].as_str().unwrap().to_owned()
    }

    /// The client's user signs in, and is known by `code` from then on.
    pub(crate) async fn sign_in(&self, client: &Client, code: &str) {
        let mut browser = Browser::new();
        let opened = browser.open(&self.link(client).await).await;
        let page = self.come_back(&browser, &opened.state, code).await;
        assert_eq!(page.status, 200, "{}", page.text);
    }

    /// The authorization server sends a browser back.
    pub(crate) async fn come_back(&self, browser: &Browser, state: &str, code: &str) -> Answer {
        let issuer = self.words.lock().authority.clone();
        let query = [("state", state), ("code", code), ("iss", &issuer)];
        self.callback(browser, &query).await
    }

    /// A browser comes to the callback with this query.
    pub(crate) async fn callback(&self, browser: &Browser, query: &[(&str, &str)]) -> Answer {
        let url = format!("http://{}/oauth/callback", self.gateway.listen());
        let url = Url::parse_with_params(&url, query).unwrap();
        browser.get(url.as_str()).await
    }

    /// That no token went along with a session or with cookies of another's.
    pub(crate) fn accounts_are_apart(&self) {
        for seen in self.server.seen_at("/mcp") {
            let Some(token) = seen.header("authorization").strip_prefix("Bearer ") else {
                continue;
            };
            let own = format!("of-{token}");
            let (session, cookie) = (seen.header("mcp-session-id"), seen.header("cookie"));
            assert!(
                session.is_empty() || session == own,
                "{seen}: {session}, {own}"
            );
            let cookie = cookie.trim_start_matches("stays-here=");
            assert!(
                cookie.is_empty() || cookie == own,
                "{seen}: {cookie}, {own}"
            );
        }
    }

    /// How often tokens were asked for.
    pub(crate) fn token_requests(&self) -> usize {
        self.authority.seen_at("/token").len()
    }
}

/// The token with which a call of `t` went to the server.
pub(crate) async fn token_of(client: &Client) -> String {
    let answer = client.send(&call(1)).await;
    let text = answer.json()["result"]["content"][0]["text"].clone();
    text.as_str().expect(&answer.text).to_owned()
}

fn server_says(words: &Words, seen: &Seen) -> Said {
    if let Some(there) = words.redirects.get(seen.path()) {
        return Said::status(307).with("location", there);
    }
    if seen.path() == RESOURCE {
        return Said::json(&words.resource);
    }
    if seen.path() != "/mcp" || seen.method != "POST" {
        return Said::status(404);
    }
    let token = seen.header("authorization").strip_prefix("Bearer ");
    let is_good = |token: &&str| {
        words
            .only_token
            .as_deref()
            .is_none_or(|only| only == *token)
    };
    let Some(token) = token.filter(is_good) else {
        return Said::status(401).with("www-authenticate", &words.challenge);
    };
    let method = seen.json()["method"].clone();
    if method == "initialize" {
        let said = seen.result(&initialize_result());
        return said
            .with("mcp-session-id", &format!("of-{token}"))
            .with("set-cookie", &format!("stays-here=of-{token}; Path=/"));
    }
    if let Some(challenge) = words
        .never_enough
        .as_ref()
        .filter(|_| method == "tools/call")
    {
        return Said::status(403).with("www-authenticate", challenge);
    }
    seen.result(&json!({"content": [{"type": "text", "text": token}]}))
}

fn authority_says(words: &Words, seen: &Seen) -> Said {
    if let Some(there) = words.redirects.get(seen.path()) {
        return Said::status(307).with("location", there);
    }
    match seen.path() {
        AUTHORITY => Said::json(&words.metadata),
        "/register" => {
            let redirect_uris = &seen.json()["redirect_uris"];
            Said::json(&json!({"client_id": words.client_id, "redirect_uris": redirect_uris}))
        }
        "/token" => {
            let form: HashMap<_, _> = url::form_urlencoded::parse(seen.body.as_bytes())
                .into_owned()
                .collect();
            let client = form.get("client_id").cloned().unwrap_or_default();
            if words.forgotten.contains(&client) {
                return Said::json(&json!({"error": "invalid_client"})).instead(401);
            }
            // Whose it is, also when it is renewed.
            let renewed = form.get("refresh_token");
            let renewed = renewed.and_then(|token| token.strip_prefix("renews-"));
            let whose = form.get("code").map(String::as_str).or(renewed);
            let whose = whose.unwrap_or_default().to_owned();
            let token = format!("token-{whose}");
            leaks::note("token", &token);
            for name in ["code", "code_verifier", "client_secret", "refresh_token"] {
                leaks::note(name, form.get(name).map_or("", String::as_str));
            }
            let expires_in = words.expires_in.unwrap_or(3600);
            let mut tokens =
                json!({"access_token": token, "token_type": "Bearer", "expires_in": expires_in});
            let renews = words.expires_in.map(|_| format!("renews-{whose}"));
            if let Some(refresh_token) = words.refresh_token.clone().or(renews) {
                tokens["refresh_token"] = json!(refresh_token);
            }
            Said::json(&tokens)
        }
        "/revoke" => Said::json(&json!({})),
        _ => Said::status(404),
    }
}

// === impl Words ===

impl Words {
    fn honest(server: &Answering, authority: &Answering, stranger: &Answering) -> Self {
        let origin = |of: &Answering| format!("http://{}", of.address());
        let (server, authority) = (origin(server), origin(authority));
        Self {
            challenge: format!(r#"Bearer resource_metadata="{server}{RESOURCE}""#),
            resource: json!({
                "resource": format!("{server}/mcp"),
                "authorization_servers": [authority],
            }),
            metadata: json!({
                "issuer": authority,
                "authorization_endpoint": format!("{authority}/authorize"),
                "token_endpoint": format!("{authority}/token"),
                "registration_endpoint": format!("{authority}/register"),
                "revocation_endpoint": format!("{authority}/revoke"),
                "code_challenge_methods_supported": ["S256"],
                "response_types_supported": ["code"],
                "authorization_response_iss_parameter_supported": true,
            }),
            client_id: "registered".to_owned(),
            stranger: origin(stranger),
            server,
            authority,
            ..Self::default()
        }
    }

    /// The stranger under an address that nobody may be led to, and at which it would hear of it.
    pub(crate) fn forbidden(&self) -> String {
        self.stranger.replace("127.0.0.1", "0.0.0.0")
    }
}

// === impl Browser ===

impl Browser {
    pub(crate) fn new() -> Self {
        let http = reqwest::Client::builder().redirect(Policy::none());
        Self {
            http: http.build().unwrap(),
            cookies: HashMap::new(),
        }
    }

    pub(crate) async fn get(&self, url: &str) -> Answer {
        let cookies = self.cookies.iter();
        let cookies: Vec<_> = cookies
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let request = self.http.get(url).header("cookie", cookies.join("; "));
        read(request.send().await.unwrap()).await
    }

    /// Goes on from a start page.
    pub(crate) async fn set_out(&self, link: &str) -> Answer {
        let cookies = self.cookies.iter();
        let cookies: Vec<_> = cookies
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let request = self.http.post(link).header("cookie", cookies.join("; "));
        read(request.send().await.unwrap()).await
    }

    /// Opens a start page and goes on from it; its cookies are kept.
    pub(crate) async fn open(&mut self, link: &str) -> Opened {
        let page = self.get(link).await;
        assert_eq!(page.status, 200, "{}", page.text);
        assert!(!page.headers.contains_key("set-cookie"));
        let page = self.set_out(link).await;
        assert_eq!(page.status, 303, "{}", page.text);
        for cookie in page.headers.get_all("set-cookie") {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            leaks::note("cookie", value);
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        let location = page.headers["location"].to_str().unwrap();
        leaks::note_url(link);
        leaks::note_url(location);
        let authorize_url = Url::parse(location).unwrap();
        let mut query = authorize_url.query_pairs();
        let state = query.find(|(name, _)| name == "state").unwrap().1;
        Opened {
            state: state.into_owned(),
            authorize_url,
        }
    }

    /// The same with the other browser's cookies under the names of its own.
    pub(crate) fn with_values_of(mut self, other: &Self) -> Self {
        let values = other.cookies.values();
        for (own, theirs) in self.cookies.values_mut().zip(values) {
            own.clone_from(theirs);
        }
        self
    }
}
