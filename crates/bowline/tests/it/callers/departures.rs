//! Whoever is not configured any more, or has signed out, is gone: nobody has their sessions, their
//! streams end, and what they had begun to sign in for brings nothing.

use std::collections::BTreeMap;

use bowline::Gateway;
use bowline::config::{Caller, CallerName, Config, Flow, KeyHash, Server, Store};
use bowline::login::GrantManager;
use bowline_testbed::redis::Redis;
use bowline_testbed::scripted::{PATIENCE, Pen, Scripted};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::kit::asking::{API_TOKEN, gateway, session};
use crate::kit::browser::{come_back, set_out};
use crate::kit::client::{Client, sent};
use crate::kit::events::Events;
use crate::kit::gateway::config;
use crate::kit::messages::{call, initialize_message};
use crate::kit::protected::Protected;
use crate::kit::stores::{in_file, in_redis};
use crate::kit::wait::until;

const SIGN_IN_NEEDED: i64 = -31003;

fn callers(named: &[(&str, &str)]) -> BTreeMap<CallerName, Caller> {
    let caller = |key: &str| Caller::with_key(KeyHash::of(key.as_bytes()));
    let named = named.iter();
    named
        .map(|(name, key)| (name.parse().unwrap(), caller(key)))
        .collect()
}

/// The same session, at this gateway and with this key.
fn taken_over(client: &Client, gateway: &Gateway, key: &'static str) -> Client {
    let mut other = Client::new(gateway).with_key(key);
    other.session = client.session.clone();
    other
}

async fn is_nobodys(client: &Client) {
    for request in [client.post(&call(1)), client.get(), client.delete()] {
        let answer = sent(request).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (404, -32001));
    }
}

async fn is_served(client: &Client, server: &mut Scripted) {
    let message = call(2);
    let answer = client.send_to(server, &message, |asked| asked.result(&json!({})));
    assert_eq!(answer.await.status, 200);
}

// === Sessions ===

#[tokio::test]
async fn a_session_is_not_served_to_whoever_is_given_its_callers_name() {
    let mut server = Scripted::start().await;
    let with = |named: &[(&str, &str)]| {
        let mut config = config(&[("s", server.url())]);
        config.callers = callers(named);
        config
    };
    let (first, second) = (with(&[("bob", "k-first")]), with(&[("bob", "k-second")]));
    let ann = with(&[("ann", "k-ann")]);
    let gateway = Gateway::start(first.clone()).await.unwrap();
    let client = Client::new(&gateway).with_key("k-first");
    let client = client.opened(&mut server, "u").await;
    gateway.reload(ann).unwrap();
    gateway.reload(second).unwrap();
    is_nobodys(&taken_over(&client, &gateway, "k-second")).await;
    // It is the first one's yet, who came back.
    gateway.reload(first).unwrap();
    is_served(&client, &mut server).await;
    server.finish();
}

#[tokio::test]
async fn nor_is_one_that_was_kept_in_a_store() {
    let mut server = Scripted::start().await;
    let url = server.url().to_owned();
    let directory = tempfile::tempdir().unwrap();
    let redis = Redis::start().await.unwrap();
    let with = |store: &Store, key: &str| {
        let mut config = config(&[("s", &url)]);
        config.callers = callers(&[("bob", key)]);
        config.store = store.clone();
        config
    };
    let store = in_file(directory.path());
    let gateway = Gateway::start(with(&store, "k-first")).await.unwrap();
    let client = Client::new(&gateway).with_key("k-first");
    let client = client.opened(&mut server, "u").await;
    gateway.stop().await;
    let gateway = Gateway::start(with(&store, "k-second")).await.unwrap();
    is_nobodys(&taken_over(&client, &gateway, "k-second")).await;
    gateway.stop().await;
    let gateway = Gateway::start(with(&store, "k-first")).await.unwrap();
    is_served(&taken_over(&client, &gateway, "k-first"), &mut server).await;
    let store = in_redis(&redis);
    let one = Gateway::start(with(&store, "k-first")).await.unwrap();
    let other = Gateway::start(with(&store, "k-second")).await.unwrap();
    let client = Client::new(&one)
        .with_key("k-first")
        .opened(&mut server, "v")
        .await;
    is_nobodys(&taken_over(&client, &other, "k-second")).await;
    is_served(&client, &mut server).await;
    server.finish();
}

// === Streams ===

#[tokio::test]
async fn the_streams_of_a_caller_that_is_gone_end_with_the_reload() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.callers = callers(&[("ann", "k-ann"), ("bob", "k-bob")]);
    let gateway = Gateway::start(config.clone()).await.unwrap();
    let ann = Client::new(&gateway)
        .with_key("k-ann")
        .opened(&mut server, "a")
        .await;
    let bob = Client::new(&gateway)
        .with_key("k-bob")
        .opened(&mut server, "b")
        .await;
    let mut streams = Vec::new();
    for client in [&ann, &bob] {
        for request in [client.get(), client.post(&call(1))] {
            let (mut events, mut pen) = client.open_stream(&mut server, request).await;
            pen.write("data: {}\n\n");
            events.next().await;
            streams.push((events, pen));
        }
    }
    // One that is asked for, and whose answer turns out to be a stream later.
    let (late, asked) = tokio::join!(spawned(bob.post(&call(2))), server.next());
    config.callers = callers(&[("ann", "k-ann"), ("bob", "k-other")]);
    gateway.reload(config).unwrap();
    for (mut events, pen) in streams.drain(2..) {
        assert!(is_over(&mut events).await);
        closed(&pen).await;
    }
    let pen = asked.events();
    closed(&pen).await;
    assert!(is_over(&mut Events::new(late.await.unwrap())).await);
    for (mut events, mut pen) in streams {
        pen.write("data: {}\n\n");
        assert_eq!(events.next().await, "data: {}\n\n");
    }
}

/// A request that is on its way while something else is done.
async fn spawned(request: reqwest::RequestBuilder) -> JoinHandle<reqwest::Response> {
    TaskTracker::new().spawn(async move { request.send().await.unwrap() })
}

async fn is_over(events: &mut Events) -> bool {
    let reading = async { while let Ok(Some(_)) = events.try_next().await {} };
    tokio::time::timeout(PATIENCE, reading).await.is_ok()
}

async fn closed(pen: &Pen) {
    let closed = tokio::time::timeout(PATIENCE, pen.closed()).await;
    assert!(closed.is_ok(), "the server's side is still read");
}

/// A caller that has signed in, and a GET and a call of it that stream.
async fn streaming(server: &Protected, gateway: &Gateway) -> (Client, Vec<Events>) {
    let client = session(gateway, &Value::Null).await;
    sign_in(gateway, &client).await;
    server.words.lock().is_streaming = true;
    let mut streams = Vec::new();
    for request in [client.get(), client.post(&call(2))] {
        let events = Events::new(request.send().await.unwrap());
        assert_eq!(events.response.status(), 200);
        until("the stream", || server.open_streams() > streams.len()).await;
        streams.push(events);
    }
    (client, streams)
}

async fn link(client: &Client) -> String {
    let told = client.send(&call(1)).await.json();
    let link = told["error"]["data"]["url"].as_str();
    link.unwrap_or_else(|| panic!("{told}")).to_owned()
}

async fn sign_in(gateway: &Gateway, client: &Client) {
    let (state, cookie) = set_out(&link(client).await).await.unwrap();
    assert_eq!(come_back(gateway, &state, &cookie).await, 200);
    assert_eq!(client.send(&call(1)).await.status, 200);
}

/// Signs the local caller out by the API.
async fn sign_out(gateway: &Gateway) {
    let url = format!(
        "http://{}/api/mcp-oauth/sign-out?server=s",
        gateway.listen()
    );
    let request = reqwest::Client::new().post(url);
    let answer = request.bearer_auth(API_TOKEN).send().await.unwrap();
    assert_eq!(answer.status(), 200);
}

/// Signs the local caller out on the command line.
async fn log_out(server: &Protected, store: &Store) {
    let mut config = config(&[]);
    config.store = store.clone();
    let desk = GrantManager::open(&config).await.unwrap();
    let server = Server::from_url(&server.url()).unwrap();
    desk.sign_out(None, "s", &server).await.unwrap();
}

#[tokio::test]
async fn the_streams_of_a_caller_that_signs_out_end() {
    let directory = tempfile::tempdir().unwrap();
    let store = in_file(directory.path());
    for by_api in [true, false] {
        let server = Protected::alone().await;
        let gateway = gateway(&server, Flow::Managed, |config| {
            config.store = store.clone()
        })
        .await;
        let (_client, streams) = streaming(&server, &gateway).await;
        match by_api {
            true => sign_out(&gateway).await,
            // Which is noticed within a second.
            false => log_out(&server, &store).await,
        }
        for mut events in streams {
            assert!(is_over(&mut events).await);
        }
        until("nothing is read", || server.open_streams() == 0).await;
        gateway.stop().await;
    }
}

// === Sign-ins under way ===

#[tokio::test]
async fn a_sign_in_that_is_finished_after_a_sign_out_brings_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = in_file(directory.path());
    for (by_api, in_exchange) in [(true, false), (true, true), (false, false), (false, true)] {
        let server = Protected::alone().await;
        let gateway = gateway(&server, Flow::Managed, |config| {
            config.store = store.clone()
        })
        .await;
        let client = session(&gateway, &Value::Null).await;
        let (state, cookie) = set_out(&link(&client).await).await.unwrap();
        let out = async || match by_api {
            true => sign_out(&gateway).await,
            false => log_out(&server, &store).await,
        };
        let page = match in_exchange {
            false => {
                out().await;
                come_back(&gateway, &state, &cookie).await
            }
            true => {
                server.exchanges.close();
                let meanwhile = async {
                    until("the exchange", || server.exchanges.waiting() == 1).await;
                    out().await;
                    server.exchanges.open();
                };
                tokio::join!(come_back(&gateway, &state, &cookie), meanwhile).0
            }
        };
        assert_ne!(
            page, 200,
            "by API: {by_api}, in the exchange: {in_exchange}"
        );
        // And the next one is as good as any.
        sign_in(&gateway, &client).await;
        assert_eq!(server.tool_calls(), 1);
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_sign_in_of_a_caller_that_is_gone_brings_nothing() {
    for in_exchange in [false, true] {
        let server = Protected::alone().await;
        let mut configured = None;
        let gateway = gateway(&server, Flow::Managed, |config| {
            config.callers = callers(&[("bob", "k-bob")]);
            configured = Some(config.clone());
        })
        .await;
        let with = |key: &str| Config {
            callers: callers(&[("bob", key)]),
            ..configured.clone().unwrap()
        };
        let mut client = Client::new(&gateway).with_key("k-bob");
        assert_eq!(client.initialize().await.status, 200);
        let (state, cookie) = set_out(&link(&client).await).await.unwrap();
        let reload = || gateway.reload(with("k-other")).unwrap();
        let page = match in_exchange {
            false => {
                reload();
                come_back(&gateway, &state, &cookie).await
            }
            true => {
                server.exchanges.close();
                let meanwhile = async {
                    until("the exchange", || server.exchanges.waiting() == 1).await;
                    reload();
                    server.exchanges.open();
                };
                tokio::join!(come_back(&gateway, &state, &cookie), meanwhile).0
            }
        };
        assert_ne!(page, 200, "in the exchange: {in_exchange}");
        for key in ["k-other", "k-bob"] {
            gateway.reload(with(key)).unwrap();
            let mut client = Client::new(&gateway).with_key(key);
            assert_eq!(client.initialize().await.status, 200);
            assert_eq!(client.send(&call(1)).await.code(), SIGN_IN_NEEDED, "{key}");
        }
        assert_eq!(server.tool_calls(), 0);
    }
}

#[tokio::test]
async fn a_sign_in_at_a_server_that_its_caller_lost_is_not_there() {
    let server = Protected::alone().await;
    let mut configured = None;
    let gateway = gateway(&server, Flow::Managed, |config| {
        let other = Server::from_url("http://127.0.0.1:9/mcp").unwrap();
        config.servers.insert("t".parse().unwrap(), other);
        config.callers = callers(&[("bob", "k-bob")]);
        configured = Some(config.clone());
    })
    .await;
    let may_use = |names: &[&str]| {
        let mut config = configured.clone().unwrap();
        let names = names.iter().map(|name| name.parse().unwrap());
        config.callers.get_mut("bob").unwrap().servers = Some(names.collect());
        gateway.reload(config).unwrap();
    };
    let mut client = Client::new(&gateway).with_key("k-bob");
    let opening = client.post(&initialize_message());
    let opened = sent(opening.header("bowline-session", "?")).await;
    client.session = opened.headers.get("mcp-session-id").cloned();
    let hash = opened.headers["bowline-session"].to_str().unwrap();
    let at = |path: &str| format!("http://{}{path}", gateway.listen());
    let pending = async || {
        let client = Client::at(at("/api/mcp-oauth/pending")).with_key("k-bob");
        let told = sent(client.get()).await.json();
        told["pending"].as_array().unwrap().len()
    };
    let link = link(&client).await;
    let (state, cookie) = set_out(&link).await.unwrap();
    assert_eq!(pending().await, 1);
    may_use(&["t"]);
    assert_eq!(pending().await, 0);
    assert_eq!(sent(reqwest::Client::new().get(&link)).await.status, 404);
    assert_eq!(come_back(&gateway, &state, &cookie).await, 404);
    let answer = reqwest::Client::new().post(at(&format!("/api/sessions/{hash}/elicitation")));
    let answer = answer.bearer_auth(API_TOKEN).body(r#"{"action":"accept"}"#);
    let answer = sent(answer).await;
    assert_eq!(answer.status, 404, "{}", answer.text);
    assert_eq!(answer.json()["error"]["data"]["reason"], "no_such_session");
    assert!(server.token_requests().is_empty(), "the code was used");
    // It is the caller's again with the server.
    may_use(&["s", "t"]);
    assert_eq!(pending().await, 1);
    assert_eq!(come_back(&gateway, &state, &cookie).await, 200);
    assert_eq!(client.send(&call(1)).await.status, 200);
}
