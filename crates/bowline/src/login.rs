//! Signing in and out without a running gateway: what `bowline login`, `logout` and `auth` do. Gateways on
//! the same vault use the grants made here, and notice sign-outs.
//!
//! A [`GrantManager`] opens the vault of a configuration. Each sign-in that it starts has its own listener on
//! this machine, to which the person's browser returns.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bowline_egress::Tls;
use bowline_store::sealed::SealKeysError;
use thiserror::Error;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::task::TaskTracker;

use crate::caller::Caller;
use crate::callers::{identity_of, name_of};
use crate::config::{CallerName, Config, Server, StoreKind, shown_url};
use crate::front::callback::{Callback, Callbacks, Started};
use crate::gateway::{StartError, local};
use crate::oauth::{
    Account, AuthServerError, Flow, FlowOutcome, Flows, Grant, ProbeOutcome, Secret, SignInError,
    SignInReason, Vault, in_brackets,
};

pub use crate::oauth::SignOutOutcome;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Manages the grants in the vault of a configuration, without a gateway.
#[derive(Debug)]
pub struct GrantManager {
    vault: Arc<Vault>,
    config: Config,
    tracker: TaskTracker,
}

/// Why the vault could not be opened.
#[derive(Debug, Error)]
pub enum GrantManagerError {
    /// A grant would be lost when this process ends, and no gateway would find it.
    #[error("grants are only in the memory of the gateway")]
    InMemory,
    /// The vault cannot be used; a gateway would not start, either.
    #[error(transparent)]
    Start(Box<StartError>),
}

/// A sign-in that a person has to finish. Dropping it aborts it.
#[derive(Debug)]
pub struct PendingSignIn {
    flows: Arc<Flows>,
    link: Secret,
    flow: Flow,
    callback: Callback,
}

/// A summary of a grant, without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantSummary {
    /// The server's URL, without its query, which may contain a secret.
    pub server_url: String,
    /// The caller's name; `None` for the local caller.
    pub caller: Option<String>,
    /// The authorization server that issued the tokens.
    pub issuer: String,
    /// The granted scopes, as far as they are known.
    pub scopes: Vec<String>,
    /// When the person signed in.
    pub since: SystemTime,
    /// When the access token expires, if that is known.
    pub until: Option<SystemTime>,
    /// Whether gateways refresh it by themselves.
    pub is_renewed: bool,
}

/// Why a sign-in, a sign-out or a listing failed.
#[derive(Debug, Error)]
pub enum LoginError {
    /// The server needs no sign-in.
    #[error("the server is open to everybody and publishes no OAuth metadata")]
    NotNeeded,
    /// The client has to be registered with the authorization server by hand.
    #[error("the authorization server registers no clients")]
    NoRegistration,
    /// The person declined; with what the authorization server answered.
    #[error("the sign-in was declined{}", in_brackets(.said.as_deref()))]
    Declined {
        /// An error code, and its description.
        said: Option<String>,
    },
    /// The sign-in failed, for this reason.
    #[error("{0}")]
    Failed(String),
    /// The server did not say whether it needs a sign-in.
    #[error("the server is unavailable: {0}")]
    Unreachable(String),
    /// The sign-in could not be started.
    #[error("cannot sign in")]
    NotBegun(#[source] AnyError),
    /// The vault could not be read or written.
    #[error("cannot read the grants")]
    Unknown(#[source] AnyError),
}

// === impl GrantManagerError ===

impl From<StartError> for GrantManagerError {
    fn from(error: StartError) -> Self {
        Self::Start(Box::new(error))
    }
}

// === impl GrantManager ===

impl GrantManager {
    /// Opens the vault that gateways with this configuration use.
    pub async fn open(config: &Config) -> Result<Self, GrantManagerError> {
        let tracker = TaskTracker::new();
        if config.store.kind == StoreKind::Memory {
            return Err(GrantManagerError::InMemory);
        }
        let vault = Arc::new(local::vault(config, &tracker).await?);
        Ok(Self {
            vault,
            config: config.clone(),
            tracker,
        })
    }

    /// Flows of their own, and those that are started among them.
    fn flows(&self) -> Result<(Arc<Flows>, UnboundedReceiver<Started>), SealKeysError> {
        let (callbacks, started) = Callbacks::new(true);
        let (tls, tracker) = (Tls::platform(), self.tracker.clone());
        let flows = local::flows(&self.config, &self.vault, &tls, tracker, callbacks)?;
        Ok((flows, started))
    }

    /// Where grants are stored and, if in a file, where its key is; for people.
    pub fn place(&self) -> String {
        self.vault.to_string()
    }

    /// Starts to sign the local caller in at a server. `name` is the server's name for people.
    pub async fn begin(&self, name: &str, server: &Server) -> Result<PendingSignIn, LoginError> {
        let failed = |error: AuthServerError| LoginError::NotBegun(error.into());
        let flows = self.flows();
        let (flows, mut started) = flows.map_err(|error| LoginError::NotBegun(error.into()))?;
        let server = local::with_oauth(server);
        let Some(url) = flows.auth_servers.know(&server) else {
            return Err(failed(AuthServerError::NoSupport));
        };
        let auth_server = flows.auth_servers.of(&url.to_string());
        let probed = auth_server.map_err(failed)?.probe().await;
        let probed = probed.map_err(|error| match error {
            AuthServerError::Unreachable(error) => LoginError::Unreachable(error.to_string()),
            AuthServerError::Unavailable(status) => {
                LoginError::Unreachable(format!("it answered {status}"))
            }
            error => failed(error),
        })?;
        let (challenge, is_open) = match probed {
            ProbeOutcome::SignInRequired(challenge) => (challenge, false),
            ProbeOutcome::Open => (None, true),
        };
        let account = Account::new(&flows, &Caller::Local, name, &url);
        let reason = SignInReason {
            challenge,
            is_step_up: false,
            refused: Default::default(),
        };
        let begun = flows.begin(&account, &server, &reason).await;
        let flow = begun.map_err(|error| match error {
            SignInError::AuthServer(AuthServerError::NoSupport) if is_open => LoginError::NotNeeded,
            SignInError::AuthServer(AuthServerError::NoRegistration) => LoginError::NoRegistration,
            error => LoginError::NotBegun(error.into()),
        })?;
        let Some(authorization) = flow.authorization() else {
            return Err(LoginError::NoRegistration);
        };
        let Ok(Started { callback, .. }) = started.try_recv() else {
            return Err(LoginError::NotBegun("nothing listens".into()));
        };
        callback.expect(&flows, &flow);
        Ok(PendingSignIn {
            flows,
            link: Secret::new(authorization.request.authorize_url.as_str()),
            flow,
            callback,
        })
    }

    /// A caller's grant at a server; `None` if there is none.
    pub async fn signed_in(
        &self,
        caller: Option<&CallerName>,
        server: &Server,
    ) -> Result<Option<GrantSummary>, LoginError> {
        let Some(url) = server.target.urls().first() else {
            return Ok(None);
        };
        let (flows, _) = self
            .flows()
            .map_err(|error| LoginError::Unknown(error.into()))?;
        let caller = identity_of(&known_as(&flows, caller));
        self.granted(&caller, &url.to_string()).await
    }

    /// All grants in the vault. A store that gateways share cannot list them.
    pub async fn all(&self) -> Result<Vec<GrantSummary>, LoginError> {
        let unknown = |error| LoginError::Unknown(Box::new(error));
        let mut all = Vec::new();
        for sign_in in self.vault.all_signed_in().await.map_err(unknown)? {
            all.extend(self.granted(&sign_in.caller, &sign_in.server_url).await?);
        }
        all.sort_by(|one, other| {
            (&one.server_url, &one.caller).cmp(&(&other.server_url, &other.caller))
        });
        Ok(all)
    }

    async fn granted(&self, caller: &str, url: &str) -> Result<Option<GrantSummary>, LoginError> {
        let unknown = |error| LoginError::Unknown(Box::new(error));
        let sign_in = self.vault.signed_in(caller, url).await.map_err(unknown)?;
        let Some(key) = sign_in.value.and_then(|sign_in| sign_in.grant) else {
            return Ok(None);
        };
        let grant = self.vault.grant(&key).await.map_err(unknown)?.value;
        Ok(grant.map(|grant| GrantSummary::of(&grant, url)))
    }

    /// Signs a caller out at a server, the local one if there is no name, and asks the authorization server
    /// to revoke the tokens. `name` is the server's name: the caller is also signed out at the URLs at which the
    /// server with this name was before. An error means that the grant may still be there.
    pub async fn sign_out(
        &self,
        caller: Option<&CallerName>,
        name: &str,
        server: &Server,
    ) -> Result<SignOutOutcome, LoginError> {
        let (flows, _) = self
            .flows()
            .map_err(|error| LoginError::Unknown(error.into()))?;
        let Some(url) = flows.auth_servers.know(&local::with_oauth(server)) else {
            return Ok(SignOutOutcome::NotSignedIn);
        };
        let (caller, url) = (known_as(&flows, caller), url.to_string());
        let signed_out = flows.sign_out(&caller, name, &url).await;
        signed_out.map_err(|error| LoginError::Unknown(error.into()))
    }
}

fn known_as(flows: &Flows, caller: Option<&CallerName>) -> Caller {
    let named = |name: &CallerName| flows.callers.named(name.clone());
    caller.map_or(Caller::Local, named)
}

// === impl PendingSignIn ===

impl PendingSignIn {
    /// The http or https URL where the person signs in. It is meant for that person only: who knows it can
    /// finish the sign-in with another account. So it must not be an argument of a program, which all users of
    /// the machine can read.
    pub fn link(&self) -> &str {
        self.link.expose()
    }

    /// A URL on this machine, without any secret, that leads a browser of this user to the link, and nobody
    /// else. `None` if the system does not say whose a connection is.
    pub fn browser_link(&self) -> Option<&str> {
        self.flow.loopback()?.start_url.as_deref()
    }

    /// When the sign-in expires.
    pub fn ends(&self) -> SystemTime {
        date(self.flow.ends)
    }

    /// Waits until the person has signed in.
    pub async fn finish(self) -> Result<(), LoginError> {
        let end = self.flows.wait(&self.flow).await;
        self.callback.close().await;
        match end {
            Some(FlowOutcome::SignedIn) => Ok(()),
            Some(FlowOutcome::Declined { said }) => Err(LoginError::Declined { said }),
            Some(FlowOutcome::Failed(why)) => Err(LoginError::Failed(why)),
            None => Err(LoginError::Failed(
                "another sign-in replaced this one".to_owned(),
            )),
        }
    }
}

// === impl GrantSummary ===

impl GrantSummary {
    fn of(grant: &Grant, server_url: &str) -> Self {
        let caller = Some(name_of(&grant.caller)).filter(|caller| !caller.is_empty());
        Self {
            server_url: shown_url(server_url),
            caller: caller.map(ToOwned::to_owned),
            issuer: grant.discovery.issuer.clone(),
            scopes: grant.scopes.clone(),
            // A sign-in's number is its date, unless there were several in a second.
            since: date(i64::try_from(grant.sign_in).unwrap_or_default()),
            until: grant.expires.map(date),
            is_renewed: grant.refresh_token.is_some(),
        }
    }
}

/// The end of the year 9999, in seconds since 1970. Dates beyond have no common notation.
const LAST_SECOND: u64 = 253_402_300_799;

fn date(seconds: i64) -> SystemTime {
    let seconds = u64::try_from(seconds).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(LAST_SECOND))
}
