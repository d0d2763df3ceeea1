//! The laws of a store, tested on every kind, and tests for failures that only one kind has.
//!
//! A law is a function of two handles on one store, as two gateways have them; a handle may be the
//! same twice where only one process can have the store. The test is named after the law and the
//! kind. Times are real, because Redis's are.

mod file;
mod gateways;
mod laws;
mod open;
mod redis;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline_testbed::redis::Redis as Server;
use bowline_wire::id::SessionId;
use tempfile::TempDir;

use super::{File, Key, KeyState, Listener, ListenerEvent, Memory, Redis, RedisAddress, Store};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(60);
/// Short, and yet longer than a few round trips on a busy machine.
const SHORT: Duration = Duration::from_secs(1);
/// How long an operation may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Two gateways' handles on one store, and the resources that keep it alive.
struct Fixture {
    a: Arc<Store>,
    b: Arc<Store>,
    _directory: Option<TempDir>,
    _server: Option<Server>,
}

impl Fixture {
    fn one(store: Store) -> Self {
        let a = Arc::new(store);
        Self {
            b: Arc::clone(&a),
            a,
            _directory: None,
            _server: None,
        }
    }

    async fn memory() -> Self {
        Self::one(Store::Memory(Memory::new()))
    }

    async fn file() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = File::open(directory.path(), TIMEOUT).await.unwrap();
        Self {
            _directory: Some(directory),
            ..Self::one(Store::File(file))
        }
    }

    async fn redis() -> Self {
        let server = Server::start().await.unwrap();
        let store = || Arc::new(connect(&server, None, TIMEOUT));
        Self {
            a: store(),
            b: store(),
            _directory: None,
            _server: Some(server),
        }
    }

    async fn redis_tls() -> Self {
        let server = Server::start_tls().await.unwrap();
        let store = || Arc::new(connect(&server, Some(server.authority()), TIMEOUT));
        Self {
            a: store(),
            b: store(),
            _directory: None,
            _server: Some(server),
        }
    }
}

fn connect(server: &Server, authority: Option<PathBuf>, timeout: Duration) -> Store {
    let place = RedisAddress {
        url: server.url(),
        user: None,
        password: None,
        trust: authority.map(|path| std::fs::read(path).unwrap()),
        prefix: "bowline".to_owned(),
        timeout,
    };
    Store::Redis(Box::new(Redis::new(place).unwrap()))
}

/// A key that no other test has.
fn fresh_key() -> Key {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut bytes = [7; SessionId::BYTES];
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    bytes[..8].copy_from_slice(&next.to_be_bytes());
    Key::of("files", &SessionId::from_random(bytes))
}

/// Waits until the condition holds.
async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    assert!(waited.is_ok(), "not within 20 s: {what}");
}

/// The next event of a listener.
async fn hear(listener: &mut Listener) -> ListenerEvent {
    let heard = tokio::time::timeout(Duration::from_secs(20), listener.next()).await;
    heard.expect("nothing is heard for 20 s")
}

/// Runs this many at once and returns their results.
async fn at_once<T, F>(count: usize, work: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut all = tokio::task::JoinSet::new();
    let barrier = Arc::new(tokio::sync::Barrier::new(count));
    for number in 0..count {
        let (work, barrier) = (work(number), Arc::clone(&barrier));
        all.spawn(async move {
            barrier.wait().await;
            work.await
        });
    }
    all.join_all().await
}

fn live(loaded: KeyState) -> super::Live {
    match loaded {
        KeyState::Live(live) => live,
        other => panic!("not live but {other:?}"),
    }
}
