//! The `bowline` command: reads what it was told, runs the gateway, and says what went wrong.
//!
//! The gateway itself is the library `bowline`. Here are only the command line ([`args`], made
//! into a configuration by [`plan`]), what people read ([`greeting`], [`failure`]), and the
//! [`demo`] server that answers when no other server was named.

mod args;
mod demo;
mod failure;
mod greeting;
mod plan;
mod serve;
mod signals;

use std::io;
use std::process::ExitCode;

use anstream::{AutoStream, ColorChoice};
use anyhow::Context as _;
use clap::Parser as _;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use self::args::{Arguments, Command};
use self::failure::Failure;
use self::plan::Plan;

fn main() -> ExitCode {
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
    let Command::Serve(arguments) = arguments.command;
    log_to_stderr()?;
    let plan = Plan::new(&arguments)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the threads of the gateway")?;
    let served = runtime.block_on(serve::serve(plan));
    // Dropping the runtime would wait for name lookups, which cannot be interrupted.
    runtime.shutdown_background();
    Ok(served?)
}

/// Whether people who read stderr see colours.
fn colour() -> bool {
    AutoStream::choice(&io::stderr()) != ColorChoice::Never
}

fn log_to_stderr() -> Result<(), Failure> {
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .from_env()
        .map_err(|error| {
            let message = format!("the environment variable RUST_LOG cannot be used: {error}");
            Failure::usage(message, "write it like `RUST_LOG=info,bowline=debug`")
        })?;
    tracing_subscriber::fmt()
        .compact()
        .with_env_filter(filter)
        .with_ansi(colour())
        .with_writer(io::stderr)
        // Complaints about stderr would go to stderr, and panic when it is closed.
        .log_internal_errors(false)
        .init();
    Ok(())
}
