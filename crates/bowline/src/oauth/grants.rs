//! The grants that this gateway uses: at hand for every request, and kept fresh.
//!
//! What a request needs is one look-up away ([`Grants::at_hand`]); only what is unknown, over or
//! refused is waited for. A token is renewed ahead of its end when somebody uses it, by one task per
//! grant in this gateway and, by the vault's turn, by one gateway at a time. What another gateway did
//! is found in the vault when the token at hand is near its end or was refused, every half a minute
//! while it is used and, in a file, soon after it was written ([`Grants::notice`]).
//!
//! Nothing that was granted is lost on the way: a refresh that was begun goes on when whoever asked
//! for it leaves; its answer is used at once and written until the vault takes it; a refresh that
//! fails changes nothing. Only an authorization server's word that the grant is worth nothing, or a
//! sign-out, ends it.

mod live;
mod refresh;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::{Notify, OwnedMutexGuard, oneshot};
use tokio_util::task::TaskTracker;

use self::live::{Holding, Live, Want};
use super::bearer::{Bearer, NotAHeader};
use super::grant::{ClientIdentity, Discovered, Grant, Tokens};
use super::vault::{SignIn, Vault, VaultError};
use crate::clock;

/// How often a sign-in is tried that meets another.
const MAX_CONFLICTS: usize = 16;

/// The grants of one gateway.
pub(crate) struct Grants {
    vault: Arc<Vault>,
    authority: Arc<dyn Renew>,
    tracker: TaskTracker,
    /// By the server's URL.
    live: RwLock<HashMap<Box<str>, ByCaller>>,
    /// Told when it is known that a caller has signed out.
    outs: Arc<Notify>,
}

type ByCaller = HashMap<Box<str>, Arc<Live>>;

/// Whoever can use a refresh token.
pub(crate) trait Renew: Send + Sync {
    /// Asks the grant's authorization server for new tokens. Must end by itself in reasonable time:
    /// nobody else may ask meanwhile.
    fn renew<'a>(&'a self, server_url: &'a str, grant: &'a Grant) -> Renewing<'a>;
}

/// New tokens, in a while.
pub(crate) type Renewing<'a> =
    Pin<Box<dyn Future<Output = Result<Tokens, RenewError>> + Send + 'a>>;

/// Why there are no new tokens.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RenewError {
    /// The authorization server says `invalid_grant`: the refresh token is worth nothing.
    #[error("the authorization server no longer accepts the grant")]
    Rejected,
    /// It says `invalid_client` or `unauthorized_client`: nobody can use the refresh token any more.
    #[error("the authorization server does not know the client that the grant was made to")]
    UnknownClient,
    /// The operator does not trust the grant's authorization server any more.
    #[error("the grant's authorization server is not one that is trusted now")]
    Untrusted,
    /// Anything else. The refresh token may be as good as before.
    #[error("the grant could not be renewed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What is known without waiting.
#[derive(Debug)]
pub(crate) enum AtHand {
    /// This goes with the request.
    Bearer(Arc<Bearer>),
    /// The caller is not signed in, when it was last looked.
    SignedOut,
    /// Ask [`Grants::bearer`].
    Unknown,
}

/// Why it is not known whether a caller is signed in, or with what.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GrantError {
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The last refresh failed, and it is too early for another.
    #[error(
        "the grant could not be renewed; it is tried again in {}",
        humantime::format_duration(Duration::from_secs(.0.as_secs()))
    )]
    NotNow(Duration),
    #[error(transparent)]
    NotAHeader(#[from] NotAHeader),
    #[error("the caller was signed out meanwhile")]
    SignedOut,
    #[error("the gateway stops")]
    Stopped,
}

// === impl Grants ===

impl Grants {
    pub(crate) fn new(
        vault: Arc<Vault>,
        authority: Arc<dyn Renew>,
        tracker: TaskTracker,
    ) -> Arc<Self> {
        Arc::new(Self {
            vault,
            authority,
            tracker,
            live: RwLock::default(),
            outs: Arc::default(),
        })
    }

    /// Where they are kept.
    pub(crate) fn vault(&self) -> &Vault {
        &self.vault
    }

    /// Where work goes on when whoever asked for it leaves.
    pub(crate) fn tracker(&self) -> &TaskTracker {
        &self.tracker
    }

    /// Looks after what is at hand if another process wrote to the vault since this was called last:
    /// somebody may have signed out, or in as somebody else, on the command line.
    pub(crate) async fn notice(self: &Arc<Self>) {
        if !self.vault.was_written_to().await {
            return;
        }
        let live: Vec<_> = self
            .live
            .read()
            .values()
            .flat_map(HashMap::values)
            .cloned()
            .collect();
        for live in live.iter().filter(|live| live.holding().is_some()) {
            // Whoever improves on it right now looks into the vault anyway.
            if let Ok(flight) = live.flight.clone().try_lock_owned() {
                drop(self.improve(live, Want::Ahead, flight));
            }
        }
    }

    /// Waits until it is known of a caller that it has signed out.
    pub(crate) async fn somebody_is_out(&self) {
        self.outs.notified().await;
    }

    /// Whether this caller has signed out at this server, as far as it is known.
    pub(crate) fn is_out(&self, caller: &str, server_url: &str) -> bool {
        let live = self.known(caller, server_url);
        live.is_some_and(|live| live.is_said_to_be_out())
    }

    /// Has it looked whether this caller has signed out at this server, if that was not done lately.
    pub(crate) fn look_if_out(self: &Arc<Self>, caller: &str, server_url: &str) {
        let live = self.known(caller, server_url);
        if let Some(live) = live.filter(|live| live.may_be_out(clock::unix_millis()))
            && let Ok(flight) = live.flight.clone().try_lock_owned()
        {
            drop(self.improve(&live, Want::Known, flight));
        }
    }

    fn known(&self, caller: &str, server_url: &str) -> Option<Arc<Live>> {
        let all = self.live.read();
        all.get(server_url)?.get(caller).cloned()
    }

    /// What a request of this caller to this server carries, as far as it is known.
    pub(crate) fn at_hand(self: &Arc<Self>, caller: &str, server_url: &str) -> AtHand {
        let Some(live) = self.known(caller, server_url) else {
            return AtHand::Unknown;
        };
        let bearer = match live.at_hand() {
            AtHand::Bearer(bearer) => bearer,
            nothing => return nothing,
        };
        let now = clock::unix_millis();
        if live.needs_attention(now)
            && let Ok(flight) = live.flight.clone().try_lock_owned()
        {
            drop(self.improve(&live, Want::Ahead, flight));
        }
        if now < bearer.stale || (now < bearer.expired && live.waits(now).is_some()) {
            return AtHand::Bearer(bearer);
        }
        AtHand::Unknown
    }

    /// What a request of this caller to this server carries. `None`: the caller has to sign in, if
    /// the server wants anything at all.
    pub(crate) async fn bearer(
        self: &Arc<Self>,
        caller: &str,
        server_url: &str,
    ) -> Result<Option<Arc<Bearer>>, GrantError> {
        match self.at_hand(caller, server_url) {
            AtHand::Bearer(bearer) => Ok(Some(bearer)),
            AtHand::SignedOut => Ok(None),
            AtHand::Unknown => self.better(caller, server_url, Want::Fresh).await,
        }
    }

    /// What to send instead, after the server wanted a credential and `sent` was none, or one that it
    /// says is invalid. `None`: the caller has to sign in.
    pub(crate) async fn refused(
        self: &Arc<Self>,
        caller: &str,
        server_url: &str,
        sent: Option<&Arc<Bearer>>,
    ) -> Result<Option<Arc<Bearer>>, GrantError> {
        let want = match sent {
            None => Want::Fresh,
            Some(sent) => Want::Other(Arc::clone(sent)),
        };
        self.better(caller, server_url, want).await
    }

    /// How often somebody signed this caller out at this server.
    pub(crate) async fn outs(&self, caller: &str, server_url: &str) -> Result<u64, VaultError> {
        let sign_in = self.vault.signed_in(caller, server_url).await?.value;
        Ok(sign_in.map_or(0, |sign_in| sign_in.outs))
    }

    /// Keeps what a sign-in brought; from now on it is what the caller's requests carry, unless it was
    /// signed out more often than when the sign-in was begun. Another error
    /// means that it may not be kept: whoever has the tokens tries again with them.
    pub(crate) async fn sign_in(
        self: &Arc<Self>,
        (caller, server_url): (&str, &str),
        outs: u64,
        found: (Discovered, ClientIdentity),
        tokens: Tokens,
    ) -> Result<Arc<Bearer>, GrantError> {
        let live = self.live(caller, server_url);
        let mut grant = Grant::new(caller, found, tokens, 0, clock::unix_seconds());
        let key = grant.key();
        for _ in 0..MAX_CONFLICTS {
            let before = self.vault.signed_in(caller, server_url).await?;
            let outs_by_now = before.value.as_ref().map_or(0, |before| before.outs);
            if outs_by_now > outs {
                return Err(GrantError::SignedOut);
            }
            let stored = self.vault.grant(&key).await?;
            let numbers = [
                before.value.as_ref().map_or(0, |before| before.number),
                stored.value.map_or(0, |stored| stored.sign_in),
                live.sign_in(),
                grant.sign_in,
            ];
            let last = numbers.into_iter().max().unwrap_or(0);
            let date = u64::try_from(grant.obtained).unwrap_or(0);
            grant.sign_in = date.max(last + 1);
            let holding = Holding::new(grant.clone(), stored.version.next(), true)?;
            let written = self.vault.put_grant(&grant, stored.version).await?;
            let sign_in = SignIn {
                caller: caller.to_owned(),
                server_url: server_url.to_owned(),
                grant: Some(key.clone()),
                number: grant.sign_in,
                outs: outs_by_now,
            };
            if written.is_none() || !self.vault.put_signed_in(&sign_in, before.version).await? {
                continue;
            }
            if let Some(replaced) = before.value.and_then(|before| before.grant)
                && replaced != key
            {
                self.throw_away(&replaced).await;
            }
            let bearer = holding.bearer();
            live.hold(holding);
            return Ok(bearer);
        }
        Err(VaultError::Contended.into())
    }

    /// Ends what a caller was granted here. Returns it, so that it can be revoked; `None`: the caller
    /// was not signed in.
    pub(crate) async fn sign_out(
        self: &Arc<Self>,
        caller: &str,
        server_url: &str,
    ) -> Result<Option<Grant>, GrantError> {
        let live = self.live(caller, server_url);
        // What is being renewed is waited for: the new tokens are to be revoked, not the old ones.
        let _flight = live.flight.clone().lock_owned().await;
        let mut taken_out = None;
        for _ in 0..MAX_CONFLICTS {
            let before = self.vault.signed_in(caller, server_url).await?;
            let sign_in = before.value.unwrap_or_else(|| SignIn {
                caller: caller.to_owned(),
                server_url: server_url.to_owned(),
                grant: None,
                number: 0,
                outs: 0,
            });
            let _turn = match &sign_in.grant {
                None => None,
                Some(key) => {
                    let turn = self.vault.turn(key).await?;
                    let stored = self.vault.grant(key).await?;
                    if stored.value.is_some() {
                        if !self.vault.remove_grant(key, stored.version).await? {
                            continue;
                        }
                        taken_out = stored.value;
                    }
                    Some(turn)
                }
            };
            // Also where there was nothing: a sign-in that is under way brings nothing, then.
            let after = SignIn {
                grant: None,
                outs: sign_in.outs.saturating_add(1),
                ..sign_in
            };
            if self.vault.put_signed_in(&after, before.version).await? {
                live.has_signed_out(live.holding().as_ref());
                return Ok(taken_out);
            }
        }
        Err(VaultError::Contended.into())
    }

    /// Waits for something better than what is at hand.
    async fn better(
        self: &Arc<Self>,
        caller: &str,
        server_url: &str,
        want: Want,
    ) -> Result<Option<Arc<Bearer>>, GrantError> {
        let live = self.live(caller, server_url);
        if let Some(bearer) = live.good(&want) {
            return Ok(Some(bearer));
        }
        let flight = live.flight.clone().lock_owned().await;
        // Whoever had it before may have got it.
        if let Some(bearer) = live.good(&want) {
            return Ok(Some(bearer));
        }
        let improved = self.improve(&live, want, flight).await;
        improved.unwrap_or(Err(GrantError::Stopped))
    }

    /// Improves what is at hand, whether or not anybody waits for it.
    fn improve(
        self: &Arc<Self>,
        live: &Arc<Live>,
        want: Want,
        flight: OwnedMutexGuard<()>,
    ) -> oneshot::Receiver<Result<Option<Arc<Bearer>>, GrantError>> {
        let (tell, told) = oneshot::channel();
        let (grants, live) = (Arc::clone(self), Arc::clone(live));
        self.tracker.spawn(async move {
            let (improved, unsaved) = grants.improved(&live, &want).await;
            if let Err(error) = &improved {
                let error: &dyn std::error::Error = error;
                tracing::debug!(error, "a grant is not at hand");
            }
            live.attended();
            // That nobody waits for it is no failure.
            tell.send(improved).ok();
            if let Some(turn) = unsaved {
                grants.save_at_last(&live, turn).await;
            }
            drop(flight);
        });
        told
    }

    fn live(&self, caller: &str, server_url: &str) -> Arc<Live> {
        let mut all = self.live.write();
        let callers = all.entry(server_url.into()).or_default();
        let live = callers
            .entry(caller.into())
            .or_insert_with(|| Arc::new(Live::new(caller, server_url, &self.outs)));
        Arc::clone(live)
    }
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grants")
            .field("vault", &self.vault)
            .finish_non_exhaustive()
    }
}
