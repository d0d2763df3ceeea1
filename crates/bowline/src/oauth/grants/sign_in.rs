//! Signing a caller in and out: which grant the vault has for an account.

use std::sync::Arc;

use super::cached::{CachedGrant, HeldGrant};
use super::{GrantError, Grants};
use crate::oauth::bearer::Bearer;
use crate::oauth::grant::{Credentials, Grant};
use crate::oauth::vault::{SignIn, StoredValue, VaultError};
use bowline_store::{MAX_CONFLICTS, Version};
use bowline_system::clock;

impl Grants {
    /// How often this caller was signed out at this server.
    pub(crate) async fn sign_outs(
        &self,
        caller: &str,
        server_url: &str,
    ) -> Result<u64, VaultError> {
        let cached = self.cached(caller, server_url);
        let sign_in = self.signed_in(&cached).await?.value;
        Ok(sign_in.map_or(0, |sign_in| sign_in.sign_outs))
    }

    /// Stores the credentials of a sign-in; from now on the caller's requests carry them. It is refused if
    /// the caller was signed out since the sign-in started. Any other error means that they may not be
    /// stored: retry with the same credentials.
    pub(crate) async fn sign_in(
        self: &Arc<Self>,
        caller: &str,
        server_url: &str,
        sign_outs: u64,
        credentials: Credentials,
    ) -> Result<Arc<Bearer>, GrantError> {
        let cached = self.cached(caller, server_url);
        let mut grant = Grant::new(caller, credentials, 0, clock::unix_seconds());
        let key = grant.key();
        for _ in 0..MAX_CONFLICTS {
            let before = self.signed_in(&cached).await?;
            let sign_outs_now = before.value.as_ref().map_or(0, |before| before.sign_outs);
            if sign_outs_now > sign_outs {
                return Err(GrantError::SignedOut);
            }
            let stored = self.vault.grant(&key).await?;
            let numbers = [
                before.value.as_ref().map_or(0, |before| before.number),
                stored.value.map_or(0, |stored| stored.sign_in),
                cached.sign_in(),
                grant.sign_in,
            ];
            let last = numbers.into_iter().max().unwrap_or(0);
            let date = u64::try_from(grant.obtained).unwrap_or(0);
            grant.sign_in = date.max(last + 1);
            let held = HeldGrant::new(grant.clone(), stored.version.next(), true)?;
            let written = self.vault.put_grant(&grant, stored.version).await?;
            let sign_in = SignIn {
                grant: Some(key.clone()),
                number: grant.sign_in,
                sign_outs: sign_outs_now,
                ..SignIn::none(caller, server_url)
            };
            if written.is_none() || !self.put_signed_in(&cached, sign_in, before.version).await? {
                continue;
            }
            if let Some(replaced) = before.value.and_then(|before| before.grant)
                && replaced != key
            {
                self.discard(&replaced).await;
            }
            let bearer = held.bearer();
            cached.hold(held);
            return Ok(bearer);
        }
        Err(VaultError::Contended.into())
    }

    /// Ends a caller's grant at this server. Returns the grant, so that it can be revoked; `None`: the caller
    /// was not signed in.
    pub(crate) async fn sign_out(
        self: &Arc<Self>,
        caller: &str,
        server_url: &str,
    ) -> Result<Option<Grant>, GrantError> {
        let cached = self.cached(caller, server_url);
        // Waits for a refresh under way: the new tokens must be revoked, not the old ones.
        let _flight = cached.flight.clone().lock_owned().await;
        let mut taken_out = None;
        for _ in 0..MAX_CONFLICTS {
            let before = self.signed_in(&cached).await?;
            let sign_in = before
                .value
                .unwrap_or_else(|| SignIn::none(caller, server_url));
            let _claim = match &sign_in.grant {
                None => None,
                Some(key) => {
                    let claim = self.vault.claim_refresh(key).await?;
                    let stored = self.vault.grant(key).await?;
                    if stored.value.is_some() {
                        if !self.vault.remove_grant(key, stored.version).await? {
                            continue;
                        }
                        taken_out = stored.value;
                    }
                    Some(claim)
                }
            };
            // Also if there was no grant: a sign-in under way must not bring one.
            let after = SignIn {
                grant: None,
                sign_outs: sign_in.sign_outs.saturating_add(1),
                ..sign_in
            };
            if self.put_signed_in(&cached, after, before.version).await? {
                cached.mark_signed_out(cached.held().as_ref());
                return Ok(taken_out);
            }
        }
        Err(VaultError::Contended.into())
    }

    /// The vault's record of which grant the caller has. An older one than this gateway has seen was put back: it is
    /// written over, and does not count.
    pub(super) async fn signed_in(
        &self,
        cached: &CachedGrant,
    ) -> Result<StoredValue<SignIn>, VaultError> {
        let mut stored = self
            .vault
            .signed_in(&cached.caller, &cached.server_url)
            .await?;
        if let Some(record) = stored.value {
            let newest = cached.newest(record.clone());
            if newest != record {
                tracing::warn!("the vault has an older state of a sign-in; replaced");
                // If this fails, the next read tries it again.
                if let Err(error) = self.vault.put_signed_in(&newest, stored.version).await {
                    tracing::debug!(%error, "sign-in not replaced");
                }
            }
            stored.value = Some(newest);
        }
        Ok(stored)
    }

    /// Writes which grant the caller has in place of this version. `false`: there was a conflict.
    pub(super) async fn put_signed_in(
        &self,
        cached: &CachedGrant,
        record: SignIn,
        replaces: Version,
    ) -> Result<bool, VaultError> {
        let is_written = self.vault.put_signed_in(&record, replaces).await?;
        if is_written {
            cached.newest(record);
        }
        Ok(is_written)
    }
}
