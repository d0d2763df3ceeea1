//! The servers behind the gateways, and which sessions are with which.

/// How many sessions a server can have, from which number on they are members of a union's client, and from which
/// number on their clients speak HTTP+SSE.
const EACH: usize = 10_000;
const IN_UNION: usize = 2_500;
const OVER_SSE: usize = 5_000;

/// Whose the faults of processes are, and where their calls run.
pub(crate) const PROCESSES: &str = "p";

/// The server that a session is with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    /// The replicas, over streamable HTTP.
    Replicas,
    /// The command.
    Processes,
    /// The replicas, over HTTP+SSE.
    Streams,
    /// The replicas, over either: which, each says for itself.
    Mixed,
}

/// What clients ask a gateway for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// One server, at its own path.
    One(Server),
    /// All servers as one.
    Union,
}

impl Server {
    pub(crate) const ALL: [Self; 4] = [Self::Replicas, Self::Processes, Self::Streams, Self::Mixed];

    /// The server of a session.
    pub(crate) fn of(session: usize) -> Self {
        match session / EACH {
            0 => Self::Replicas,
            1 => Self::Processes,
            2 => Self::Streams,
            _ => Self::Mixed,
        }
    }

    /// Its name in the gateways' configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Replicas => "s",
            Self::Processes => PROCESSES,
            Self::Streams => "e",
            Self::Mixed => "m",
        }
    }

    /// Whether its sessions live in one gateway, or may.
    pub(crate) fn lives_in_one_gateway(self) -> bool {
        self != Self::Replicas
    }

    /// The number of its first session.
    pub(crate) fn first(self) -> usize {
        match self {
            Self::Replicas => 0,
            Self::Processes => EACH,
            Self::Streams => 2 * EACH,
            Self::Mixed => 3 * EACH,
        }
    }

    /// The number of its session that is a member of this client.
    pub(crate) fn member_of(self, client: usize) -> usize {
        self.first() + client
    }

    /// The number of its first session whose client speaks HTTP+SSE.
    pub(crate) fn first_over_sse(self) -> usize {
        self.first() + OVER_SSE
    }
}

impl Target {
    /// Where clients of streamable HTTP find it.
    pub(crate) fn path(self) -> String {
        match self {
            Self::One(server) => format!("/mcp/{}", server.name()),
            Self::Union => "/mcp".to_owned(),
        }
    }
}

/// The numbers of clients that use all servers as one. Each has a session with every server ([`Server::member_of`]);
/// its own number is that of the one with the replicas.
pub(crate) fn union_clients() -> impl Iterator<Item = usize> {
    IN_UNION..OVER_SSE
}

/// Whether a session is a member of a union's client.
pub(crate) fn is_in_union(session: usize) -> bool {
    (IN_UNION..OVER_SSE).contains(&(session % EACH))
}

/// Whether a session's client speaks HTTP+SSE.
pub(crate) fn is_over_sse(session: usize) -> bool {
    session % EACH >= OVER_SSE
}
