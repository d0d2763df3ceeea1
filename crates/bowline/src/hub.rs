//! What every connection of a gateway shares: one value below the fronts, which the gateway assembles.

use std::sync::Arc;

use bowline_egress::Tls;
use tokio_util::task::TaskTracker;

use crate::callers::Callers;
use crate::config::{KeyHash, Limits};
use crate::drain::Drain;
use crate::guard::Guard;
use crate::guard::loops::Pseudonym;
use crate::guard::rate_limit::RateLimit;
use crate::listener::bodies::BodyMemory;
use crate::listener::{ConnectionLimits, ListenerTls};
use crate::mailboxes::Mailboxes;
use crate::oauth::Flows;
use crate::peers::Peers;
use crate::registry::Registry;
use crate::registry::presence::OtherGateways;
use crate::route::Routes;
use crate::route::union::UnionParts;
use crate::session::Session;
use crate::share::Share;
use crate::telemetry::Metrics;
use crate::union::Unions;
use crate::upstream::{LiveChannels, Surroundings};

/// What every connection of a gateway shares.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) guard: Guard,
    pub(crate) callers: Arc<Callers>,
    pub(crate) routes: Routes,
    pub(crate) registry: Arc<Registry>,
    /// The clients of several servers.
    pub(crate) unions: Arc<Unions>,
    pub(crate) limits: Limits,
    /// The permits of requests and streams.
    pub(crate) streams: Arc<Share>,
    /// The limits of clients' connections.
    pub(crate) connections: Arc<ConnectionLimits>,
    /// The memory of long bodies.
    pub(crate) bodies: BodyMemory,
    /// The same of those that other gateways forward.
    pub(crate) forwarded: BodyMemory,
    /// By which this gateway recognizes requests that it passed on.
    pub(crate) pseudonym: Pseudonym,
    /// The streams of HTTP+SSE clients.
    pub(crate) mailboxes: Arc<Mailboxes>,
    pub(crate) metrics: Arc<Metrics>,
    /// The processes and streams of servers that are sessions.
    pub(crate) channels: Arc<LiveChannels>,
    /// The other gateways on the store, if `[peers]` says how to reach them.
    pub(crate) peers: Option<Arc<Peers>>,
    /// What other gateways have forwarded, while it is done here.
    pub(crate) forwards: TaskTracker,
    pub(crate) api_token: Option<KeyHash>,
    /// How connections to servers are encrypted.
    pub(crate) tls: Tls,
    /// How those of clients are, if they are.
    pub(crate) listener_tls: Option<Arc<ListenerTls>>,
    /// The sign-ins of callers.
    pub(crate) flows: Arc<Flows>,
    /// The rate limit of anonymous requests to the routes of sign-ins.
    pub(crate) sign_in_rate: RateLimit,
    pub(crate) tracker: TaskTracker,
    pub(crate) drain: Drain,
    /// What is known of the other gateways on the same store.
    pub(crate) other_gateways: OtherGateways,
    /// The listener for other gateways goes on until nothing is in progress.
    pub(crate) peer_drain: Drain,
    /// The operator's listener goes on until everything else has ended.
    pub(crate) admin_drain: Drain,
}

impl Hub {
    /// What unions are made with.
    pub(crate) fn union_parts(&self) -> UnionParts<'_> {
        UnionParts {
            metrics: &self.metrics,
            streams: &self.streams,
        }
    }

    /// What an upstream is made with.
    pub(crate) fn surroundings(&self) -> Surroundings<'_> {
        Surroundings {
            tls: &self.tls,
            flows: &self.flows,
            tracker: &self.tracker,
            metrics: &self.metrics,
            streams: &self.streams,
            channels: &self.channels,
            peers: self.peers.as_ref(),
        }
    }

    /// Ends the streams that are read in the name of somebody who has signed out.
    pub(crate) fn end_streams_of_signed_out(&self) {
        self.end_streams_where(|session| session.leg().is_signed_out());
    }

    /// Ends the streams of callers that may not use them any more. Those of HTTP+SSE clients see to that themselves.
    pub(crate) fn end_streams_of_the_unpermitted(&self) {
        self.end_streams_where(|session| !session.is_permitted());
        self.unions.end_streams_of_the_unpermitted();
    }

    pub(crate) fn end_streams_where(&self, is_over: impl Fn(&Session) -> bool) {
        for session in self.registry.table.streaming() {
            if is_over(&session) {
                session.cut_streams();
            }
        }
    }
}
