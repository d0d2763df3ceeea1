//! Grants with a scripted authorization server that rotates refresh tokens and, as real ones do,
//! takes back everything when an old one is used again.

mod ending;
mod gateways;
mod timing;

use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_testbed::leaks::{self, Scan};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::super::grant::tests::{credentials, tokens};
use super::super::grant::{Credentials, GrantKey};
use super::super::secret::Secret;
use super::super::vault::{Memory, Registrar};
use super::*;

const URL: &str = "https://mcp.example/mcp";
const LIFE: u64 = 1000;

/// What an authorization server does with a refresh token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// Gives new ones and takes the old one back.
    Rotate,
    /// Gives an access token only.
    KeepRefresh,
    /// Is not there.
    Fail,
    /// Says `invalid_grant`.
    Reject,
    /// Says `invalid_client`.
    Forget,
}

/// The test is the authorization server.
struct Scripted {
    does: Mutex<Does>,
    /// The issuer that the operator does not accept.
    distrusts: Mutex<String>,
    /// The one refresh token that is worth something.
    valid: Mutex<String>,
    calls: AtomicUsize,
    replays: AtomicUsize,
    /// Each answer takes one; there are plenty, unless a test took them.
    answers: Semaphore,
    _scan: Scan,
}

impl Scripted {
    fn new() -> Arc<Self> {
        let scan = Scan::begin();
        for secret in ["access-secret-", "refresh-secret-"] {
            leaks::note("token", secret);
        }
        Arc::new(Self {
            _scan: scan,
            does: Mutex::new(Does::Rotate),
            distrusts: Mutex::default(),
            valid: Mutex::new("refresh-secret-0".to_owned()),
            calls: AtomicUsize::new(0),
            replays: AtomicUsize::new(0),
            answers: Semaphore::new(1_000_000),
        })
    }

    fn does(&self, does: Does) {
        *self.does.lock() = does;
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// From now on nothing is answered until [`Scripted::answer`].
    fn hold_back(&self) {
        self.answers.forget_permits(usize::MAX);
    }

    fn answer(&self) {
        self.answers.add_permits(1_000_000);
    }

    async fn called(&self, times: usize) {
        until("the authorization server is asked", || {
            self.calls() >= times
        })
        .await;
    }
}

impl TokenRefresher for Scripted {
    fn accepts(&self, _: &str, issuer: &str) -> bool {
        *self.distrusts.lock() != issuer
    }

    fn refresh<'a>(&'a self, server_url: &'a str, grant: &'a Grant) -> RefreshFuture<'a> {
        Box::pin(async move {
            assert_eq!(server_url, URL);
            let number = 1 + self.calls.fetch_add(1, Ordering::SeqCst);
            self.answers.acquire().await.unwrap().forget();
            // As long as it takes, so that two at once would meet.
            tokio::time::sleep(Duration::from_millis(20)).await;
            match *self.does.lock() {
                Does::Fail => return Err(RefreshError::Failed("nobody is there".into())),
                Does::Reject => return Err(RefreshError::Rejected),
                Does::Forget => return Err(RefreshError::UnknownClient),
                Does::Rotate | Does::KeepRefresh => {}
            }
            let mut valid = self.valid.lock();
            if !grant.refresh_token.as_ref().unwrap().is(&valid) {
                self.replays.fetch_add(1, Ordering::SeqCst);
                "nothing any more".clone_into(&mut valid);
                return Err(RefreshError::Rejected);
            }
            let access = format!("access-secret-{number}");
            if *self.does.lock() == Does::KeepRefresh {
                return Ok(tokens(&access, None, Some(LIFE)));
            }
            *valid = format!("refresh-secret-{number}");
            Ok(tokens(&access, Some(&valid), Some(LIFE)))
        })
    }
}

fn gateway(vault: &Arc<Vault>, refresher: &Arc<Scripted>) -> Arc<Grants> {
    let refresher: Arc<dyn TokenRefresher> = Arc::clone(refresher) as _;
    Grants::new(Arc::clone(vault), refresher, TaskTracker::new())
}

fn memory() -> Arc<Vault> {
    Arc::new(Vault::Memory(Memory::default()))
}

/// Signs alice in, and returns what her requests carry.
async fn sign_in(grants: &Arc<Grants>) -> Arc<Bearer> {
    let tokens = tokens("access-secret-0", Some("refresh-secret-0"), Some(LIFE));
    let sign_outs = grants.sign_outs("alice", URL).await.unwrap();
    let signed_in = grants.sign_in("alice", URL, sign_outs, credentials(tokens));
    signed_in.await.unwrap()
}

/// What alice's requests carry after the server took this for a while, and then did not.
async fn refused(grants: &Arc<Grants>, sent: &Arc<Bearer>) -> Arc<Bearer> {
    sent.note_accepted();
    let instead = grants.refused("alice", URL, Some(sent)).await;
    instead.unwrap().expect("signed out")
}

/// What alice's requests carry without waiting.
fn cached_bearer(grants: &Arc<Grants>) -> Arc<Bearer> {
    match grants.cached_bearer("alice", URL) {
        CachedBearer::Bearer(bearer) => bearer,
        other => panic!("{other:?}"),
    }
}

fn key() -> GrantKey {
    Grant::new("alice", credentials(tokens("", None, None)), 1, 0).key()
}

/// The refresh token in the vault.
async fn refresh_token(vault: &Vault) -> Option<Secret> {
    vault.grant(&key()).await.unwrap().value?.refresh_token
}

/// Waits until this is so.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    assert!(waited.is_ok(), "not within 20 s: {what}");
}
