//! The `bowline` command: reads its options, runs the gateway, and reports what went wrong.
//!
//! The gateway itself is the library `bowline`. Here are only the command line ([`args`], made
//! into a configuration by [`plan`]), what people read ([`greeting`], [`summary`], [`failure`]),
//! what asks a running gateway to change ([`signals`], [`watch`]), the bridge for editors ([`connect`]),
//! the examination of a server ([`probe`]) and of a running gateway ([`health`]),
//! signing in and out ([`sign_in`],
//! [`browser`], [`auth_status`]), the [`demo`] server that runs when no other server was given, and the
//! comparison that `bowline demo` shows ([`side_by_side`]).

mod args;
mod auth_status;
mod browser;
mod connect;
mod demo;
mod environment;
mod failure;
mod greeting;
mod health;
mod logs;
mod named_server;
mod plan;
mod probe;
mod serve;
mod side_by_side;
mod sign_in;
mod signals;
mod standard_streams;
mod summary;
mod watch;

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use anstream::{AutoStream, ColorChoice};
use anyhow::Context as _;
use bowline_system::privacy;
use clap::Parser as _;
use tokio::runtime::Runtime;

use self::args::{Arguments, Command, ConnectArguments, LogFormat, ServeArguments};
use self::failure::Failure;
use self::plan::Plan;
use self::watch::Watch;

/// Every request takes and gives back a few buffers of some KiB. glibc hands out others each time, which
/// are then in nobody's cache: with thousands of sessions that is a tenth of what a call costs.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What `connect` logs: also what a wrapped command writes to its stderr, which its editor would show.
const CONNECT_LEVELS: &str = "info,bowline::process=debug";

fn main() -> ExitCode {
    // Before anything is read: whatever it is, servers that run as this user are not to read it here.
    if let Err(error) = privacy::keep_private() {
        let error = anyhow::Error::new(error);
        let error = error.context("cannot keep other processes from reading this one");
        return Failure::from(error).show(colour());
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(shown) => return failure::show_clap(&shown),
    };
    match run(arguments) {
        Ok(code) => code,
        Err(failure) => failure.show(colour()),
    }
}

fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        Command::Serve(arguments) => serve(&arguments),
        Command::Demo(arguments) => run_async("error", side_by_side::demo(&arguments)),
        Command::DemoPart(arguments) => run_async("error", side_by_side::part(&arguments)),
        Command::Check(arguments) => {
            let plan = Plan::new(&arguments, &environment::variable)?;
            print(summary::Summary(&plan))
        }
        Command::Connect(arguments) => connect(&arguments),
        Command::Probe(arguments) => run_async("error", probe::probe(&arguments)),
        Command::Health(arguments) => run_async("error", health::health(&arguments)),
        Command::Login(arguments) => run_async("warn", sign_in::login(&arguments)),
        Command::Logout(arguments) => run_async("warn", sign_in::logout(&arguments)),
        Command::Auth(arguments) => run_async("warn", sign_in::auth(&arguments)),
        Command::Schema => print(format_args!("{:#}\n", bowline::config::schema())),
        Command::Keygen => {
            let key = bowline::SealKeys::generate().context("cannot make a key")?;
            print(format_args!("{key}\n"))
        }
        Command::Supervise => {
            bowline_children::supervise()
                .context("cannot supervise: only a gateway can start this")?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn serve(arguments: &ServeArguments) -> Result<ExitCode, Failure> {
    logs::to_stderr(arguments.log_format, "info")?;
    // Before the file is read, so that no change after that goes unnoticed.
    let watch = arguments.config.config.as_deref();
    let watch = watch.map(|file| Watch::new(&[file]));
    let plan = Plan::new(&arguments.config, &environment::variable)?;
    let runtime = runtime()?;
    let served = runtime.block_on(serve::serve(plan, &arguments.config, watch));
    // Dropping the runtime would wait for name lookups, which cannot be interrupted.
    runtime.shutdown_background();
    Ok(served?)
}

fn connect(arguments: &ConnectArguments) -> Result<ExitCode, Failure> {
    match &arguments.log {
        Some(file) => logs::to_file(file, CONNECT_LEVELS)?,
        None => logs::to_stderr(LogFormat::Text, CONNECT_LEVELS)?,
    }
    // One client's messages: handing them from thread to thread would cost more than it saves.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let ended = runtime.block_on(connect::connect(arguments));
    // Reading a terminal cannot be interrupted.
    runtime.shutdown_background();
    ended
}

/// Runs a command that ends by itself, and logs only what is as bad as this.
fn run_async(
    levels: &str,
    command: impl Future<Output = Result<ExitCode, Failure>>,
) -> Result<ExitCode, Failure> {
    logs::to_stderr(LogFormat::Text, levels)?;
    let runtime = runtime()?;
    let ended = runtime.block_on(command);
    runtime.shutdown_background();
    ended
}

fn runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")
}

/// Prints what was asked for; a reader that has left (`bowline schema | head`) is no failure.
fn print(text: impl Display) -> Result<ExitCode, Failure> {
    match failure::show(anstream::stdout().lock(), &text.to_string()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("cannot write").into())
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Whether people who read stderr see colours.
fn colour() -> bool {
    AutoStream::choice(&io::stderr()) != ColorChoice::Never
}
