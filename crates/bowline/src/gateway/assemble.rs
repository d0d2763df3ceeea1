//! Everything that the connections of a gateway share, made from its configuration.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bowline_children::SupervisorCommand;
use bowline_egress::Tls;
use bowline_store::sealed::{SealKeys, SealKeysError};
use bowline_store::{Memory, Store};
use tokio_util::task::TaskTracker;

use super::{PeerSecretError, StartError, certificate, local};
use crate::config::peers::SHORTEST_SECRET;
use crate::config::{Config, ListenAddress, Password, Server, StoreKind, Target};
use crate::descriptors;
use crate::drain::Drain;
use crate::guard::Guard;
use crate::guard::loops::Pseudonym;
use crate::guard::rate_limit::RateLimit;
use crate::hub::Hub;
use crate::listener::bodies::BodyMemory;
use crate::listener::{ConnectionLimits, ListenerTls};
use crate::mailboxes::Mailboxes;
use crate::oauth::{
    AuthServers, FileVault, FlowStore, Flows, Grants, Home, Loopback, MemoryVault, SharedVault,
    Vault,
};
use crate::owners::Owners;
use crate::peers::{PeerSecret, Peers};
use crate::registry::presence::OtherGateways;
use crate::registry::{RecentlyEnded, Registry, Table, presence};
use crate::route::Routes;
use crate::route::union::UnionParts;
use crate::session_store::{SessionStore, SessionTimes};
use crate::share::Share;
use crate::telemetry::Metrics;
use crate::union::Unions;
use crate::upstream::{LiveChannels, Surroundings, Upstream};

/// Makes it for a gateway that listens here. `adjust` may change each upstream.
pub(super) async fn hub(
    config: Config,
    listen: &ListenAddress,
    peers_listen: Option<SocketAddr>,
    adjust: impl Fn(&mut Upstream),
) -> Result<Arc<Hub>, StartError> {
    let listener_tls = certificate::listener(&config);
    let basis = Basis {
        listener_tls: listener_tls.map_err(|error| StartError::Tls(error.into()))?,
        ..Basis::new()
    };
    let session_store = session_store(&config, &basis.tracker, &basis.metrics).await?;
    let (tls, tracker) = (&basis.tls, &basis.tracker);
    let flows = flows(&config, listen, session_store.as_deref(), tls, tracker)
        .map_err(StartError::Vault)?;
    let peers = match (&config.peers, peers_listen, &session_store) {
        (Some(peers), Some(bound), Some(store)) => {
            let (secret, address) = (peer_secret(&peers.secret)?, peers.address(bound));
            let (tls, metrics) = (&basis.tls, &basis.metrics);
            Some(Arc::new(Peers::new(
                &store.me, secret, address, tls, metrics,
            )))
        }
        _ => None,
    };
    let mailboxes = mailboxes(session_store.as_deref());
    let mailboxes = mailboxes.map_err(|error| StartError::Vault(error.into()))?;
    let elsewhere = Elsewhere { mailboxes, peers };
    Ok(basis.hub(config, listen, session_store, flows, elsewhere, adjust))
}

/// Makes it for a bridge, which serves one person: sessions are in memory, and grants in the vault of the
/// configuration.
pub(super) async fn hub_of_bridge(
    config: Config,
    loopback: Arc<dyn Loopback>,
) -> Result<Arc<Hub>, StartError> {
    let basis = Basis::new();
    let vault = Arc::new(local::vault(&config, &basis.tracker).await?);
    let flows = local::flows(&config, &vault, &basis.tls, basis.tracker.clone(), loopback);
    let flows = flows.map_err(|error| StartError::Vault(error.into()))?;
    let listen = config.listen.clone();
    let mailboxes = mailboxes(None).map_err(|error| StartError::Vault(error.into()))?;
    let peers = None;
    let elsewhere = Elsewhere { mailboxes, peers };
    Ok(basis.hub(config, &listen, None, flows, elsewhere, |_| {}))
}

/// The ways between gateways: what a client of another one is served with.
struct Elsewhere {
    mailboxes: Mailboxes,
    peers: Option<Arc<Peers>>,
}

/// What everything else is made with.
struct Basis {
    tls: Tls,
    listener_tls: Option<Arc<ListenerTls>>,
    tracker: TaskTracker,
    metrics: Arc<Metrics>,
}

impl Basis {
    fn new() -> Self {
        Self {
            tls: Tls::platform(),
            listener_tls: None,
            tracker: TaskTracker::new(),
            metrics: Arc::new(Metrics::new()),
        }
    }

    fn hub(
        self,
        config: Config,
        listen: &ListenAddress,
        session_store: Option<Arc<SessionStore>>,
        flows: Arc<Flows>,
        elsewhere: Elsewhere,
        adjust: impl Fn(&mut Upstream),
    ) -> Arc<Hub> {
        let mut limits = config.limits.clone();
        let has_children = config
            .servers
            .values()
            .any(|server| matches!(server.target, Target::Command(_)));
        descriptors::fit(&mut limits, descriptors::raise(), has_children);
        let callers = config.callers.len();
        let table = table(&config, session_store);
        let streams = Share::common(limits.streams);
        streams.share_out(config.servers.len(), callers);
        let channels = Arc::new(channels(&config, limits.children, owners(&table)));
        let connections = ConnectionLimits::of_clients(&limits);
        connections.share_out(callers);
        let guard = Guard::new(listen, config.tls.is_some(), &config);
        let surroundings = Surroundings {
            tls: &self.tls,
            flows: &flows,
            tracker: &self.tracker,
            metrics: &self.metrics,
            streams: &streams,
            channels: &channels,
            peers: elsewhere.peers.as_ref(),
        };
        let unions = config.all_unions();
        let upstreams = config.servers.into_iter().map(|(name, server)| {
            let mut upstream = Upstream::new(name, server, surroundings);
            adjust(&mut upstream);
            Arc::new(upstream)
        });
        let parts = UnionParts {
            metrics: &self.metrics,
            streams: &streams,
        };
        let routes = Routes::new(upstreams, unions, parts);
        let registry = Arc::new(Registry {
            table: Arc::new(table),
            recently_ended: RecentlyEnded::default(),
            metrics: Arc::clone(&self.metrics),
            tracker: self.tracker.clone(),
            idle: limits.session_idle,
            max_age: limits.session_max_age,
        });
        let unions = Unions::new(Arc::clone(&registry), Arc::clone(&flows));
        Arc::new(Hub {
            guard,
            callers: Arc::clone(&flows.callers),
            unions: Arc::new(unions),
            routes,
            registry,
            other_gateways: OtherGateways::default(),
            bodies: BodyMemory::new(limits.body_bytes, callers),
            forwarded: BodyMemory::new(limits.body_bytes, 1),
            limits,
            streams,
            connections,
            pseudonym: Pseudonym::generate(),
            mailboxes: Arc::new(elsewhere.mailboxes),
            metrics: self.metrics,
            channels,
            peers: elsewhere.peers,
            forwards: TaskTracker::new(),
            api_token: config.api_token,
            tls: self.tls,
            listener_tls: self.listener_tls,
            flows,
            sign_in_rate: RateLimit::default(),
            tracker: self.tracker,
            drain: Drain::new(config.stop_timeout),
            peer_drain: Drain::new(config.stop_timeout),
            admin_drain: Drain::new(Duration::ZERO),
        })
    }
}

/// The key of all gateways on the store.
fn peer_secret(secret: &Password) -> Result<PeerSecret, PeerSecretError> {
    let text = match secret {
        Password::Written(text) => text.clone(),
        Password::File(path) => {
            let read = std::fs::read_to_string(path);
            let read = read.map_err(|source| PeerSecretError::Read {
                path: path.clone(),
                source,
            })?;
            read.trim_end_matches(['\r', '\n']).to_owned()
        }
    };
    let key = PeerSecret::derive(text.as_bytes());
    let is_long = text.len() >= SHORTEST_SECRET;
    key.filter(|_| is_long).ok_or(PeerSecretError::Short)
}

fn owners(table: &Table) -> Owners {
    match table.session_store() {
        Some(store) => Owners::on_store(&store.me, store.is_shared()),
        None => Owners::alone(),
    }
}

/// The processes and streams of servers that are sessions: there is none before the first.
fn channels(config: &Config, limit: usize, owners: Owners) -> LiveChannels {
    let supervisor = match config.supervisor.as_slice() {
        [] => SupervisorCommand::this_program("supervise"),
        [program, arguments @ ..] => SupervisorCommand::new(program).args(arguments),
    };
    let channels = LiveChannels::new(supervisor, limit, owners);
    let is_command = |server: &&Server| matches!(server.target, Target::Command(_));
    let commands = config.servers.values().filter(is_command).count();
    channels.processes.share_out(commands, config.callers.len());
    if let Some(lack) = config.lacks_peers() {
        tracing::warn!("{lack}");
    }
    channels
}

/// The sessions, which are also in the session store, if there is one.
fn table(config: &Config, session_store: Option<Arc<SessionStore>>) -> Table {
    let table = Table::new(config.limits.sessions);
    table.share_out(config.callers.len());
    match session_store {
        Some(session_store) => table.over(session_store, config.store.cache),
        None => table,
    }
}

/// The session store, if sessions are kept beyond this process.
async fn session_store(
    config: &Config,
    tracker: &TaskTracker,
    metrics: &Metrics,
) -> Result<Option<Arc<SessionStore>>, StartError> {
    let failed = |source| StartError::Store {
        kind: config.store.kind.clone(),
        source,
    };
    let (store, Some(keys)) = bowline_store::open(&config.store.settings())
        .await
        .map_err(failed)?
    else {
        return Ok(None);
    };
    let me = presence::name().map_err(|error| failed(SealKeysError::from(error).into()))?;
    let times = SessionTimes {
        idle: config.limits.session_idle,
        grace: config.store.grace,
    };
    let counts = metrics.of_store(store.kind());
    let store = Arc::new(store);
    let session_store = Arc::new(SessionStore::new(
        store,
        keys,
        me,
        times,
        tracker.clone(),
        counts,
    ));
    if let Err(error) = session_store.ping().await
        && config.store.gives_up_at_start()
    {
        return Err(failed(error.into()));
    }
    Ok(Some(session_store))
}

/// The streams of HTTP+SSE clients. Their tokens open at every gateway on the store.
fn mailboxes(session_store: Option<&SessionStore>) -> Result<Mailboxes, SealKeysError> {
    Ok(match session_store {
        Some(session_store) => Mailboxes::new(&session_store.me, session_store.keys.clone()),
        None => Mailboxes::new("alone", SealKeys::parse(&SealKeys::generate()?)?),
    })
}

/// The sign-ins of callers. Their tokens are stored where their sessions are.
fn flows(
    config: &Config,
    listen: &ListenAddress,
    session_store: Option<&SessionStore>,
    tls: &Tls,
    tracker: &TaskTracker,
) -> Result<Arc<Flows>, Box<dyn std::error::Error + Send + Sync>> {
    let (store, keys) = match session_store {
        Some(session_store) => (Arc::clone(&session_store.store), session_store.keys.clone()),
        None => {
            let keys = SealKeys::generate()?;
            let keys = SealKeys::parse(&keys)?;
            (Arc::new(Store::Memory(Memory::new())), keys)
        }
    };
    let has_sign_ins = config.servers.values().any(|it| it.oauth.is_some());
    let vault = match (&config.store.kind, session_store) {
        (StoreKind::Redis(_), Some(session_store)) => Vault::Shared(SharedVault::new(
            Arc::clone(&store),
            keys.clone(),
            session_store.me.clone(),
            tracker.clone(),
        )),
        // Also where nobody signs in yet: a reload may bring a server that wants it.
        (StoreKind::File { path }, Some(_)) => Vault::File(FileVault::at(path)?),
        _ => Vault::Memory(MemoryVault::default()),
    };
    if has_sign_ins {
        tracing::info!(%vault, "tokens of sign-ins are stored");
    }
    let public_url = match &config.oauth.public_url {
        Some(url) => url.to_string(),
        // Without a public URL, no flow that needs the gateway's pages is configured on a Unix socket.
        None => match listen.tcp() {
            Some(listen) => format!("{}://{listen}", config.scheme()),
            None => "http://localhost".to_owned(),
        },
    };
    let (vault, auth_servers) = (Arc::new(vault), Arc::new(AuthServers::new(tls.clone())));
    let renew: Arc<AuthServers> = Arc::clone(&auth_servers);
    let grants = Grants::new(Arc::clone(&vault), renew, tracker.clone());
    let pending = FlowStore::new(store, keys, config.oauth.deadline);
    let flows = Flows::new(
        grants,
        vault,
        pending,
        config.oauth.clone(),
        Home::Pages(&public_url),
        auth_servers,
    );
    flows.callers.replace(&config.callers);
    Ok(flows)
}
