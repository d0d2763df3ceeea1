//! Signing a caller out at a server: first the grant is removed, then the authorization server revokes its
//! tokens.

use std::sync::Arc;

use super::flow::FlowOutcome;
use super::flows::Flows;
use super::grants::GrantError;
use super::sign_in_error::SignInError;
use crate::caller::Caller;
use crate::callers::{identity_of, name_of};

/// The outcome of a sign-out. In any case the caller is not signed in any more.
#[derive(Debug)]
pub enum SignOutOutcome {
    /// The caller was not signed in.
    NotSignedIn,
    /// The authorization server revoked the tokens.
    Revoked,
    /// The authorization server offers no revocation: the tokens are valid until they expire.
    NotOffered,
    /// The revocation failed: the tokens may be valid until they expire.
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl Flows {
    /// Signs a caller out at the server with this name and URL, also for keys that the caller had before, and
    /// at the URLs that the server had before: sessions that were opened there go on. An error means that a
    /// grant may still be there.
    pub(crate) async fn sign_out(
        self: &Arc<Self>,
        caller: &Caller,
        server: &str,
        server_url: &str,
    ) -> Result<SignOutOutcome, GrantError> {
        let mut places = self.grants.vault().places(server).await?;
        places.retain(|place| place != server_url);
        let known_as = identity_of(caller).into_string();
        places.push(server_url.to_owned());
        let mut accounts: Vec<(String, String)> = Vec::new();
        // Grants of the same name under keys that it had before; a shared store cannot list them.
        for other in self.grants.vault().all_signed_in().await? {
            let is_callers = name_of(&other.caller) == caller.name().unwrap_or_default();
            if is_callers && places.contains(&other.server_url) && other.caller != known_as {
                accounts.push((other.caller, other.server_url));
            }
        }
        let own = places.into_iter().map(|place| (known_as.clone(), place));
        accounts.extend(own);
        let mut outcome = SignOutOutcome::NotSignedIn;
        for (identity, place) in &accounts {
            let granted = self.grants.sign_out(identity, place).await?;
            self.give_up(identity, place).await;
            self.forget_initialized(identity, place);
            let Some(grant) = granted else {
                continue;
            };
            let auth_server = self.auth_servers.former(place, server_url);
            let revoked = match auth_server {
                Ok(auth_server) => auth_server.revoke_grant(&grant).await,
                Err(error) => Err(error),
            };
            outcome = match (outcome, revoked) {
                (SignOutOutcome::Failed(error), _) => SignOutOutcome::Failed(error),
                (_, Err(error)) => SignOutOutcome::Failed(error.into()),
                (SignOutOutcome::NotOffered, _) | (_, Ok(false)) => SignOutOutcome::NotOffered,
                (_, Ok(true)) => SignOutOutcome::Revoked,
            };
        }
        Ok(outcome)
    }

    /// Ends the sign-in under way. One that this process does not see brings no grant either: the vault
    /// counts the sign-out.
    async fn give_up(&self, caller: &str, server_url: &str) {
        match self.current_flow(caller, server_url).await {
            Ok(Some(flow)) => {
                let outcome = FlowOutcome::Failed(SignInError::SignedOut.to_string());
                self.end(&flow, outcome).await;
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "sign-in not ended after the sign-out"),
        }
    }
}
