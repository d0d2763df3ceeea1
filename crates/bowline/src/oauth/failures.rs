//! Failures to start a sign-in. A failure stands for a moment, so that requests are not multiplied.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::account_key::AccountKey;
use super::sign_in_error::SignInError;

/// How long a failure stands: long enough that requests are not multiplied, short enough that nobody waits
/// after a recovery.
const REMEMBERED: Duration = Duration::from_secs(5);

/// Why sign-ins could not be started recently, per account: a server may answer one caller differently from
/// another.
#[derive(Debug, Default)]
pub(super) struct RecentFailures(Mutex<HashMap<AccountKey, Failure>>);

#[derive(Debug)]
struct Failure {
    why: Box<str>,
    at: Instant,
}

// === impl RecentFailures ===

impl RecentFailures {
    /// Fails if the last attempt failed a moment ago.
    pub(super) fn check(&self, key: &AccountKey) -> Result<(), SignInError> {
        match self.0.lock().get(key) {
            Some(failure) if failure.at.elapsed() < REMEMBERED => {
                Err(SignInError::FailedRecently(failure.why.clone()))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn note(&self, key: AccountKey, why: &str) {
        let mut all = self.0.lock();
        all.retain(|_, failure| failure.at.elapsed() < REMEMBERED);
        let (why, at) = (why.into(), Instant::now());
        all.insert(key, Failure { why, at });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failure_stands_for_a_while() {
        let failures = RecentFailures::default();
        let [ann, bob] = ["ann", "bob"].map(|name| AccountKey {
            caller: name.into(),
            server_url: "https://a/".into(),
        });
        failures.check(&ann).unwrap();
        failures.note(ann.clone(), "nobody is there");
        let said = failures.check(&ann).unwrap_err();
        assert_eq!(said.to_string(), "nobody is there");
        failures.check(&bob).unwrap();
        tokio::time::advance(REMEMBERED).await;
        failures.check(&ann).unwrap();
        failures.note(bob, "");
        assert_eq!(failures.0.lock().len(), 1);
    }
}
