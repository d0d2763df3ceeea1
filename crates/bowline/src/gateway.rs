//! The gateway as a whole: built from a configuration, and run until it is stopped.

mod assemble;
mod bind;
mod bridge;
mod certificate;
pub(crate) mod local;
mod presence;
mod reload;
mod serve;
mod stop;
mod upkeep;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bowline_store::{OpenStoreError, private};
use bowline_system::socket_file::SocketFileError;
use parking_lot::Mutex;
use thiserror::Error;

use self::bind::Bound;
pub use self::bridge::{Bridge, OpenBrowser};
pub use self::reload::ReloadError;
use self::reload::StartupSettings;
use crate::callers::Callers;
use crate::config::{
    Config, ListenAddress, ServerCertificate, ServerName, SignInProblem, StoreKind,
};
use crate::guard::Guard;
use crate::guard::callers::is_open_at;
use crate::hub::Hub;
use crate::upstream::Upstream;

/// A running gateway. Dropping it stops it.
#[derive(Debug)]
pub struct Gateway {
    listen: ListenAddress,
    admin: Option<ListenAddress>,
    peers: Option<ListenAddress>,
    startup: StartupSettings,
    /// The certificate of the clients' listener.
    certificate: Mutex<Option<ServerCertificate>>,
    hub: Arc<Hub>,
}

/// Why a gateway did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} ({key})")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The configuration's name for it.
        key: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A Unix socket cannot be listened on.
    #[error("cannot listen on unix:{} ({key})", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// The configuration's name for it.
        key: &'static str,
        /// What is in the way.
        source: SocketFileError,
    },
    /// The secret of the gateways cannot be used.
    #[error(transparent)]
    Peers(#[from] PeerSecretError),
    /// Callers could not sign in, or others could in their name.
    #[error("server \"{server}\": {problem}")]
    SignIn {
        /// The first server that it concerns.
        server: ServerName,
        /// What is in the way.
        problem: SignInProblem,
    },
    /// Clients cannot be served by TLS.
    #[error("cannot serve TLS")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The vault of tokens cannot be used.
    #[error("cannot store the tokens of sign-ins")]
    Vault(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The session store cannot be used.
    #[error("cannot store sessions in {kind}")]
    Store {
        /// The configured store.
        kind: StoreKind,
        /// What is wrong with it.
        source: OpenStoreError,
    },
}

/// Why the secret of the gateways cannot be used.
#[derive(Debug, Error)]
pub enum PeerSecretError {
    /// Its file cannot be read.
    #[error("cannot read `secret_file` {} ([peers])", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It can be guessed.
    #[error(
        "the secret in [peers] has fewer than 32 characters; make one with `openssl rand -hex 32`"
    )]
    Short,
}

// === impl Gateway ===

impl Gateway {
    /// Binds the listeners and begins to serve.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::start_with(config, |_| {}).await
    }

    /// The same with promises broken, for tests that must be able to fail.
    #[cfg(feature = "planted")]
    pub async fn start_planted(
        config: Config,
        planted: crate::planted::Planted,
    ) -> Result<Self, StartError> {
        Self::start_with(config, |upstream| upstream.planted = planted).await
    }

    async fn start_with(
        config: Config,
        adjust: impl Fn(&mut Upstream),
    ) -> Result<Self, StartError> {
        if let Some((server, problem)) = config.sign_in_problems().first() {
            let (server, problem) = ((*server).clone(), *problem);
            return Err(StartError::SignIn { server, problem });
        }
        let startup = StartupSettings::of(&config);
        let certificate = Mutex::new(config.tls.clone());
        let clients = Bound::bind(&config.listen, "listen").await?;
        let operators = match &config.admin {
            Some(address) => Some(Bound::bind(address, "admin").await?),
            None => None,
        };
        let others = match &config.peers {
            Some(peers) => Some(Bound::bind(&peers.listen.into(), "peers.listen").await?),
            None => None,
        };
        let listen = clients.address.clone();
        let peers = others.as_ref().map(|it| it.address.clone());
        let admin = operators.as_ref().map(|it| it.address.clone());
        warn_of_open_listeners(&config, &listen, admin.as_ref());
        warn_of_shared_directories([Some(&listen), admin.as_ref()]);
        let admin_guard = admin.as_ref();
        let admin_guard = admin_guard.map(|it| Guard::new(it, false, &config).for_operators());
        let hub = assemble::hub(
            config,
            &listen,
            peers.as_ref().and_then(ListenAddress::tcp),
            adjust,
        )
        .await?;
        clients.serve_clients(&hub);
        if let Some(others) = others {
            others.serve_peers(&hub);
        }
        if let (Some(operators), Some(guard)) = (operators, admin_guard) {
            operators.serve_operator(&hub, guard);
        }
        upkeep::keep_tidy(&hub);
        upkeep::keep_expiring(&hub);
        presence::watch(&hub);
        Ok(Self {
            listen,
            admin,
            peers,
            startup,
            certificate,
            hub,
        })
    }

    /// Takes over another configuration, all of it or, if some of it cannot change, nothing.
    pub fn reload(&self, config: Config) -> Result<(), ReloadError> {
        let keys = self.startup.differences(&StartupSettings::of(&config));
        if !keys.is_empty() {
            return Err(ReloadError { keys });
        }
        let asked = self.hub.callers.now().have_certificates();
        let certificate = config.tls.clone();
        reload::reconfigure(&self.hub, config);
        self.reconfigure_certificate(certificate, asked);
        Ok(())
    }

    /// Where clients are served.
    pub fn listen(&self) -> &ListenAddress {
        &self.listen
    }

    /// Where the operator is served.
    pub fn admin(&self) -> Option<&ListenAddress> {
        self.admin.as_ref()
    }

    /// Where other gateways are served.
    pub fn peers(&self) -> Option<&ListenAddress> {
        self.peers.as_ref()
    }

    /// Takes no new sessions, lets requests in flight finish within the configured time,
    /// ends streams, and returns.
    pub async fn stop(self) {
        stop::stop(&self.hub).await;
        if let Some(session_store) = self.hub.registry.table.session_store() {
            session_store.leave().await;
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let hub = &self.hub;
        for drain in [&hub.drain, &hub.peer_drain, &hub.admin_drain] {
            drain.begin();
            drain.close();
        }
        stop::end_streams(&self.hub);
    }
}

/// Warns of sockets that others can replace, and so answer in the gateway's place.
fn warn_of_shared_directories(listeners: [Option<&ListenAddress>; 2]) {
    for listener in listeners.into_iter().flatten() {
        if let ListenAddress::Unix(path) = listener
            && private::is_replaceable(path).unwrap_or(false)
        {
            let path = path.display();
            tracing::warn!(%path, "other users can replace this socket: its directory must belong to this user or root, and nobody else may write to it");
        }
    }
}

/// Warns of listeners that anybody on the network can use.
fn warn_of_open_listeners(config: &Config, listen: &ListenAddress, admin: Option<&ListenAddress>) {
    if is_open_at(&Callers::new(&config.callers), listen) {
        tracing::warn!(
            %listen,
            "no keys are required: everyone who can reach this address can use every server; add [callers], or listen on 127.0.0.1"
        );
    }
    if config.api_token.is_some() {
        return;
    }
    if let Some(admin) = admin.filter(|admin| !admin.is_local()) {
        tracing::warn!(
            %admin,
            "no API token is required: everyone who can reach this address can list sessions; set BOWLINE_API_TOKEN, or listen on 127.0.0.1"
        );
    }
    let has_sign_ins = config.servers.values().any(|it| it.oauth.is_some());
    if has_sign_ins && !listen.is_local() {
        tracing::warn!(
            %listen,
            "no API token is required: everyone who can reach this address and knows a sign-in's state can complete it; set BOWLINE_API_TOKEN"
        );
    }
}
