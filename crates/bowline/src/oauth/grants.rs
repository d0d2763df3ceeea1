//! The grants that this gateway uses: cached for every request, and refreshed before they expire.
//!
//! A request needs one look-up ([`Grants::cached_bearer`]). It waits only if the token is unknown, expired or
//! refused. A token in use is refreshed before it expires, by one task per grant in this gateway and, through
//! the vault's refresh claim, by one gateway at a time. What another gateway wrote is read from the vault
//! when the cached token is about to expire or was refused, every half a minute while it is used and, in a
//! file, soon after the write ([`Grants::notice`]).
//!
//! No grant is lost. A refresh continues when the request that started it is dropped. Its tokens are used at
//! once, and the write is retried until the vault accepts them. A refresh that fails changes nothing. Only an
//! authorization server that rejects the grant, or a sign-out, ends it.

mod cached;
mod refresh;
mod sign_in;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bowline_system::clock;
use parking_lot::RwLock;
use tokio::sync::{Notify, OwnedMutexGuard, oneshot};
use tokio_util::task::TaskTracker;

use self::cached::{BearerNeed, CachedGrant, HeldGrant};
use self::refresh::Improvement;
use super::bearer::{Bearer, InvalidBearer};
use super::grant::{Grant, Tokens};
use super::reason::RefusedGrant;
use super::vault::{Vault, VaultError};

/// The grants of one gateway.
pub(crate) struct Grants {
    vault: Arc<Vault>,
    refresher: Arc<dyn TokenRefresher>,
    tracker: TaskTracker,
    /// By the server's URL.
    cached: RwLock<HashMap<Box<str>, ByCaller>>,
    /// Notified when this gateway learns that a caller has signed out.
    sign_outs: Arc<Notify>,
}

type ByCaller = HashMap<Box<str>, Arc<CachedGrant>>;

/// Exchanges refresh tokens for new tokens.
pub(crate) trait TokenRefresher: Send + Sync {
    /// Asks the grant's authorization server for new tokens. It must end by itself in reasonable time: nobody
    /// else may refresh the grant meanwhile.
    fn refresh<'a>(&'a self, server_url: &'a str, grant: &'a Grant) -> RefreshFuture<'a>;

    /// Whether tokens of this issuer may be used at this server.
    fn accepts(&self, server_url: &str, issuer: &str) -> bool;
}

/// Resolves to new tokens.
pub(crate) type RefreshFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Tokens, RefreshError>> + Send + 'a>>;

/// Why a refresh brought no new tokens.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RefreshError {
    /// The authorization server says `invalid_grant`: the refresh token is expired or revoked.
    #[error("the authorization server rejected the refresh token (invalid_grant)")]
    Rejected,
    /// It says `invalid_client` or `unauthorized_client`: no client can use the refresh token any more.
    #[error("the authorization server does not know the client any more")]
    UnknownClient,
    /// The operator does not trust the grant's authorization server any more.
    #[error("the configuration does not trust this authorization server any more")]
    Untrusted,
    /// Anything else. The refresh token may still be valid.
    #[error("the token refresh failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What is known about a caller's token without waiting.
#[derive(Debug)]
pub(crate) enum CachedBearer {
    /// The request carries this token.
    Bearer(Arc<Bearer>),
    /// The caller was not signed in when the vault was last read.
    SignedOut,
    /// Ask [`Grants::bearer`].
    Unknown,
}

/// Why there is no answer to whether a caller is signed in, or no token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GrantError {
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The last refresh failed, and it is too early for a retry.
    #[error(
        "the token refresh failed; retry in {}",
        humantime::format_duration(Duration::from_secs(.0.as_secs()))
    )]
    NotNow(Duration),
    #[error(transparent)]
    InvalidBearer(#[from] InvalidBearer),
    #[error("the caller signed out during the sign-in")]
    SignedOut,
    #[error("the gateway is stopping")]
    Stopped,
}

// === impl Grants ===

impl Grants {
    pub(crate) fn new(
        vault: Arc<Vault>,
        refresher: Arc<dyn TokenRefresher>,
        tracker: TaskTracker,
    ) -> Arc<Self> {
        Arc::new(Self {
            vault,
            refresher,
            tracker,
            cached: RwLock::default(),
            sign_outs: Arc::default(),
        })
    }

    /// Where the grants are stored.
    pub(crate) fn vault(&self) -> &Vault {
        &self.vault
    }

    /// Runs work that continues when the request that started it is dropped.
    pub(crate) fn tracker(&self) -> &TaskTracker {
        &self.tracker
    }

    /// Reads the vault again for every cached grant if another process wrote to it since the last call:
    /// somebody may have signed out, or in as somebody else, on the command line.
    pub(crate) async fn notice(self: &Arc<Self>) {
        if !self.vault.take_change().await {
            return;
        }
        let cached: Vec<_> = self
            .cached
            .read()
            .values()
            .flat_map(HashMap::values)
            .cloned()
            .collect();
        for cached in cached.iter().filter(|cached| cached.held().is_some()) {
            // A task that improves it right now reads the vault anyway.
            if let Ok(flight) = cached.flight.clone().try_lock_owned() {
                drop(self.improve(cached, BearerNeed::Ahead, flight));
            }
        }
    }

    /// Stops using the cached grants of issuers that are not accepted any more: the operator changed the
    /// configuration. They stay in the vault, so that a sign-out revokes them.
    pub(crate) fn recheck_issuers(&self) {
        for (server_url, callers) in &*self.cached.read() {
            for cached in callers.values() {
                let held = cached.held();
                let is_accepted =
                    |held: &HeldGrant| self.accepts(server_url, &held.grant.discovery.issuer);
                if held.as_deref().is_some_and(|held| !is_accepted(held)) {
                    cached.mark_signed_out(held.as_ref());
                }
            }
        }
    }

    fn accepts(&self, server_url: &str, issuer: &str) -> bool {
        let is_accepted = self.refresher.accepts(server_url, issuer);
        if !is_accepted {
            tracing::debug!(issuer, "grant not used: another issuer is configured");
        }
        is_accepted
    }

    /// Waits until this gateway learns that a caller has signed out.
    pub(crate) async fn signed_out(&self) {
        self.sign_outs.notified().await;
    }

    /// Whether this caller has signed out at this server, as far as this gateway knows.
    pub(crate) fn is_signed_out(&self, caller: &str, server_url: &str) -> bool {
        let cached = self.known(caller, server_url);
        cached.is_some_and(|cached| cached.is_signed_out())
    }

    /// The number of this caller's sign-in at this server, as far as this gateway knows; 0 for none.
    pub(crate) fn sign_in_number(&self, caller: &str, server_url: &str) -> u64 {
        let cached = self.known(caller, server_url);
        cached.map_or(0, |cached| cached.sign_in())
    }

    /// Starts a check whether this caller has signed out at this server, unless one ran recently.
    pub(crate) fn check_sign_out(self: &Arc<Self>, caller: &str, server_url: &str) {
        let cached = self.known(caller, server_url);
        if let Some(cached) =
            cached.filter(|cached| cached.should_check_sign_out(clock::unix_millis()))
            && let Ok(flight) = cached.flight.clone().try_lock_owned()
        {
            drop(self.improve(&cached, BearerNeed::Known, flight));
        }
    }

    fn known(&self, caller: &str, server_url: &str) -> Option<Arc<CachedGrant>> {
        let all = self.cached.read();
        all.get(server_url)?.get(caller).cloned()
    }

    /// The token for a request of this caller to this server, as far as it is cached.
    pub(crate) fn cached_bearer(self: &Arc<Self>, caller: &str, server_url: &str) -> CachedBearer {
        let Some(cached) = self.known(caller, server_url) else {
            return CachedBearer::Unknown;
        };
        let bearer = match cached.cached_bearer() {
            CachedBearer::Bearer(bearer) => bearer,
            nothing => return nothing,
        };
        let now = clock::unix_millis();
        if cached.needs_attention(now)
            && let Ok(flight) = cached.flight.clone().try_lock_owned()
        {
            drop(self.improve(&cached, BearerNeed::Ahead, flight));
        }
        if now < bearer.stale || (now < bearer.expired && cached.backoff_left(now).is_some()) {
            return CachedBearer::Bearer(bearer);
        }
        CachedBearer::Unknown
    }

    /// The token for a request of this caller to this server. `None`: the caller has to sign in, if the
    /// server wants a token at all.
    pub(crate) async fn bearer(
        self: &Arc<Self>,
        caller: &str,
        server_url: &str,
    ) -> Result<Option<Arc<Bearer>>, GrantError> {
        match self.cached_bearer(caller, server_url) {
            CachedBearer::Bearer(bearer) => Ok(Some(bearer)),
            CachedBearer::SignedOut => Ok(None),
            CachedBearer::Unknown => self.better(caller, server_url, BearerNeed::Fresh).await,
        }
    }

    /// The token to send instead, after the server refused a request with `sent`, or without a token. `None`:
    /// the caller has to sign in.
    pub(crate) async fn refused(
        self: &Arc<Self>,
        caller: &str,
        server_url: &str,
        sent: Option<&Arc<Bearer>>,
    ) -> Result<Option<Arc<Bearer>>, GrantError> {
        let need = match sent {
            None => BearerNeed::Fresh,
            Some(sent) => BearerNeed::Other(Arc::clone(sent)),
        };
        self.better(caller, server_url, need).await
    }

    /// The grant whose token the server refused: the one that was sent, else the one that is not sent any more.
    pub(crate) fn refused_grant(
        &self,
        caller: &str,
        server_url: &str,
        sent: Option<&Arc<Bearer>>,
    ) -> RefusedGrant {
        let Some(sent) = sent else {
            let cached = self.known(caller, server_url);
            return cached.map_or_else(RefusedGrant::default, |cached| cached.worthless());
        };
        RefusedGrant {
            sign_in: sent.sign_in,
            was_accepted: sent.was_accepted(),
        }
    }

    /// Whether the vault has a grant of a later sign-in than the one with this number, with these scopes. If so,
    /// requests carry it from now on.
    pub(crate) async fn take_newer(
        self: &Arc<Self>,
        caller: &str,
        server_url: &str,
        number: u64,
        scopes: &[String],
    ) -> Result<bool, GrantError> {
        let sign_in = self.vault.signed_in(caller, server_url).await?.value;
        let Some(key) = sign_in.and_then(|sign_in| sign_in.grant) else {
            return Ok(false);
        };
        let grant = self.vault.grant(&key).await?.value;
        let is_newer = grant.is_some_and(|grant| {
            grant.sign_in > number && scopes.iter().all(|scope| grant.scopes.contains(scope))
        });
        if !is_newer || !self.accepts(server_url, &key.issuer) {
            return Ok(false);
        }
        let cached = self.cached(caller, server_url);
        let flight = cached.flight.clone().lock_owned().await;
        let known = self.improve(&cached, BearerNeed::Known, flight).await;
        Ok(known.unwrap_or(Err(GrantError::Stopped))?.is_some())
    }

    /// Waits for a better token than the cached one.
    async fn better(
        self: &Arc<Self>,
        caller: &str,
        server_url: &str,
        need: BearerNeed,
    ) -> Result<Option<Arc<Bearer>>, GrantError> {
        let cached = self.cached(caller, server_url);
        if let Some(bearer) = cached.if_meets(&need) {
            return Ok(Some(bearer));
        }
        let flight = cached.flight.clone().lock_owned().await;
        // The task before may have got it.
        if let Some(bearer) = cached.if_meets(&need) {
            return Ok(Some(bearer));
        }
        let improved = self.improve(&cached, need, flight).await;
        improved.unwrap_or(Err(GrantError::Stopped))
    }

    /// Improves the cached grant in the background, whether or not a request waits for it.
    fn improve(
        self: &Arc<Self>,
        cached: &Arc<CachedGrant>,
        need: BearerNeed,
        flight: OwnedMutexGuard<()>,
    ) -> oneshot::Receiver<Result<Option<Arc<Bearer>>, GrantError>> {
        let (tell, told) = oneshot::channel();
        let (grants, cached) = (Arc::clone(self), Arc::clone(cached));
        self.tracker.spawn(async move {
            let Improvement { bearer, unsaved } = grants.improved(&cached, &need).await;
            if let Err(error) = &bearer {
                let error: &dyn std::error::Error = error;
                tracing::debug!(error, "no token available");
            }
            cached.schedule_attention();
            // It is no failure if no request waits for it any more.
            tell.send(bearer).ok();
            if let Some(claim) = unsaved {
                grants.save_at_last(&cached, claim).await;
            }
            drop(flight);
        });
        told
    }

    fn cached(&self, caller: &str, server_url: &str) -> Arc<CachedGrant> {
        let mut all = self.cached.write();
        let callers = all.entry(server_url.into()).or_default();
        let cached = callers
            .entry(caller.into())
            .or_insert_with(|| Arc::new(CachedGrant::new(caller, server_url, &self.sign_outs)));
        Arc::clone(cached)
    }
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grants")
            .field("vault", &self.vault)
            .finish_non_exhaustive()
    }
}
