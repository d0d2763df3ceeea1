//! Holding streams: what an open GET costs in memory.

use std::time::Duration;

use serde_json::json;
use tokio_util::task::TaskTracker;

use crate::client::{Connection, Target};
use crate::open;
use crate::process::Processes;

/// The options of `bowline-bench hold`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The server
    #[arg(long)]
    url: Target,
    /// How many streams to hold, each of a session of its own
    #[arg(long)]
    streams: usize,
    /// How long proxies are given to close connections, and to free what they can
    #[arg(long, default_value_t = 6)]
    settle: u64,
    #[command(flatten)]
    processes: Processes,
}

/// Opens sessions, then a stream for each, and compares the memory.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<serde_json::Value> {
    let tasks = TaskTracker::new();
    let settle = || tokio::time::sleep(Duration::from_secs(arguments.settle));
    let targets = [arguments.url];
    let connections = open::connect(&targets, 64, &tasks).await?;
    let (connections, sessions) = open::open(connections, &targets, arguments.streams).await?;
    drop(connections);
    settle().await;

    let before = arguments.processes.rss()?;
    let mut held = Vec::with_capacity(sessions.len());
    for session in &sessions {
        let mut connection = Connection::open(targets[0].address, &tasks).await?;
        let stream = connection.listen(session).await?;
        held.push((connection, stream));
    }
    settle().await;
    let after = arguments.processes.rss()?;
    Ok(json!({
        "streams": held.len(),
        "kib_per_stream": arguments.processes.share(after.saturating_sub(before), held.len() as u64),
    }))
}
