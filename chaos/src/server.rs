//! The servers behind the gateways, and which sessions are with which.

/// How many sessions a server can have, and from which number on their clients speak HTTP+SSE.
const EACH: usize = 10_000;
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
}

impl Server {
    pub(crate) const ALL: [Self; 3] = [Self::Replicas, Self::Processes, Self::Streams];

    /// The server of a session.
    pub(crate) fn of(session: usize) -> Self {
        match session / EACH {
            0 => Self::Replicas,
            1 => Self::Processes,
            _ => Self::Streams,
        }
    }

    /// Its name in the gateways' configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Replicas => "s",
            Self::Processes => PROCESSES,
            Self::Streams => "e",
        }
    }

    /// Whether its sessions live in one gateway.
    pub(crate) fn lives_in_one_gateway(self) -> bool {
        self != Self::Replicas
    }

    /// The number of its first session.
    pub(crate) fn first(self) -> usize {
        match self {
            Self::Replicas => 0,
            Self::Processes => EACH,
            Self::Streams => 2 * EACH,
        }
    }

    /// The number of its first session whose client speaks HTTP+SSE.
    pub(crate) fn first_over_sse(self) -> usize {
        self.first() + OVER_SSE
    }
}

/// Whether a session's client speaks HTTP+SSE.
pub(crate) fn is_over_sse(session: usize) -> bool {
    session % EACH >= OVER_SSE
}
