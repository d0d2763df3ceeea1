//! Chaos: replicas that die, forget and stutter under a running gateway, sessions that call all the
//! while, and a checker that proves from the recorded history what the gateway promises.
//!
//! See `docs/reliability.md`.

#![expect(clippy::print_stdout, reason = "this command reports to people")]

mod checker;
mod faults;
mod gateway;
mod history;
mod load;
mod machine;
mod report;
mod server;
mod trouble;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use tokio::time::Instant;

use self::faults::Storm;
use self::gateway::Gateways;
use self::history::{Afterwards, History, Recorder};
use self::load::Load;
use self::load::listen::{Heard, Listeners};
use self::server::Server;
use self::trouble::Trouble;
use self::world::World;

/// The exit codes: a broken promise is not the same as a run that did not come about.
const BROKEN_PROMISES: u8 = 1;
const COULD_NOT_RUN: u8 = 2;
/// How long after its budget an answer may come on a busy machine.
const MARGIN: Duration = Duration::from_secs(5);
/// How long what is under way in the proxies may take to run.
const SETTLE: Duration = Duration::from_secs(2);

/// Breaks everything under a running gateway and checks its promises.
#[derive(Debug, Clone, Parser)]
struct Arguments {
    /// Where all that is random comes from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long to break things
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The gateway's command; otherwise the `bowline` beside this one
    #[arg(long)]
    gateway: Option<PathBuf>,
    /// The bug that a gateway with planted bugs shall have: the checker must notice
    #[arg(long, value_name = "BUG")]
    planted: Option<String>,
    /// How many sessions call
    #[arg(long, default_value_t = 100)]
    sessions: usize,
    /// How many replicas there are
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..))]
    replicas: u8,
    /// How many gateways there are; several share their sessions in a Redis, and are killed in turn
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    gateways: u8,
    /// Let the Redis that several gateways share hang at times, for up to a second
    #[arg(long)]
    pause_redis: bool,
    /// How many sessions call a server that is a command
    #[arg(long, default_value_t = 10)]
    processes: usize,
    /// How many sessions call a server that speaks HTTP+SSE
    #[arg(long, default_value_t = 10)]
    streams: usize,
    /// How many sessions call a server of which some replicas speak HTTP+SSE
    #[arg(long, default_value_t = 5)]
    mixed: usize,
    /// How many further sessions with each server have clients that speak HTTP+SSE
    #[arg(long, default_value_t = 3)]
    sse_clients: usize,
    /// How many clients use all servers as one, at `/mcp`
    #[arg(long, default_value_t = 10)]
    unions: usize,
    /// The longest pause between two calls of a session, in milliseconds
    #[arg(long, default_value_t = 400)]
    pause: u64,
    /// The gateway's budget for a call, in seconds
    #[arg(long, default_value_t = 30)]
    budget: u64,
    /// Try only these; otherwise all that should pass
    #[arg(long, value_delimiter = ',')]
    only: Vec<Trouble>,
}

impl Arguments {
    /// Whether this is tried.
    fn tries(&self, trouble: Trouble) -> bool {
        self.only.is_empty() || self.only.contains(&trouble)
    }

    /// How many sessions have clients of streamable HTTP and call this server.
    fn sessions_with(&self, server: Server) -> usize {
        let any = |troubles: &[Trouble]| troubles.iter().any(|it| self.tries(*it));
        let of_gateways = any(&Trouble::OF_GATEWAYS)
            || any(&Trouble::OF_REDIS)
            || self.tries(Trouble::KillGateway);
        let everywhere = self.gateways > 1 && of_gateways || any(&Trouble::ANYWHERE);
        let (wanted, own) = match server {
            Server::Replicas => return self.sessions,
            Server::Processes => {
                let others = any(&[Trouble::DieYoung, Trouble::JsonLogs]);
                (self.processes, others || any(&Trouble::OF_PROCESSES))
            }
            Server::Streams => (self.streams, any(&[Trouble::HttpSse, Trouble::CutStream])),
            // Without that, it is like the first.
            Server::Mixed => {
                return if self.tries(Trouble::Switch) {
                    self.mixed
                } else {
                    0
                };
            }
        };
        match everywhere || own {
            true => wanted,
            false => 0,
        }
    }

    /// How many clients use all servers as one.
    fn union_clients(&self) -> usize {
        match self.tries(Trouble::Union) {
            true => self.unions,
            false => 0,
        }
    }

    /// Whether anybody calls this server.
    fn has(&self, server: Server) -> bool {
        self.sessions_with(server) + self.union_clients() > 0
    }

    /// How many sessions have clients of HTTP+SSE and call this server.
    fn over_sse_with(&self, server: Server) -> usize {
        match self.tries(Trouble::SseClients) && self.sessions_with(server) > 0 {
            true => self.sse_clients,
            false => 0,
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match try_main(&Arguments::parse()).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(BROKEN_PROMISES),
        Err(error) => {
            println!("chaos: could not run: {error:#}");
            ExitCode::from(COULD_NOT_RUN)
        }
    }
}

/// How many promises were broken.
async fn try_main(arguments: &Arguments) -> anyhow::Result<usize> {
    println!(
        "chaos: seed {}, {} s, {} sessions, {} replicas, {} gateways",
        arguments.seed,
        arguments.seconds,
        arguments.sessions,
        arguments.replicas,
        arguments.gateways
    );
    let history = run(arguments).await?;
    let violations = checker::check(&history);
    report::table(&history);
    report::violations(&history, &violations);
    println!(
        "chaos: seed {}: {} calls, {} faults, {} violations",
        arguments.seed,
        history.calls.len(),
        history.faults.len(),
        violations.len()
    );
    Ok(violations.len())
}

async fn run(arguments: &Arguments) -> anyhow::Result<History> {
    let world = World::start(arguments).await?;
    let gateways = Arc::new(Gateways::start(arguments, &world).await?);
    for log in gateways.logs() {
        println!("chaos: a gateway's log is {}", log.display());
    }
    let recorder = Arc::new(Recorder::new());
    let limit = Duration::from_secs(arguments.budget) + MARGIN;
    let heard = Arc::new(Heard::default());
    let load = Load {
        arguments,
        gateways: &gateways,
        recorder: &recorder,
        heard: &heard,
        limit,
    };
    let sessions = load.open().await?;
    let others = load.open_others().await?;
    let unions = load.open_unions().await?;
    let until = Instant::now() + Duration::from_secs(arguments.seconds);
    let listeners = Listeners::start(&sessions, &unions, &recorder, &heard);
    let storm = Storm {
        world: &world,
        gateways: &gateways,
        recorder: &recorder,
        heard: &heard,
    };
    let deeds = async {
        tokio::join!(
            load.call(&sessions, &unions, others, until),
            storm.rage(arguments, until)
        )
    };
    tokio::select! {
        (_, broken) = deeds => broken?,
        never = report::progress(&recorder) => match never {},
        never = recorder.machine.watch() => match never {},
    }
    tokio::time::sleep(SETTLE).await;
    let deaf = listeners.deaf(&world).await;
    drop(listeners);
    let partial = load.partial(&unions).await;
    gateways.stop().await?;
    Ok(recorder.history(&world, limit, Afterwards { deaf, partial }))
}
