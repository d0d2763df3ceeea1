//! Several gateways, or processes, with one vault.

use std::path::Path;

use bowline_store::sealed::SealKeys;
use bowline_testbed::redis::Redis as Server;
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

use super::*;
use crate::oauth::vault::tests::share;
use crate::oauth::vault::{File, KeySource};

fn new_keys() -> SealKeys {
    SealKeys::parse(&SealKeys::generate().unwrap()).unwrap()
}

fn shared(server: &Server, keys: &SealKeys, me: &str) -> Arc<Vault> {
    Arc::new(Vault::Shared(share(server, keys, me)))
}

fn file(directory: &Path) -> Arc<Vault> {
    let key_source = KeySource::KeyFile(directory.join("vault.key"));
    Arc::new(Vault::File(File::open(directory, key_source).unwrap()))
}

async fn connection(server: &Server) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// Fifty requests on three gateways are refused at once, again and again: each time one refresh, and
/// all get what it brought. No refresh token is ever used twice.
async fn one_refresh_for_all(vaults: [Arc<Vault>; 3]) {
    let issuer = Scripted::new();
    let gateways = vaults.map(|vault| gateway(&vault, &issuer));
    let mut sent = sign_in(&gateways[0]).await;
    let signed_in = sent.sign_in;
    for round in 1..=4 {
        let mut all = JoinSet::new();
        for number in 0..50 {
            let (grants, sent) = (Arc::clone(&gateways[number % 3]), Arc::clone(&sent));
            all.spawn(async move { refused(&grants, &sent).await });
        }
        let brought = all.join_all().await;
        assert_eq!(issuer.calls(), round);
        let expected = format!("Bearer access-secret-{round}");
        for bearer in &brought {
            assert_eq!(bearer.header(), &expected);
            assert_eq!(bearer.sign_in, signed_in);
        }
        sent = Arc::clone(&brought[0]);
        for grants in &gateways {
            assert_eq!(cached_bearer(grants).header(), &expected);
        }
    }
    assert_eq!(issuer.replays.load(Ordering::SeqCst), 0);
}

/// Two gateways that share a store and an authorization server.
async fn two_gateways() -> (Server, Arc<Scripted>, [Arc<Grants>; 2]) {
    let server = Server::start().await.unwrap();
    let keys = new_keys();
    let issuer = Scripted::new();
    let gateways = ["a", "b"].map(|me| gateway(&shared(&server, &keys, me), &issuer));
    (server, issuer, gateways)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_refresh_for_fifty_requests_on_three_gateways() {
    let server = Server::start().await.unwrap();
    let keys = new_keys();
    one_refresh_for_all(["a", "b", "c"].map(|me| shared(&server, &keys, me))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_refresh_for_fifty_requests_of_three_processes() {
    let directory = tempfile::tempdir().unwrap();
    one_refresh_for_all([(); 3].map(|()| file(directory.path()))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_refresh_for_fifty_requests_in_one_process() {
    let vault = memory();
    one_refresh_for_all([(); 3].map(|()| Arc::clone(&vault))).await;
}

/// What one process signs in to, the other finds when it is refused.
#[tokio::test]
async fn a_sign_in_on_the_command_line_is_found_by_the_gateway() {
    let directory = tempfile::tempdir().unwrap();
    let issuer = Scripted::new();
    let serve = gateway(&file(directory.path()), &issuer);
    assert!(serve.bearer("alice", URL).await.unwrap().is_none());
    assert!(matches!(
        serve.cached_bearer("alice", URL),
        CachedBearer::SignedOut
    ));
    let login = gateway(&file(directory.path()), &issuer);
    let signed_in = sign_in(&login).await;
    let found = serve.refused("alice", URL, None).await.unwrap().unwrap();
    assert!(found.is(&signed_in));
    // Nobody else's.
    for (caller, url) in [("bob", URL), ("", URL), ("alice", "https://other.example")] {
        assert!(serve.bearer(caller, url).await.unwrap().is_none());
    }
    login.sign_out("alice", URL).await.unwrap().unwrap();
    assert!(
        serve
            .refused("alice", URL, Some(&found))
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(issuer.calls(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_tokens_are_not_lost_when_the_store_is() {
    let mut server = Server::start().await.unwrap();
    let keys = new_keys();
    let issuer = Scripted::new();
    let [a, b] = ["a", "b"].map(|me| gateway(&shared(&server, &keys, me), &issuer));
    let sent = sign_in(&a).await;
    issuer.hold_back();
    let (grants, old) = (Arc::clone(&a), Arc::clone(&sent));
    let asking = a.tracker.spawn(async move { refused(&grants, &old).await });
    issuer.called(1).await;
    server.kill().await.unwrap();
    issuer.answer();
    // It is used although it could not be written.
    let new = asking.await.unwrap();
    assert_eq!(new.header(), "Bearer access-secret-1");
    assert!(cached_bearer(&a).is(&new));
    server.restart_empty().await.unwrap();
    // And it is written when it can be, although the store forgot everything.
    let vault = shared(&server, &keys, "c");
    let waiting = async {
        while !matches!(vault.signed_in("alice", URL).await, Ok(found) if found.value.is_some()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting)
        .await
        .unwrap();
    let there = b.bearer("alice", URL).await.unwrap().unwrap();
    assert!(there.is(&new));
    // The claim is free again, too.
    assert_eq!(refused(&b, &new).await.header(), "Bearer access-secret-2");
    assert_eq!(issuer.replays.load(Ordering::SeqCst), 0);
}

/// A store that forgot everything while tokens were good learns of them when they are next renewed.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_store_forgot_is_put_back_by_one_of_those_who_know() {
    let (server, issuer, [a, b]) = two_gateways().await;
    let first = sign_in(&a).await;
    let second = refused(&a, &first).await;
    assert!(b.bearer("alice", URL).await.unwrap().unwrap().is(&second));
    let mut connection = connection(&server).await;
    let flush = redis::cmd("FLUSHALL");
    flush.exec_async(&mut connection).await.unwrap();
    let mut all = JoinSet::new();
    for grants in [&a, &b, &a, &b] {
        let (grants, sent) = (Arc::clone(grants), Arc::clone(&second));
        all.spawn(async move { refused(&grants, &sent).await });
    }
    for bearer in all.join_all().await {
        assert_eq!(bearer.header(), "Bearer access-secret-2");
    }
    assert_eq!(issuer.calls(), 2);
    assert_eq!(issuer.replays.load(Ordering::SeqCst), 0);
}

/// A replica that took over may lack the last writes. Whoever made them notices, and does not use
/// what they replaced.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_went_back_does_not_take_grants_back() {
    let (server, issuer, [a, b]) = two_gateways().await;
    let first = sign_in(&a).await;
    let mut connection = connection(&server).await;
    let names: Vec<String> = connection.keys("bowline:{grant/*").await.unwrap();
    let [name] = names.as_slice() else {
        panic!("{names:?}");
    };
    let mut dump = redis::cmd("DUMP");
    let before: Vec<u8> = dump.arg(name).query_async(&mut connection).await.unwrap();
    let second = refused(&a, &first).await;
    let mut back = redis::cmd("RESTORE");
    back.arg(name).arg(0).arg(before).arg("REPLACE");
    back.exec_async(&mut connection).await.unwrap();
    let third = refused(&a, &second).await;
    assert_eq!(third.header(), "Bearer access-secret-2");
    assert!(b.bearer("alice", URL).await.unwrap().unwrap().is(&third));
    assert_eq!(issuer.replays.load(Ordering::SeqCst), 0);
}

/// Whoever put back what was there before a sign-out: the gateway that knows of it does not sign in again, and neither
/// do the others from then on.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_went_back_does_not_undo_a_sign_out() {
    let (server, issuer, [a, b]) = two_gateways().await;
    sign_in(&a).await;
    let mut connection = connection(&server).await;
    let names: Vec<String> = connection.keys("bowline:{*").await.unwrap();
    let mut before: Vec<(String, Vec<u8>)> = Vec::new();
    for name in names {
        let mut dump = redis::cmd("DUMP");
        let dumped = dump.arg(&name).query_async(&mut connection).await.unwrap();
        before.push((name, dumped));
    }
    a.sign_out("alice", URL).await.unwrap().unwrap();
    for (name, dumped) in before {
        let mut back = redis::cmd("RESTORE");
        back.arg(name).arg(0).arg(dumped).arg("REPLACE");
        back.exec_async(&mut connection).await.unwrap();
    }
    for grants in [&a, &a, &b] {
        let asked = grants.refused("alice", URL, None).await;
        assert!(asked.unwrap().is_none());
    }
    // She can sign in again, of course.
    let again = sign_in(&a).await;
    assert!(
        b.refused("alice", URL, None)
            .await
            .unwrap()
            .unwrap()
            .is(&again)
    );
    assert_eq!(issuer.calls(), 0);
}

/// Nor does a sign-in elsewhere after that get lost: it is later than what is at hand.
#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_to_a_store_that_forgot_the_last_one_is_a_new_one() {
    let (server, _, [a, b]) = two_gateways().await;
    let first = sign_in(&a).await;
    let mut connection = connection(&server).await;
    let flush = redis::cmd("FLUSHALL");
    flush.exec_async(&mut connection).await.unwrap();
    // Nobody signs in twice within a second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let tokens = tokens("another-account", Some("x"), Some(LIFE));
    let second = b
        .sign_in("alice", URL, 0, credentials(tokens))
        .await
        .unwrap();
    assert!(second.sign_in > first.sign_in);
    assert!(refused(&a, &first).await.is(&second));
}

#[tokio::test]
async fn a_store_that_is_away_is_not_a_sign_out() {
    let mut server = Server::start().await.unwrap();
    let keys = new_keys();
    let issuer = Scripted::new();
    let [a, b] = ["a", "b"].map(|me| gateway(&shared(&server, &keys, me), &issuer));
    let sent = sign_in(&a).await;
    server.kill().await.unwrap();
    // What is at hand is used; nothing else is known.
    assert!(cached_bearer(&a).is(&sent));
    for asked in [
        a.refused("alice", URL, Some(&sent)).await,
        b.bearer("alice", URL).await,
    ] {
        assert!(matches!(asked, Err(GrantError::Vault(_))), "{asked:?}");
    }
    assert!(cached_bearer(&a).is(&sent));
    assert_eq!(issuer.calls(), 0);
}

/// A token can be good for long after a sign-out: the gateway beside has to notice.
#[tokio::test(flavor = "multi_thread")]
async fn a_sign_out_by_another_process_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let issuer = Scripted::new();
    let [gateway, command] = [(); 2].map(|()| gateway(&file(directory.path()), &issuer));
    sign_in(&command).await;
    gateway.notice().await;
    gateway.bearer("alice", URL).await.unwrap().unwrap();
    // Nothing was written since.
    gateway.notice().await;
    assert!(matches!(
        gateway.cached_bearer("alice", URL),
        CachedBearer::Bearer(_)
    ));
    command.sign_out("alice", URL).await.unwrap().unwrap();
    until("the sign-out is noticed", || {
        let noticing = Arc::clone(&gateway);
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(noticing.notice());
        });
        matches!(gateway.cached_bearer("alice", URL), CachedBearer::SignedOut)
    })
    .await;
    assert_eq!(issuer.calls(), 0);
}

/// Whoever shares a store hears of it within half a minute of use.
#[tokio::test(start_paused = true)]
async fn a_sign_out_at_another_gateway_is_noticed_in_time() {
    let (vault, issuer) = (memory(), Scripted::new());
    let [one, other] = [(); 2].map(|()| gateway(&vault, &issuer));
    sign_in(&one).await;
    one.bearer("alice", URL).await.unwrap().unwrap();
    other.sign_out("alice", URL).await.unwrap().unwrap();
    tokio::time::advance(Duration::from_secs(25)).await;
    assert!(matches!(
        one.cached_bearer("alice", URL),
        CachedBearer::Bearer(_)
    ));
    tokio::time::advance(Duration::from_secs(10)).await;
    // This one still goes, and somebody looks.
    assert!(matches!(
        one.cached_bearer("alice", URL),
        CachedBearer::Bearer(_)
    ));
    until("the sign-out is noticed", || {
        matches!(one.cached_bearer("alice", URL), CachedBearer::SignedOut)
    })
    .await;
}
