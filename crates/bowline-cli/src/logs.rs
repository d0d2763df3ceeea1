//! Where logs go and how they look.

mod line;

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use self::line::Line;
use crate::args::LogFormat;
use crate::colour;
use crate::failure::Failure;

/// Sends logs to stderr from now on; those of this level, unless the environment says otherwise.
pub(crate) fn to_stderr(format: LogFormat, level: LevelFilter) -> Result<(), Failure> {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter(level)?)
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
pub(crate) fn to_file(path: &Path, level: LevelFilter) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path).map_err(|error| {
        let message = format!("cannot write the log {}: {error}", path.display());
        Failure::usage(message, "name a file in a directory that exists")
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter(level)?)
        .with_writer(Arc::new(file))
        .log_internal_errors(false)
        .event_format(Line { colour: false })
        .init();
    Ok(())
}

fn filter(level: LevelFilter) -> Result<EnvFilter, Failure> {
    EnvFilter::builder()
        .with_default_directive(level.into())
        .from_env()
        .map_err(|error| {
            let message = format!("the environment variable RUST_LOG cannot be used: {error}");
            Failure::usage(message, "write it like `RUST_LOG=info,bowline=debug`")
        })
}
