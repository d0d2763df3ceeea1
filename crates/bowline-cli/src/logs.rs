//! Where logs go and how they look.

mod line;

use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use self::line::Line;
use crate::args::LogFormat;
use crate::colour;
use crate::failure::Failure;

/// Sends logs to stderr from now on; those of this level, unless the environment says otherwise.
pub(crate) fn to_stderr(format: LogFormat, level: LevelFilter) -> Result<(), Failure> {
    let filter = EnvFilter::builder()
        .with_default_directive(level.into())
        .from_env()
        .map_err(|error| {
            let message = format!("the environment variable RUST_LOG cannot be used: {error}");
            Failure::usage(message, "write it like `RUST_LOG=info,bowline=debug`")
        })?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // Complaints about stderr would go to stderr, and panic when it is closed.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => {
            let line = Line { colour: colour() };
            subscriber.event_format(line).init();
        }
        LogFormat::Json => subscriber.json().flatten_event(true).init(),
    }
    Ok(())
}
