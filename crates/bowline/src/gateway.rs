//! The gateway as a whole: built from a configuration, run until told to stop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bowline_wire::id::SessionId;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::time::MissedTickBehavior;
use tokio_util::task::TaskTracker;

use crate::config::{Config, KeyHash, Limits, OAuth, ServerName, SignInProblem, Store, StoreKind};
use crate::detach::Abandoned;
use crate::drain::{self, Drain};
use crate::egress::Tls;
use crate::front::caller::Callers;
use crate::front::guard::{Guard, is_loopback_address};
use crate::front::{Bodies, Pseudonym, Visits};
use crate::leg::Leg;
use crate::listener::{Crowd, Crowded, Visit};
use crate::neighbours::{self, Neighbours};
use crate::oauth::{
    Authorities, FileVault, Grants, MemoryVault, Pending, SharedVault, SignIns, Vault,
};
use crate::route::Routes;
use crate::session::{Departed, Keeper, Session, Table, Unsure};
use crate::share::Share;
use crate::store;
use crate::store::OpenStoreError;
use crate::store::sealed::{SealKeys, SealKeysError};
use crate::telemetry::Metrics;
use crate::upstream::{Carried, TEND_EVERY, Upstream};
use crate::{admin, descriptors, front, leg, listener};

/// How often idle sessions are looked for, at the most.
const EXPIRY_EVERY: Duration = Duration::from_secs(10);

/// How often it is looked whether somebody signed out, or in, on the command line.
const NOTICE_EVERY: Duration = Duration::from_secs(1);

/// Often enough that a session which something uses all the time is seen in time.
fn expiry_every(idle: Duration) -> Duration {
    EXPIRY_EVERY.min(idle / 4).max(Duration::from_millis(1))
}

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
    store: Store,
    hosts: Vec<String>,
    origins: Vec<String>,
    limits: Limits,
    oauth: OAuth,
    stop_timeout: Duration,
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
    /// Callers could not sign in, or not only they.
    #[error("server \"{server}\": {problem}")]
    SignIn {
        /// The first server that it concerns.
        server: ServerName,
        /// What is in the way.
        problem: SignInProblem,
    },
    /// There is no place for what people sign in for.
    #[error("cannot keep what people are granted")]
    Vault(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// There is no place for sessions.
    #[error("cannot keep sessions in {kind}")]
    Store {
        /// Where they were to be.
        kind: StoreKind,
        /// What is wrong with it.
        source: OpenStoreError,
    },
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The client said so.
    Deleted,
    /// Nobody used it.
    Idle,
    /// The upstream no longer knows it.
    Lost,
    /// Its client left before it heard of it.
    Unclaimed,
    /// It lasted as long as a session may.
    TooOld,
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
    pub(crate) callers: Callers,
    pub(crate) routes: Routes,
    pub(crate) table: Arc<Table>,
    pub(crate) limits: Limits,
    /// The places of requests and streams.
    pub(crate) streams: Arc<Share>,
    /// The clients' connections.
    crowd: Arc<Crowd>,
    /// What is held of bodies that have not come to their end.
    pub(crate) bodies: Bodies,
    /// By which requests are known that this gateway passed on.
    pub(crate) pseudonym: Pseudonym,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) api_token: Option<KeyHash>,
    tls: Tls,
    /// Who signs callers in at servers that want that.
    pub(crate) sign_ins: Arc<SignIns>,
    /// How often strangers visit the routes of sign-ins.
    pub(crate) oauth_visits: Visits,
    pub(crate) tracker: TaskTracker,
    pub(crate) drain: Drain,
    /// What became of the sessions that ended last.
    pub(crate) departed: Departed,
    /// What is known of the other gateways on the same store.
    pub(crate) neighbours: Neighbours,
    /// The operator's listener goes on until everything else has ended.
    pub(crate) admin_drain: Drain,
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
        let fixed = Fixed::of(&config);
        let (client_listener, listen) = bind(config.listen, "listen").await?;
        let admin_listener = match config.admin {
            Some(address) => Some(bind(address, "admin").await?),
            None => None,
        };
        let mut limits = config.limits.clone();
        descriptors::fit(&mut limits, descriptors::raise());
        let callers = Callers::new(&config.callers);
        if callers.let_everybody_in(listen) {
            tracing::warn!(
                %listen,
                "anybody who can reach this address can use every configured server: add [callers], or listen on 127.0.0.1"
            );
        }
        if let Some((_, admin)) = &admin_listener
            && config.api_token.is_none()
            && !is_loopback_address(admin.ip())
        {
            tracing::warn!(%admin, "anybody who can reach this address can list sessions: set BOWLINE_API_TOKEN, or listen on 127.0.0.1");
        }
        let has_sign_ins = config.servers.values().any(|it| it.oauth.is_some());
        if has_sign_ins && config.api_token.is_none() && !is_loopback_address(listen.ip()) {
            tracing::warn!(%listen, "anybody who can reach this address and knows a sign-in's state can deliver its answer: set BOWLINE_API_TOKEN");
        }
        let guard = Guard::new(listen.ip(), &config);
        let admin_guard = admin_listener
            .as_ref()
            .map(|(_, address)| Guard::new(address.ip(), &config));
        let tls = Tls::platform();
        let tracker = TaskTracker::new();
        let table = Table::new(config.limits.sessions);
        table.share_out(config.callers.len());
        let metrics = Arc::new(Metrics::new());
        let keeper = keeper(&config, &tracker, &metrics).await?;
        let sign_ins = sign_ins(&config, listen, keeper.as_deref(), &tls, &tracker)
            .map_err(StartError::Vault)?;
        let table = match keeper {
            Some(keeper) => table.over(keeper, config.store.cache),
            None => table,
        };
        let streams = Share::common(limits.streams);
        streams.share_out(config.servers.len(), config.callers.len());
        let crowd = Crowd::of_clients(&limits);
        crowd.share_out(config.callers.len());
        let bodies = Bodies::new(limits.body_bytes, config.callers.len());
        let upstreams = config.servers.into_iter().map(|(name, server)| {
            let mut upstream = Upstream::new(
                name,
                server,
                &tls,
                Arc::clone(&sign_ins),
                tracker.clone(),
                Arc::clone(&metrics),
                &streams,
            );
            adjust(&mut upstream);
            Arc::new(upstream)
        });
        let shared = Arc::new(Shared {
            guard,
            callers,
            routes: Routes::new(upstreams),
            table: Arc::new(table),
            departed: Departed::default(),
            neighbours: Neighbours::default(),
            limits,
            streams,
            crowd,
            bodies,
            pseudonym: Pseudonym::generate(),
            metrics,
            api_token: config.api_token,
            tls: tls.clone(),
            sign_ins: Arc::clone(&sign_ins),
            oauth_visits: Visits::default(),
            tracker,
            drain: Drain::new(config.stop_timeout),
            admin_drain: Drain::new(Duration::ZERO),
        });
        let admin = admin_listener.as_ref().map(|(_, address)| *address);
        shared.serve_clients(client_listener);
        if let (Some((listener, _)), Some(guard)) = (admin_listener, admin_guard) {
            shared.serve_admin(listener, guard);
        }
        shared.keep_tidy();
        shared.keep_expiring();
        neighbours::watch(&shared);
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

    /// Takes no new sessions, lets answers that are under way finish within the configured time,
    /// ends streams, and returns.
    pub async fn stop(self) {
        drain::drain(&self.shared).await;
        if let Some(keeper) = self.shared.table.keeper() {
            keeper.leave().await;
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        for drain in [&self.shared.drain, &self.shared.admin_drain] {
            drain.begin();
            drain.close();
        }
        drain::end_streams(&self.shared);
    }
}

// === impl Fixed ===

impl Fixed {
    fn of(config: &Config) -> Self {
        Self {
            listen: config.listen,
            admin: config.admin,
            store: config.store.clone(),
            hosts: config.hosts.clone(),
            origins: config.origins.clone(),
            limits: config.limits.clone(),
            oauth: config.oauth.clone(),
            stop_timeout: config.stop_timeout,
        }
    }

    fn differences(&self, other: &Self) -> Vec<&'static str> {
        let differ = [
            ("listen", self.listen != other.listen),
            ("admin", self.admin != other.admin),
            ("hosts", self.hosts != other.hosts),
            ("origins", self.origins != other.origins),
            ("store", self.store != other.store),
            ("limits", self.limits != other.limits),
            ("oauth", self.oauth != other.oauth),
            ("stop_timeout", self.stop_timeout != other.stop_timeout),
        ];
        let changed = differ.into_iter().filter(|(_, differs)| *differs);
        changed.map(|(key, _)| key).collect()
    }
}

/// Where sessions are kept beyond this process, if they are.
async fn keeper(
    config: &Config,
    tracker: &TaskTracker,
    metrics: &Metrics,
) -> Result<Option<Arc<Keeper>>, StartError> {
    let failed = |source| StartError::Store {
        kind: config.store.kind.clone(),
        source,
    };
    let (store, Some(keys)) = store::open(&config.store).await.map_err(failed)? else {
        return Ok(None);
    };
    let me = neighbours::name().map_err(|error| failed(SealKeysError::from(error).into()))?;
    let times = (config.limits.session_idle, config.store.grace);
    let with = (tracker.clone(), metrics.of_store(store.kind()));
    let store = Arc::new(store);
    let keeper = Arc::new(Keeper::new((store, keys), me, times, with));
    if let Err(error) = keeper.ping().await
        && config.store.gives_up_at_start()
    {
        return Err(failed(error.into()));
    }
    Ok(Some(keeper))
}

/// Who signs callers in. What they are granted lies where their sessions do.
fn sign_ins(
    config: &Config,
    listen: SocketAddr,
    keeper: Option<&Keeper>,
    tls: &Tls,
    tracker: &TaskTracker,
) -> Result<Arc<SignIns>, Box<dyn std::error::Error + Send + Sync>> {
    let (store, keys) = match keeper {
        Some(keeper) => (Arc::clone(&keeper.store), keeper.keys.clone()),
        None => {
            let keys = SealKeys::generate()?;
            let keys = SealKeys::parse(&keys)?;
            (Arc::new(store::Store::Memory(store::Memory::new())), keys)
        }
    };
    let has_sign_ins = config.servers.values().any(|it| it.oauth.is_some());
    let vault = match (&config.store.kind, keeper) {
        (StoreKind::Redis(_), Some(keeper)) => Vault::Shared(SharedVault::new(
            Arc::clone(&store),
            keys.clone(),
            keeper.me.clone(),
            tracker.clone(),
        )),
        // Also where nobody signs in yet: a reload may bring a server that wants it.
        (StoreKind::File { path }, Some(_)) => Vault::File(FileVault::at(path)?),
        _ => Vault::Memory(MemoryVault::default()),
    };
    if has_sign_ins {
        tracing::info!("what people are granted is kept in {vault}");
    }
    let public_url = match &config.oauth.public_url {
        Some(url) => url.to_string(),
        None => format!("http://{listen}"),
    };
    let (vault, authorities) = (Arc::new(vault), Arc::new(Authorities::new(tls.clone())));
    let renew: Arc<Authorities> = Arc::clone(&authorities);
    let grants = Grants::new(Arc::clone(&vault), renew, tracker.clone());
    let pending = Pending::new(store, keys, config.oauth.deadline);
    let sign_ins = SignIns::new(
        (grants, vault),
        pending,
        config.oauth.clone(),
        &public_url,
        authorities,
    );
    sign_ins.identities.know(&config.callers);
    Ok(sign_ins)
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

// === impl Ending ===

impl Ending {
    /// The reason's name in logs.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Idle => "idle",
            Self::Lost => "lost",
            Self::Unclaimed => "unclaimed",
            Self::TooOld => "too_old",
        }
    }
}

// === impl Shared ===

impl Shared {
    /// Takes another set of servers over, without touching sessions but those of callers that are gone.
    pub(crate) fn reconfigure(&self, config: Config) {
        self.sign_ins.identities.know(&config.callers);
        self.callers.replace(&config.callers);
        self.end_streams_where(|session| !session.is_callers());
        self.routes.reconfigure(config.servers, |name, server| {
            Arc::new(Upstream::new(
                name,
                server,
                &self.tls,
                Arc::clone(&self.sign_ins),
                self.tracker.clone(),
                Arc::clone(&self.metrics),
                &self.streams,
            ))
        });
        let callers = config.callers.len();
        self.streams.share_out(self.routes.all().len(), callers);
        self.table.share_out(callers);
        self.crowd.share_out(callers);
        self.bodies.share_out(callers);
    }

    /// Ends the streams that are read in the name of somebody who has signed out.
    pub(crate) fn end_streams_of_signed_out(&self) {
        self.end_streams_where(|session| session.leg().is_signed_out());
    }

    fn end_streams_where(&self, is_over: impl Fn(&Session) -> bool) {
        for session in self.table.streaming() {
            if is_over(&session) {
                session.cut_streams();
            }
        }
    }

    /// What becomes of a session's work whose client left.
    pub(crate) fn abandoned(&self, session: &Session) -> Abandoned {
        let idle = self.limits.session_idle;
        Abandoned::new(&session.upstream, &session.share, idle)
    }

    /// Ends a session here and, as a courtesy, at its upstream. `false` if it had ended before.
    pub(crate) fn end_session(&self, id: &SessionId, ending: Ending, carried: &Carried) -> bool {
        let Some(session) = self.table.end(id) else {
            return false;
        };
        self.bury(session, ending, carried);
        true
    }

    /// The same for a session that a client ends: for all gateways, before it is told so. An error
    /// means that nobody knows whether it has ended.
    pub(crate) async fn delete_session(
        &self,
        id: &SessionId,
        session: &Arc<Session>,
        carried: &Carried,
    ) -> Result<bool, Unsure> {
        if !session.is_kept() {
            return Ok(self.end_session(id, Ending::Deleted, carried));
        }
        let ended = session.end_for_all().await?;
        self.table.end(id);
        let Some(leg) = ended else {
            return Ok(false);
        };
        self.tell_end(session, Ending::Deleted);
        self.delete_upstream(leg, session.carried(carried));
        Ok(true)
    }

    fn bury(&self, session: Arc<Session>, ending: Ending, carried: &Carried) {
        self.tell_end(&session, ending);
        let carried = session.carried(carried);
        if !session.is_kept() {
            if ending != Ending::Lost {
                self.delete_upstream(session.leg(), carried);
            }
            return;
        }
        self.tracker.spawn(async move {
            match session.end_for_all().await {
                Ok(Some(leg)) if ending != Ending::Lost => leg::end(&leg, &carried).await,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(session = %session.hash, %error, "a session's end is not in the store");
                }
            }
        });
    }

    fn tell_end(&self, session: &Session, ending: Ending) {
        let server = &session.upstream.name;
        self.metrics.session_ended(server, ending.reason());
        tracing::info!(session = %session.hash, %server, reason = ending.reason(), "session ended");
        session.note_on(&session.leg(), "ended", ending.reason().to_owned());
        self.departed.remember(session.hash, admin::told(session));
    }

    /// Ends the upstream's session, as a courtesy.
    fn delete_upstream(&self, leg: Arc<Leg>, carried: Carried) {
        self.tracker
            .spawn(async move { leg::end(&leg, &carried).await });
    }

    /// Ends sessions that nobody used.
    async fn expire(&self, idle: Duration) {
        match self.table.keeper().filter(|keeper| keeper.is_shared()) {
            None => {
                for session in self.table.expire(idle) {
                    self.bury(session, Ending::Idle, &Carried::default());
                }
            }
            Some(keeper) => self.expire_shared(keeper).await,
        }
    }

    /// The same where gateways share them: only the store knows whether another has used one since. It
    /// is asked for one after the other, and while it does not answer, for none: they are tried again
    /// until the store itself lets them go.
    async fn expire_shared(&self, keeper: &Keeper) {
        for session in self.table.unused(keeper.unused_after()) {
            if !keeper.is_reachable() {
                return;
            }
            match session.expire_for_all().await {
                Ok(Some(leg)) => {
                    self.table.end(&session.id);
                    self.tell_end(&session, Ending::Idle);
                    self.delete_upstream(leg, session.carried(&Carried::default()));
                }
                Ok(None) => self.table.let_go(&session.id),
                Err(error) => {
                    tracing::debug!(%error, "whether a session is used is not known");
                }
            }
        }
    }

    fn serve_clients(self: &Arc<Self>, listener: TcpListener) {
        let shared = Arc::clone(self);
        let serve = move |request, visit: &Arc<Visit>| {
            let stranger = visit.is_strangers().then(|| Arc::clone(visit));
            front::serve(Arc::clone(&shared), request, visit.address, stranger)
        };
        let metrics = Arc::clone(&self.metrics);
        let refused = move |why: Crowded| metrics.refused(why.fault().telling().reason);
        let crowd = Arc::clone(&self.crowd);
        let accept = listener::accept(listener, self.drain.clone(), crowd, refused, serve);
        self.tracker.spawn(accept);
    }

    fn serve_admin(self: &Arc<Self>, listener: TcpListener, guard: Guard) {
        let shared = Arc::clone(self);
        let serve = move |request, _: &Arc<Visit>| {
            std::future::ready(admin::serve(&shared, &guard, &request))
        };
        let refused = |_| tracing::warn!("too many connections of operators");
        let (crowd, drain) = (Crowd::of_operators(), self.admin_drain.clone());
        let accept = listener::accept(listener, drain, crowd, refused, serve);
        self.admin_drain.connections().spawn(accept);
    }

    fn move_drained(&self) {
        let upstreams = self.routes.all();
        upstreams.values().for_each(|one| one.moves.end_left());
        if !self.drain.has_begun() && upstreams.values().any(|one| one.has_overdue_sessions()) {
            leg::move_drained(&self.table);
        }
    }

    /// Lets idle sessions expire, by one task: if that takes longer than it should, nothing piles up.
    fn keep_expiring(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        let idle = self.limits.session_idle;
        self.tracker.spawn(self.drain.until_closed(async move {
            let mut expiry = tokio::time::interval(expiry_every(idle));
            expiry.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                expiry.tick().await;
                shared.table.keep_up();
                shared.expire(idle).await;
                // Whom another gateway signed out, requests would find out; a stream is no request.
                for session in shared.table.streaming() {
                    session.leg().look_if_signed_out();
                }
            }
        }));
    }

    /// Looks after upstreams.
    fn keep_tidy(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        self.tracker.spawn(self.drain.until_closed(async move {
            let mut tend = tokio::time::interval(TEND_EVERY);
            let mut notice = tokio::time::interval(NOTICE_EVERY);
            loop {
                tokio::select! {
                    _ = tend.tick() => {
                        shared.routes.tend();
                        shared.move_drained();
                    }
                    _ = notice.tick() => shared.sign_ins.notice().await,
                    () = shared.sign_ins.somebody_is_out() => shared.end_streams_of_signed_out(),
                }
            }
        }));
    }
}
