//! `bowline connect`: what an editor runs to reach a server over stdin and stdout.

use std::fs::File;
use std::io;
use std::process::ExitCode;

use anyhow::Context as _;
use bowline::Bridge;
use bowline::config::{Header, HeaderProblem, Server, ServerName};

use crate::args::ConnectArguments;
use crate::environment;
use crate::failure::Failure;
use crate::named_server::NamedServer;
use crate::sign_in;
use crate::signals::Signals;

/// What a server is called that has no name that could be used.
const UNNAMED: &str = "server";

/// Serves the client on stdin and stdout until it leaves.
pub(crate) async fn connect(arguments: &ConnectArguments) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new().context("cannot wait for signals")?;
    let file = arguments.config.as_deref();
    let config = sign_in::config(file)?;
    let NamedServer { name, server, .. } = NamedServer::find(&arguments.server, &config, file)?;
    let server = with_headers(server, &arguments.headers)?;
    let bridge = Bridge::start(config, short_name(&name, &server)?, server)
        .await
        .map_err(anyhow::Error::new)?;
    let (input, output) = streams().context("cannot use stdin and stdout")?;
    bridge.serve(input, output, signals.stop()).await;
    Ok(ExitCode::SUCCESS)
}

/// The server with the headers of the command line.
fn with_headers(mut server: Server, written: &[String]) -> Result<Server, Failure> {
    let usage = |problem: HeaderProblem| {
        Failure::usage(format!("--header: {}", problem.what()), problem.help())
    };
    let headers = written
        .iter()
        .map(|header| Header::parse(header, &environment::variable))
        .collect::<Result<Vec<_>, _>>()
        .map_err(usage)?;
    server.set_headers(&headers).map_err(usage)?;
    Ok(server)
}

/// The name in logs and errors: the one in the file, or the host.
fn short_name(name: &str, server: &Server) -> anyhow::Result<ServerName> {
    let host = server.target.urls().first().and_then(|url| url.host());
    let mut names = [Some(name), host].into_iter().flatten();
    match names.find_map(|name| name.parse().ok()) {
        Some(name) => Ok(name),
        None => Ok(UNNAMED.parse()?),
    }
}

/// Standard input and output, as files: they may be pipes, sockets, files or a terminal.
fn streams() -> io::Result<(tokio::fs::File, tokio::fs::File)> {
    use std::os::fd::AsFd as _;
    let owned = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().map(File::from);
    let (input, output) = (owned(io::stdin().as_fd())?, owned(io::stdout().as_fd())?);
    Ok((input.into(), output.into()))
}
