//! What only a shared store can break: whoever can write to it, and a gateway that dies.

use ::redis::{Client, Value, cmd};

use super::*;

async fn raw(server: &Server, arguments: &[&[u8]]) -> Value {
    let client = Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut command = cmd(std::str::from_utf8(arguments[0]).unwrap());
    command.arg(&arguments[1..]);
    command.query_async(&mut connection).await.unwrap()
}

/// The value of a field of a slot, as it lies in Redis.
async fn field(server: &Server, slot: &Key, field: &str) -> Vec<u8> {
    let name = format!("bowline:{{{}}}", slot.as_str());
    match raw(server, &[b"HGET", name.as_bytes(), field.as_bytes()]).await {
        Value::BulkString(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_lies_in_redis_is_sealed_for_its_place() {
    let server = Server::start().await.unwrap();
    let keys = new_keys();
    let vault = Vault::Shared(share(&server, &keys, "a"));
    let alice = grant("access-secret", Some("refresh-secret"));
    let mut bob = alice.clone();
    bob.caller = "bob".to_owned();
    for grant in [&alice, &bob] {
        vault
            .put_grant(grant, NEVER_WRITTEN)
            .await
            .unwrap()
            .unwrap();
    }
    let slot = alice.key().slot();
    let record = field(&server, &slot, "r").await;
    for secret in ["access-secret", "refresh-secret", "alice"] {
        let found = record
            .windows(secret.len())
            .any(|at| at == secret.as_bytes());
        assert!(!found, "{secret} can be read");
    }
    // One caller's grant does not open as another's.
    let name = format!("bowline:{{{}}}", bob.key().slot().as_str());
    raw(&server, &[b"HSET", name.as_bytes(), b"r", &record]).await;
    let refused = vault.grant(&bob.key()).await.unwrap_err();
    let is_tampered = matches!(refused, VaultError::Sealed(OpenError::Tampered));
    assert!(is_tampered, "{refused}");
    // Nor an old version as a newer one, nor with other keys.
    let name = format!("bowline:{{{}}}", slot.as_str());
    let stranger = Vault::Shared(share(&server, &new_keys(), "b"));
    stranger.grant(&alice.key()).await.unwrap_err();
    raw(&server, &[b"HSET", name.as_bytes(), b"v", b"2"]).await;
    vault.grant(&alice.key()).await.unwrap_err();
    assert!(!format!("{vault:?}").contains("secret"));
}

/// It is kept for months, from the last time that somebody wrote or used it.
#[tokio::test]
async fn what_is_used_stays() {
    let server = Server::start().await.unwrap();
    let vault = Vault::Shared(share(&server, &new_keys(), "a"));
    let grant = grant("one", None);
    let name = format!("bowline:{{{}}}", grant.key().slot().as_str());
    let long = async || match raw(&server, &[b"TTL", name.as_bytes()]).await {
        Value::Int(seconds) => seconds > 89 * 24 * 60 * 60,
        other => panic!("{other:?}"),
    };
    vault
        .put_grant(&grant, NEVER_WRITTEN)
        .await
        .unwrap()
        .unwrap();
    assert!(long().await);
    raw(&server, &[b"EXPIRE", name.as_bytes(), b"1000"]).await;
    vault.put_grant(&grant, Version(1)).await.unwrap().unwrap();
    assert!(long().await, "a write did not begin its time anew");
    raw(&server, &[b"EXPIRE", name.as_bytes(), b"1000"]).await;
    vault.mark_used("alice", "url", &grant.key()).await.unwrap();
    assert!(long().await, "a use did not begin its time anew");
}

#[tokio::test]
async fn a_claim_is_held_for_as_long_as_its_gateway_lives() {
    let server = Server::start().await.unwrap();
    let keys = new_keys();
    let [a, b] = ["a", "b"].map(|me| Vault::Shared(share(&server, &keys, me)));
    let key = grant("one", None).key();
    let name = format!("bowline:lease:{{refresh/{}}}", key.slot().as_str());
    let held = a.claim_refresh(&key).await.unwrap();
    // As if most of its time were over: the holder renews it.
    raw(&server, &[b"PEXPIRE", name.as_bytes(), b"5000"]).await;
    let renewed = async {
        loop {
            match raw(&server, &[b"PTTL", name.as_bytes()]).await {
                Value::Int(left) if left > 5000 => return,
                Value::Int(left) if left > 0 => {}
                other => panic!("{other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), renewed)
        .await
        .unwrap();
    drop(held);
    // A gateway that is gone renews nothing, and its claim runs out.
    raw(
        &server,
        &[b"SET", name.as_bytes(), b"dead/0", b"PX", b"300"],
    )
    .await;
    drop(b.claim_refresh(&key).await.unwrap());
}

#[tokio::test]
async fn a_store_that_is_away_is_no_absence() {
    let mut server = Server::start().await.unwrap();
    let vault = Vault::Shared(share(&server, &new_keys(), "a"));
    let grant = grant("one", None);
    vault
        .put_grant(&grant, NEVER_WRITTEN)
        .await
        .unwrap()
        .unwrap();
    server.kill().await.unwrap();
    for result in [
        vault.grant(&grant.key()).await.map(drop),
        vault.put_grant(&grant, Version(1)).await.map(drop),
        vault.signed_in("alice", "url").await.map(drop),
        vault.claim_refresh(&grant.key()).await.map(drop),
    ] {
        assert!(matches!(result, Err(VaultError::Store(_))), "{result:?}");
    }
}
