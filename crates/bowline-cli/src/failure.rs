//! How the program ends when it cannot do what it was asked: one message on stderr, one exit code.
//!
//! 2 means that the call or the configuration must change, 1 that something else went wrong.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;

use bowline::config::{ConfigErrors, StoreKind};
use bowline::{OpenStoreError, SealKeysError, SocketFileError, StartError, StoreError};
use bowline_system::printable::{printable_lines, printable_screen};

const USAGE: u8 = 2;

/// Why the program ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was called in a way that cannot work.
    Usage(Vec<Complaint>),
    /// Its configuration file cannot be used.
    Config(ConfigErrors),
    /// It could not do what it was asked.
    Other(anyhow::Error),
}

/// One thing that is wrong, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    message: String,
    help: Option<String>,
}

/// Writes text for people. It may quote files, arguments and servers: a terminal obeys nothing in it but colours.
pub(crate) fn show(mut stream: impl Write, text: &str) -> io::Result<()> {
    stream.write_all(printable_screen(text).as_bytes())?;
    stream.flush()
}

/// Shows what clap has to say: help and version on stdout, usage errors on stderr.
pub(crate) fn show_clap(shown: &clap::Error) -> ExitCode {
    let text = shown.render().ansi().to_string();
    // A reader that has left (`bowline --help | head`) is no failure.
    match shown.use_stderr() {
        true => show(anstream::stderr(), &text).ok(),
        false => show(anstream::stdout(), &text).ok(),
    };
    u8::try_from(shown.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

// === impl Failure ===

impl Failure {
    /// A single mistake in how the program was called.
    pub(crate) fn usage(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Usage(vec![Complaint::new(message, help)])
    }

    /// Prints the failure; the code is what the program ends with.
    pub(crate) fn show(&self, colour: bool) -> ExitCode {
        // With stderr closed only the exit code is left.
        show(anstream::stderr(), &self.render(colour)).ok();
        match self {
            Self::Usage(_) | Self::Config(_) => ExitCode::from(USAGE),
            Self::Other(_) => ExitCode::FAILURE,
        }
    }

    /// The failure as text, one or more lines.
    pub(crate) fn render(&self, colour: bool) -> String {
        match self {
            Self::Usage(complaints) => complaints.iter().map(|one| one.render(colour)).collect(),
            Self::Config(errors) => errors.render(colour) + "\n",
            Self::Other(error) => {
                let mut complaint = Complaint::from_error(error.as_ref());
                complaint.help = error.downcast_ref().and_then(start_help);
                complaint.render(colour)
            }
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

// === impl Complaint ===

impl Complaint {
    pub(crate) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: Some(help.into()),
        }
    }

    /// The same with what to do about it.
    pub(crate) fn with_help(self, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..self
        }
    }

    /// The error and its causes on one line, each said once: some errors name their cause in
    /// their own text already.
    pub(crate) fn from_error(error: &dyn Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !message.ends_with(&text) {
                message = format!("{message}: {text}");
            }
            cause = error.source();
        }
        Self {
            message,
            help: None,
        }
    }

    fn render(&self, colour: bool) -> String {
        // The colours of annotate-snippets and clap.
        let [error, help, off] = if colour {
            ["\x1b[1m\x1b[91m", "\x1b[1m\x1b[96m", "\x1b[0m"]
        } else {
            [""; 3]
        };
        // Both may quote a server, or a file.
        let message = printable_lines(&self.message);
        let mut text = format!("{error}error{off}: {message}\n");
        if let Some(advice) = &self.help {
            let advice = printable_lines(advice);
            // Writing to a String cannot fail.
            writeln!(text, "  {help}help{off}: {advice}").ok();
        }
        text
    }
}

/// What to do when the gateway does not start.
fn start_help(error: &StartError) -> Option<String> {
    match error {
        StartError::Listen { key, source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
            Some(format!(
                "another program listens there; stop it, or choose another address with `--{key}` \
                 (port 0 means any free one)"
            ))
        }
        StartError::Socket { key, source, .. } => Some(match source {
            SocketFileError::InUse => format!(
                "another gateway serves there; stop it, or choose another path with `--{key}`"
            ),
            SocketFileError::NotASocket => {
                format!("the file was left as it is; move it away, or choose another path with `--{key}`")
            }
            SocketFileError::NotALock(_) => format!(
                "somebody else may have put it there, and it was left as it is; use a directory that \
                 nobody else can write to, with `--{key}`"
            ),
            SocketFileError::Io(_) => "its directory has to exist, and the user that runs Bowline has to \
                be able to write to it"
                .to_owned(),
        }),
        // Its own words say what to do.
        StartError::Listen { .. }
        | StartError::SignIn { .. }
        | StartError::Peers(_)
        | StartError::Tls(_) => None,
        StartError::Vault(_) => Some(
            "the file was not changed: restore a backup; or move `grants.sealed` away, and everybody has to \
             sign in again"
                .to_owned(),
        ),
        StartError::Store { kind, source } => store_help(kind, source).map(str::to_owned),
    }
}

/// What to do when there is no place for sessions.
fn store_help(kind: &StoreKind, error: &OpenStoreError) -> Option<&'static str> {
    match error {
        OpenStoreError::NoSealKeys => {
            Some("make a key with `bowline keygen` and give it to every gateway")
        }
        OpenStoreError::SealKeys(SealKeysError::Lost { .. }) => {
            Some("restore the key file; or move `sessions.redb` away, to start without sessions")
        }
        OpenStoreError::SealKeys(SealKeysError::NoRandomness(_)) => None,
        OpenStoreError::SealKeys(_) => Some(
            "it must contain what `bowline keygen` prints, and be readable by the user that runs Bowline",
        ),
        OpenStoreError::Read { .. } => {
            Some("correct the path, and let the user that runs Bowline read it")
        }
        OpenStoreError::Store(error) => match error {
            StoreError::InUse { .. } => Some(
                "stop the other gateway, or give each its own `path` in `[store]`; only a store of \
                 kind `redis` can be shared",
            ),
            StoreError::UnusableFile { .. } | StoreError::Damaged(_) => Some(
                "the file was not changed: make it readable or restore a backup; or move it away, to start \
                 without sessions",
            ),
            StoreError::NewerFile { .. } => Some(
                "the file was not changed: run the newer Bowline; or move it away, to start without sessions",
            ),
            StoreError::Unreachable(_) | StoreError::Timeout(_)
                if !matches!(kind, StoreKind::Redis(_)) =>
            {
                Some("check that the disk has space, and that Bowline may write there")
            }
            StoreError::Unreachable(_) | StoreError::Timeout(_) => Some(
                "start it, or correct `[store]`; with `on_unreachable_start = \"wait\"` Bowline waits for it",
            ),
            StoreError::Refused { why, .. } => Some(why.advice()),
            StoreError::TooLarge { .. } => None,
        },
    }
}
