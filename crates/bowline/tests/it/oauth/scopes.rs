//! Which scopes are asked for, how often, and of whom when that changes.

use crate::kit::browser::Browser;
use crate::kit::messages::call;
use crate::kit::signing::{OAuthStage, token_of};

/// The scopes that a person is asked for at this link, sorted; and the person's browser.
async fn asked_for(link: &str) -> (Vec<String>, String, Browser) {
    let mut browser = Browser::new();
    let opened = browser.open(link).await;
    let mut query = opened.authorize_url.query_pairs();
    let scope = query.find(|(name, _)| name == "scope");
    let scope = scope.map(|(_, scope)| scope.into_owned());
    let scope = scope.unwrap_or_default();
    let mut scopes: Vec<_> = scope.split_whitespace().map(str::to_owned).collect();
    scopes.sort_unstable();
    (scopes, opened.state, browser)
}

fn wanting(scope: &str) -> Option<String> {
    Some(format!(
        r#"Bearer error="insufficient_scope", scope="{scope}""#
    ))
}

#[tokio::test]
async fn a_step_up_asks_for_what_was_granted_too() {
    let stage = OAuthStage::saying(|words| words.challenge.push_str(r#", scope="read""#)).await;
    let client = stage.client(None).await;
    let (scopes, state, browser) = asked_for(&stage.link(&client).await).await;
    assert_eq!(scopes, ["read"]);
    stage.come_back(&browser, &state, "one").await;
    assert_eq!(token_of(&client).await, "token-one");
    for (wanted, asked, code) in [
        ("write", &["read", "write"][..], "two"),
        ("admin", &["admin", "read", "write"], "three"),
        ("owner", &["admin", "owner", "read", "write"], "four"),
    ] {
        stage.words.lock().never_enough = wanting(wanted);
        let (scopes, state, browser) = asked_for(&stage.link(&client).await).await;
        assert_eq!(scopes, asked);
        stage.come_back(&browser, &state, code).await;
        stage.words.lock().never_enough = None;
        assert_eq!(token_of(&client).await, format!("token-{code}"));
    }
}

#[tokio::test]
async fn a_server_that_is_never_content_is_not_asked_about_for_ever() {
    let stage = OAuthStage::saying(|words| words.never_enough = wanting("more")).await;
    let client = stage.client(None).await;
    // Signed in, for more, and once more for what was granted.
    for code in ["one", "two", "three"] {
        stage.sign_in(&client, code).await;
    }
    let why = stage.refusal(&client).await;
    assert!(why.contains("keeps asking for more scopes"), "{why}");
    assert_eq!(stage.token_requests().len(), 3);
    // Nothing was forgotten for it.
    stage.words.lock().never_enough = None;
    assert_eq!(token_of(&client).await, "token-three");
}

#[tokio::test]
async fn a_server_that_has_moved_to_another_authorization_server_is_believed_anew() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "old").await;
    assert_eq!(token_of(&client).await, "token-old");
    let other = OAuthStage::set().await;
    let authority = other.words.lock().authority.clone();
    {
        let mut words = stage.words.lock();
        words.resource["authorization_servers"] = serde_json::json!([authority]);
        words.only_token = Some("token-new".to_owned());
    }
    let (_, state, browser) = asked_for(&stage.link(&client).await).await;
    let registered = other.authority().seen_at("/register");
    assert_eq!(registered.len(), 1, "not registered at the new one");
    let query = [("state", &*state), ("code", "new"), ("iss", &*authority)];
    assert_eq!(stage.callback(&browser, &query).await.status, 200);
    assert_eq!(token_of(&client).await, "token-new");
    assert_eq!(
        (stage.token_requests().len(), other.token_requests().len()),
        (1, 1)
    );
}

#[tokio::test]
async fn a_bare_401_or_403_is_the_servers_last_word_and_evicts_nothing() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "code").await;
    stage.words.lock().never_enough = Some("Basic".to_owned());
    let answer = client.send(&call(1)).await;
    assert_ne!(answer.code(), -31003, "{}", answer.text);
    stage.words.lock().never_enough = None;
    assert_eq!(token_of(&client).await, "token-code");
}
