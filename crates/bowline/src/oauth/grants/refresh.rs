//! Improving a cached grant: by what another gateway wrote to the vault, or by a refresh.

use std::sync::Arc;
use std::time::Duration;

use bowline_store::MAX_CONFLICTS;
use bowline_system::clock;
use tokio::time::{Instant, sleep, timeout};

use super::cached::{BearerNeed, CachedGrant, HeldGrant};
use super::{GrantError, Grants, RefreshError};
use crate::oauth::bearer::Bearer;
use crate::oauth::grant::{GrantKey, Tokens};
use crate::oauth::vault::{Claim, NEVER_WRITTEN, Registrar, SignIn, VaultError};

/// How long a refresh may take. It is more than the egress allows for one request.
const REFRESHED_WITHIN: Duration = Duration::from_secs(45);
/// How long, and how often, the write of new tokens is retried while others wait for the claim.
const SAVED_WITHIN: Duration = Duration::from_secs(60);
const SAVED_EVERY: Duration = Duration::from_secs(1);

/// The result of an attempt to improve a cached grant.
pub(super) struct Improvement {
    pub(super) bearer: Result<Option<Arc<Bearer>>, GrantError>,
    /// The claim of a refresh whose tokens are not in the vault yet.
    pub(super) unsaved: Option<Claim>,
}

impl Grants {
    /// Makes the cached grant meet the need, if possible. The caller of this holds `flight`.
    pub(super) async fn improved(&self, cached: &CachedGrant, need: &BearerNeed) -> Improvement {
        let mut unsaved = None;
        let bearer = match self.refresh_with_claim(cached, need, &mut unsaved).await {
            Err(error) => match cached.still_valid(need) {
                Some(bearer) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::debug!(error, "token refresh failed; current token still valid");
                    Ok(Some(bearer))
                }
                None => Err(error),
            },
            improved => improved,
        };
        Improvement { bearer, unsaved }
    }

    async fn refresh_with_claim(
        &self,
        cached: &CachedGrant,
        need: &BearerNeed,
        unsaved: &mut Option<Claim>,
    ) -> Result<Option<Arc<Bearer>>, GrantError> {
        let Some(found) = self.look(cached).await? else {
            return Ok(None);
        };
        if found.is_saved && need.is_met_by(&found.bearer) {
            return Ok(Some(found.bearer()));
        }
        if let BearerNeed::Other(refused) = need
            && refused.is(&found.bearer)
            && cached.is_renewed_in_vain(refused)
        {
            return Ok(None);
        }
        if let Some(rest) = cached.backoff_left(clock::unix_millis()) {
            return Err(GrantError::NotNow(rest));
        }
        let key = found.grant.key();
        let claim = self.vault.claim_refresh(&key).await?;
        // Read again under the claim: its holder before may have refreshed the grant.
        let Some(found) = self.look(cached).await? else {
            return Ok(None);
        };
        if found.grant.key() != key {
            // Somebody signed in again just now, so that token is new.
            return Ok(Some(found.bearer()));
        }
        if need.is_met_by(&found.bearer) {
            return Ok(self.save(cached, &found).await?.map(|held| held.bearer()));
        }
        if found.grant.refresh_token.is_none() {
            cached.mark_worthless(&found);
            return Ok(None);
        }
        self.refresh_now(cached, need, &found, claim, unsaved).await
    }

    /// Refreshes a grant at its authorization server. The caller of this holds the claim.
    async fn refresh_now(
        &self,
        cached: &CachedGrant,
        need: &BearerNeed,
        found: &Arc<HeldGrant>,
        claim: Claim,
        unsaved: &mut Option<Claim>,
    ) -> Result<Option<Arc<Bearer>>, GrantError> {
        let refreshing = self.refresher.refresh(&cached.server_url, &found.grant);
        let refreshed = timeout(REFRESHED_WITHIN, refreshing).await;
        match refreshed.unwrap_or_else(|late| Err(RefreshError::Failed(late.into()))) {
            Ok(tokens) => {
                let held = take(cached, found, tokens)?;
                if matches!(need, BearerNeed::Other(_)) && held.grant.sign_in == found.grant.sign_in
                {
                    cached.note_renewed_for_refusal(held.bearer());
                }
                match self.save(cached, &held).await {
                    Ok(held) => Ok(held.map(|held| held.bearer())),
                    Err(error) => {
                        let error: &dyn std::error::Error = &error;
                        tracing::warn!(error, "refreshed tokens not saved yet");
                        *unsaved = Some(claim);
                        Ok(Some(held.bearer()))
                    }
                }
            }
            Err(RefreshError::Rejected) => self.drop_rejected(cached, found).await,
            Err(error @ (RefreshError::UnknownClient | RefreshError::Untrusted)) => {
                self.end_unusable(cached, need, found, &error).await
            }
            Err(RefreshError::Failed(error)) => {
                if let Some(other) = cached.other_than(found) {
                    return Ok(Some(other.bearer()));
                }
                let pause = cached.back_off();
                let issuer = &found.grant.discovery.issuer;
                tracing::warn!(error, issuer, "token refresh failed");
                Err(GrantError::NotNow(pause))
            }
        }
    }

    /// Reads the vault into the cache; `None`: the vault has no grant. A cached grant that was not written
    /// yet, or that the vault lost, stays.
    async fn look(&self, cached: &CachedGrant) -> Result<Option<Arc<HeldGrant>>, GrantError> {
        let seen = cached.held();
        let (caller, server_url) = (&*cached.caller, &*cached.server_url);
        let sign_in = self.signed_in(cached).await?;
        let sign_in_is_there = sign_in.value.is_some();
        let key = match (&seen, sign_in.value) {
            // A sign-out would have left a record.
            (Some(seen), None) => Some(self.point_to(cached, seen).await?),
            (_, sign_in) => sign_in.and_then(|sign_in| sign_in.grant),
        };
        let Some(key) = key else {
            match sign_in_is_there {
                true => cached.mark_signed_out(seen.as_ref()),
                false => cached.mark_ended(seen.as_ref()),
            }
            return Ok(None);
        };
        if !self.accepts(server_url, &key.issuer) {
            cached.mark_signed_out(seen.as_ref());
            return Ok(None);
        }
        let stored = self.vault.grant(&key).await?;
        if cached.is_worthless(&key, stored.version) {
            return Ok(None);
        }
        if cached.take_touch_due()
            && let Err(error) = self.vault.mark_used(caller, server_url, &key).await
        {
            tracing::debug!(%error, "grant not marked as used");
        }
        let known = seen.as_ref().filter(|seen| seen.grant.key() == key);
        match (known, stored.value) {
            (Some(known), Some(grant)) => match known.after(grant, stored.version)? {
                None => Ok(Some(Arc::clone(known))),
                Some(newer) => Ok(Some(cached.replace(Some(known), newer))),
            },
            (None, Some(grant)) => {
                let theirs = HeldGrant::new(grant, stored.version, true)?;
                Ok(Some(cached.replace(seen.as_ref(), theirs)))
            }
            (Some(known), None) if stored.version == NEVER_WRITTEN => {
                let unsaved = known.at(NEVER_WRITTEN, false);
                Ok(Some(cached.replace(seen.as_ref(), unsaved)))
            }
            (_, None) => {
                cached.mark_ended(seen.as_ref());
                Ok(None)
            }
        }
    }

    /// Restores the vault's record of which grant the caller has, if the vault lost it.
    async fn point_to(
        &self,
        cached: &CachedGrant,
        held: &HeldGrant,
    ) -> Result<GrantKey, VaultError> {
        let key = held.grant.key();
        let sign_in = SignIn {
            grant: Some(key.clone()),
            number: held.grant.sign_in,
            ..SignIn::none(&cached.caller, &cached.server_url)
        };
        // If another writer was faster, the next read finds its record.
        if self.put_signed_in(cached, sign_in, NEVER_WRITTEN).await? {
            let issuer = &held.grant.discovery.issuer;
            tracing::warn!(issuer, "sign-in missing in the vault; restored");
        }
        Ok(key)
    }

    /// Writes the cached grant into the vault, if it is not there. Returns the grant that is there; `None`:
    /// the caller signed out meanwhile.
    async fn save(
        &self,
        cached: &CachedGrant,
        held: &Arc<HeldGrant>,
    ) -> Result<Option<Arc<HeldGrant>>, GrantError> {
        let mut held = Arc::clone(held);
        for _ in 0..MAX_CONFLICTS {
            if held.is_saved {
                return Ok(Some(held));
            }
            if let Some(version) = self.vault.put_grant(&held.grant, held.version).await? {
                if held.version == NEVER_WRITTEN {
                    self.point_to(cached, &held).await?;
                }
                return Ok(Some(cached.replace(Some(&held), held.at(version, true))));
            }
            // Either an earlier write succeeded although the vault reported an error, or somebody signed in
            // or out: the vault's content counts, unless the vault was restored to an older state.
            let stored = self.vault.grant(&held.grant.key()).await?;
            held = match stored.value {
                Some(theirs) => match held.after(theirs, stored.version)? {
                    None => held,
                    Some(newer) => cached.replace(Some(&held), newer),
                },
                None if stored.version == NEVER_WRITTEN => {
                    cached.replace(Some(&held), held.at(NEVER_WRITTEN, false))
                }
                None => {
                    cached.mark_ended(Some(&held));
                    return Ok(None);
                }
            }
        }
        Err(VaultError::Contended.into())
    }

    /// Retries the write of new tokens while the claim keeps others from using the old ones.
    pub(super) async fn save_at_last(&self, cached: &CachedGrant, claim: Claim) {
        let began = Instant::now();
        while began.elapsed() < SAVED_WITHIN {
            sleep(SAVED_EVERY).await;
            let Some(held) = cached.held() else { break };
            match self.save(cached, &held).await {
                Ok(_) => break,
                Err(error) => tracing::debug!(%error, "refreshed tokens not saved yet"),
            }
        }
        // The next use of the grant tries again.
        drop(claim);
    }

    /// The authorization server rejected the grant: it is removed, unless a newer one is there by now.
    async fn drop_rejected(
        &self,
        cached: &CachedGrant,
        found: &Arc<HeldGrant>,
    ) -> Result<Option<Arc<Bearer>>, GrantError> {
        let key = found.grant.key();
        let issuer = &found.grant.discovery.issuer;
        tracing::info!(issuer, "grant revoked; sign-in needed");
        cached.mark_worthless(found);
        let is_dropped = match found.version {
            NEVER_WRITTEN => true,
            version => self.vault.remove_grant(&key, version).await?,
        };
        if is_dropped {
            return Ok(None);
        }
        Ok(self.look(cached).await?.map(|held| held.bearer()))
    }

    /// The grant cannot be refreshed, but its access token may be valid. It is used until it expires; then
    /// the caller has to sign in, with a new client if Bowline had registered the old one.
    async fn end_unusable(
        &self,
        cached: &CachedGrant,
        need: &BearerNeed,
        found: &Arc<HeldGrant>,
        error: &RefreshError,
    ) -> Result<Option<Arc<Bearer>>, GrantError> {
        let grant = &found.grant;
        tracing::warn!(%error, issuer = grant.discovery.issuer, "grant cannot be refreshed; sign-in needed");
        if matches!(error, RefreshError::UnknownClient) {
            let registrar = Registrar {
                server_url: &cached.server_url,
                issuer: &grant.discovery.issuer,
            };
            let forgetting = self
                .vault
                .forget_client(&grant.caller, registrar, &grant.client);
            forgetting.await?;
        }
        if let Some(other) = cached.other_than(found) {
            return Ok(Some(other.bearer()));
        }
        if let Some(bearer) = cached.still_valid(need) {
            cached.back_off_until(bearer.expired);
            return Ok(Some(bearer));
        }
        cached.mark_worthless(found);
        Ok(None)
    }

    /// Removes a grant from the vault that nothing refers to any more.
    pub(super) async fn discard(&self, key: &GrantKey) {
        let thrown = async {
            let stored = self.vault.grant(key).await?;
            match stored.value {
                None => Ok(true),
                Some(_) => self.vault.remove_grant(key, stored.version).await,
            }
        };
        if let Err(error) = thrown.await {
            tracing::debug!(%error, "replaced grant not removed");
        }
    }
}

/// Caches new tokens, even before they are written to the vault.
fn take(
    cached: &CachedGrant,
    found: &Arc<HeldGrant>,
    tokens: Tokens,
) -> Result<Arc<HeldGrant>, GrantError> {
    let grant = found.grant.renewed(tokens, clock::unix_seconds());
    let held = HeldGrant::new(grant, found.version, false).inspect_err(|_| {
        cached.back_off();
    })?;
    Ok(cached.replace(Some(found), held))
}
