//! Signing in and out at servers without a gateway that runs: what `bowline login`, `logout` and
//! `auth` do. Gateways on the same vault find what was granted here, and miss what was taken back.
//!
//! A [`Desk`] has the vault that a configuration names. A sign-in that it begins has a listener of its
//! own, on this machine, to which the person's browser comes back.

mod callback;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use thiserror::Error;
use tokio_util::task::TaskTracker;

use self::callback::Callback;
use crate::config::{CallerName, Config, Flow as Kind, Server, ServerOAuth, StoreKind, shown_url};
use crate::egress::Tls;
use crate::gateway::StartError;
use crate::neighbours;
use crate::oauth::{
    Account, Authorities, AuthorityError, End, FileVault, Flow, Grant, Grants, MemoryVault, Out,
    Pending, Probed, Secret, SharedVault, SignInError, SignIns, Vault, Wanted, identity_of,
    name_of,
};
use crate::session::Caller;
use crate::store::sealed::SealKeys;
use crate::store::{self, OpenStoreError};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Where people sign in and out without a gateway.
#[derive(Debug)]
pub struct Desk {
    vault: Arc<Vault>,
    sign_ins: Arc<SignIns>,
}

/// Why there is no desk.
#[derive(Debug, Error)]
pub enum DeskError {
    /// What is signed in for would be gone with this process, and no gateway would find it.
    #[error("what people sign in for is only in the memory of the gateway")]
    InMemory,
    /// The vault cannot be used, for a reason for which no gateway would start, either.
    #[error(transparent)]
    Start(Box<StartError>),
}

/// A sign-in that a person has to finish. Dropping it gives it up.
#[derive(Debug)]
pub struct SigningIn {
    sign_ins: Arc<SignIns>,
    link: Secret,
    flow: Flow,
    callback: Callback,
}

/// What somebody was granted. Nothing of it is secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedIn {
    /// The server's URL, without its query: that may hold a secret.
    pub server_url: String,
    /// Whose it is, by the caller's name; `None` for the local caller.
    pub caller: Option<String>,
    /// Who granted it.
    pub issuer: String,
    /// What was granted, as far as it is known.
    pub scopes: Vec<String>,
    /// When the person signed in.
    pub since: SystemTime,
    /// Until when the access token is good, if that is known.
    pub until: Option<SystemTime>,
    /// Whether gateways renew it by themselves.
    pub is_renewed: bool,
}

/// How a sign-out went. Whatever it was, nobody is signed in any more.
#[derive(Debug)]
pub enum SignedOut {
    /// Nobody was signed in.
    AlreadyOut,
    /// The authorization server takes the tokens back.
    Revoked,
    /// The authorization server has no way to take tokens back: they are good until they end.
    NotOffered,
    /// It did not take them back: they may be good until they end.
    Failed(AnyError),
}

/// Why nobody is signed in.
#[derive(Debug, Error)]
pub enum NotSignedIn {
    /// There is nothing to sign in for.
    #[error("the server lets everybody in, and publishes nothing about signing in")]
    NotNeeded,
    /// The authorization server has to be told of Bowline beforehand.
    #[error("the authorization server registers no clients")]
    NoRegistration,
    /// The person said no.
    #[error("the sign-in was declined")]
    Declined,
    /// It did not work.
    #[error("{0}")]
    Failed(String),
    /// The server itself does not say whether it wants a sign-in.
    #[error("the server cannot be asked: {0}")]
    Unreachable(String),
    /// It could not be begun.
    #[error("cannot sign in")]
    NotBegun(#[source] AnyError),
    /// It is not known who is signed in.
    #[error("cannot tell who is signed in")]
    Unknown(#[source] AnyError),
}

// === impl DeskError ===

impl From<StartError> for DeskError {
    fn from(error: StartError) -> Self {
        Self::Start(Box::new(error))
    }
}

// === impl Desk ===

impl Desk {
    /// Opens the vault that gateways with this configuration use.
    pub async fn open(config: &Config) -> Result<Self, DeskError> {
        let tracker = TaskTracker::new();
        let vault = match &config.store.kind {
            StoreKind::Memory => return Err(DeskError::InMemory),
            StoreKind::File { path } => {
                let vault = FileVault::at(path).map_err(|error| StartError::Vault(error.into()))?;
                Vault::File(vault)
            }
            StoreKind::Redis(_) => Vault::Shared(shared(config, &tracker).await?),
        };
        let vault = Arc::new(vault);
        let authorities = Arc::new(Authorities::new(Tls::platform()));
        let renew: Arc<Authorities> = Arc::clone(&authorities);
        let grants = Grants::new(Arc::clone(&vault), renew, tracker);
        // A flow ends with this process, which alone has its listener. So does what Bowline
        // registered as: the next sign-in has another port, and a grant knows who it was made to.
        let registrations = Arc::new(Vault::Memory(MemoryVault::default()));
        let keys = SealKeys::generate().map_err(|error| StartError::Vault(error.into()))?;
        let keys = SealKeys::parse(&keys).map_err(|error| StartError::Vault(error.into()))?;
        let flows = Arc::new(store::Store::Memory(store::Memory::new()));
        let pending = Pending::new(flows, keys, config.oauth.deadline);
        let sign_ins = SignIns::new(
            (grants, registrations),
            pending,
            config.oauth.clone(),
            "",
            authorities,
        );
        sign_ins.identities.know(&config.callers);
        Ok(Self { vault, sign_ins })
    }

    /// Where grants are kept and, if they are in a file, where its key is; for people.
    pub fn place(&self) -> String {
        self.vault.to_string()
    }

    /// Begins to sign the local caller in at a server. `name` is what people call the server.
    pub async fn begin(&self, name: &str, server: &Server) -> Result<SigningIn, NotSignedIn> {
        let failed = |error: AuthorityError| NotSignedIn::NotBegun(error.into());
        let mut server = with_oauth(server);
        let Some(url) = self.sign_ins.authorities.know(&server) else {
            return Err(failed(AuthorityError::NoSupport));
        };
        let authority = self.sign_ins.authorities.of(&url.to_string());
        let probed = authority.map_err(failed)?.probe().await;
        let probed = probed.map_err(|error| match error {
            AuthorityError::Unreachable(error) => NotSignedIn::Unreachable(error.to_string()),
            AuthorityError::Unavailable(status) => {
                NotSignedIn::Unreachable(format!("it answered {status}"))
            }
            error => failed(error),
        })?;
        let (challenge, is_open) = match probed {
            Probed::SignIn(challenge) => (challenge, false),
            Probed::Open => (None, true),
        };
        let callback = Callback::listen(&self.sign_ins)
            .await
            .map_err(|error| NotSignedIn::NotBegun(error.into()))?;
        if let Some(oauth) = &mut server.oauth {
            // Whatever a gateway does for this server's clients, a person is here.
            oauth.flow = Kind::Drive;
            oauth.redirect_uri = Some(callback.redirect_uri().clone());
        }
        let account = Account::new(&self.sign_ins, &Caller::Local, name, &url);
        let wanted = Wanted {
            challenge,
            is_step_up: false,
        };
        let begun = self.sign_ins.begin(&account, &server, &wanted).await;
        let flow = begun.map_err(|error| match error {
            SignInError::Authority(AuthorityError::NoSupport) if is_open => NotSignedIn::NotNeeded,
            SignInError::Authority(AuthorityError::NoRegistration) => NotSignedIn::NoRegistration,
            error => NotSignedIn::NotBegun(error.into()),
        })?;
        let Some(way) = flow.authorization() else {
            return Err(NotSignedIn::NoRegistration);
        };
        callback.expect(&flow);
        Ok(SigningIn {
            sign_ins: Arc::clone(&self.sign_ins),
            link: Secret::new(way.begun.authorize_url.as_str()),
            flow,
            callback,
        })
    }

    /// What a caller was granted at a server; `None` if nothing.
    pub async fn signed_in(
        &self,
        caller: Option<&CallerName>,
        server: &Server,
    ) -> Result<Option<SignedIn>, NotSignedIn> {
        let Some(url) = server.way.urls().first() else {
            return Ok(None);
        };
        let caller = identity_of(&self.known_as(caller));
        self.granted(&caller, &url.to_string()).await
    }

    /// Everybody who is signed in anywhere. A store that gateways share cannot be asked for that.
    pub async fn all(&self) -> Result<Vec<SignedIn>, NotSignedIn> {
        let unknown = |error| NotSignedIn::Unknown(Box::new(error));
        let mut all = Vec::new();
        for sign_in in self.vault.all_signed_in().await.map_err(unknown)? {
            all.extend(self.granted(&sign_in.caller, &sign_in.server_url).await?);
        }
        all.sort_by(|one, other| {
            (&one.server_url, &one.caller).cmp(&(&other.server_url, &other.caller))
        });
        Ok(all)
    }

    async fn granted(&self, caller: &str, url: &str) -> Result<Option<SignedIn>, NotSignedIn> {
        let unknown = |error| NotSignedIn::Unknown(Box::new(error));
        let sign_in = self.vault.signed_in(caller, url).await.map_err(unknown)?;
        let Some(key) = sign_in.value.and_then(|sign_in| sign_in.grant) else {
            return Ok(None);
        };
        let grant = self.vault.grant(&key).await.map_err(unknown)?.value;
        Ok(grant.map(|grant| SignedIn::of(&grant, url)))
    }

    /// Signs a caller out at a server, the local one if there is no name, and asks the authorization server
    /// to take back what it granted. An error means that the grant may still be there.
    pub async fn sign_out(
        &self,
        caller: Option<&CallerName>,
        server: &Server,
    ) -> Result<SignedOut, NotSignedIn> {
        let Some(url) = self.sign_ins.authorities.know(&with_oauth(server)) else {
            return Ok(SignedOut::AlreadyOut);
        };
        let (caller, url) = (self.known_as(caller), url.to_string());
        let out = self.sign_ins.sign_out(&caller, &url).await;
        let out = out.map_err(|error| NotSignedIn::Unknown(error.into()))?;
        Ok(match out {
            Out::Already => SignedOut::AlreadyOut,
            Out::Revoked => SignedOut::Revoked,
            Out::NotOffered => SignedOut::NotOffered,
            Out::Failed(error) => SignedOut::Failed(error.into()),
        })
    }

    fn known_as(&self, caller: Option<&CallerName>) -> Caller {
        let named = |name: &CallerName| self.sign_ins.identities.named(name.clone());
        caller.map_or(Caller::Local, named)
    }
}

// === impl SigningIn ===

impl SigningIn {
    /// Where the person goes: an http or https URL. It is meant for that person only.
    pub fn link(&self) -> &str {
        self.link.expose()
    }

    /// Until when it can be finished.
    pub fn ends(&self) -> SystemTime {
        date(self.flow.ends)
    }

    /// Waits for the person.
    pub async fn finish(self) -> Result<(), NotSignedIn> {
        let end = self.sign_ins.ended(&self.flow).await;
        self.callback.close().await;
        match end {
            Some(End::SignedIn) => Ok(()),
            Some(End::Declined { .. }) => Err(NotSignedIn::Declined),
            Some(End::Failed(why)) => Err(NotSignedIn::Failed(why)),
            None => Err(NotSignedIn::Failed(
                "another sign-in took its place".to_owned(),
            )),
        }
    }
}

// === impl SignedIn ===

impl SignedIn {
    fn of(grant: &Grant, server_url: &str) -> Self {
        let caller = Some(name_of(&grant.caller)).filter(|caller| !caller.is_empty());
        Self {
            server_url: shown_url(server_url),
            caller: caller.map(ToOwned::to_owned),
            issuer: grant.found.issuer.clone(),
            scopes: grant.scopes.clone(),
            // A sign-in's number is its date, unless there were several in a second.
            since: date(i64::try_from(grant.sign_in).unwrap_or_default()),
            until: grant.expires.map(date),
            is_renewed: grant.refresh_token.is_some(),
        }
    }
}

/// The server as one at which Bowline does it all, whatever gateways do there.
fn with_oauth(server: &Server) -> Server {
    let oauth = server.oauth.clone().unwrap_or_default();
    Server {
        oauth: Some(ServerOAuth {
            flow: Kind::Managed,
            redirect_uri: None,
            ..oauth
        }),
        ..server.clone()
    }
}

/// The vault that gateways share.
async fn shared(config: &Config, tracker: &TaskTracker) -> Result<SharedVault, StartError> {
    let failed = |source: OpenStoreError| StartError::Store {
        kind: config.store.kind.clone(),
        source,
    };
    let (store, keys) = store::open(&config.store).await.map_err(failed)?;
    let keys = keys.ok_or(OpenStoreError::NoSealKeys).map_err(failed)?;
    let me = neighbours::name().map_err(|error| StartError::Vault(error.into()))?;
    Ok(SharedVault::new(Arc::new(store), keys, me, tracker.clone()))
}

fn date(seconds: i64) -> SystemTime {
    let seconds = u64::try_from(seconds).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}
