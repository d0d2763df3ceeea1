//! Beginning a sign-in. It takes requests to whomever a server names, so it has one deadline for all
//! of them, and what failed a moment ago is not tried again for the next request.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::account::{Account, Wanted, Whose};
use super::flow::Flow;
use super::sign_ins::{SignInError, SignIns};
use crate::config;

/// How long a failure stands for the next try: long enough that requests are not multiplied, short
/// enough that nobody waits for what is mended.
const REMEMBERED: Duration = Duration::from_secs(5);

/// Why callers could not begin to sign in at servers, lately. Each has its own: what a server says of
/// itself to one may be that one's doing.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<HashMap<Whose, Failure>>);

#[derive(Debug)]
struct Failure {
    why: Box<str>,
    at: Instant,
}

impl SignIns {
    /// The flow in which a caller can sign in: the one that is under way, or a new one. Within the time
    /// that a request is held; dropping it gives it up.
    pub(crate) async fn begin(
        &self,
        account: &Account,
        server: &config::Server,
        wanted: &Wanted,
    ) -> Result<Flow, SignInError> {
        let hold = self.settings().hold;
        let beginning = timeout(hold, self.begin_now(account, server, wanted));
        let begun = beginning.await.unwrap_or(Err(SignInError::TooSlow(hold)));
        if let Err(error @ (SignInError::Authority(_) | SignInError::TooSlow(_))) = &begun {
            self.failures.note(account.key(), &error.to_string());
        }
        begun
    }
}

// === impl Failures ===

impl Failures {
    /// An error if it was tried a moment ago, and failed.
    pub(super) fn check(&self, whose: &Whose) -> Result<(), SignInError> {
        match self.0.lock().get(whose) {
            Some(failure) if failure.at.elapsed() < REMEMBERED => {
                Err(SignInError::LikeBefore(failure.why.clone()))
            }
            _ => Ok(()),
        }
    }

    fn note(&self, whose: Whose, why: &str) {
        let mut all = self.0.lock();
        all.retain(|_, failure| failure.at.elapsed() < REMEMBERED);
        let (why, at) = (why.into(), Instant::now());
        all.insert(whose, Failure { why, at });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failure_stands_for_a_while() {
        let failures = Failures::default();
        let [ann, bob] = ["ann", "bob"].map(|name| -> Whose { (name.into(), "https://a/".into()) });
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
