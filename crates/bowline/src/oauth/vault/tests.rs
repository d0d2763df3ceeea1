//! The laws of a vault, tried on every kind, and what only one kind can break.
//!
//! A law is a function of two handles on one vault, as two processes or gateways have them; a handle
//! is the same twice where only one process can have the vault.

mod file;
mod shared;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline_store::sealed::SealKeys;
use bowline_store::{Redis, RedisAddress, Store};
use bowline_testbed::redis::Redis as Server;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

use super::*;
use crate::oauth::grant::ClientIdentity;
use crate::oauth::grant::tests::{credentials, grant, tokens};

/// Two handles on one vault, and what it lives on.
struct Fixture {
    a: Arc<Vault>,
    b: Arc<Vault>,
    _directory: Option<TempDir>,
    _server: Option<Server>,
}

impl Fixture {
    async fn memory() -> Self {
        let a = Arc::new(Vault::Memory(Memory::default()));
        Self {
            b: Arc::clone(&a),
            a,
            _directory: None,
            _server: None,
        }
    }

    async fn file() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let handle = || Arc::new(Vault::File(open(directory.path()).unwrap()));
        Self {
            a: handle(),
            b: handle(),
            _directory: Some(directory),
            _server: None,
        }
    }

    async fn shared() -> Self {
        let server = Server::start().await.unwrap();
        let keys = new_keys();
        Self {
            a: Arc::new(Vault::Shared(share(&server, &keys, "a"))),
            b: Arc::new(Vault::Shared(share(&server, &keys, "b"))),
            _directory: None,
            _server: Some(server),
        }
    }
}

fn open(directory: &Path) -> Result<File, VaultError> {
    File::open(directory, KeySource::KeyFile(directory.join("vault.key")))
}

fn new_keys() -> SealKeys {
    SealKeys::parse(&SealKeys::generate().unwrap()).unwrap()
}

/// A gateway's handle on a Redis.
pub(in crate::oauth) fn share(server: &Server, keys: &SealKeys, me: &str) -> Shared {
    let place = RedisAddress {
        url: server.url(),
        user: None,
        password: None,
        trust: None,
        prefix: "bowline".to_owned(),
        timeout: Duration::from_secs(5),
    };
    let store = Store::Redis(Box::new(Redis::new(place).unwrap()));
    Shared::new(Arc::new(store), keys.clone(), me.into(), TaskTracker::new())
}

/// Makes a module of a law, with a test for each kind.
macro_rules! law {
    ($($law:ident),* $(,)?) => {$(
        mod $law {
            use super::Fixture;

            #[tokio::test(flavor = "multi_thread")]
            async fn memory() {
                super::$law(Fixture::memory().await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn file() {
                super::$law(Fixture::file().await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn shared() {
                super::$law(Fixture::shared().await).await;
            }
        }
    )*};
}

law! {
    what_is_written_is_there,
    each_version_is_written_once,
    what_is_taken_out_leaves_its_version,
    a_sign_in_says_which_grant,
    the_urls_of_a_name_are_remembered,
    a_registration_is_kept_per_server_issuer_and_redirect_uri,
    a_server_has_a_handful_of_registrations,
    a_client_is_forgotten_if_it_is_still_that_one,
    one_holds_the_claim_at_a_time,
}

async fn what_is_written_is_there(Fixture { a, b, .. }: Fixture) {
    let first = grant("one", Some("refresh"));
    let key = first.key();
    let nothing = StoredValue {
        version: NEVER_WRITTEN,
        value: None,
    };
    assert_eq!(a.grant(&key).await.unwrap(), nothing);
    let version = a.put_grant(&first, NEVER_WRITTEN).await.unwrap();
    assert_eq!(version, Some(Version(1)));
    let stored = b.grant(&key).await.unwrap();
    assert_eq!((stored.version, stored.value), (Version(1), Some(first)));
    // Each part of its key makes it another grant.
    for other in [
        |key: &mut GrantKey| key.caller = "bob".to_owned(),
        |key: &mut GrantKey| key.issuer.push('/'),
        |key: &mut GrantKey| key.resource.push('/'),
        |key: &mut GrantKey| key.client_id.push('2'),
    ] {
        let mut key = key.clone();
        other(&mut key);
        assert_eq!(b.grant(&key).await.unwrap(), nothing, "{key:?}");
    }
}

async fn each_version_is_written_once(Fixture { a, b, .. }: Fixture) {
    let mut all = JoinSet::new();
    for number in 0..8 {
        let vault = Arc::clone(if number % 2 == 0 { &a } else { &b });
        all.spawn(async move {
            let mut written = Vec::new();
            while written.len() < 3 {
                let text = format!("{number}.{}", written.len());
                let grant = grant(&text, None);
                let replaces = vault.grant(&grant.key()).await.unwrap().version;
                if let Some(version) = vault.put_grant(&grant, replaces).await.unwrap() {
                    assert_eq!(version, replaces.next());
                    written.push((version, text));
                }
            }
            written
        });
    }
    let mut written = all.join_all().await.concat();
    written.sort();
    let versions: Vec<_> = written.iter().map(|(version, _)| version.0).collect();
    assert_eq!(versions, (1..=24).collect::<Vec<_>>());
    let last = b.grant(&grant("", None).key()).await.unwrap();
    assert_eq!(last.version, Version(24));
    assert!(last.value.unwrap().access_token.is(&written[23].1));
}

async fn what_is_taken_out_leaves_its_version(Fixture { a, b, .. }: Fixture) {
    let first = grant("one", Some("refresh"));
    let key = first.key();
    assert!(!a.remove_grant(&key, Version(1)).await.unwrap());
    a.put_grant(&first, NEVER_WRITTEN).await.unwrap().unwrap();
    assert!(!b.remove_grant(&key, NEVER_WRITTEN).await.unwrap());
    assert!(b.remove_grant(&key, Version(1)).await.unwrap());
    let stored = a.grant(&key).await.unwrap();
    assert_eq!((stored.version, stored.value), (Version(2), None));
    // Whoever refreshed it meanwhile is late, also after the next sign-in.
    assert_eq!(a.put_grant(&first, Version(1)).await.unwrap(), None);
    let next = a.put_grant(&first, Version(2)).await.unwrap();
    assert_eq!(next, Some(Version(3)));
    assert_eq!(b.put_grant(&first, Version(1)).await.unwrap(), None);
    assert!(!b.remove_grant(&key, Version(1)).await.unwrap());
}

async fn a_sign_in_says_which_grant(Fixture { a, b, .. }: Fixture) {
    let url = "https://mcp.example/mcp";
    let mut sign_in = SignIn {
        caller: "alice".to_owned(),
        server_url: url.to_owned(),
        grant: Some(grant("one", None).key()),
        number: 1,
        sign_outs: 0,
    };
    assert!(a.put_signed_in(&sign_in, NEVER_WRITTEN).await.unwrap());
    assert!(!b.put_signed_in(&sign_in, NEVER_WRITTEN).await.unwrap());
    let stored = b.signed_in("alice", url).await.unwrap();
    assert_eq!(stored.value.as_ref(), Some(&sign_in));
    for (caller, url) in [("bob", url), ("alice", "https://mcp.example/"), ("", url)] {
        assert_eq!(b.signed_in(caller, url).await.unwrap().value, None);
    }
    sign_in.grant = None;
    assert!(b.put_signed_in(&sign_in, stored.version).await.unwrap());
    let stored = a.signed_in("alice", url).await.unwrap();
    assert_eq!(stored.value, Some(sign_in));
    let key = grant("one", None).key();
    a.mark_used("alice", url, &key).await.unwrap();
}

async fn the_urls_of_a_name_are_remembered(Fixture { a, b, .. }: Fixture) {
    assert!(a.places("s").await.unwrap().is_empty());
    for url in ["one", "two", "one", "one"] {
        a.note_place("s", url).await.unwrap();
    }
    assert_eq!(b.places("s").await.unwrap(), ["two", "one"]);
    assert!(b.places("t").await.unwrap().is_empty());
    for number in 0..20 {
        b.note_place("s", &number.to_string()).await.unwrap();
    }
    let places = a.places("s").await.unwrap();
    assert_eq!((places.len(), &*places[0], &*places[15]), (16, "4", "19"));
}

/// A server, and who issues its tokens.
const REGISTRAR: Registrar<'_> = Registrar {
    server_url: "server",
    issuer: "issuer",
};

fn client() -> ClientIdentity {
    credentials(tokens("", None, None)).client
}

async fn a_registration_is_kept_per_server_issuer_and_redirect_uri(Fixture { a, b, .. }: Fixture) {
    let mut client = client();
    let uri = client.redirect_uri.clone();
    assert_eq!(a.registration(REGISTRAR, &uri).await.unwrap(), None);
    a.put_registration(REGISTRAR, &client).await.unwrap();
    let kept = b.registration(REGISTRAR, &uri).await.unwrap();
    assert_eq!(kept.as_ref(), Some(&client));
    for (server_url, issuer) in [("server", "other"), ("other", "issuer")] {
        let other = Registrar { server_url, issuer };
        assert_eq!(b.registration(other, &uri).await.unwrap(), None);
    }
    assert_eq!(b.registration(REGISTRAR, "http://x/").await.unwrap(), None);
    client.id = "another".to_owned();
    client.secret = None;
    b.put_registration(REGISTRAR, &client).await.unwrap();
    let kept = a.registration(REGISTRAR, &uri).await.unwrap();
    assert_eq!(kept, Some(client));
}

/// A server may name another issuer each time.
async fn a_server_has_a_handful_of_registrations(Fixture { a, b, .. }: Fixture) {
    let client = client();
    let uri = &client.redirect_uri;
    let other = Registrar {
        server_url: "other",
        ..REGISTRAR
    };
    a.put_registration(other, &client).await.unwrap();
    let issuers: Vec<String> = (0..20).map(|number| format!("issuer-{number}")).collect();
    let registrar = |issuer| Registrar {
        issuer,
        ..REGISTRAR
    };
    for issuer in &issuers {
        a.put_registration(registrar(issuer), &client)
            .await
            .unwrap();
    }
    let mut kept = Vec::new();
    for issuer in &issuers {
        let found = b.registration(registrar(issuer), uri).await.unwrap();
        kept.push(found.is_some());
    }
    assert_eq!(kept, [[false; 12].as_slice(), &[true; 8]].concat());
    assert!(b.registration(other, uri).await.unwrap().is_some());
}

async fn one_holds_the_claim_at_a_time(Fixture { a, b, .. }: Fixture) {
    let key = grant("one", None).key();
    let mut other = key.clone();
    other.client_id.push('2');
    let taken = Arc::new(AtomicUsize::new(0));
    let at_once = Arc::new(AtomicUsize::new(0));
    let held = a.claim_refresh(&key).await.unwrap();
    let mut all = JoinSet::new();
    for number in 0..6 {
        let vault = Arc::clone(if number % 2 == 0 { &a } else { &b });
        let (key, taken, at_once) = (key.clone(), Arc::clone(&taken), Arc::clone(&at_once));
        all.spawn(async move {
            let _claim = vault.claim_refresh(&key).await.unwrap();
            taken.fetch_add(1, Ordering::SeqCst);
            assert_eq!(
                at_once.fetch_add(1, Ordering::SeqCst),
                0,
                "two hold the claim"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
            at_once.fetch_sub(1, Ordering::SeqCst);
        });
    }
    // Another grant's claim is free. By then everybody has asked.
    drop(b.claim_refresh(&other).await.unwrap());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(taken.load(Ordering::SeqCst), 0, "the claim was held");
    drop(held);
    all.join_all().await;
    assert_eq!(taken.load(Ordering::SeqCst), 6);
}

async fn a_client_is_forgotten_if_it_is_still_that_one(Fixture { a, b, .. }: Fixture) {
    let client = client();
    let uri = client.redirect_uri.clone();
    a.put_registration(REGISTRAR, &client).await.unwrap();
    a.put_named_client("alice", "issuer", &client)
        .await
        .unwrap();
    a.put_named_client("bob", "issuer", &client).await.unwrap();
    let other = ClientIdentity {
        id: "another".to_owned(),
        ..client.clone()
    };
    b.forget_client("alice", REGISTRAR, &other).await.unwrap();
    assert!(a.registration(REGISTRAR, &uri).await.unwrap().is_some());
    b.forget_client("alice", REGISTRAR, &client).await.unwrap();
    assert_eq!(a.registration(REGISTRAR, &uri).await.unwrap(), None);
    let named = |caller| a.named_client(caller, "issuer", &uri);
    assert_eq!(named("alice").await.unwrap(), None);
    assert!(named("bob").await.unwrap().is_some());
    a.put_registration(REGISTRAR, &other).await.unwrap();
    assert!(b.registration(REGISTRAR, &uri).await.unwrap().is_some());
}
