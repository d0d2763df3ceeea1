//! The gateway as a whole: built from a configuration, run until told to stop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bowline_wire::id::SessionId;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Config, Limits, StoreKind};
use crate::egress::Tls;
use crate::front::guard::Guard;
use crate::route::Routes;
use crate::session::{Session, Table};
use crate::upstream::Upstream;
use crate::{admin, front, listener};

/// How long an upstream's DELETE may take: it is a courtesy, nobody waits for it.
const DELETE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often idle upstream connections are looked at.
const STALE_CONNECTIONS_EVERY: Duration = Duration::from_secs(1);
/// How often idle sessions are looked for, at the most.
const EXPIRY_EVERY: Duration = Duration::from_secs(10);

/// A running gateway. Dropping it stops it.
#[derive(Debug)]
pub struct Gateway {
    listen: SocketAddr,
    admin: Option<SocketAddr>,
    fixed: Fixed,
    shared: Arc<Shared>,
}

/// What the configuration said at the start and cannot say differently later.
#[derive(Debug)]
struct Fixed {
    listen: SocketAddr,
    admin: Option<SocketAddr>,
    store: StoreKind,
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
    /// TLS cannot be used on this machine.
    #[error("{0}")]
    Tls(String),
}

/// Why a running gateway did not take over a configuration; it goes on as before.
#[derive(Debug, Error)]
#[error("`{}` cannot change while the gateway runs; restart it, or change that back", .keys.join("` and `"))]
pub struct ReloadError {
    /// The configuration's names for what would have changed, at least one.
    pub keys: Vec<&'static str>,
}

/// What every connection of a gateway shares.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) guard: Guard,
    pub(crate) routes: Routes,
    pub(crate) table: Arc<Table>,
    pub(crate) limits: Limits,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) tracker: TaskTracker,
    stop_timeout: Duration,
    stop: CancellationToken,
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
        let fixed = Fixed::of(&config);
        let (client_listener, listen) = bind(config.listen, "listen").await?;
        let admin_listener = match config.admin {
            Some(address) => Some(bind(address, "admin").await?),
            None => None,
        };
        let tls = Tls::platform().map_err(|error| StartError::Tls(error.to_string()))?;
        let tracker = TaskTracker::new();
        let upstreams = config.servers.into_iter().map(|(name, server)| {
            let mut upstream = Upstream::new(name, &server, tls.clone(), tracker.clone());
            adjust(&mut upstream);
            Arc::new(upstream)
        });
        let shared = Arc::new(Shared {
            guard: Guard {
                loopback: listen.ip().is_loopback(),
            },
            routes: Routes::new(upstreams),
            table: Arc::new(Table::new(config.limits.sessions)),
            limits: config.limits,
            streams: Arc::new(Semaphore::new(
                config.limits.streams.min(Semaphore::MAX_PERMITS),
            )),
            tracker,
            stop_timeout: config.stop_timeout,
            stop: CancellationToken::new(),
        });
        let admin = admin_listener.as_ref().map(|(_, address)| *address);
        shared.serve_clients(client_listener);
        if let Some((listener, address)) = admin_listener {
            shared.serve_admin(listener, address);
        }
        shared.keep_tidy();
        Ok(Self {
            listen,
            admin,
            fixed,
            shared,
        })
    }

    /// Takes over another configuration, all of it or, if some of it cannot change, nothing.
    pub fn reload(&self, config: Config) -> Result<(), ReloadError> {
        let keys = self.fixed.differences(&Fixed::of(&config));
        if !keys.is_empty() {
            return Err(ReloadError { keys });
        }
        self.shared.reconfigure(config);
        Ok(())
    }

    /// Where clients are served.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Where the operator is served.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Stops accepting, lets answers that are under way finish for a moment, and ends.
    pub async fn stop(self) {
        self.shared.stop.cancel();
        self.shared.tracker.close();
        self.shared.table.end_all_streams();
        self.shared
            .routes
            .iter()
            .for_each(|upstream| upstream.drop_idle_connections());
        let finished =
            tokio::time::timeout(self.shared.stop_timeout, self.shared.tracker.wait()).await;
        if finished.is_err() {
            tracing::info!(
                open = self.shared.tracker.len(),
                "stopped with connections open"
            );
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

// === impl Fixed ===

impl Fixed {
    fn of(config: &Config) -> Self {
        Self {
            listen: config.listen,
            admin: config.admin,
            store: config.store,
        }
    }

    fn differences(&self, other: &Self) -> Vec<&'static str> {
        let differ = [
            ("listen", self.listen != other.listen),
            ("admin", self.admin != other.admin),
            ("store", self.store != other.store),
        ];
        let changed = differ.into_iter().filter(|(_, differs)| *differs);
        changed.map(|(key, _)| key).collect()
    }
}

async fn bind(
    address: SocketAddr,
    key: &'static str,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bound.await.map_err(|source| StartError::Listen {
        address,
        key,
        source,
    })
}

// === impl Shared ===

impl Shared {
    /// Takes servers, callers and limits over.
    fn reconfigure(&self, _config: Config) {}

    /// Ends a session here and, as a courtesy, at its upstream. `false` if it had ended before.
    pub(crate) fn end_session(&self, id: &SessionId, reason: &'static str) -> bool {
        let Some(session) = self.table.end(id) else {
            return false;
        };
        self.bury(session, reason);
        true
    }

    fn bury(&self, session: Arc<Session>, reason: &'static str) {
        tracing::info!(server = %session.leg.upstream.name, reason, "session ended");
        if reason == "lost" {
            return;
        }
        self.tracker.spawn(async move {
            let leg = &session.leg;
            let deleting = leg.upstream.delete(leg.link());
            match tokio::time::timeout(DELETE_TIMEOUT, deleting).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::debug!(%error, "upstream session not deleted"),
                Err(_) => tracing::debug!("upstream session not deleted in time"),
            }
        });
    }

    fn serve_clients(self: &Arc<Self>, listener: TcpListener) {
        let shared = Arc::clone(self);
        let serve = move |request| front::serve(Arc::clone(&shared), request);
        let accept = listener::accept(listener, self.stop.clone(), self.tracker.clone(), serve);
        self.tracker.spawn(accept);
    }

    fn serve_admin(self: &Arc<Self>, listener: TcpListener, address: SocketAddr) {
        let shared = Arc::clone(self);
        let guard = Guard {
            loopback: address.ip().is_loopback(),
        };
        let serve = move |request| std::future::ready(admin::serve(&shared, guard, &request));
        let accept = listener::accept(listener, self.stop.clone(), self.tracker.clone(), serve);
        self.tracker.spawn(accept);
    }

    /// Closes what rested for too long: upstream connections and sessions.
    fn keep_tidy(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        let idle = self.limits.session_idle;
        self.tracker
            .spawn(self.stop.clone().run_until_cancelled_owned(async move {
            let mut connections = tokio::time::interval(STALE_CONNECTIONS_EVERY);
            let mut expiry = tokio::time::interval(EXPIRY_EVERY.min(idle));
            loop {
                tokio::select! {
                    _ = connections.tick() => {
                        shared.routes.iter().for_each(|upstream| upstream.drop_stale_connections());
                    }
                    _ = expiry.tick() => {
                        for session in shared.table.expire(idle) {
                            shared.bury(session, "idle");
                        }
                    }
                }
            }
        }));
    }
}
