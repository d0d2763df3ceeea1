//! Opening sessions: what `initialize` costs, and what a session costs that is then left alone.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::Context as _;
use http::HeaderValue;
use serde_json::json;
use tokio::task::LocalSet;
use tokio_util::task::TaskTracker;

use crate::client::{Connection, Session, Target};
use crate::process::Processes;

/// The options of `bowline-bench open`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The server; given several times, sessions go round
    #[arg(long = "url", required = true)]
    targets: Vec<Target>,
    /// How many to open
    #[arg(long)]
    sessions: usize,
    /// On how many connections
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Write the ids to this file, for `calls --sessions-from`
    #[arg(long)]
    save: Option<PathBuf>,
    #[command(flatten)]
    processes: Processes,
}

/// Opens sessions and closes its connections, but not the sessions.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<serde_json::Value> {
    let tasks = TaskTracker::new();
    let mut connections = connect(&arguments.targets, arguments.connections, &tasks).await?;
    // The first requests on a connection pay for its buffers.
    for connection in &mut connections {
        connection.open_session(&arguments.targets[0], 0).await?;
    }
    let before = arguments.processes.cpu()?;
    let (_, sessions) = open(connections, &arguments.targets, arguments.sessions).await?;
    let cpu = arguments.processes.cpu()? - before;
    if let Some(path) = &arguments.save {
        save(path, &sessions)?;
    }
    Ok(json!({
        "sessions": sessions.len(),
        "cpu_us_per_open": arguments.processes.share(cpu, sessions.len() as u64),
    }))
}

/// Opens connections to the targets, which must share an address.
pub(crate) async fn connect(
    targets: &[Target],
    count: usize,
    tasks: &TaskTracker,
) -> anyhow::Result<Vec<Connection>> {
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count {
        connections.push(Connection::open(targets[0].address, tasks).await?);
    }
    Ok(connections)
}

/// Opens `count` sessions over all connections at once, and hands the connections back.
pub(crate) async fn open(
    connections: Vec<Connection>,
    targets: &[Target],
    count: usize,
) -> anyhow::Result<(Vec<Connection>, Vec<Session>)> {
    let local = LocalSet::new();
    let (step, targets) = (connections.len(), Rc::new(targets.to_vec()));
    let each = connections.into_iter().enumerate();
    let tasks: Vec<_> = each
        .map(|(first, mut connection)| {
            let targets = Rc::clone(&targets);
            local.spawn_local(async move {
                let mut sessions = Vec::new();
                for number in (first..count).step_by(step) {
                    let target = &targets[number % targets.len()];
                    sessions.push(connection.open_session(target, number).await?);
                }
                anyhow::Ok((connection, sessions))
            })
        })
        .collect();
    local.await;
    let (mut connections, mut sessions) = (Vec::new(), Vec::with_capacity(count));
    for task in tasks {
        let (connection, opened) = task.await??;
        connections.push(connection);
        sessions.extend(opened);
    }
    sessions.sort_by_key(|session| session.number);
    Ok((connections, sessions))
}

fn save(path: &PathBuf, sessions: &[Session]) -> anyhow::Result<()> {
    let mut lines = String::new();
    for session in sessions {
        // Writing to a String cannot fail.
        _ = writeln!(lines, "{}", session.id());
    }
    std::fs::write(path, lines).with_context(|| format!("cannot write {}", path.display()))
}

/// The sessions that an earlier `open --save` left.
pub(crate) fn saved(path: &PathBuf, targets: &[Target]) -> anyhow::Result<Vec<Session>> {
    let lines =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let session = |(number, line): (usize, &str)| {
        let id = HeaderValue::from_str(line)?;
        Ok(targets[number % targets.len()].session(&id, number))
    };
    lines.lines().enumerate().map(session).collect()
}
