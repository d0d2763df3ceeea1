//! The limits of connections: of the gateway, of one address before its requests are identified, and of a
//! caller.
//!
//! A connection is anonymous until one of its requests was let in. Until then an address has only so many,
//! unless it is a balancer's. From then on it takes of its caller's share; a balancer's connection does
//! not, because it carries requests of many callers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::caller::Caller;
use crate::config::{Limits, Network};
use crate::fault::Fault;
use crate::share::{Permit, ServerShares, Share};

/// The most connections of operators: enough for probes and scrapes, and half of the descriptors that are
/// kept in reserve for them. One more evicts one of them, see [`EvictingTasks`](super::evicting::EvictingTasks).
const OPERATORS: usize = 32;

/// The limits of a listener, and how much of them is taken.
#[derive(Debug)]
pub(crate) struct ConnectionLimits {
    pub(super) limit: usize,
    per_address: usize,
    proxies: Vec<Network>,
    /// Whether these are the operator's, who may use the last file descriptors and always gets in.
    pub(super) is_operators: bool,
    taken: AtomicUsize,
    anonymous: Mutex<HashMap<IpAddr, usize>>,
    /// The permits of connections that are not anonymous.
    permits: Arc<Share>,
    callers: ServerShares,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    limits: Arc<ConnectionLimits>,
    /// The address that it is counted by.
    pub(crate) address: IpAddr,
    is_unidentified: AtomicBool,
    /// Whether it counts towards its address's limit.
    is_counted: bool,
    /// Its caller's permit, once it has one.
    permit: Mutex<Option<Permit>>,
}

/// Which limit refuses a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionRefusal {
    /// That of the gateway.
    Gateway,
    /// That of its address.
    Address,
    /// That of its caller.
    Caller,
}

// === impl ConnectionRefusal ===

impl ConnectionRefusal {
    /// What the client is told.
    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::Gateway => Fault::TooManyConnections,
            Self::Address => Fault::TooManyConnectionsFromAddress,
            Self::Caller => Fault::TooManyConnectionsOfCaller,
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

    /// Shares the permits out to so many callers.
    pub(crate) fn share_out(&self, callers: usize) {
        self.permits.share_out(1, callers);
    }

    /// Lets a connection in, if it is within the limits.
    pub(super) fn admit(
        self: &Arc<Self>,
        peer: IpAddr,
    ) -> Result<Arc<Connection>, ConnectionRefusal> {
        let one_more = |taken| (taken < self.limit).then_some(taken + 1);
        self.taken
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more)
            .map_err(|_| ConnectionRefusal::Gateway)?;
        let address = counted_as(peer);
        let is_counted = !self.proxies.iter().any(|proxy| proxy.contains(peer));
        if is_counted && !self.try_count(address) {
            self.taken.fetch_sub(1, Ordering::AcqRel);
            return Err(ConnectionRefusal::Address);
        }
        Ok(Arc::new(Connection {
            limits: Arc::clone(self),
            address,
            is_unidentified: AtomicBool::new(true),
            is_counted,
            permit: Mutex::default(),
        }))
    }

    fn try_count(&self, address: IpAddr) -> bool {
        let mut anonymous = self.anonymous.lock();
        let count = anonymous.entry(address).or_default();
        let has_room = *count < self.per_address;
        *count += usize::from(has_room);
        has_room
    }

    fn uncount(&self, address: IpAddr) {
        if let Entry::Occupied(mut count) = self.anonymous.lock().entry(address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// One party has a whole /64 of IPv6, and chooses among its addresses freely.
pub(super) fn counted_as(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

// === impl Connection ===

impl Connection {
    /// Whether none of its requests was let in so far.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.is_unidentified.load(Ordering::Relaxed)
    }

    /// One of its requests was let in as this caller's: from now on it counts as the caller's, if that is
    /// within its share.
    pub(crate) fn assign_to(&self, caller: &Caller) -> Result<(), ConnectionRefusal> {
        if self.is_counted {
            let permit = self.limits.callers.of_caller(caller).take();
            *self.permit.lock() = Some(permit.ok_or(ConnectionRefusal::Caller)?);
        }
        self.identify();
        Ok(())
    }

    fn identify(&self) {
        if self.is_unidentified.swap(false, Ordering::AcqRel) && self.is_counted {
            self.limits.uncount(self.address);
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
        limits.admit(peer.parse().unwrap())
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
}
