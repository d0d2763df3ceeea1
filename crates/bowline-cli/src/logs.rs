//! Where logs go and how they look.

mod line;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use bowline_system::printable::escaped;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use self::line::Line;
use crate::args::LogFormat;
use crate::failure::Failure;
use crate::{colour, environment};

/// Writes JSON so that nothing in it can steer a terminal. Each event is written at once.
struct Escaping<W>(W);

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        self.0.write_all(escaped(&text).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Sends logs to stderr from now on; those of these levels, unless the environment says otherwise.
pub(crate) fn to_stderr(format: LogFormat, levels: &str) -> Result<(), Failure> {
    let filter = filter(levels)?;
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(io::stderr)
        // Complaints about stderr would go to stderr, and panic when it is closed.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => {
            let line = Line { colour: colour() };
            subscriber.event_format(line).finish().with(filter).init();
        }
        LogFormat::Json => {
            let subscriber = subscriber.with_writer(|| Escaping(io::stderr()));
            let subscriber = subscriber.json().flatten_event(true);
            subscriber.finish().with(filter).init();
        }
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
        .with_max_level(LevelFilter::TRACE)
        .with_writer(Arc::new(file))
        .log_internal_errors(false)
        .event_format(Line { colour: false })
        .finish()
        .with(filter(levels)?)
        .init();
    Ok(())
}

/// Which logs are written: by level, and by module. Fields and spans cannot be chosen by, which would take a
/// regular expression engine.
fn filter(levels: &str) -> Result<Targets, Failure> {
    let chosen = environment::variable("RUST_LOG").filter(|chosen| !chosen.is_empty());
    let chosen = chosen.as_deref().unwrap_or(levels);
    chosen.parse().map_err(|error| {
        let message = format!("the environment variable RUST_LOG cannot be used: {error}");
        Failure::usage(message, "write it like `RUST_LOG=info,bowline=debug`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_stays_the_same_json_and_steers_nothing() {
        let mut written = Vec::new();
        let event = "{\"stderr\":\"\u{202e}\u{9b}2J\"}\n";
        Escaping(&mut written).write_all(event.as_bytes()).unwrap();
        assert_eq!(written, b"{\"stderr\":\"\\u202e\\u009b2J\"}\n");
    }
}
