//! Improving on what is at hand: by what another gateway has done, or by a refresh of our own.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::live::{Holding, Live, Want};
use super::{GrantError, Grants, MAX_CONFLICTS, RenewError};
use crate::clock;
use crate::oauth::bearer::Bearer;
use crate::oauth::grant::{GrantKey, Tokens};
use crate::oauth::vault::{NEVER_WRITTEN, SignIn, Turn, VaultError};

/// How long a refresh may take, whatever becomes of it. More than the egress allows one request.
const RENEWED_WITHIN: Duration = Duration::from_secs(45);
/// How long, and how often, new tokens are tried to be written while others wait for the turn.
const SAVED_WITHIN: Duration = Duration::from_secs(60);
const SAVED_EVERY: Duration = Duration::from_secs(1);

/// What improving came to, and the turn of a refresh whose tokens the vault did not take yet.
pub(super) type Improved = (Result<Option<Arc<Bearer>>, GrantError>, Option<Turn>);

impl Grants {
    /// Makes what is at hand what is wanted, if it can be done. Whoever calls this has the flight.
    pub(super) async fn improved(&self, live: &Live, want: &Want) -> Improved {
        let mut unsaved = None;
        let improved = match self.renewed_in_turn(live, want, &mut unsaved).await {
            Err(error) => match live.make_do(want) {
                Some(bearer) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::debug!(error, "a grant goes on as it is");
                    Ok(Some(bearer))
                }
                None => Err(error),
            },
            improved => improved,
        };
        (improved, unsaved)
    }

    async fn renewed_in_turn(
        &self,
        live: &Live,
        want: &Want,
        unsaved: &mut Option<Turn>,
    ) -> Result<Option<Arc<Bearer>>, GrantError> {
        let Some(found) = self.look(live).await? else {
            return Ok(None);
        };
        if found.is_saved && want.is_met_by(&found.bearer) {
            return Ok(Some(found.bearer()));
        }
        if let Want::Other(refused) = want
            && refused.is(&found.bearer)
            && live.is_renewed_in_vain(refused)
        {
            return Ok(None);
        }
        if let Some(rest) = live.waits(clock::unix_millis()) {
            return Err(GrantError::NotNow(rest));
        }
        let key = found.grant.key();
        let turn = self.vault.turn(&key).await?;
        // With the turn in hand: whoever had it before may have refreshed meanwhile.
        let Some(found) = self.look(live).await? else {
            return Ok(None);
        };
        if found.grant.key() != key {
            // Signed in anew, as somebody else: that was just now, so it is good as it is.
            return Ok(Some(found.bearer()));
        }
        if want.is_met_by(&found.bearer) {
            return Ok(self.save(live, &found).await?.map(|held| held.bearer()));
        }
        if found.grant.refresh_token.is_none() {
            live.is_signed_out(Some(&found), Some((key, found.version)));
            return Ok(None);
        }
        let renewing = self.authority.renew(&live.server_url, &found.grant);
        let renewed = timeout(RENEWED_WITHIN, renewing).await;
        match renewed.unwrap_or_else(|late| Err(RenewError::Failed(late.into()))) {
            Ok(tokens) => {
                let held = take(live, &found, tokens)?;
                if matches!(want, Want::Other(_)) && held.grant.sign_in == found.grant.sign_in {
                    live.is_renewed_for_refusal(held.bearer());
                }
                match self.save(live, &held).await {
                    Ok(held) => Ok(held.map(|held| held.bearer())),
                    Err(error) => {
                        let error: &dyn std::error::Error = &error;
                        tracing::warn!(error, "new tokens are not in the vault yet");
                        *unsaved = Some(turn);
                        Ok(Some(held.bearer()))
                    }
                }
            }
            Err(RenewError::Rejected) => self.dropped(live, &key, &found).await,
            Err(error @ (RenewError::UnknownClient | RenewError::Untrusted)) => {
                self.is_unusable(live, want, &found, &error).await
            }
            Err(RenewError::Failed(error)) => {
                if let Some(other) = live.other_than(&found) {
                    return Ok(Some(other.bearer()));
                }
                let rest = live.rest();
                let issuer = &found.grant.found.issuer;
                tracing::warn!(error, issuer, "a refresh failed");
                Err(GrantError::NotNow(rest))
            }
        }
    }

    /// What the vault has for a caller at a server becomes what is at hand; `None`: nothing. What is
    /// at hand but was not written yet, or was lost there, stays.
    async fn look(&self, live: &Live) -> Result<Option<Arc<Holding>>, GrantError> {
        let seen = live.holding();
        let (caller, server_url) = (&*live.caller, &*live.server_url);
        let sign_in = self.vault.signed_in(caller, server_url).await?;
        let sign_in_is_there = sign_in.value.is_some();
        let key = match (&seen, sign_in.value) {
            // A sign-out would have left a trace.
            (Some(seen), None) => Some(self.point_to(live, seen).await?),
            (_, sign_in) => sign_in.and_then(|sign_in| sign_in.grant),
        };
        let Some(key) = key else {
            match sign_in_is_there {
                true => live.has_signed_out(seen.as_ref()),
                false => live.is_signed_out(seen.as_ref(), None),
            }
            return Ok(None);
        };
        let stored = self.vault.grant(&key).await?;
        if live.is_worthless(&key, stored.version) {
            return Ok(None);
        }
        if live.is_to_be_told()
            && let Err(error) = self.vault.is_used(caller, server_url, &key).await
        {
            tracing::debug!(%error, "the vault does not know that a grant is in use");
        }
        let known = seen.as_ref().filter(|seen| seen.grant.key() == key);
        match (known, stored.value) {
            (Some(known), Some(grant)) => match known.after(grant, stored.version)? {
                None => Ok(Some(Arc::clone(known))),
                Some(newer) => Ok(Some(live.replace(Some(known), newer))),
            },
            (None, Some(grant)) => {
                let theirs = Holding::new(grant, stored.version, true)?;
                Ok(Some(live.replace(seen.as_ref(), theirs)))
            }
            (Some(known), None) if stored.version == NEVER_WRITTEN => {
                let unsaved = known.at(NEVER_WRITTEN, false);
                Ok(Some(live.replace(seen.as_ref(), unsaved)))
            }
            (_, None) => {
                live.is_signed_out(seen.as_ref(), None);
                Ok(None)
            }
        }
    }

    /// Says again in the vault which grant the caller has, if that was lost there.
    async fn point_to(&self, live: &Live, holding: &Holding) -> Result<GrantKey, VaultError> {
        let key = holding.grant.key();
        let sign_in = SignIn {
            caller: live.caller.as_ref().to_owned(),
            server_url: live.server_url.as_ref().to_owned(),
            grant: Some(key.clone()),
            number: holding.grant.sign_in,
            outs: 0,
        };
        // If somebody else was faster, the next look finds what they say.
        if self.vault.put_signed_in(&sign_in, NEVER_WRITTEN).await? {
            let issuer = &holding.grant.found.issuer;
            tracing::warn!(issuer, "the vault lost a sign-in; it is put back");
        }
        Ok(key)
    }

    /// Writes what is at hand into the vault, if it is not there. Returns what is there; `None`: the
    /// caller signed out meanwhile.
    async fn save(
        &self,
        live: &Live,
        held: &Arc<Holding>,
    ) -> Result<Option<Arc<Holding>>, GrantError> {
        let mut held = Arc::clone(held);
        for _ in 0..MAX_CONFLICTS {
            if held.is_saved {
                return Ok(Some(held));
            }
            if let Some(version) = self.vault.put_grant(&held.grant, held.version).await? {
                if held.version == NEVER_WRITTEN {
                    self.point_to(live, &held).await?;
                }
                return Ok(Some(live.replace(Some(&held), held.at(version, true))));
            }
            // It was written after all when the vault seemed to fail, or somebody signed in, or out:
            // what is there counts. Unless the vault went back to what it was before.
            let stored = self.vault.grant(&held.grant.key()).await?;
            held = match stored.value {
                Some(theirs) => match held.after(theirs, stored.version)? {
                    None => held,
                    Some(newer) => live.replace(Some(&held), newer),
                },
                None if stored.version == NEVER_WRITTEN => {
                    live.replace(Some(&held), held.at(NEVER_WRITTEN, false))
                }
                None => {
                    live.is_signed_out(Some(&held), None);
                    return Ok(None);
                }
            }
        }
        Err(VaultError::Contended.into())
    }

    /// Tries to write new tokens while nobody else may use the old ones.
    pub(super) async fn save_at_last(&self, live: &Live, turn: Turn) {
        let began = Instant::now();
        while began.elapsed() < SAVED_WITHIN {
            sleep(SAVED_EVERY).await;
            let Some(holding) = live.holding() else { break };
            match self.save(live, &holding).await {
                Ok(_) => break,
                Err(error) => tracing::debug!(%error, "new tokens are still not in the vault"),
            }
        }
        // Whoever uses the grant next tries again.
        drop(turn);
    }

    /// The authorization server says that the grant is worth nothing: it is dropped, unless another
    /// one is there by now.
    async fn dropped(
        &self,
        live: &Live,
        key: &GrantKey,
        found: &Arc<Holding>,
    ) -> Result<Option<Arc<Bearer>>, GrantError> {
        let issuer = &found.grant.found.issuer;
        tracing::info!(issuer, "a grant is no longer accepted; sign-in needed");
        live.is_signed_out(Some(found), Some((key.clone(), found.version)));
        let is_dropped = match found.version {
            NEVER_WRITTEN => true,
            version => self.vault.remove_grant(key, version).await?,
        };
        if is_dropped {
            return Ok(None);
        }
        Ok(self.look(live).await?.map(|held| held.bearer()))
    }

    /// Nobody can renew the grant, which may be good. Its access token is used up; then the caller has
    /// to sign in, as a client that is known, if it was Bowline that registered it.
    async fn is_unusable(
        &self,
        live: &Live,
        want: &Want,
        found: &Arc<Holding>,
        error: &RenewError,
    ) -> Result<Option<Arc<Bearer>>, GrantError> {
        let grant = &found.grant;
        tracing::warn!(%error, issuer = grant.found.issuer, "a grant cannot be renewed; sign-in needed");
        if matches!(error, RenewError::UnknownClient) {
            let place = (&*live.server_url, &*grant.found.issuer);
            let forgetting = self
                .vault
                .forget_client(&grant.caller, place, &grant.client);
            forgetting.await?;
        }
        if let Some(other) = live.other_than(found) {
            return Ok(Some(other.bearer()));
        }
        if let Some(bearer) = live.make_do(want) {
            live.rest_until(bearer.expired);
            return Ok(Some(bearer));
        }
        live.is_signed_out(Some(found), Some((grant.key(), found.version)));
        Ok(None)
    }

    /// Takes a grant out of the vault that nothing points to any more.
    pub(super) async fn throw_away(&self, key: &GrantKey) {
        let thrown = async {
            let stored = self.vault.grant(key).await?;
            match stored.value {
                None => Ok(true),
                Some(_) => self.vault.remove_grant(key, stored.version).await,
            }
        };
        if let Err(error) = thrown.await {
            tracing::debug!(%error, "a grant that was replaced is still in the vault");
        }
    }
}

/// New tokens are at hand from now on, even before they are written.
fn take(live: &Live, found: &Arc<Holding>, tokens: Tokens) -> Result<Arc<Holding>, GrantError> {
    let grant = found.grant.renewed(tokens, clock::unix_seconds());
    let held = Holding::new(grant, found.version, false).inspect_err(|_| {
        live.rest();
    })?;
    Ok(live.replace(Some(found), held))
}
