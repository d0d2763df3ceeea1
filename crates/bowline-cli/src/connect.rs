//! `bowline connect`: what an editor runs to reach a server over stdin and stdout. The server is somewhere else,
//! or a command that is run here. Without a name, all servers of a configuration are reached as one.

use std::process::ExitCode;

use anyhow::Context as _;
use bowline::Bridge;
use bowline::config::{Command, Config, Server, ServerName};

use crate::args::ConnectArguments;
use crate::failure::Failure;
use crate::named_server::{self, NamedServer, short_name, with_headers};
use crate::plan::config_of;
use crate::signals::Signals;
use crate::{browser, environment, standard_streams};

/// Serves the client on stdin and stdout until it leaves.
pub(crate) async fn connect(arguments: &ConnectArguments) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new().context("cannot wait for signals")?;
    let bridge = bridge(arguments).await?;
    let input = standard_streams::input().context("cannot use stdin")?;
    let output = standard_streams::output().context("cannot use stdout")?;
    bridge.serve(input, output, signals.stop()).await;
    Ok(ExitCode::SUCCESS)
}

async fn bridge(arguments: &ConnectArguments) -> Result<Bridge, Failure> {
    let (config, name, server) = match (&arguments.server, arguments.command.as_slice()) {
        (Some(written), _) => {
            if let Some((config, name)) = named_server::union(written, arguments.config.as_deref())?
            {
                return union(config, Some(&name)).await;
            }
            let (found, config) = NamedServer::read(written, arguments.config.as_deref())?;
            (config, found.name, found.server)
        }
        (None, [program, words @ ..]) => {
            let command = wrapped(program, words);
            let config = config_of(arguments.config.as_deref())?;
            (
                config,
                command.name().to_owned(),
                Server::from_command(command),
            )
        }
        (None, []) => {
            let config = read_all(arguments)?;
            return union(config, None).await;
        }
    };
    let server = with_headers(server, &arguments.headers)?;
    let name = short_name(&name, &server)?;
    let bridge = Bridge::start(config, name, server, browser::opener()).await;
    Ok(bridge.map_err(anyhow::Error::new)?)
}

async fn union(config: Config, name: Option<&ServerName>) -> Result<Bridge, Failure> {
    let bridge = Bridge::start_union(config, name, browser::opener()).await;
    Ok(bridge.map_err(anyhow::Error::new)?)
}

/// The configuration whose servers are all meant.
fn read_all(arguments: &ConnectArguments) -> Result<Config, Failure> {
    if !arguments.headers.is_empty() {
        return Err(Failure::usage(
            "--header is for one server, and all are meant",
            "name the server, or write the header into the configuration file",
        ));
    }
    let config = named_server::configuration(arguments.config.as_deref())?;
    match config.servers.is_empty() {
        false => Ok(config),
        true => Err(Failure::usage(
            "the configuration has no servers",
            "give a server's URL, or add one to [servers]",
        )),
    }
}

/// A command that runs as if the editor had started it: with all of this program's environment, which the editor
/// chose for it, and in the same directory.
fn wrapped(program: &str, words: &[String]) -> Command {
    Command {
        inherited: environment::all(),
        ..Command::new(program, words.to_vec())
    }
}
