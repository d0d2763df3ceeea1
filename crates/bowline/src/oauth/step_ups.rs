//! Step-up authorization: a server wants more scopes than were granted (403, `insufficient_scope`). A server
//! that is never content must not have its callers sign in for ever.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::account_key::AccountKey;
use super::grant::Discovery;
use super::reason::SignInReason;
use super::sign_in_error::SignInError;
use crate::config::ServerOAuth;

/// How many step-ups an account may have before it pauses for [`FORGOTTEN_AFTER`].
const MAX_STEP_UPS: u32 = 8;
/// Of these, how many may be for scopes that the caller already had.
const MAX_FUTILE: u32 = 1;
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10 * 60);

/// The recent step-ups of every account.
#[derive(Debug, Default)]
pub(super) struct StepUps(Mutex<HashMap<AccountKey, StepUpCount>>);

#[derive(Debug)]
struct StepUpCount {
    all: u32,
    /// Of these, how many were for scopes that the caller already had.
    futile: u32,
    last: Instant,
}

// === impl StepUps ===

impl StepUps {
    /// Counts one more step-up of an account, or refuses it because there were too many.
    pub(super) fn count(&self, key: &AccountKey, is_futile: bool) -> Result<(), SignInError> {
        let now = Instant::now();
        let mut counts = self.0.lock();
        counts.retain(|_, count| now - count.last < FORGOTTEN_AFTER);
        let count = counts.entry(key.clone()).or_insert(StepUpCount {
            all: 0,
            futile: 0,
            last: now,
        });
        let all = count.all + 1;
        let futile = count.futile + u32::from(is_futile);
        if all > MAX_STEP_UPS || futile > MAX_FUTILE {
            return Err(SignInError::TooManyStepUps);
        }
        (count.all, count.futile, count.last) = (all, futile, now);
        Ok(())
    }
}

/// The scopes that a sign-in asks for: those that the operator configured, else those that the server
/// wants. A step-up also asks for the scopes granted before and for those in the challenge.
pub(super) fn requested_scopes(
    oauth: &ServerOAuth,
    discovery: &Discovery,
    reason: &SignInReason,
    granted: Vec<String>,
) -> Vec<String> {
    let mut scopes = match oauth.scopes.is_empty() {
        false => oauth.scopes.clone(),
        true => discovery.scopes.clone(),
    };
    if reason.is_step_up {
        let more = reason.missing_scopes().iter().cloned();
        scopes.extend(granted.into_iter().chain(more));
    }
    let mut seen = HashSet::new();
    scopes.retain(|scope| seen.insert(scope.clone()));
    scopes
}
