//! `bowline probe`: what people type and read. The library examines the server.

mod screen;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use bowline::config::{Command, Server};
use bowline::probe::{Probe, Report, Step, Verdict};

use self::screen::Screen;
use crate::args::ProbeArguments;
use crate::auth_status::escaped_json;
use crate::failure::Failure;
use crate::named_server::{NamedServer, short_name, with_headers};
use crate::plan::config_of;
use crate::signals::Signals;
use crate::{environment, print};

/// What a program ends with that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Examines a server and prints what it is.
pub(crate) async fn probe(arguments: &ProbeArguments) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new().context("cannot wait for signals")?;
    let file = arguments.config.as_deref();
    let (config, shown, server) = match (&arguments.server, arguments.command.split_first()) {
        (None, Some((program, words))) => {
            let (name, server) = commanded(program, words);
            (config_of(file)?, name, server)
        }
        (Some(written), None) => {
            let (found, config) = NamedServer::read(written, file)?;
            (config, found.name, found.server)
        }
        _ => {
            return Err(Failure::usage(
                "the server is missing",
                "give its URL, its name in the configuration, or its command after `--`",
            ));
        }
    };
    let server = with_headers(server, &arguments.headers)?;
    let probe = Probe {
        name: short_name(&shown, &server)?,
        config,
        shown,
        server,
        timeout: arguments.timeout,
    };
    let progress = Progress::new();
    let ran = probe.run(&|step| progress.show(step), signals.stop()).await;
    progress.clear();
    match ran.map_err(anyhow::Error::new)? {
        None => Ok(ExitCode::from(INTERRUPTED)),
        Some(report) => {
            match arguments.json {
                true => {
                    let json = serde_json::to_value(&report).context("cannot write JSON")?;
                    print(format_args!("{}\n", escaped_json(&json)))?;
                }
                false => drop(print(Screen(&report))?),
            }
            Ok(code(&report))
        }
    }
}

/// The server that is this command, with the environment that a gateway would give it.
fn commanded(program: &str, words: &[String]) -> (String, Server) {
    let command = Command::new(program, words.to_vec()).inheriting(&environment::variable);
    let name = command.name().to_owned();
    (name, Server::from_command(command))
}

fn code(report: &Report) -> ExitCode {
    match report.verdict {
        Verdict::Works | Verdict::WorksWithRemarks => ExitCode::SUCCESS,
        Verdict::DoesNotWork => ExitCode::FAILURE,
    }
}

/// What the probe is doing, on a terminal: one line that is overwritten.
struct Progress {
    is_shown: bool,
}

impl Progress {
    fn new() -> Self {
        Self {
            is_shown: io::stderr().is_terminal(),
        }
    }

    fn show(&self, step: Step) {
        self.write(format_args!("\r\x1b[K{step} …"));
    }

    fn clear(&self) {
        self.write(format_args!("\r\x1b[K"));
    }

    fn write(&self, text: std::fmt::Arguments<'_>) {
        if self.is_shown {
            let mut stderr = io::stderr();
            // Without a terminal nobody misses it.
            stderr.write_fmt(text).and_then(|()| stderr.flush()).ok();
        }
    }
}
