//! The limits on connections: for the gateway, for each address until its requests are authenticated,
//! and for each caller.
//!
//! A connection is anonymous until one of its requests is admitted. The number of anonymous connections
//! per address is limited: one more closes the oldest that serves no request, so that somebody who only
//! keeps connections open locks nobody out who has the same address. They are not limited if the address is a load balancer's, or if the connection comes by a Unix socket, which strangers cannot use. After that the connection takes a permit of its caller's share; a load
//! balancer's connection does not, because it carries requests of many callers.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bowline_system::socket_file::is_own_user;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::caller::Caller;
use crate::config::{Limits, Network};
use crate::fault::Fault;
use crate::net::Peer;
use crate::share::{Permit, ServerShares, Share};

/// The maximum number of operator connections: enough for probes and scrapes, and half of the file
/// descriptors that are reserved for them. One more evicts an older one, see
/// [`EvictingTasks`](super::evicting::EvictingTasks).
const OPERATORS: usize = 32;

/// The limits of a listener, and how much of them is taken.
#[derive(Debug)]
pub(crate) struct ConnectionLimits {
    pub(super) limit: usize,
    per_address: usize,
    proxies: Vec<Network>,
    /// Whether this is the operator's listener, which may use the last file descriptors and admits every
    /// connection.
    pub(super) is_operators: bool,
    taken: AtomicUsize,
    /// The oldest first.
    anonymous: Mutex<HashMap<Peer, VecDeque<Arc<Stay>>>>,
    /// The permits of authenticated connections.
    permits: Arc<Share>,
    callers: ServerShares,
}

/// What an anonymous connection does.
#[derive(Debug, Default)]
struct Stay {
    /// Whether it serves a request.
    is_busy: AtomicBool,
    /// It has to go.
    evicted: Notify,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    limits: Arc<ConnectionLimits>,
    /// The peer that it is counted by.
    pub(crate) peer: Peer,
    is_unidentified: AtomicBool,
    /// Set if it counts towards the limit of its peer's address.
    stay: Option<Arc<Stay>>,
    /// Whether it carries requests of many callers.
    is_balancers: bool,
    /// Its caller's permit, once it has one.
    permit: Mutex<Option<Permit>>,
    /// Its client takes nothing.
    cut: Notify,
}

/// Which limit refuses a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionRefusal {
    /// The gateway's limit.
    Gateway,
    /// The limit of its address.
    Address,
    /// The limit of its caller.
    Caller,
    /// A Unix socket is for the gateway's own user.
    User,
}

// === impl ConnectionRefusal ===

impl ConnectionRefusal {
    /// The error that the client gets.
    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::Gateway => Fault::TooManyConnections,
            Self::Address => Fault::TooManyConnectionsFromAddress,
            Self::Caller => Fault::TooManyConnectionsOfCaller,
            Self::User => Fault::OtherUser,
        }
    }
}

// === impl ConnectionLimits ===

impl ConnectionLimits {
    pub(crate) fn of_clients(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            per_address: limits.connections_per_address,
            proxies: limits.proxies.clone(),
            ..Self::of(limits.connections)
        })
    }

    /// A forward takes a connection for as long as it lasts.
    pub(crate) fn of_peers(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            per_address: limits.connections_per_address,
            ..Self::of(limits.connections)
        })
    }

    pub(crate) fn of_operators() -> Arc<Self> {
        Arc::new(Self {
            is_operators: true,
            ..Self::of(OPERATORS)
        })
    }

    fn of(limit: usize) -> Self {
        let permits = Share::common(limit);
        Self {
            limit,
            per_address: limit,
            proxies: Vec::new(),
            is_operators: false,
            taken: AtomicUsize::new(0),
            anonymous: Mutex::default(),
            callers: ServerShares::of(&permits),
            permits,
        }
    }

    /// Divides the permits among this number of callers.
    pub(crate) fn share_out(&self, callers: usize) {
        self.permits.share_out(1, callers);
    }

    /// Admits a connection, if it is within the limits.
    pub(super) fn admit(
        self: &Arc<Self>,
        peer: Peer,
    ) -> Result<Arc<Connection>, ConnectionRefusal> {
        if matches!(peer, Peer::User(user) if !is_own_user(user)) {
            return Err(ConnectionRefusal::User);
        }
        let one_more = |taken| (taken < self.limit).then_some(taken + 1);
        self.taken
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more)
            .map_err(|_| ConnectionRefusal::Gateway)?;
        let address = peer.ip();
        let is_balancer = |address: IpAddr| self.proxies.iter().any(|it| it.contains(address));
        let is_balancers = address.is_some_and(is_balancer);
        let (is_counted, peer) = (address.is_some() && !is_balancers, peer.counted_as());
        let stay = is_counted.then(Arc::<Stay>::default);
        if let Some(stay) = &stay
            && !self.try_count(peer, stay)
        {
            self.taken.fetch_sub(1, Ordering::AcqRel);
            return Err(ConnectionRefusal::Address);
        }
        Ok(Arc::new(Connection {
            limits: Arc::clone(self),
            peer,
            is_unidentified: AtomicBool::new(true),
            stay,
            is_balancers,
            permit: Mutex::default(),
            cut: Notify::new(),
        }))
    }

    /// Counts one more connection, in place of an idle one if there are too many.
    fn try_count(&self, peer: Peer, stay: &Arc<Stay>) -> bool {
        let mut anonymous = self.anonymous.lock();
        let stays = anonymous.entry(peer).or_default();
        if stays.len() >= self.per_address {
            let is_idle = |stay: &Arc<Stay>| !stay.is_busy.load(Ordering::Acquire);
            let idle = stays.iter().position(is_idle);
            let Some(idle) = idle.and_then(|at| stays.remove(at)) else {
                return false;
            };
            idle.evicted.notify_one();
        }
        stays.push_back(Arc::clone(stay));
        true
    }

    fn uncount(&self, peer: Peer, stay: &Arc<Stay>) {
        if let Entry::Occupied(mut stays) = self.anonymous.lock().entry(peer) {
            stays.get_mut().retain(|other| !Arc::ptr_eq(other, stay));
            if stays.get().is_empty() {
                stays.remove();
            }
        }
    }
}

// === impl Connection ===

impl Connection {
    /// Whether none of its requests was admitted yet.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.is_unidentified.load(Ordering::Relaxed)
    }

    /// Whether it comes from a configured proxy, which carries requests of many clients.
    pub(crate) fn is_proxied(&self) -> bool {
        self.is_balancers
    }

    /// Records that a request of this caller was admitted: from now on the connection counts towards the
    /// caller's share, if that has room.
    pub(crate) fn assign_to(&self, caller: &Caller) -> Result<(), ConnectionRefusal> {
        if !self.is_balancers {
            let permit = self.limits.callers.of_caller(caller).take();
            *self.permit.lock() = Some(permit.ok_or(ConnectionRefusal::Caller)?);
        }
        self.identify();
        Ok(())
    }

    /// Records whether it serves a request, which keeps it from being evicted.
    pub(super) fn is_busy(&self, is_busy: bool) {
        if let Some(stay) = self.stay.as_ref().filter(|_| self.is_anonymous()) {
            stay.is_busy.store(is_busy, Ordering::Release);
        }
    }

    /// Waits until another connection takes its place, or it is cut.
    pub(super) async fn evicted(&self) {
        match &self.stay {
            Some(stay) => tokio::select! {
                () = stay.evicted.notified() => {}
                () = self.cut.notified() => {}
            },
            None => self.cut.notified().await,
        }
    }

    /// Closes it, whatever was not sent yet.
    pub(crate) fn cut(&self) {
        self.cut.notify_one();
    }

    /// Records that it is no stranger's.
    pub(crate) fn identify(&self) {
        if self.is_unidentified.swap(false, Ordering::AcqRel)
            && let Some(stay) = &self.stay
        {
            self.limits.uncount(self.peer, stay);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.identify();
        self.limits.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(connections: usize, connections_per_address: usize) -> Arc<ConnectionLimits> {
        ConnectionLimits::of_clients(&Limits {
            connections,
            connections_per_address,
            proxies: vec!["10.0.0.0/8".parse().unwrap()],
            ..Limits::default()
        })
    }

    fn admit(
        limits: &Arc<ConnectionLimits>,
        peer: &str,
    ) -> Result<Arc<Connection>, ConnectionRefusal> {
        limits.admit(Peer::Address(peer.parse().unwrap()))
    }

    #[tokio::test]
    async fn the_oldest_that_is_idle_gives_way() {
        let limits = limits(10, 3);
        let all = [(); 3].map(|()| admit(&limits, "192.0.2.1").unwrap());
        all[0].is_busy(true);
        let other = admit(&limits, "192.0.2.2").unwrap();
        let _fourth = admit(&limits, "192.0.2.1").unwrap();
        all[1].evicted().await;
        let _fifth = admit(&limits, "192.0.2.1").unwrap();
        all[2].evicted().await;
        all[0].is_busy(false);
        let _sixth = admit(&limits, "192.0.2.1").unwrap();
        all[0].evicted().await;
        assert_eq!(limits.anonymous.lock().len(), 2);
        // One that was identified is nobody's to evict any more.
        other.assign_to(&Caller::Local).unwrap();
        drop(all);
        assert_eq!(limits.anonymous.lock().len(), 1);
    }

    #[test]
    fn an_address_has_only_so_many_anonymous_connections() {
        let limits = limits(10, 2);
        let admit = |limits: &Arc<ConnectionLimits>, peer: &str| {
            let admitted = admit(limits, peer);
            admitted.inspect(|connection| connection.is_busy(true))
        };
        let (first, _second) = (admit(&limits, "192.0.2.1"), admit(&limits, "192.0.2.1"));
        assert_eq!(
            admit(&limits, "::ffff:192.0.2.1").unwrap_err(),
            ConnectionRefusal::Address
        );
        let _other = admit(&limits, "192.0.2.2").unwrap();
        let first = first.unwrap();
        first.assign_to(&Caller::Local).unwrap();
        first.assign_to(&Caller::Local).unwrap();
        let third = admit(&limits, "192.0.2.1").unwrap();
        assert_eq!(
            admit(&limits, "192.0.2.1").unwrap_err(),
            ConnectionRefusal::Address
        );
        drop((first, third));
        assert!(admit(&limits, "192.0.2.1").is_ok());
    }

    #[test]
    fn addresses_of_ipv6_count_together_as_one_party_has_them() {
        let limits = limits(10, 1);
        let first = admit(&limits, "2001:db8::1").unwrap();
        first.is_busy(true);
        assert!(admit(&limits, "2001:db8::ffff:1").is_err());
        assert!(admit(&limits, "2001:db8:0:1::1").is_ok());
    }

    #[test]
    fn a_balancer_has_as_many_as_there_are() {
        let limits = limits(4, 1);
        let all: Vec<_> = (0..4)
            .map(|_| admit(&limits, "10.1.1.1").unwrap())
            .collect();
        assert_eq!(
            admit(&limits, "192.0.2.1").unwrap_err(),
            ConnectionRefusal::Gateway
        );
        drop(all);
        assert!(admit(&limits, "192.0.2.1").is_ok());
        assert!(limits.anonymous.lock().is_empty());
    }

    #[test]
    fn a_socket_is_for_the_own_user_who_has_no_limit_but_the_callers() {
        let limits = limits(2, 1);
        let own = rustix::process::geteuid().as_raw();
        let (other, root) = (own + 1, 0);
        let refused = limits.admit(Peer::User(other)).unwrap_err();
        assert_eq!(refused, ConnectionRefusal::User);
        let first = limits.admit(Peer::User(own)).unwrap();
        let _second = limits.admit(Peer::User(root)).unwrap();
        assert!(limits.anonymous.lock().is_empty());
        first.assign_to(&Caller::Local).unwrap();
        assert_eq!(limits.permits.taken_by_all(), 1);
        assert_eq!(
            limits.admit(Peer::User(own)).unwrap_err(),
            ConnectionRefusal::Gateway
        );
    }
}
