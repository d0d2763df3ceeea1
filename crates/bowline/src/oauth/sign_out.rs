//! Signing a caller out at a server: what was granted is forgotten first, and then taken back by whoever
//! granted it.

use std::sync::Arc;

use super::authority::{AuthorityError, TokenKind};
use super::flow::End;
use super::grant::Grant;
use super::grants::GrantError;
use super::identity::{identity_of, name_of};
use super::sign_ins::{SignInError, SignIns};
use crate::session::Caller;

/// How a sign-out went. Whatever it was, the caller is not signed in any more.
#[derive(Debug)]
pub(crate) enum Out {
    /// The caller was not signed in.
    Already,
    Revoked,
    /// The authorization server has no way to take tokens back.
    NotOffered,
    Failed(AuthorityError),
}

impl SignIns {
    /// Signs a caller out at the server with this URL, with whichever key it signed in. An error means
    /// that something may still be there.
    pub(crate) async fn sign_out(
        self: &Arc<Self>,
        caller: &Caller,
        server_url: &str,
    ) -> Result<Out, GrantError> {
        let mut identities = vec![identity_of(caller).into_string()];
        // What the name was granted under keys that it has no more; a store that gateways share cannot
        // be asked for that.
        for other in self.grants.vault().all_signed_in().await? {
            let is_callers = name_of(&other.caller) == caller.name().unwrap_or_default();
            if is_callers && other.server_url == server_url && !identities.contains(&other.caller) {
                identities.push(other.caller);
            }
        }
        let mut out = Out::Already;
        for identity in identities {
            let granted = self.grants.sign_out(&identity, server_url).await?;
            self.give_up(&identity, server_url).await;
            let Some(grant) = granted else {
                continue;
            };
            out = match (out, self.revoke(server_url, &grant).await) {
                (Out::Failed(error), _) | (_, Err(error)) => Out::Failed(error),
                (Out::NotOffered, _) | (_, Ok(false)) => Out::NotOffered,
                (_, Ok(true)) => Out::Revoked,
            };
        }
        Ok(out)
    }

    /// Tells whoever waits for the sign-in that is under way. It brings nothing even if this process does
    /// not know of it: the vault says that the caller was signed out since.
    async fn give_up(&self, caller: &str, server_url: &str) {
        match self.waiting(caller, server_url).await {
            Ok(Some(flow)) => {
                let end = End::Failed(SignInError::SignedOut.to_string());
                self.end(&flow, end).await;
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "a sign-in that brings nothing goes on"),
        }
    }

    /// The refresh token first: without it there are no others.
    pub(super) async fn revoke(&self, url: &str, grant: &Grant) -> Result<bool, AuthorityError> {
        let authority = self.authorities.of(url)?;
        let refresh = grant.refresh_token.as_ref();
        let tokens = refresh.map(|token| (token, TokenKind::Refresh));
        let tokens = tokens
            .into_iter()
            .chain([(&grant.access_token, TokenKind::Access)]);
        let mut revoked = Ok(true);
        for (token, kind) in tokens {
            let one = authority
                .revoke(&grant.found, &grant.client, token, kind)
                .await;
            revoked = match (revoked, one) {
                (Ok(before), Ok(one)) => Ok(before && one),
                // Some take back refresh tokens only, and with them what came of them.
                (Ok(before), Err(AuthorityError::Denied("unsupported_token_type"))) => Ok(before),
                (Ok(_), failed) => failed,
                (failed, _) => failed,
            };
        }
        revoked
    }
}
