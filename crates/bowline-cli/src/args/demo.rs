//! The options of `bowline demo`, and of the processes that it starts.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The options of `bowline demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Go through it once, without pauses; for scripts. The exit code is 1 if the session did not hold
    #[arg(long)]
    pub(crate) once: bool,

    /// Write what was shown to this file, as a picture that moves
    #[arg(long, value_name = "FILE", requires = "once")]
    pub(crate) svg: Option<PathBuf>,
}

/// The options of `bowline demo-part`.
#[derive(Debug, Args)]
pub(crate) struct DemoPartArguments {
    #[command(subcommand)]
    pub(crate) part: DemoPart,

    /// Where it listens
    #[arg(
        long,
        value_name = "ADDR",
        global = true,
        default_value = "127.0.0.1:0"
    )]
    pub(crate) listen: SocketAddr,
}

/// A process of the demo.
#[derive(Debug, Subcommand)]
pub(crate) enum DemoPart {
    /// A server that keeps its sessions in memory, and its counts in files
    Replica { name: String, directory: PathBuf },
    /// A proxy that passes bytes on and keeps nothing
    Proxy { to: SocketAddr },
}
