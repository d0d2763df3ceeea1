//! Calls on many sessions, as fast as answers come or at a fixed rate.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::client::{Connection, Line, Session, Target};
use crate::echo::{Kind, Tool};
use crate::open;
use crate::pace::{self, Moments};
use crate::process::Processes;

/// The options of `bowline-bench calls`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The server; given several times, sessions go round
    #[arg(long = "url", required = true)]
    targets: Vec<Target>,
    /// On how many sessions
    #[arg(long, default_value_t = 64)]
    sessions: usize,
    /// Use the sessions that `open --save` left instead of new ones
    #[arg(long)]
    sessions_from: Option<PathBuf>,
    /// On how many connections; each goes round its share of the sessions
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Speak HTTP+SSE, with a stream for each session
    #[arg(long, conflicts_with = "sessions_from")]
    over_sse: bool,
    /// How the server answers
    #[arg(long, value_enum, default_value_t = Kind::Json)]
    answers: Kind,
    /// What a gateway puts before the tool's name
    #[arg(long, default_value = "")]
    prefix: String,
    /// How many bytes an answer has besides the echo
    #[arg(long, default_value_t = 0)]
    filling: usize,
    /// How long to measure
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// How long to call before that
    #[arg(long, default_value_t = 0.5)]
    warmup: f64,
    /// Calls a second, all connections together; as many as possible without it
    #[arg(long)]
    rate: Option<u32>,
    /// Stop after this many calls instead, all of them measured; for profilers
    #[arg(long, conflicts_with = "rate")]
    count: Option<u64>,
    #[command(flatten)]
    processes: Processes,
}

/// What all connections of a run share.
#[derive(Debug, Default)]
struct Tally {
    calls: Cell<u64>,
    errors: Cell<u64>,
    first_error: RefCell<Option<String>>,
    /// Microseconds from the intended start, of calls that were intended within the window.
    latencies: RefCell<Vec<u32>>,
    window: Cell<Option<(Instant, Instant)>>,
    over: Cell<bool>,
}

/// Who makes one call after the other.
struct Caller {
    way: Way,
    tool: Tool,
    calls: u64,
}

/// What calls are made on.
enum Way {
    /// One connection and its share of the sessions.
    Streamable(Connection, Vec<Session>),
    OverSse(Box<Line>),
}

/// Runs the load and reports.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<serde_json::Value> {
    let tasks = TaskTracker::new();
    let targets = &arguments.targets;
    let tool = Tool {
        kind: arguments.answers,
        // Once in the life of this program.
        prefix: arguments.prefix.clone().leak(),
        filling: arguments.filling,
    };
    if arguments.over_sse {
        let mut callers = Vec::new();
        for number in 0..arguments.sessions {
            let target = &targets[number % targets.len()];
            let line = Line::open(target, number, &tasks).await?;
            callers.push(Caller::new(Way::OverSse(Box::new(line)), tool));
        }
        return measure(&arguments, callers).await;
    }
    let connections = open::connect(targets, arguments.connections, &tasks).await?;
    let (connections, sessions) = match &arguments.sessions_from {
        Some(path) => (connections, open::saved(path, targets)?),
        None => open::open(connections, targets, arguments.sessions).await?,
    };
    let callers = deal(connections, &sessions, tool);
    let report = measure(&arguments, callers).await?;
    if arguments.sessions_from.is_none() && report["errors"] == 0 {
        let mut connection = Connection::open(targets[0].address, &tasks).await?;
        for session in &sessions {
            connection.end_session(session).await?;
        }
    }
    Ok(report)
}

/// Has them call, and reports.
async fn measure(arguments: &Arguments, callers: Vec<Caller>) -> anyhow::Result<serde_json::Value> {
    let tally = Rc::new(Tally::default());
    let local = LocalSet::new();
    let measured = local.run_until(load(arguments, callers, &tally)).await?;
    let mut latencies = tally.latencies.take();
    latencies.sort_unstable();
    Ok(json!({
        "calls": measured.calls,
        "per_second": measured.calls as f64 / measured.elapsed.as_secs_f64(),
        "cpu_us_per_call": arguments.processes.share(measured.cpu, measured.calls),
        "p50_us": percentile(&latencies, 0.50),
        "p99_us": percentile(&latencies, 0.99),
        "rss_kib": arguments.processes.rss()?,
        "errors": tally.errors.get(),
        "first_error": tally.first_error.take(),
    }))
}

/// What happened within the window.
struct Measured {
    calls: u64,
    elapsed: Duration,
    cpu: u64,
}

/// Calls until the time is over, and measures all but the warm-up.
async fn load(
    arguments: &Arguments,
    callers: Vec<Caller>,
    tally: &Rc<Tally>,
) -> anyhow::Result<Measured> {
    if let Some(count) = arguments.count {
        return load_counted(arguments, callers, tally, count).await;
    }
    let start = Instant::now() + Duration::from_millis(20);
    let begin = start + Duration::from_secs_f64(arguments.warmup);
    let end = begin + Duration::from_secs_f64(arguments.seconds);
    tally.window.set(Some((begin, end)));
    let running: Vec<_> = match arguments.rate {
        Some(rate) => pace::pace(rate, callers.len(), start, end)
            .into_iter()
            .zip(callers)
            .map(|(moments, caller)| {
                let tally = Rc::clone(tally);
                tokio::task::spawn_local(async move { caller.keep_pace(moments, &tally).await })
            })
            .collect(),
        None => start_all(callers, tally, |tally| tally.over.get()),
    };

    tokio::time::sleep_until(begin).await;
    let (began, calls, cpu) = (
        Instant::now(),
        tally.calls.get(),
        arguments.processes.cpu()?,
    );
    tokio::time::sleep_until(end).await;
    let measured = Measured {
        calls: tally.calls.get() - calls,
        elapsed: began.elapsed(),
        cpu: arguments.processes.cpu()? - cpu,
    };
    tally.over.set(true);
    for caller in running {
        caller.await?;
    }
    Ok(measured)
}

/// Makes this many calls, and measures all.
async fn load_counted(
    arguments: &Arguments,
    callers: Vec<Caller>,
    tally: &Rc<Tally>,
    count: u64,
) -> anyhow::Result<Measured> {
    let (began, cpu) = (Instant::now(), arguments.processes.cpu()?);
    for caller in start_all(callers, tally, move |tally| tally.calls.get() >= count) {
        caller.await?;
    }
    Ok(Measured {
        calls: tally.calls.get(),
        elapsed: began.elapsed(),
        cpu: arguments.processes.cpu()? - cpu,
    })
}

fn start_all(
    callers: Vec<Caller>,
    tally: &Rc<Tally>,
    over: impl Fn(&Tally) -> bool + Clone + 'static,
) -> Vec<JoinHandle<()>> {
    let start = |caller: Caller| {
        let (tally, over) = (Rc::clone(tally), over.clone());
        tokio::task::spawn_local(async move { caller.call_until(&tally, over).await })
    };
    callers.into_iter().map(start).collect()
}

/// Gives every connection its share of the sessions.
fn deal(connections: Vec<Connection>, sessions: &[Session], tool: Tool) -> Vec<Caller> {
    let count = connections.len();
    let share = |first| {
        sessions
            .iter()
            .skip(first)
            .step_by(count)
            .cloned()
            .collect::<Vec<_>>()
    };
    let each = connections.into_iter().enumerate();
    each.map(|(first, connection)| (connection, share(first)))
        .filter(|(_, sessions)| !sessions.is_empty())
        .map(|(connection, sessions)| Caller::new(Way::Streamable(connection, sessions), tool))
        .collect()
}

/// The smallest value that at least this share of the values does not exceed.
fn percentile(sorted: &[u32], share: f64) -> Option<u32> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

// === impl Caller ===

impl Caller {
    const fn new(way: Way, tool: Tool) -> Self {
        Self {
            way,
            tool,
            calls: 0,
        }
    }

    async fn call_until(mut self, tally: &Tally, over: impl Fn(&Tally) -> bool) {
        while !over(tally) && self.call(tally).await {}
    }

    async fn keep_pace(mut self, mut moments: Moments, tally: &Tally) {
        while let Some(moment) = moments.recv().await {
            if !self.call(tally).await {
                return;
            }
            let within = |(begin, end)| begin <= moment && moment < end;
            if tally.window.get().is_some_and(within) {
                let micros = moment.elapsed().as_micros();
                let micros = u32::try_from(micros).unwrap_or(u32::MAX);
                tally.latencies.borrow_mut().push(micros);
            }
        }
    }

    /// One call on the next session; `false` once the connection is of no use.
    async fn call(&mut self, tally: &Tally) -> bool {
        self.calls += 1;
        let called = match &mut self.way {
            Way::Streamable(connection, sessions) => {
                let turn = self.calls as usize % sessions.len();
                connection
                    .call(&sessions[turn], self.tool, self.calls)
                    .await
            }
            Way::OverSse(line) => line.call(self.tool, self.calls).await,
        };
        match called {
            Ok(()) => {
                tally.calls.set(tally.calls.get() + 1);
                true
            }
            Err(error) => {
                tally.errors.set(tally.errors.get() + 1);
                let mut first = tally.first_error.borrow_mut();
                first.get_or_insert_with(|| format!("{error:#}"));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<u32> = (1..=100).collect();
        assert_eq!(percentile(&values, 0.5), Some(50));
        assert_eq!(percentile(&values, 0.99), Some(99));
        assert_eq!(percentile(&[7], 0.5), Some(7));
        assert_eq!(percentile(&[], 0.5), None);
    }
}
