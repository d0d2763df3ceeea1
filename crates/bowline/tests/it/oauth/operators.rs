//! Servers where the operator has set a token, and callers sign in later, or the other way round: no session of
//! the one is used by the other.

use bowline::Gateway;
use bowline::config::{Config, ServerOAuth, StoreKind};
use bowline_testbed::answering::Seen;
use bowline_testbed::scripted::{PATIENCE, Scripted};
use http::HeaderValue;

use crate::kit::client::Client;
use crate::kit::messages::call;
use crate::kit::protected::Protected;
use crate::kit::signing::{OAuthStage, token_of};

const SIGN_IN_NEEDED: i64 = -31003;

/// A gateway before this server, where callers sign in or the operator has set a token.
fn configured(url: &str, is_callers: bool) -> Config {
    let mut config = crate::kit::gateway::config(&[("s", url)]);
    let server = config.servers.values_mut().next().unwrap();
    match is_callers {
        true => server.oauth = Some(ServerOAuth::default()),
        false => {
            let token = HeaderValue::from_static("Bearer operator");
            server.headers.insert("authorization", token);
        }
    }
    config
}

/// The same server, with a token that the operator configured, or with those of its callers.
#[tokio::test]
async fn a_session_is_the_operators_or_a_callers_and_stays_that() {
    let stage = OAuthStage::set().await;
    let url = stage.url();
    let client = stage.client(None).await;
    stage.sign_in(&client, "ann").await;
    assert_eq!(token_of(&client).await, "token-ann");
    stage.gateway.reload(configured(&url, false)).unwrap();
    assert_eq!(token_of(&client).await, "operator");
    stage.accounts_are_apart();
    let before = stage.server.seen_at("/mcp").len();
    stage.gateway.reload(configured(&url, true)).unwrap();
    assert_eq!(token_of(&client).await, "token-ann");
    stage.accounts_are_apart();
    for seen in &stage.server.seen_at("/mcp")[before..] {
        assert_ne!(seen.header("mcp-session-id"), "of-operator", "{seen}");
        assert!(!seen.header("cookie").contains("operator"), "{seen}");
    }
}

/// Until now with the operator's token, from now on without any: what it opened is not used any more.
#[tokio::test]
async fn what_a_token_opened_does_not_go_on_without_one() {
    let server = Protected::apart(|_| {}).await;
    let directory = tempfile::tempdir().unwrap();
    let config = |has_token: bool| {
        let mut config = configured(&server.url(), false);
        config.store.kind = StoreKind::File {
            path: directory.path().to_owned(),
        };
        if !has_token {
            let server = config.servers.values_mut().next().unwrap();
            server.headers.clear();
        }
        config
    };
    let is_left_alone = |before: usize| {
        let seen = server.server.seen_at("/mcp");
        assert!(seen.len() > before, "nothing was sent");
        for seen in &seen[before..] {
            assert_ne!(seen.header("mcp-session-id"), "of-operator", "{seen}");
            assert!(!seen.header("cookie").contains("operator"), "{seen}");
        }
    };
    for restarts in [false, true] {
        let mut gateway = Gateway::start(config(true)).await.unwrap();
        let mut client = Client::new(&gateway);
        assert_eq!(client.initialize().await.status, 200);
        assert_eq!(token_of(&client).await, "operator");
        let before = server.server.seen_at("/mcp").len();
        if restarts {
            gateway.stop().await;
            gateway = Gateway::start(config(false)).await.unwrap();
            client = client.moved_to(&gateway);
        } else {
            gateway.reload(config(false)).unwrap();
        }
        // The server lets nobody in without a token, but asks for one only at the beginning of a session.
        assert_ne!(client.send(&call(1)).await.code(), 0);
        drop(client.get().send().await.unwrap());
        drop(client.delete().send().await.unwrap());
        is_left_alone(before);
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_token_that_opened_it() {
    for has_oauth in [false, true] {
        let mut server = Scripted::start().await;
        let gateway = Gateway::start(configured(server.url(), false)).await;
        let gateway = gateway.unwrap();
        let client = Client::open(&gateway, &mut server, "u1").await;
        let (mut events, pen) = client.open_stream(&mut server, client.get()).await;
        let mut changed = configured(server.url(), has_oauth);
        if !has_oauth {
            changed.servers.values_mut().next().unwrap().headers.clear();
        }
        gateway.reload(changed).unwrap();
        let reading = async { while let Ok(Some(_)) = events.try_next().await {} };
        let ended = tokio::time::timeout(PATIENCE, reading).await;
        assert!(ended.is_ok(), "the client still reads");
        let closed = tokio::time::timeout(PATIENCE, pen.closed()).await;
        assert!(closed.is_ok(), "the server's side is still read");
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_stored_session_stays_that_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = Protected::apart(|_| {}).await;
    let start = async |is_callers| {
        let mut config = configured(&server.url(), is_callers);
        config.store.kind = StoreKind::File {
            path: directory.path().to_owned(),
        };
        Gateway::start(config).await.unwrap()
    };
    let gateway = start(false).await;
    let mut client = Client::new(&gateway);
    assert_eq!(client.initialize().await.status, 200);
    assert_eq!(token_of(&client).await, "operator");
    gateway.stop().await;
    let before = server.server.seen_at("/mcp").len();
    let gateway = start(true).await;
    let client = client.moved_to(&gateway);
    // Nobody has signed in: what the server opened for the operator is not used without a token, either.
    assert_eq!(client.send(&call(1)).await.code(), SIGN_IN_NEEDED);
    drop(client.get().send().await.unwrap());
    drop(client.delete().send().await.unwrap());
    for seen in &server.server.seen_at("/mcp")[before..] {
        assert_ne!(seen.header("mcp-session-id"), "of-operator", "{seen}");
        assert!(!seen.header("cookie").contains("operator"), "{seen}");
    }
}

/// Until now a caller's, from now on nobody signs in: neither its calls nor its end go to the server without a token.
#[tokio::test]
async fn what_a_caller_opened_does_not_go_on_where_nobody_signs_in() {
    let directory = tempfile::tempdir().unwrap();
    let keep = |config: &mut Config| {
        config.store.kind = StoreKind::File {
            path: directory.path().to_owned(),
        };
    };
    let stage = OAuthStage::set_with(|_| {}, keep).await;
    let client = stage.client(None).await;
    stage.sign_in(&client, "ann").await;
    assert_eq!(token_of(&client).await, "token-ann");
    let OAuthStage {
        gateway, protected, ..
    } = stage;
    gateway.stop().await;
    let is_anns = |seen: &Seen| seen.header("mcp-session-id") == "of-token-ann";
    let before = protected.server.seen_at("/mcp");
    assert!(before.iter().any(is_anns));
    let mut config = crate::kit::gateway::config(&[("s", &protected.url())]);
    keep(&mut config);
    let gateway = Gateway::start(config).await.unwrap();
    let client = client.moved_to(&gateway);
    assert_ne!(client.send(&call(1)).await.code(), 0);
    drop(client.delete().send().await.unwrap());
    gateway.stop().await;
    let seen = protected.server.seen_at("/mcp");
    assert!(seen.len() > before.len(), "nothing was sent");
    for seen in &seen[before.len()..] {
        assert!(!is_anns(seen), "{seen}");
        assert!(!seen.header("cookie").contains("token-ann"), "{seen}");
    }
}
