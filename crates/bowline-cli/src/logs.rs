//! Where logs go and how they look.

mod line;

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tracing_subscriber::EnvFilter;

use self::line::Line;
use crate::args::LogFormat;
use crate::failure::Failure;
use crate::{colour, environment};

/// Sends logs to stderr from now on; those of these levels, unless the environment says otherwise.
pub(crate) fn to_stderr(format: LogFormat, levels: &str) -> Result<(), Failure> {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter(levels)?)
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

/// Appends logs to a file from now on. Only this user can read one that is made here.
pub(crate) fn to_file(path: &Path, levels: &str) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path).map_err(|error| {
        let message = format!("cannot write the log {}: {error}", path.display());
        Failure::usage(message, "name a file in a directory that exists")
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter(levels)?)
        .with_writer(Arc::new(file))
        .log_internal_errors(false)
        .event_format(Line { colour: false })
        .init();
    Ok(())
}

fn filter(levels: &str) -> Result<EnvFilter, Failure> {
    let chosen = environment::variable("RUST_LOG").filter(|chosen| !chosen.is_empty());
    EnvFilter::builder()
        .parse(chosen.as_deref().unwrap_or(levels))
        .map_err(|error| {
            let message = format!("the environment variable RUST_LOG cannot be used: {error}");
            Failure::usage(message, "write it like `RUST_LOG=info,bowline=debug`")
        })
}
