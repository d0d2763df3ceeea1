//! Who is present on a Redis, also when it is full, and together with gateways of an older version.

use bowline_testbed::redis::Fitness;

use super::redis::raw;
use super::*;
use crate::{ListedGateway, Presence, Refusal, StoreError};

/// How an older gateway says that it is present: its id, what it says, for how long.
const OLD_APPEAR: &str = "
local time = redis.call('TIME')
local until_ms = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3]
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f ', until_ms) .. ARGV[2])
return 1";

/// How it sees who is.
const OLD_GATEWAYS: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local all, found = redis.call('HGETALL', KEYS[1]), {}
for at = 1, #all, 2 do
  local until_ms, presence = string.match(all[at + 1], '^(%d+) (.*)$')
  if until_ms and tonumber(until_ms) > now then
    found[#found + 1] = presence
  else
    redis.call('HDEL', KEYS[1], all[at])
  end
end
return found";

const LIST: &str = "bowline:gateways";

fn presence(id: &str) -> Presence {
    Presence {
        id: id.to_owned(),
        version: "0.1.0".to_owned(),
        seal_keys: vec!["00ff".to_owned()],
        servers: "s".to_owned(),
        peer: None,
    }
}

/// A gateway of this version, and an older one's view.
async fn start() -> (Server, Store) {
    let server = Server::start().await.unwrap();
    let store = connect(&server, None, TIMEOUT);
    (server, store)
}

async fn seen_by_old(server: &Server) -> Vec<Presence> {
    let seen = raw(server, &["EVAL", OLD_GATEWAYS, "1", LIST]).await;
    let seen: Vec<Vec<u8>> = ::redis::from_redis_value(seen).unwrap();
    let read = seen.iter().map(|one| serde_json::from_slice(one).unwrap());
    read.collect()
}

async fn old_appears(server: &Server, id: &str, millis: &str) {
    let said = serde_json::to_string(&presence(id)).unwrap();
    raw(server, &["EVAL", OLD_APPEAR, "1", LIST, id, &said, millis]).await;
}

/// The only gateway that is listed.
async fn only(store: &Store) -> ListedGateway {
    let mut listed = store.gateways().await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    listed.remove(0)
}

/// Waits until the only one was not renewed in time.
async fn silent(store: &Store) -> ListedGateway {
    until("it is silent", || async {
        only(store).await.left.is_zero()
    })
    .await;
    only(store).await
}

#[tokio::test]
async fn a_gateway_stays_present_on_a_full_redis() {
    let (server, store) = start().await;
    let me = presence("me");
    store.appear(&me, LONG).await.unwrap();
    server.become_fit(Fitness::Full).await.unwrap();
    let refused = store.appear(&me, 2 * LONG).await;
    assert!(
        matches!(
            &refused,
            Err(StoreError::Refused {
                why: Refusal::NoRoom,
                ..
            })
        ),
        "what it says of itself takes room: {refused:?}"
    );
    let there = only(&store).await;
    assert!(there.left > LONG, "{there:?}");
    assert_eq!(there.presence, Some(me));
    // It can leave, too.
    store.leave("me").await.unwrap();
    assert_eq!(store.gateways().await.unwrap(), []);
}

#[tokio::test]
async fn a_replica_says_who_is_present_and_renews_nothing() {
    let (server, store) = start().await;
    let me = presence("me");
    store.appear(&me, SHORT).await.unwrap();
    server.become_fit(Fitness::ReadOnly).await.unwrap();
    let refused = store.appear(&me, LONG).await;
    assert!(
        matches!(&refused, Err(StoreError::Refused { .. })),
        "{refused:?}"
    );
    assert_eq!(silent(&store).await.presence, Some(me));
}

#[tokio::test]
async fn who_comes_back_is_not_forgotten_for_its_silence_before() {
    let (_server, store) = start().await;
    let me = presence("me");
    store.appear(&me, SHORT).await.unwrap();
    let before = silent(&store).await;
    store.appear(&me, LONG).await.unwrap();
    store.forget(&before).await.unwrap();
    let now = only(&store).await;
    assert_ne!(now.name, before.name);
    assert!(!now.left.is_zero());
    store.leave("me").await.unwrap();
    assert_eq!(store.gateways().await.unwrap(), []);
}

#[tokio::test]
async fn gateways_of_an_older_version_are_seen_and_see() {
    let (server, store) = start().await;
    store.appear(&presence("new"), LONG).await.unwrap();
    old_appears(&server, "old", "60000").await;
    let both = [presence("new"), presence("old")];
    let listed = store.gateways().await.unwrap();
    assert!(listed.iter().all(|one| !one.left.is_zero()), "{listed:?}");
    let seen = listed.into_iter().map(|one| one.presence.unwrap());
    assert_eq!(seen.collect::<Vec<_>>(), both);
    let mut seen = seen_by_old(&server).await;
    seen.sort_by(|one, other| one.id.cmp(&other.id));
    assert_eq!(seen, both);
    // An older one that leaves, or is silent, is gone.
    raw(&server, &["HDEL", LIST, "old"]).await;
    assert_eq!(only(&store).await.presence, Some(presence("new")));
    // It takes this one for present until somebody knows better.
    store.appear(&presence("new"), SHORT).await.unwrap();
    let gone = silent(&store).await;
    assert_eq!(seen_by_old(&server).await, [presence("new")]);
    store.forget(&gone).await.unwrap();
    assert_eq!(seen_by_old(&server).await, []);
    old_appears(&server, "old", "1").await;
    let before = silent(&store).await;
    old_appears(&server, "old", "60000").await;
    store.forget(&before).await.unwrap();
    assert!(!only(&store).await.left.is_zero(), "it has come back");
}

#[tokio::test]
async fn a_gateway_that_cannot_be_read_hides_no_other() {
    let (server, store) = start().await;
    let me = presence("me");
    store.appear(&me, LONG).await.unwrap();
    for (id, said) in [
        ("a", "99999999999999 {}"),
        ("b", "99999999999999 not json"),
        ("c", "never"),
        ("d", "9999999999999 {}"),
    ] {
        raw(&server, &["HSET", LIST, id, said]).await;
    }
    let listed = store.gateways().await.unwrap();
    let what = |one: &ListedGateway| (one.presence.clone(), !one.left.is_zero());
    let unreadable = [(None, true), (None, true), (None, false), (None, false)];
    let expected = unreadable.into_iter().chain([(Some(me), true)]);
    assert_eq!(
        listed.iter().map(what).collect::<Vec<_>>(),
        expected.collect::<Vec<_>>()
    );
}

/// The permissions that the guide lists are enough.
#[tokio::test]
async fn the_user_of_the_guide_may_appear_and_look() {
    let server = Server::start().await.unwrap();
    let guide = include_str!("../../../../docs/guides/scale-out.md");
    let user = guide.lines().map(str::trim);
    let user = user
        .filter_map(|line| line.strip_prefix("user bowline "))
        .next();
    let permissions = user
        .unwrap()
        .split(' ')
        .skip_while(|one| !one.starts_with('~'));
    let mut made = vec!["ACL", "SETUSER", "bowline", "on", ">secret"];
    made.extend(permissions);
    raw(&server, &made).await;
    let place = RedisAddress {
        url: server.url(),
        user: Some("bowline".to_owned()),
        password: Some("secret".to_owned()),
        trust: None,
        prefix: "bowline".to_owned(),
        timeout: TIMEOUT,
    };
    let store = Store::Redis(Box::new(Redis::new(place).unwrap()));
    let me = presence("me");
    store.appear(&me, LONG).await.unwrap();
    store.appear(&me, SHORT).await.unwrap();
    let gone = silent(&store).await;
    store.appear(&me, LONG).await.unwrap();
    store.forget(&gone).await.unwrap();
    only(&store).await;
    store.leave("me").await.unwrap();
}
