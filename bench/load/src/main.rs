//! What `bench/run` starts: a cheap MCP server to put under load, and the load.
//!
//! Every command ends with one line of JSON and leaves the arithmetic over rounds to the harness.
//! One thread each, because the proxies between them are what shall have the cores.

mod calls;
mod client;
mod echo;
mod hold;
mod lists;
mod open;
mod pace;
mod process;
mod recover;
mod stdio;
mod upstream;

use std::io::Write as _;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

/// The bench's load generator and the server that it loads.
#[derive(Debug, Parser)]
#[command(name = "bowline-bench")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a small stateful MCP server
    Upstream(upstream::Arguments),
    /// The same over stdin and stdout
    Stdio,
    /// Call a tool, as fast as answers come or at a fixed rate
    Calls(calls::Arguments),
    /// Open sessions and leave them
    Open(open::Arguments),
    /// List the tools, in new sessions or in one
    Lists(lists::Arguments),
    /// Open streams and hold them
    Hold(hold::Arguments),
    /// Time the request after the death of a session's replica
    Recover(recover::Arguments),
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start")?;
    let report = runtime.block_on(run(arguments.command))?;
    // Connections may still be open: nobody waits for their tasks.
    runtime.shutdown_background();
    match report {
        Some(report) => writeln!(std::io::stdout(), "{report}").context("nobody reads the report"),
        None => Ok(()),
    }
}

/// Runs a command; what it reports, if its output is not a conversation.
async fn run(command: Command) -> anyhow::Result<Option<serde_json::Value>> {
    let report = match command {
        Command::Stdio => return stdio::serve().map(|()| None),
        Command::Upstream(arguments) => upstream::serve(&arguments).await,
        Command::Calls(arguments) => calls::run(arguments).await,
        Command::Open(arguments) => open::run(arguments).await,
        Command::Lists(arguments) => lists::run(arguments).await,
        Command::Hold(arguments) => hold::run(arguments).await,
        Command::Recover(arguments) => recover::run(arguments).await,
    };
    report.map(Some)
}
