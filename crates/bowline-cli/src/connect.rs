//! `bowline connect`: what an editor runs to reach a server over stdin and stdout. The server is somewhere else,
//! or a command that is run here.

use std::process::ExitCode;

use anyhow::Context as _;
use bowline::Bridge;
use bowline::config::{Command, Server};

use crate::args::ConnectArguments;
use crate::failure::Failure;
use crate::named_server::{NamedServer, short_name, with_headers};
use crate::sign_in;
use crate::signals::Signals;
use crate::{browser, environment, standard_streams};

/// Serves the client on stdin and stdout until it leaves.
pub(crate) async fn connect(arguments: &ConnectArguments) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new().context("cannot wait for signals")?;
    let (config, name, server) = match (&arguments.server, arguments.command.as_slice()) {
        (Some(written), _) => {
            let (found, config) = NamedServer::read(written, arguments.config.as_deref())?;
            (config, found.name, found.server)
        }
        (None, [program, words @ ..]) => {
            let command = wrapped(program, words);
            let config = sign_in::config(arguments.config.as_deref())?;
            (
                config,
                command.name().to_owned(),
                Server::from_command(command),
            )
        }
        // clap wants one of them.
        (None, []) => return Err(anyhow::anyhow!("there is no server").into()),
    };
    let server = with_headers(server, &arguments.headers)?;
    let name = short_name(&name, &server)?;
    let bridge = Bridge::start(config, name, server, browser::opener())
        .await
        .map_err(anyhow::Error::new)?;
    let input = standard_streams::input().context("cannot use stdin")?;
    let output = standard_streams::output().context("cannot use stdout")?;
    bridge.serve(input, output, signals.stop()).await;
    Ok(ExitCode::SUCCESS)
}

/// A command that runs as if the editor had started it: with all of this program's environment, which the editor
/// chose for it, and in the same directory.
fn wrapped(program: &str, words: &[String]) -> Command {
    Command {
        inherited: environment::all(),
        ..Command::new(program, words.to_vec())
    }
}
