//! A gateway before a server that wants its callers signed in, with browsers and somebody who is not to hear
//! of it.

use std::ops::Deref;

use bowline::Gateway;
use bowline::config::{Config, ServerOAuth};
use bowline_testbed::answering::{Answering, Said, Seen};
use bowline_testbed::leaks;
use serde_json::json;
use url::Url;

use super::browser::Browser;
use super::client::{Answer, Client};
use super::gateway::{config, only};
use super::messages::call;
use super::protected::{Protected, Words};

/// Everything from the client to the authorization server.
pub(crate) struct OAuthStage {
    pub(crate) gateway: Gateway,
    /// Somebody who is not to hear of anything.
    pub(crate) stranger: Answering,
    pub(crate) protected: Protected,
}

impl Deref for OAuthStage {
    type Target = Protected;

    fn deref(&self) -> &Protected {
        &self.protected
    }
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
        let stranger = Answering::start(|_: &Seen| Said::json(&json!({}))).await;
        let protected = Protected::apart(|words| {
            words.stranger = format!("http://{}", stranger.address());
            twist(words);
        })
        .await;
        let mut config = config(&[("s", &protected.url())]);
        only(&mut config).oauth = Some(ServerOAuth::default());
        change(&mut config);
        Self {
            gateway: Gateway::start(config).await.unwrap(),
            stranger,
            protected,
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

    /// A browser comes to the callback with this query, and sends the form that it finds there, if any.
    pub(crate) async fn callback(&self, browser: &Browser, query: &[(&str, &str)]) -> Answer {
        let url = self.callback_url(query);
        let page = browser.get(&url).await;
        match page.text.contains("id=\"finish\"") {
            true => browser.submit(&url).await,
            false => page,
        }
    }

    /// Where the authorization server sends a browser.
    pub(crate) fn callback_url(&self, query: &[(&str, &str)]) -> String {
        let url = format!("http://{}/oauth/callback", self.gateway.listen());
        Url::parse_with_params(&url, query).unwrap().into()
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
}

/// The token with which a call of `t` went to the server.
pub(crate) async fn token_of(client: &Client) -> String {
    let answer = client.send(&call(1)).await;
    let text = answer.json()["result"]["content"][0]["text"].clone();
    text.as_str().expect(&answer.text).to_owned()
}
