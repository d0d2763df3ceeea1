//! `bowline-bench lists`: lists the tools one time after the other, in a new session each time or in one.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::client::{Connection, Target};
use crate::process::Processes;

/// The options of `bowline-bench lists`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The server
    #[arg(long)]
    url: Target,
    /// How often to list
    #[arg(long, default_value_t = 100)]
    count: u64,
    /// How many tools there must be, on all pages
    #[arg(long)]
    tools: usize,
    /// Open a session for each list, and end it; its opening and the list are measured
    #[arg(long)]
    cold: bool,
    #[command(flatten)]
    processes: Processes,
}

/// Lists and reports.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<serde_json::Value> {
    let tasks = TaskTracker::new();
    let mut connection = Connection::open(arguments.url.address, &tasks).await?;
    let mut session = connection.open_session(&arguments.url, 0).await?;
    // Nothing happens for the first time when it is measured.
    connection.count_tools(&session, 0).await?;
    let (mut times, mut cpu) = (Vec::new(), 0);
    for id in 1..=arguments.count {
        if arguments.cold {
            connection.end_session(&session).await?;
        }
        let (began, before) = (Instant::now(), arguments.processes.cpu()?);
        if arguments.cold {
            session = connection.open_session(&arguments.url, 0).await?;
        }
        let tools = connection.count_tools(&session, id).await?;
        times.push(began.elapsed());
        cpu += arguments.processes.cpu()? - before;
        let wanted = arguments.tools;
        ensure!(tools == wanted, "{tools} tools instead of {wanted}");
    }
    connection.end_session(&session).await?;
    times.sort_unstable();
    let total: Duration = times.iter().sum();
    Ok(json!({
        "lists": times.len(),
        "cpu_us_per_list": arguments.processes.share(cpu, arguments.count),
        "mean_us": total.as_micros() as f64 / times.len() as f64,
        "p50_us": times.get(times.len() / 2).map(Duration::as_micros),
        "errors": 0,
    }))
}
