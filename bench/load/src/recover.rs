//! Recovery: how long the next request of a session takes once the replica that holds it is dead.
//!
//! Whoever starts this also kills: it prints the address of the replica, waits for a line that says
//! that this replica is gone, and only then sends the request that it times.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::client::{Connection, Session, Target};
use crate::echo::{Kind, Tool};

/// The options of `bowline-bench recover`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The proxy
    #[arg(long)]
    url: Target,
    /// A replica without the proxy, to time its own `initialize`
    #[arg(long)]
    direct: Target,
    /// How many sessions to open and use before, so that nothing happens for the first time
    #[arg(long, default_value_t = 16)]
    sessions: usize,
    /// The proxy promises to keep the session, so a 404 is an error
    #[arg(long)]
    kept: bool,
}

/// Longer than a proxy may try.
const HANGS: Duration = Duration::from_secs(60);

/// Says which replica to kill, and reports how long the request after that took.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<serde_json::Value> {
    let tasks = TaskTracker::new();
    let initialise = in_time(initialise(&arguments.direct, &tasks)).await?;

    let target = &arguments.url;
    let mut connection = Connection::open(target.address, &tasks).await?;
    let pinning = pin(&mut connection, target, arguments.sessions);
    let (session, pinned) = in_time(pinning).await?;
    writeln!(io::stdout(), "{}", json!({"pinned": pinned})).context("nobody kills")?;
    // Nothing else is going on here, so this may block.
    let told = io::stdin().read_line(&mut String::new())?;
    ensure!(told > 0, "nobody killed");

    let recovered = in_time(recover(&mut connection, target, &session, pinned)).await?;
    ensure!(
        !arguments.kept || recovered.refused.is_none(),
        "the session is lost"
    );
    Ok(json!({
        "initialise_us": initialise.as_micros(),
        "refused_us": recovered.refused.map(|refused| refused.as_micros()),
        "answer_us": recovered.answer.as_micros(),
    }))
}

async fn in_time<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let done = tokio::time::timeout(HANGS, work).await;
    done.context("no answer")?
}

/// How long a server itself takes for `initialize` and `notifications/initialized`.
async fn initialise(target: &Target, tasks: &TaskTracker) -> anyhow::Result<Duration> {
    let mut connection = Connection::open(target.address, tasks).await?;
    // The first pays for the connection's buffers.
    connection.open_session(target, 0).await?;
    let began = Instant::now();
    connection.open_session(target, 0).await?;
    Ok(began.elapsed())
}

/// Opens sessions and uses them. Returns one of them and the replica that holds it.
async fn pin(
    connection: &mut Connection,
    target: &Target,
    sessions: usize,
) -> anyhow::Result<(Session, SocketAddr)> {
    let mut pinned = None;
    for number in 0..sessions {
        let session = connection.open_session(target, number).await?;
        let tool = Tool {
            kind: Kind::Json,
            prefix: "",
            filling: 0,
        };
        connection.call(&session, tool, 1).await?;
        let by = connection.list_tools(&session, 2).await?;
        pinned = Some((session, by.context("a new session is unknown")?));
    }
    pinned.context("no session")
}

/// When what came, counted from the request.
struct Recovered {
    /// That the session is unknown, if the client was told so.
    refused: Option<Duration>,
    /// The answer, if need be on a session that the client then opened.
    answer: Duration,
}

async fn recover(
    connection: &mut Connection,
    target: &Target,
    session: &Session,
    dead: SocketAddr,
) -> anyhow::Result<Recovered> {
    let began = Instant::now();
    let mut by = connection.list_tools(session, 3).await?;
    let refused = by.is_none().then(|| began.elapsed());
    if refused.is_some() {
        let session = connection.open_session(target, session.number).await?;
        by = connection.list_tools(&session, 3).await?;
    }
    let answer = began.elapsed();
    let by = by.context("a new session is unknown")?;
    ensure!(by != dead, "the replica lives");
    Ok(Recovered { refused, answer })
}
