//! A server that lets nobody in without a token, with its authorization server. What the two publish and
//! say is the test's to twist.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_testbed::answering::{Answering, Gate, Said, Seen};
use bowline_testbed::leaks::{self, Scan};
use bowline_testbed::scripted::{Pen, initialize_result};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// What tokens begin with that are numbered.
pub(crate) const GOOD: &str = "good-";

const RESOURCE: &str = "/.well-known/oauth-protected-resource/mcp";

const AUTHORITY: &str = "/.well-known/oauth-authorization-server";

/// The server and its authorization server.
pub(crate) struct Protected {
    pub(crate) server: Answering,
    /// The other one, if the server is not its own.
    authority: Option<Answering>,
    pub(crate) words: Arc<Mutex<Words>>,
    /// Where token requests wait.
    pub(crate) exchanges: Gate,
    given: Arc<Mutex<Given>>,
    _scan: Scan,
}

/// What was given to those with a good token.
#[derive(Default)]
struct Given {
    results: usize,
    streams: Vec<Pen>,
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
    /// Whether tokens are `good-1`, `good-2` and so on, and nothing else is taken than what begins like
    /// them; else they are named after the code, and any is taken.
    pub(crate) numbers_tokens: bool,
    /// The text of every answer to a call of a tool, with the call's id for `ID`.
    pub(crate) answer: Option<String>,
    /// Whether it introduces itself by the token, and lists one tool, which is named after it.
    pub(crate) lists: bool,
    /// Whether calls and GET are answered with streams that nobody ends.
    pub(crate) is_streaming: bool,
}

impl Protected {
    /// One that has an authorization server of its own, which registers clients.
    pub(crate) async fn alone() -> Self {
        Self::alone_saying(|_| {}).await
    }

    /// The same, where clients have to bring their own id.
    pub(crate) async fn without_registration() -> Self {
        Self::alone_saying(|words| words.leave_out("registration_endpoint")).await
    }

    async fn alone_saying(twist: impl FnOnce(&mut Words)) -> Self {
        let plain = |words: &mut Words| {
            words.challenge = "Bearer realm=\"mcp\"".to_owned();
            words.numbers_tokens = true;
            words.leave_out("revocation_endpoint");
            words.leave_out("authorization_response_iss_parameter_supported");
            words.metadata["token_endpoint_auth_methods_supported"] =
                json!(["client_secret_post", "none"]);
            twist(words);
        };
        Self::start(true, plain).await
    }

    /// One with an authorization server at another address.
    pub(crate) async fn apart(twist: impl FnOnce(&mut Words)) -> Self {
        Self::start(false, twist).await
    }

    async fn start(is_alone: bool, twist: impl FnOnce(&mut Words)) -> Self {
        let scan = Scan::begin();
        let words: Arc<Mutex<Words>> = Arc::default();
        let given: Arc<Mutex<Given>> = Arc::default();
        let exchanges = Gate::default();
        let server_says = {
            let (words, given) = (Arc::clone(&words), Arc::clone(&given));
            move |seen: &Seen| server_says(&words.lock(), &mut given.lock(), seen)
        };
        let authority_says = {
            let (words, exchanges, count) =
                (Arc::clone(&words), exchanges.clone(), AtomicUsize::new(0));
            move |seen: &Seen| authority_says(&words.lock(), &exchanges, &count, seen)
        };
        let (server, authority) = match is_alone {
            true => {
                let both = move |seen: &Seen| match seen.path() {
                    RESOURCE | "/mcp" => server_says(seen),
                    _ => authority_says(seen),
                };
                (Answering::start(both).await, None)
            }
            false => {
                let authority = Answering::start(authority_says).await;
                (Answering::start(server_says).await, Some(authority))
            }
        };
        {
            let mut words = words.lock();
            *words = Words::honest(&server, authority.as_ref().unwrap_or(&server));
            twist(&mut words);
        }
        Self {
            server,
            authority,
            words,
            exchanges,
            given,
            _scan: scan,
        }
    }

    /// Where the server is.
    pub(crate) fn url(&self) -> String {
        format!("{}/mcp", self.words.lock().server)
    }

    pub(crate) fn issuer(&self) -> String {
        self.words.lock().authority.clone()
    }

    pub(crate) fn authority(&self) -> &Answering {
        self.authority.as_ref().unwrap_or(&self.server)
    }

    /// The forms that came to the token endpoint.
    pub(crate) fn token_requests(&self) -> Vec<BTreeMap<String, String>> {
        let seen = self.authority().seen_at("/token");
        seen.iter().map(form).collect()
    }

    pub(crate) fn registrations(&self) -> usize {
        self.authority().seen_at("/register").len()
    }

    /// How many calls of tools had results.
    pub(crate) fn tool_calls(&self) -> usize {
        self.given.lock().results
    }

    /// How many streams somebody reads.
    pub(crate) fn open_streams(&self) -> usize {
        let given = self.given.lock();
        given.streams.iter().filter(|pen| pen.is_open()).count()
    }
}

impl Protected {
    /// Breaks every stream that was given.
    pub(crate) fn cut_streams(&self) {
        let streams = std::mem::take(&mut self.given.lock().streams);
        streams.into_iter().for_each(Pen::cut);
    }
}

fn server_says(words: &Words, given: &mut Given, seen: &Seen) -> Said {
    if let Some(there) = words.redirects.get(seen.path()) {
        return Said::status(307).with("location", there);
    }
    match seen.path() {
        RESOURCE => return Said::json(&words.resource),
        "/mcp" => {}
        _ => return Said::status(404),
    }
    let token = seen.header("authorization").strip_prefix("Bearer ");
    let Some(token) = token.filter(|token| words.takes(token)) else {
        let refused = Said::status(401);
        return match words.challenge.as_str() {
            "" => refused,
            challenge => refused.with("www-authenticate", challenge),
        };
    };
    let method = seen.json()["method"].clone();
    match (seen.method.as_str(), method.as_str().unwrap_or_default()) {
        ("POST", "initialize") => {
            let mut result = initialize_result();
            if words.lists {
                result["instructions"] = format!("for {token}").into();
            }
            let said = seen.result(&result);
            said.with("mcp-session-id", &format!("of-{token}"))
                .with("set-cookie", &format!("stays-here=of-{token}; Path=/"))
        }
        ("POST", "tools/call") | ("GET", _) if words.is_streaming => {
            let (said, mut pen) = Said::events();
            pen.write(": here\n\n");
            given.streams.push(pen);
            said
        }
        ("POST", "tools/call") => match (&words.never_enough, &words.answer) {
            (Some(challenge), _) => Said::status(403).with("www-authenticate", challenge),
            (None, Some(answer)) => {
                Said::json_text(&answer.replacen("ID", &seen.json()["id"].to_string(), 1))
            }
            (None, None) => {
                given.results += 1;
                seen.result(&json!({"content": [{"type": "text", "text": token}]}))
            }
        },
        ("POST", "tools/list") if words.lists => {
            let tool = json!({"name": format!("of-{token}"), "inputSchema": {"type": "object"}});
            seen.result(&json!({"tools": [tool]}))
        }
        ("POST", _) => seen.result(&json!({"content": [{"type": "text", "text": token}]})),
        _ => Said::status(405),
    }
}

fn authority_says(words: &Words, exchanges: &Gate, count: &AtomicUsize, seen: &Seen) -> Said {
    if let Some(there) = words.redirects.get(seen.path()) {
        return Said::status(307).with("location", there);
    }
    match seen.path() {
        AUTHORITY => Said::json(&words.metadata),
        "/register" => {
            let mut client = seen.json();
            client["client_id"] = words.client_id.clone().into();
            Said::json(&client).instead(201)
        }
        "/token" => exchange(words, count, &form(seen)).behind(exchanges),
        "/revoke" => Said::json(&json!({})),
        _ => Said::status(404),
    }
}

fn form(seen: &Seen) -> BTreeMap<String, String> {
    url::form_urlencoded::parse(seen.body.as_bytes())
        .into_owned()
        .collect()
}

fn exchange(words: &Words, count: &AtomicUsize, form: &BTreeMap<String, String>) -> Said {
    let client = form.get("client_id").cloned().unwrap_or_default();
    if words.forgotten.contains(&client) {
        return Said::json(&json!({"error": "invalid_client"})).instead(401);
    }
    // Whose it is, also when it is renewed.
    let renewed = form.get("refresh_token");
    let renewed = renewed.and_then(|token| token.strip_prefix("renews-"));
    let whose = form.get("code").map(String::as_str).or(renewed);
    let whose = whose.unwrap_or_default();
    let number = count.fetch_add(1, Ordering::Relaxed) + 1;
    let token = match words.numbers_tokens {
        true => format!("{GOOD}{number}"),
        false => format!("token-{whose}"),
    };
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

// === impl Words ===

impl Words {
    fn honest(server: &Answering, authority: &Answering) -> Self {
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
            server,
            authority,
            ..Self::default()
        }
    }

    /// The stranger under an address that nobody may be led to, and at which it would hear of it.
    pub(crate) fn forbidden(&self) -> String {
        self.stranger.replace("127.0.0.1", "0.0.0.0")
    }

    /// The authorization server publishes no such thing.
    pub(crate) fn leave_out(&mut self, name: &str) {
        self.metadata.as_object_mut().unwrap().remove(name);
    }

    /// Whether the server lets a token in.
    fn takes(&self, token: &str) -> bool {
        let only = self.only_token.as_deref();
        only.is_none_or(|only| only == token) && (!self.numbers_tokens || token.starts_with(GOOD))
    }
}
