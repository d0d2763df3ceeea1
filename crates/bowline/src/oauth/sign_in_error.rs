//! Why a sign-in does not begin, or does not end well.

use std::time::Duration;

use thiserror::Error;

use super::auth_server_error::AuthServerError;
use super::flow_store::FlowStoreError;
use super::grants::GrantError;
use super::vault::VaultError;

/// Why there is no sign-in to wait for.
#[derive(Debug, Error)]
pub(crate) enum SignInError {
    #[error("the sign-in was declined{}; call the tool `sign_in` to try again", in_brackets(.said.as_deref()))]
    Declined { said: Option<String> },
    /// The last one failed a moment ago.
    #[error("the last sign-in failed: {why}; it can be tried again in {}", humantime::format_duration(*.again_in))]
    Failed { why: String, again_in: Duration },
    #[error("another sign-in replaced this one")]
    Replaced,
    #[error("nothing can listen for the browser's return")]
    NoListener(#[source] std::io::Error),
    #[error("the caller signed out during the sign-in, or was removed from the configuration")]
    SignedOut,
    #[error("the server keeps asking for more scopes")]
    TooManyStepUps,
    #[error(
        "no answer from the authorization server within {}",
        humantime::format_duration(*.0)
    )]
    Timeout(Duration),
    /// The last attempt failed a moment ago, for this reason.
    #[error("{0}")]
    FailedRecently(Box<str>),
    #[error(transparent)]
    AuthServer(#[from] AuthServerError),
    // What the store reported is for the operator, who finds it in the log.
    #[error("the sign-in store is unavailable; retry later")]
    FlowStore(#[from] FlowStoreError),
    #[error("the token vault is unavailable; retry later")]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Grant(GrantError),
}

impl From<GrantError> for SignInError {
    fn from(error: GrantError) -> Self {
        match error {
            GrantError::Vault(error) => Self::Vault(error),
            GrantError::SignedOut => Self::SignedOut,
            error => Self::Grant(error),
        }
    }
}

/// What the authorization server answered, in brackets.
pub(crate) fn in_brackets(said: Option<&str>) -> String {
    said.map_or_else(String::new, |said| format!(" ({said})"))
}
