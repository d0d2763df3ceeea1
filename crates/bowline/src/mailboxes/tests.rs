use std::collections::HashMap;

use super::*;
use crate::caller::Caller;
use crate::callers::Callers;
use crate::config::{self, KeyHash, ServerName};

fn keys() -> SealKeys {
    SealKeys::parse(&SealKeys::generate().unwrap()).unwrap()
}

fn server(name: &str) -> ServerName {
    name.parse().unwrap()
}

/// A caller that is configured, and its leave to use a server.
struct Known(Callers, Caller);

fn named(name: &str, key: &[u8]) -> Known {
    let caller = config::Caller::with_key(KeyHash::of(key));
    let name: config::CallerName = name.parse().unwrap();
    let callers = Callers::new(&[(name.clone(), caller)].into());
    let caller = callers.named(name);
    Known(callers, caller)
}

fn local() -> Known {
    Known(Callers::default(), Caller::Local)
}

impl Known {
    fn at<'a>(&'a self, server: &'a ServerName) -> Permitted<'a> {
        self.0.permit(&self.1, server).unwrap()
    }
}

fn open(mailboxes: &Arc<Mailboxes>, caller: &Known) -> (OpenMailbox, String) {
    let (limits, server) = (Limits::default(), server("s"));
    let opened = mailboxes.open(&caller.at(&server), None, &limits);
    let (open, token, _) = opened.unwrap();
    (open, token)
}

#[tokio::test]
async fn a_token_is_worth_something_to_its_caller_at_its_server_alone() {
    let (alone, ann) = (Owners::alone(), named("ann", b"k"));
    let mailboxes = Arc::new(Mailboxes::new("a", keys()));
    let (_open, token) = open(&mailboxes, &ann);
    let at = mailboxes
        .locate(&token, &ann.at(&server("s")), &alone)
        .await;
    assert!(matches!(at, StreamAt::Here(_)), "{at:?}");
    for (server, caller) in [
        ("t", named("ann", b"k")),
        ("s", named("ann", b"another key")),
        ("s", named("bob", b"k")),
        ("s", local()),
    ] {
        let name = self::server(server);
        let at = mailboxes.locate(&token, &caller.at(&name), &alone).await;
        assert!(
            matches!(at, StreamAt::Gone),
            "{server} {:?}: {at:?}",
            caller.1
        );
    }
}

#[tokio::test]
async fn a_token_that_was_changed_is_none() {
    let (alone, caller) = (Owners::alone(), local());
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
            .locate(&changed, &caller.at(&server("s")), &alone)
            .await;
        assert!(matches!(at, StreamAt::Gone), "{changed}: {at:?}");
    }
}

#[tokio::test]
async fn a_token_discloses_neither_its_stream_nor_its_gateway() {
    let mailboxes = Arc::new(Mailboxes::new("gateway-name", keys()));
    let (open, token) = open(&mailboxes, &local());
    let sealed = BASE64_URL_SAFE_NO_PAD.decode(&token).unwrap();
    let contains = |what: &[u8]| sealed.windows(what.len()).any(|at| at == what);
    assert!(!contains(&open.id.0) && !contains(b"gateway"));
}

#[tokio::test]
async fn a_stream_that_has_ended_is_gone() {
    let (alone, caller) = (Owners::alone(), local());
    let mailboxes = Arc::new(Mailboxes::new("a", keys()));
    let (open, token) = open(&mailboxes, &caller);
    assert_eq!(mailboxes.count(), 1);
    drop(open);
    assert_eq!(mailboxes.count(), 0);
    let at = mailboxes
        .locate(&token, &caller.at(&server("s")), &alone)
        .await;
    assert!(matches!(at, StreamAt::Gone), "{at:?}");
}

#[tokio::test(start_paused = true)]
async fn another_gateway_on_the_store_knows_where_a_stream_is() {
    let (keys, caller) = (keys(), local());
    let mailboxes = Arc::new(Mailboxes::new("a", keys.clone()));
    let (_open, token) = open(&mailboxes, &caller);
    let other = Mailboxes::new("b", keys);
    let owners = Owners::on_store("b", true);
    // Nobody has looked: that the gateway is gone is not known.
    let at = other
        .locate(&token, &caller.at(&server("s")), &owners)
        .await;
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
    let permitted = caller.at(&server);
    let (at, ()) = tokio::join!(other.locate(&token, &permitted, &owners), looking);
    assert!(matches!(at, StreamAt::Gone), "{at:?}");
}
