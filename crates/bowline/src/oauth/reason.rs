//! Why a caller has to sign in: what the server demands, and whose token it refused.

use serde::{Deserialize, Serialize};

use super::challenge::Challenge;

/// Why a caller has to sign in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SignInReason {
    /// The server's challenge, if it sent one.
    pub(crate) challenge: Option<Challenge>,
    /// The caller is signed in, and needs more scopes.
    pub(crate) is_step_up: bool,
    #[serde(default)]
    pub(crate) refused: RefusedGrant,
}

/// The grant whose token a server refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RefusedGrant {
    /// The number of its sign-in; 0 for none.
    pub(crate) sign_in: u64,
    /// Whether the server took that token before, as far as this gateway knows.
    pub(crate) was_accepted: bool,
}

// === impl SignInReason ===

impl SignInReason {
    /// Whether a flow that asks for these scopes would satisfy the challenge.
    pub(super) fn is_covered_by(&self, scopes: &[String]) -> bool {
        let mut wanted = self.missing_scopes().iter();
        wanted.all(|scope| scopes.contains(scope))
    }

    /// The scopes that a step-up is for.
    pub(super) fn missing_scopes(&self) -> &[String] {
        match &self.challenge {
            Some(challenge) if self.is_step_up => &challenge.scopes,
            _ => &[],
        }
    }
}
