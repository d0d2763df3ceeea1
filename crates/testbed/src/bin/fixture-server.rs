//! Runs one replica of the "everything" server for programs that are not Rust: the conformance
//! suite, other SDKs' clients, load generators.
//!
//! `fixture-server --listen 127.0.0.1:0 [--name NAME] [--part PART]` prints where it listens, and serves
//! until it is interrupted; with a part (tools, prompts or resources) it has only those features.
//! `fixture-server --stdio` serves one session on stdin and stdout instead.

use std::io::Write as _;
use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use bowline_testbed::everything::{self, Part, Replica};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

struct Arguments {
    listen: SocketAddr,
    name: String,
    part: Part,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if_eq("--stdio").is_some() {
        return everything::serve_stdio(Replica::new("stdio")).await;
    }
    let arguments = Arguments::parse(words)?;
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let listener = TcpListener::bind(arguments.listen)
        .await
        .with_context(|| format!("cannot listen on {}", arguments.listen))?;
    let address = listener.local_addr()?;
    writeln!(
        std::io::stdout(),
        "listening on http://{address}{}",
        everything::PATH
    )?;

    let stop = CancellationToken::new();
    let replica = Replica::new(arguments.name).with_part(arguments.part);
    let server = everything::serve(listener, replica, stop.clone());
    tokio::pin!(server);
    tokio::select! {
        served = &mut server => return Ok(served?),
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    stop.cancel();
    Ok(server.await?)
}

// === impl Arguments ===

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut listen = None;
        let mut name = "fixture".to_owned();
        let mut part = Part::All;
        while let Some(flag) = words.next() {
            let value = words.next().with_context(|| format!("{flag}: no value"))?;
            match flag.as_str() {
                "--listen" => {
                    let address = value
                        .parse()
                        .with_context(|| format!("{value}: no address"))?;
                    listen = Some(address);
                }
                "--name" => name = value,
                "--part" => part = value.parse()?,
                _ => bail!("{flag}: unknown; known are --listen, --name and --part"),
            }
        }
        let listen = listen.context("--listen ADDRESS is missing")?;
        Ok(Self { listen, name, part })
    }
}
