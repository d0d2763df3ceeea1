//! The limits on connections: for the gateway, for each address until its requests are authenticated,
//! and for each caller.
//!
//! A connection is anonymous until one of its requests is admitted. The number of anonymous connections
//! per address is limited, unless the address is a load balancer's, or the connection comes by a Unix socket,
//! which strangers cannot use. After that the connection takes a permit of its caller's share; a load
//! balancer's connection does not, because it carries requests of many callers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bowline_system::socket_file::is_own_user;
use parking_lot::Mutex;

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
    anonymous: Mutex<HashMap<Peer, usize>>,
    /// The permits of authenticated connections.
    permits: Arc<Share>,
    callers: ServerShares,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    limits: Arc<ConnectionLimits>,
    /// The peer that it is counted by.
    pub(crate) peer: Peer,
    is_unidentified: AtomicBool,
    /// Whether it counts towards the limit of its peer's address.
    is_counted: bool,
    /// Whether it carries requests of many callers.
    is_balancers: bool,
    /// Its caller's permit, once it has one.
    permit: Mutex<Option<Permit>>,
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
        let address = match peer {
            Peer::Address(address) => Some(address),
            Peer::User(_) => None,
        };
        let is_balancer = |address: IpAddr| self.proxies.iter().any(|it| it.contains(address));
        let is_balancers = address.is_some_and(is_balancer);
        let (is_counted, peer) = (address.is_some() && !is_balancers, peer.counted_as());
        if is_counted && !self.try_count(peer) {
            self.taken.fetch_sub(1, Ordering::AcqRel);
            return Err(ConnectionRefusal::Address);
        }
        Ok(Arc::new(Connection {
            limits: Arc::clone(self),
            peer,
            is_unidentified: AtomicBool::new(true),
            is_counted,
            is_balancers,
            permit: Mutex::default(),
        }))
    }

    fn try_count(&self, peer: Peer) -> bool {
        let mut anonymous = self.anonymous.lock();
        let count = anonymous.entry(peer).or_default();
        let has_room = *count < self.per_address;
        *count += usize::from(has_room);
        has_room
    }

    fn uncount(&self, peer: Peer) {
        if let Entry::Occupied(mut count) = self.anonymous.lock().entry(peer) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
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

    fn identify(&self) {
        if self.is_unidentified.swap(false, Ordering::AcqRel) && self.is_counted {
            self.limits.uncount(self.peer);
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

    #[test]
    fn an_address_has_only_so_many_anonymous_connections() {
        let limits = limits(10, 2);
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
        let _first = admit(&limits, "2001:db8::1").unwrap();
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
