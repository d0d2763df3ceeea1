//! Where callers have keys nothing is served without one, and a session is its caller's alone.

use std::collections::BTreeMap;

use bowline::Gateway;
use bowline::config::{Caller, CallerName, KeyHash};
use bowline_testbed::scripted::{Asked, Scripted};
use http::HeaderValue;
use reqwest::Method;
use serde_json::json;

use crate::kit::client::{Answer, Client, sent};
use crate::kit::gateway::{config, gateway};
use crate::kit::messages::{call, initialize_message};
use crate::kit::wait::until_so;

/// `ann` and `bob`, whose keys are `k-ann` and `k-bob`.
fn callers() -> BTreeMap<CallerName, Caller> {
    let caller = |name: &str, hash: [u64; 4]| {
        let mut bytes = [0; 32];
        for (part, word) in bytes.chunks_exact_mut(8).zip(hash) {
            part.copy_from_slice(&word.to_be_bytes());
        }
        (name.parse().unwrap(), Caller::with_key(KeyHash(bytes)))
    };
    BTreeMap::from([caller("ann", ANN), caller("bob", BOB)])
}

/// What `printf k-ann | sha256sum` prints.
const ANN: [u64; 4] = [
    0x02b7_57a4_29d8_8596,
    0xe65e_b131_7986_428e,
    0x02d1_2cc2_7ca0_5d91,
    0x6d84_5903_2372_8ded,
];

const BOB: [u64; 4] = [
    0xdc3b_2e6c_977d_eebe,
    0xa495_ebfe_cc09_fd03,
    0x6765_694a_5270_2a8c,
    0xc423_0f24_6380_a281,
];

async fn guarded(server: &Scripted) -> Gateway {
    let mut config = config(&[("s", server.url())]);
    config.callers = callers();
    Gateway::start(config).await.unwrap()
}

#[tokio::test]
async fn without_a_good_key_nothing_is_served() {
    let mut server = Scripted::start().await;
    let gateway = guarded(&server).await;
    let opened = Client::new(&gateway)
        .with_key("k-ann")
        .opened(&mut server, "u")
        .await;
    let mut client = opened.clone();
    client.key = None;
    let with = |headers: &[&str]| {
        let requests = [
            client.post(&initialize_message()),
            client.post(&call(1)),
            client.post_text("not even JSON"),
            client.get(),
            client.delete(),
            client.request(Method::PUT),
        ];
        let add = |request: reqwest::RequestBuilder| {
            let values = headers.iter();
            values.fold(request, |request, value| {
                request.header("authorization", *value)
            })
        };
        requests.map(add)
    };
    let mut bodies = Vec::new();
    for headers in [
        &[][..],
        &["k-ann"],
        &["Bearer"],
        &["Bearer "],
        &["Bearer wrong"],
        &["Bearer k-ann2"],
        &["Basic ay1hbm46"],
        &["Token k-ann"],
        &["Bearer k-ann", "Bearer k-ann"],
        &["Bearer k-ann", "Bearer k-bob"],
    ] {
        for request in with(headers) {
            let answer = sent(request).await;
            assert_eq!(answer.status, 401, "{headers:?}");
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
            assert_eq!(answer.headers["content-type"], "application/json");
            bodies.push(answer.text);
        }
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "one text for missing, malformed and wrong");
    let body: serde_json::Value = serde_json::from_str(&bodies[0]).unwrap();
    assert_eq!(body["error"]["code"], -32600);
    assert_eq!(body["error"]["data"]["reason"], "unauthorized");
    assert!(body.get("id").is_none());
    // And the session that they named is none the worse.
    let check = |asked: Asked| {
        assert_eq!(asked.header("authorization"), "", "the key stays here");
        asked.result(&json!({}));
    };
    let answer = opened.send_to(&mut server, &call(2), check).await;
    assert_eq!(answer.status, 200);
    server.finish();
}

#[tokio::test]
async fn the_scheme_is_bearer_in_any_letters() {
    let mut server = Scripted::start().await;
    let gateway = guarded(&server).await;
    let mut client = Client::new(&gateway)
        .with_key("k-ann")
        .opened(&mut server, "u")
        .await;
    client.key = None;
    for value in ["Bearer k-ann", "bearer k-ann", "BEARER  k-ann"] {
        let request = client.post(&call(1)).header("authorization", value);
        let (answer, ()) = tokio::join!(sent(request), async {
            server.next().await.result(&json!({}));
        });
        assert_eq!(answer.status, 200, "{value}");
    }
    server.finish();
}

#[tokio::test]
async fn a_strangers_session_is_unknown_to_the_byte() {
    let mut server = Scripted::start().await;
    let gateway = guarded(&server).await;
    let ann = Client::new(&gateway)
        .with_key("k-ann")
        .opened(&mut server, "u")
        .await;
    let bob = Client::new(&gateway)
        .with_key("k-bob")
        .opened(&mut server, "v")
        .await;
    let mut thief = bob.clone();
    thief.session = ann.session.clone();
    let mut nobody = bob.clone();
    nobody.session = Some(HeaderValue::from_static("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"));
    let requests = |client: &Client| {
        [
            client.post(&call(1)),
            client.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})),
            client
                .post(&call(1))
                .header("mcp-protocol-version", "nonsense"),
            client.post(&json!([call(1)])),
            client.get(),
            client.get().header("last-event-id", "AAAA"),
            client.delete(),
        ]
    };
    for (stolen, unknown) in requests(&thief).into_iter().zip(requests(&nobody)) {
        let (stolen, unknown) = (sent(stolen).await, sent(unknown).await);
        assert_eq!((stolen.status.as_u16(), stolen.code()), (404, -32001));
        assert_eq!((stolen.status, stolen.text), (unknown.status, unknown.text));
        let names = |answer: &http::HeaderMap| {
            let names: Vec<_> = answer.keys().cloned().collect();
            names
        };
        assert_eq!(names(&stolen.headers), names(&unknown.headers));
    }
    for (client, own) in [(&ann, "u"), (&bob, "v")] {
        let check = |asked: Asked| {
            assert_eq!(asked.header("mcp-session-id"), own);
            asked.result(&json!({}));
        };
        let answer = client.send_to(&mut server, &call(1), check).await;
        assert_eq!(answer.status, 200, "its own caller still has it");
    }
    server.finish();
}

#[tokio::test]
async fn where_a_page_may_not_speak_no_key_is_looked_at() {
    let server = Scripted::start().await;
    let gateway = guarded(&server).await;
    for client in [
        Client::new(&gateway),
        Client::new(&gateway).with_key("k-ann"),
    ] {
        let answer = sent(
            client
                .post(&call(1))
                .header("origin", "https://evil.example"),
        )
        .await;
        assert_eq!(answer.status, 403);
    }
    let at = |path: &str| Client::at(format!("http://{}{path}", gateway.listen()));
    assert_eq!(
        sent(at("/.well-known/oauth-protected-resource").get())
            .await
            .status,
        404
    );
    for path in ["/mcp", "/mcp/s", "/mcp/other", "/elsewhere"] {
        assert_eq!(
            sent(at(path).get()).await.status,
            401,
            "no names are told at {path}"
        );
    }
    server.finish();
}

#[tokio::test]
async fn without_callers_a_key_means_nothing() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let mut client = Client::new(&gateway)
        .with_key("anything")
        .opened(&mut server, "u")
        .await;
    client.key = None;
    let answer = client
        .send_to(&mut server, &call(1), |asked| asked.result(&json!({})))
        .await;
    assert_eq!(answer.status, 200);
    server.finish();
}

/// One caller asks for all that it can have; the other still has its share.
#[tokio::test]
async fn one_caller_cannot_take_every_stream() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.callers = callers();
    config.limits.streams = 16;
    let gateway = Gateway::start(config).await.unwrap();
    let ann = Client::new(&gateway).with_key("k-ann");
    let ann = ann.opened(&mut server, "a").await;
    let bob = Client::new(&gateway).with_key("k-bob");
    let bob = bob.opened(&mut server, "b").await;
    let mut waiting = tokio::task::JoinSet::new();
    let mut asked = Vec::new();
    // Of 16 half is for whoever comes first, a quarter for whoever comes first at the server, and
    // the rest is shared out.
    for id in 0..14 {
        waiting.spawn(ann.post(&call(id)).send());
        asked.push(server.next().await);
    }
    let refused = ann.send(&call("more")).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (503, -31005));
    let reason = &refused.json()["error"]["data"]["reason"];
    assert_eq!(reason, "too_many_streams_of_caller");
    for id in 0..3 {
        let answer = bob
            .send_to(&mut server, &call(id), |asked| asked.result(&json!({})))
            .await;
        assert_eq!(answer.status, 200);
    }
    asked.into_iter().for_each(|asked| asked.result(&json!({})));
    assert!(waiting.join_all().await.iter().all(Result::is_ok));
    server.finish();
}

#[tokio::test]
async fn one_caller_cannot_take_every_session() {
    for keeps in [false, true] {
        let mut server = Scripted::start().await;
        let mut config = config(&[("s", server.url())]);
        config.callers = callers();
        config.limits.sessions = 16;
        let directory = tempfile::tempdir().unwrap();
        if keeps {
            // Of which one of a kind is at hand at most.
            config.store.kind = bowline::config::StoreKind::File {
                path: directory.path().to_owned(),
            };
            config.store.cache = 1;
        }
        let gateway = Gateway::start(config).await.unwrap();
        let mut opened = Vec::new();
        for number in 0..14 {
            let ann = Client::new(&gateway).with_key("k-ann");
            opened.push(ann.opened(&mut server, &format!("a{number}")).await);
        }
        let refused = Client::new(&gateway).with_key("k-ann").initialize().await;
        assert_eq!((refused.status.as_u16(), refused.code()), (503, -31005));
        let reason = &refused.json()["error"]["data"]["reason"];
        assert_eq!(reason, "too_many_sessions_of_caller");
        for number in 0..2 {
            let bob = Client::new(&gateway).with_key("k-bob");
            bob.opened(&mut server, &format!("b{number}")).await;
        }
        // An end makes room, wherever the session was meanwhile.
        let ended = sent(opened[0].delete()).await;
        assert_eq!(ended.status, 204);
        assert_eq!(server.next().await.method, "DELETE");
        let ann = Client::new(&gateway).with_key("k-ann");
        ann.opened(&mut server, "again").await;
        server.finish();
    }
}

/// One with a connection of its own, which it keeps, and what it was told on it.
async fn connected(gateway: &Gateway, key: &'static str) -> (Client, Answer) {
    let client = Client::new(gateway).with_key(key);
    let answer = sent(client.delete()).await;
    (client, answer)
}

#[tokio::test]
async fn a_caller_with_many_connections_leaves_the_others_theirs() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.callers = callers();
    config.limits.connections = 64;
    let gateway = Gateway::start(config).await.unwrap();
    let mut held = Vec::new();
    let refused = loop {
        let (client, answer) = connected(&gateway, "k-ann").await;
        if answer.status == 503 {
            break answer;
        }
        assert_eq!(answer.status, 400, "{answer:?}");
        held.push(client);
    };
    // All that is not shared out to the other.
    assert_eq!(held.len(), 56);
    let error = &refused.json()["error"];
    let reason = "too_many_connections_of_caller";
    assert_eq!(error["data"]["reason"], reason, "{error}");
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    // And what was refused is not held.
    for _ in 0..20 {
        assert_eq!(connected(&gateway, "k-ann").await.1.status, 503);
    }
    let bob = Client::new(&gateway)
        .with_key("k-bob")
        .opened(&mut server, "b")
        .await;
    let message = call(1);
    let answer = bob.send_to(&mut server, &message, |asked| asked.result(&json!({})));
    assert_eq!(answer.await.status, 200);
    // Whoever is in goes on, and one that leaves makes room.
    assert_eq!(sent(held[0].delete()).await.status, 400);
    held.pop();
    until_so("a place is free", async || {
        connected(&gateway, "k-ann").await.1.status == 400
    })
    .await;
    server.finish();
}

#[tokio::test]
async fn a_refusal_that_leaves_a_body_unread_says_that_the_connection_ends() {
    let server = Scripted::start().await;
    let gateway = guarded(&server).await;
    let client = Client::new(&gateway);
    let posted = sent(client.post(&initialize_message())).await;
    assert_eq!(posted.status, 401);
    assert_eq!(posted.headers["connection"], "close");
    let asked = sent(client.get()).await;
    assert_eq!(asked.status, 401);
    assert!(!asked.headers.contains_key("connection"));
}
