//! An authorization server that the test plays, strictly: whatever it is asked is looked at in full.

mod authorization;
mod exchange;
mod refresh;
mod registration;
mod secrets;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use bowline_egress::{FetchError, Reach, Tls};
use bowline_testbed::scripted::{Asked, Scripted};
use serde_json::json;
use url::form_urlencoded;

use super::revocation::TokenKind;
use super::*;

const REDIRECT: &str = "http://127.0.0.1:4321/callback";
/// Without the slash that a normalised URL would have.
const RESOURCE: &str = "https://mcp.example";

/// An authorization server and what is known about it.
struct Stage {
    script: Scripted,
    auth_server: AuthServer,
    discovery: Discovery,
}

impl Stage {
    async fn start() -> Self {
        let script = Scripted::start().await;
        let issuer = script.url().replace("/mcp", "");
        let server: Uri = script.url().parse().unwrap();
        let fetch = Fetch::new(Reach::new(&server, false), Tls::platform());
        let metadata = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize?tenant=1"),
            "token_endpoint": format!("{issuer}/token"),
            "registration_endpoint": format!("{issuer}/register"),
            "revocation_endpoint": format!("{issuer}/revoke"),
            "code_challenge_methods_supported": ["S256"],
            "scopes_supported": ["a", "offline_access"],
        });
        Self {
            script,
            auth_server: AuthServer::new(&server, fetch),
            discovery: Discovery {
                resource: RESOURCE.to_owned(),
                issuer,
                metadata: metadata.as_object().unwrap().clone(),
                resource_metadata: None,
                scopes: Vec::new(),
            },
        }
    }

    /// Lets it announce this, too.
    fn announce(&mut self, name: &str, value: Value) {
        self.discovery.metadata.insert(name.to_owned(), value);
    }

    async fn begin(&self, client: &ClientIdentity, scopes: &[&str]) -> AuthorizationRequest {
        let scopes = texts(scopes);
        let beginning = self.auth_server.begin(&self.discovery, client, &scopes);
        beginning.await.unwrap()
    }

    /// Exchanges a code, while the token endpoint does this.
    async fn exchange(
        &mut self,
        client: &ClientIdentity,
        begun: &AuthorizationRequest,
        answer: impl FnOnce(Asked),
    ) -> Result<Tokens, AuthServerError> {
        let exchanging =
            self.auth_server
                .exchange(&self.discovery, client, begun, "the-code", None);
        let answering = async { answer(self.script.next().await) };
        tokio::join!(exchanging, answering).0
    }

    /// Refreshes, while the token endpoint does this.
    async fn refresh(
        &mut self,
        scopes: &[&str],
        answer: impl FnOnce(Asked),
    ) -> Result<Tokens, AuthServerError> {
        let (client, old, scopes) = (public(), Secret::new("old-refresh"), texts(scopes));
        let refreshing = self
            .auth_server
            .refresh(&self.discovery, &client, &old, &scopes);
        let answering = async { answer(self.script.next().await) };
        tokio::join!(refreshing, answering).0
    }

    async fn register(
        &mut self,
        redirect_uri: &str,
        scopes: &[&str],
        answer: impl FnOnce(Asked),
    ) -> Result<ClientIdentity, AuthServerError> {
        let scopes = texts(scopes);
        let registering = self
            .auth_server
            .register(&self.discovery, redirect_uri, &scopes);
        let answering = async { answer(self.script.next().await) };
        tokio::join!(registering, answering).0
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn public() -> ClientIdentity {
    ClientIdentity {
        id: "the client".to_owned(),
        secret: None,
        authentication: None,
        redirect_uri: REDIRECT.to_owned(),
    }
}

fn confidential(authentication: Option<Authentication>) -> ClientIdentity {
    ClientIdentity {
        secret: Some(Secret::new("p&ss")),
        authentication,
        ..public()
    }
}

type Pairs = BTreeMap<String, String>;

/// The pairs of a form or query, each of which is there once.
fn pairs(text: &str) -> Pairs {
    let mut pairs = Pairs::new();
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        let twice = pairs.insert(name.clone().into_owned(), value.into_owned());
        assert_eq!(twice, None, "{name} is there twice");
    }
    pairs
}

/// The form that was posted to this endpoint.
fn form(asked: &Asked, target: &str) -> Pairs {
    assert_eq!((asked.method.as_str(), &*asked.target), ("POST", target));
    assert_eq!(asked.header("content-type"), FORM);
    assert!(!asked.headers.contains_key("cookie"));
    pairs(std::str::from_utf8(&asked.body).unwrap())
}

fn expected<const N: usize>(pairs: [(&str, &str); N]) -> Pairs {
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    pairs.into()
}

fn grant(asked: Asked, answer: &Value) {
    asked.reply(
        200,
        &[("content-type", "application/json")],
        answer.to_string(),
    );
}

fn refuse(asked: Asked, status: u16, code: &str) {
    let body = json!({"error": code, "error_description": "the-code p&ss secret-text"});
    asked.reply(
        status,
        &[("content-type", "application/json")],
        body.to_string(),
    );
}

fn bearer() -> Value {
    json!({"access_token": "new-access", "token_type": "bearer", "expires_in": 60})
}
