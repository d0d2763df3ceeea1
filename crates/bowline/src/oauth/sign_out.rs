//! Signing a caller out at a server: first the grant is removed, then the authorization server revokes its
//! tokens.

use std::sync::Arc;

use super::account::AccountKey;
use super::auth_server::{AuthServer, AuthServerError, TokenKind};
use super::flow::FlowOutcome;
use super::flows::{Flows, SignInError};
use super::grant::Grant;
use super::grants::GrantError;
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
            outcome = match (outcome, revoke(auth_server, &grant).await) {
                (SignOutOutcome::Failed(error), _) => SignOutOutcome::Failed(error),
                (_, Err(error)) => SignOutOutcome::Failed(error.into()),
                (SignOutOutcome::NotOffered, _) | (_, Ok(false)) => SignOutOutcome::NotOffered,
                (_, Ok(true)) => SignOutOutcome::Revoked,
            };
        }
        Ok(outcome)
    }

    /// Forgets what the server answered to this account's `initialize`: the next one may be somebody else's.
    pub(super) fn forget_initialized(&self, caller: &str, server_url: &str) {
        let account = AccountKey {
            caller: caller.into(),
            server_url: server_url.into(),
        };
        self.initialized.lock().remove(&account);
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

/// Revokes a grant's tokens; `false` if the authorization server offers no revocation. The refresh token
/// comes first: without it there are no new access tokens.
pub(super) async fn revoke(
    auth_server: Result<AuthServer, AuthServerError>,
    grant: &Grant,
) -> Result<bool, AuthServerError> {
    let auth_server = auth_server?;
    let refresh = grant.refresh_token.as_ref();
    let tokens = refresh.map(|token| (token, TokenKind::Refresh));
    let tokens = tokens
        .into_iter()
        .chain([(&grant.access_token, TokenKind::Access)]);
    let mut revoked = Ok(true);
    for (token, kind) in tokens {
        let one = auth_server
            .revoke(&grant.discovery, &grant.client, token, kind)
            .await;
        revoked = match (revoked, one) {
            (Ok(before), Ok(one)) => Ok(before && one),
            // Some servers revoke refresh tokens only, and their access tokens with them.
            (Ok(before), Err(AuthServerError::Denied("unsupported_token_type"))) => Ok(before),
            (Ok(_), failed) => failed,
            (failed, _) => failed,
        };
    }
    revoked
}
