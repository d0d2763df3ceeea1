use std::collections::HashMap;

use super::*;
use crate::caller::KeyPrint;
use crate::config::{self, KeyHash};

fn keys() -> SealKeys {
    SealKeys::parse(&SealKeys::generate().unwrap()).unwrap()
}

fn server(name: &str) -> ServerName {
    name.parse().unwrap()
}

fn named(name: &str, key: &[u8]) -> Caller {
    let print = KeyPrint::of_caller(&config::Caller::with_key(KeyHash::of(key)));
    Caller::Named(name.parse().unwrap(), print)
}

fn open(mailboxes: &Arc<Mailboxes>, caller: &Caller) -> (OpenMailbox, String) {
    let limits = Limits::default();
    let opened = mailboxes.open(&server("s"), caller, None, &limits);
    let (open, token, _) = opened.unwrap();
    (open, token)
}

#[tokio::test]
async fn a_token_is_worth_something_to_its_caller_at_its_server_alone() {
    let (alone, ann) = (Owners::alone(), named("ann", b"k"));
    let mailboxes = Arc::new(Mailboxes::new("a", keys()));
    let (_open, token) = open(&mailboxes, &ann);
    let at = mailboxes.locate(&token, &server("s"), &ann, &alone).await;
    assert!(matches!(at, StreamAt::Here(_)), "{at:?}");
    for (server, caller) in [
        ("t", named("ann", b"k")),
        ("s", named("ann", b"another key")),
        ("s", named("bob", b"k")),
        ("s", Caller::Local),
    ] {
        let at = mailboxes
            .locate(&token, &self::server(server), &caller, &alone)
            .await;
        assert!(matches!(at, StreamAt::Gone), "{server} {caller:?}: {at:?}");
    }
}

#[tokio::test]
async fn a_token_that_was_changed_is_none() {
    let (alone, caller) = (Owners::alone(), Caller::Local);
    let mailboxes = Arc::new(Mailboxes::new("a", keys()));
    let (_open, token) = open(&mailboxes, &caller);
    let (_other, other) = open(&Arc::new(Mailboxes::new("a", keys())), &caller);
    let mut changed: Vec<String> = (0..token.len())
        .map(|at| {
            let mut bytes = token.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            String::from_utf8(bytes).unwrap()
        })
        .collect();
    changed.extend([String::new(), "a".repeat(100_000), "ä/?".to_owned(), other]);
    for changed in changed {
        let at = mailboxes
            .locate(&changed, &server("s"), &caller, &alone)
            .await;
        assert!(matches!(at, StreamAt::Gone), "{changed}: {at:?}");
    }
}

#[tokio::test]
async fn a_token_discloses_neither_its_stream_nor_its_gateway() {
    let mailboxes = Arc::new(Mailboxes::new("gateway-name", keys()));
    let (open, token) = open(&mailboxes, &Caller::Local);
    let sealed = BASE64_URL_SAFE_NO_PAD.decode(&token).unwrap();
    let contains = |what: &[u8]| sealed.windows(what.len()).any(|at| at == what);
    assert!(!contains(&open.id.0) && !contains(b"gateway"));
}

#[tokio::test]
async fn a_stream_that_has_ended_is_gone() {
    let (alone, caller) = (Owners::alone(), Caller::Local);
    let mailboxes = Arc::new(Mailboxes::new("a", keys()));
    let (open, token) = open(&mailboxes, &caller);
    assert_eq!(mailboxes.count(), 1);
    drop(open);
    assert_eq!(mailboxes.count(), 0);
    let at = mailboxes
        .locate(&token, &server("s"), &caller, &alone)
        .await;
    assert!(matches!(at, StreamAt::Gone), "{at:?}");
}

#[tokio::test(start_paused = true)]
async fn another_gateway_on_the_store_knows_where_a_stream_is() {
    let (keys, caller) = (keys(), Caller::Local);
    let mailboxes = Arc::new(Mailboxes::new("a", keys.clone()));
    let (_open, token) = open(&mailboxes, &caller);
    let other = Mailboxes::new("b", keys);
    let owners = Owners::on_store("b", true);
    // Nobody has looked: that the gateway is gone is not known.
    let at = other.locate(&token, &server("s"), &caller, &owners).await;
    assert!(
        matches!(&at, StreamAt::Elsewhere(gateway) if &**gateway == "a"),
        "{at:?}"
    );
    let looking = async {
        owners.wanted().await;
        tokio::time::advance(Duration::from_millis(1)).await;
        owners.saw(Instant::now(), Some(HashMap::from([("b".into(), None)])));
    };
    let server = server("s");
    let (at, ()) = tokio::join!(other.locate(&token, &server, &caller, &owners), looking);
    assert!(matches!(at, StreamAt::Gone), "{at:?}");
}
