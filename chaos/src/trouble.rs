//! Everything that can be tried, by name, so that a run can be of one thing only.

use clap::ValueEnum;

/// Something that breaks, or that clients or servers do and that is hard to get right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Trouble {
    /// A replica dies and comes back
    Kill,
    /// A replica forgets its sessions
    Forget,
    /// Every connection to a replica is reset
    Break,
    /// Requests are reset before the server gets them
    ResetBefore,
    /// Requests are reset after the server ran them
    ResetAfter,
    /// The same, but the connection ends before it is reset
    EndThenReset,
    /// Answers end in the middle
    Cut,
    /// Requests come late
    Delay,
    /// A balancer says 404, in plain text
    #[value(name = "404")]
    Plain404,
    /// A balancer says 404, with a page for people
    #[value(name = "html-404")]
    Html404,
    /// A balancer says 400 to calls, in plain text
    #[value(name = "400")]
    Plain400,
    /// A balancer says so to everything, pings included
    #[value(name = "400-to-all")]
    Plain400ToAll,
    /// A balancer says that the server is ill
    #[value(name = "50x")]
    Ill,
    /// A replica hangs for ten seconds
    Hang,
    /// One call hangs for ten seconds, before or after it ran
    HangCall,
    /// A tool becomes destructive, or read-only again
    Flip,
    /// The gateways' configuration loses an endpoint, and gets it back
    Reload,
    /// The disk of a gateway's file store fills up
    DiskFull,
    /// Tools refuse with any status and the words of a lost session, and some of these answers are cut
    OwnAnswer,
    /// A tool becomes destructive in one session, which tells nobody but the gateway, and breaks off
    Unheard,
    /// A server forges ids and tokens
    Forge,
    /// Clients make two calls at once under one id
    EqualIds,
    /// Clients cancel calls
    Cancel,
    /// Clients open sessions and end them
    Delete,
    /// Answers of 20 MiB
    Large,
    /// Sessions of 2025-03-26, with batches
    Batch,
    /// A replica's JSON comes in chunks
    Chunked,
    /// A replica escapes slashes in its JSON
    Slashes,
    /// A replica speaks TLS
    Tls,
    /// Processes of a server that is a command are killed
    KillProcess,
    /// The same are stopped for a while
    StopProcess,
    /// The same are killed, and for a while the next ones exit at once
    FailStart,
    /// For some seconds, processes exit right after they have answered `initialize`
    DieYoung,
    /// Processes log to their stdout, in JSON
    JsonLogs,
    /// A server that speaks HTTP+SSE
    HttpSse,
    /// The streams of such a server's sessions end
    CutStream,
    /// A server whose replicas speak streamable HTTP or HTTP+SSE, and change that one by one
    Switch,
    /// Clients that speak HTTP+SSE
    SseClients,
    /// Clients that use all servers as one, at `/mcp`
    Union,
    /// One of several gateways is killed
    KillGateway,
    /// One of several gateways is stopped, for a moment or for longer than its presence lasts
    StopGateway,
    /// The way between gateways is cut, or silent
    CutPeers,
    /// The way of a gateway to the Redis is cut, or silent
    CutRedis,
    /// The Redis is full
    RedisFull,
    /// The Redis is a replica, which can only be read
    RedisReadOnly,
}

impl Trouble {
    /// What happens to processes.
    pub(crate) const OF_PROCESSES: [Self; 3] =
        [Self::KillProcess, Self::StopProcess, Self::FailStart];
    /// What happens to gateways that are several, besides kills, for a moment or for long.
    pub(crate) const OF_GATEWAYS: [Self; 3] = [Self::StopGateway, Self::CutPeers, Self::CutRedis];
    /// What happens to the Redis of several gateways, for long.
    pub(crate) const OF_REDIS: [Self; 2] = [Self::RedisFull, Self::RedisReadOnly];
    /// What clients and servers do on every transport.
    pub(crate) const ANYWHERE: [Self; 4] =
        [Self::OwnAnswer, Self::Unheard, Self::Forge, Self::EqualIds];
}
