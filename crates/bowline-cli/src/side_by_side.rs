//! `bowline demo`: a client counts in a session through Bowline, and beside it the same client through a plain
//! proxy; then things break. What is shown is what the clients got: nothing here knows what it will be.
//!
//! [`stage`] has what runs, in [`processes`] of this program and a [`balancer`] in this one; [`client`] counts;
//! [`screen`] and [`svg`] show it.

mod balancer;
mod client;
mod http;
mod processes;
mod proxy;
mod screen;
mod stage;
mod svg;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;

use self::client::Counted;
use self::screen::{Cell, Mood, Row, Screen};
use self::stage::Stage;
use crate::args::demo::{DemoArguments, DemoPart, DemoPartArguments};
use crate::demo;
use crate::failure::Failure;
use crate::signals::Signals;

/// How many calls follow each thing that is done.
const CALLS: u64 = 3;

/// For people: between calls, before something is done, and at the end.
const CALL_PAUSE: Duration = Duration::from_millis(600);
const EVENT_PAUSE: Duration = Duration::from_millis(1500);
const END_PAUSE: Duration = Duration::from_secs(10);

/// Shows it, once or until a signal comes. The code is 1 if the session through Bowline did not hold, or
/// if it was interrupted when it was to be shown once.
pub(crate) async fn demo(arguments: &DemoArguments) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new().context("cannot wait for signals")?;
    let mut screen = Screen::default();
    loop {
        if !arguments.once {
            screen.clear().context("cannot write")?;
        }
        let held = tokio::select! {
            held = show(&mut screen, arguments.once) => held?,
            () = signals.stop() => {
                return Ok(match arguments.once {
                    // Whoever wanted to know whether it holds does not know it.
                    true => ExitCode::FAILURE,
                    false => ExitCode::SUCCESS,
                });
            }
        };
        if let Some(file) = &arguments.svg {
            record(file, &screen)?;
        }
        if arguments.once {
            return Ok(match held {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            });
        }
        tokio::select! {
            () = tokio::time::sleep(END_PAUSE) => {}
            () = signals.stop() => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// Is one of the processes that [`demo`] starts.
pub(crate) async fn part(arguments: &DemoPartArguments) -> Result<ExitCode, Failure> {
    let listener = TcpListener::bind(arguments.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", arguments.listen))?;
    let address = listener.local_addr().context("where does it listen?")?;
    demo::warm_up();
    writeln!(anstream::stdout(), "listening on http://{address}").context("cannot write")?;
    match &arguments.part {
        DemoPart::Replica { name, directory } => {
            let ledger = demo::Ledger::new(directory.clone(), name.clone());
            demo::serve_replica(listener, ledger).await;
        }
        DemoPart::Proxy { to } => proxy::serve(listener, *to).await,
    }
    Ok(ExitCode::SUCCESS)
}

/// Goes through it; whether the session through Bowline held.
async fn show(screen: &mut Screen, once: bool) -> anyhow::Result<bool> {
    let mut stage = Stage::start().await.context("cannot start the demo")?;
    let mut run = Run {
        stage: &mut stage,
        screen,
        once,
        tallies: <[Tally; 2]>::default(),
    };
    let done = run.all().await;
    let held = run.tallies[0].held();
    stage.stop().await;
    done.map(|()| held)
}

/// One time through it.
struct Run<'a> {
    stage: &'a mut Stage,
    screen: &'a mut Screen,
    once: bool,
    tallies: [Tally; 2],
}

/// What one client got so far.
#[derive(Debug, Default)]
struct Tally {
    calls: u64,
    answered: u64,
    /// The last number, if the last call was answered.
    number: Option<u64>,
}

// === impl Run ===

impl Run<'_> {
    async fn all(&mut self) -> anyhow::Result<()> {
        self.screen
            .show(Row::Heads(["through Bowline", "through a plain proxy"]))?;
        self.event("Both clients open a session, and count in it")
            .await?;
        self.calls().await?;
        self.event("kill -9: the replica that has the session")
            .await?;
        self.stage.kill_replicas().await?;
        self.calls().await?;
        self.stage.revive_replicas().await?;
        self.event("kill -9: the gateway, and the proxy. Both are started again")
            .await?;
        self.stage.restart_gateways().await?;
        self.calls().await?;
        self.event("The load balancer's cookie is lost: clients keep none from now on")
            .await?;
        self.stage.drop_cookies();
        self.calls().await?;
        self.screen.show(Row::Empty)?;
        let opened = [
            self.stage.bowline.client.opened(),
            self.stage.plain.client.opened(),
        ];
        let [one, two] = &self.tallies;
        let cells = [one.summary(opened[0]), two.summary(opened[1])];
        self.screen.show(Row::Cells(cells))?;
        Ok(())
    }

    async fn event(&mut self, text: &'static str) -> anyhow::Result<()> {
        self.pause(EVENT_PAUSE).await;
        self.screen.show(Row::Event(text))?;
        Ok(())
    }

    async fn calls(&mut self) -> anyhow::Result<()> {
        for _ in 0..CALLS {
            self.pause(CALL_PAUSE).await;
            let [bowline, plain] = self.stage.count().await;
            let [one, two] = &mut self.tallies;
            let cells = [one.add(bowline), two.add(plain)];
            self.screen.show(Row::Cells(cells))?;
        }
        Ok(())
    }

    async fn pause(&self, time: Duration) {
        if !self.once {
            tokio::time::sleep(time).await;
        }
    }
}

// === impl Tally ===

impl Tally {
    /// Notes what a call got, and says it.
    fn add(&mut self, got: anyhow::Result<Counted>) -> Cell {
        self.calls += 1;
        let is_again = self.calls > 1;
        self.number = got.as_ref().ok().map(|counted| counted.number);
        match got {
            Ok(counted) => {
                self.answered += 1;
                let again = match counted.is_first && is_again {
                    true => ", a new session",
                    false => "",
                };
                let (number, replica) = (counted.number, counted.replica + 1);
                let took = counted.took.as_secs_f64() * 1000.0;
                Cell {
                    text: format!("{number:>2}  replica {replica}, {took:.1} ms{again}"),
                    mood: Mood::Good,
                }
            }
            Err(error) => Cell {
                text: format!(" ✗  {error}"),
                mood: Mood::Bad,
            },
        }
    }

    /// Whether every call was answered, and counted on.
    fn held(&self) -> bool {
        self.number == Some(self.calls)
    }

    fn summary(&self, sessions: u32) -> Cell {
        let Self {
            calls, answered, ..
        } = self;
        let plural = match sessions {
            1 => "",
            _ => "s",
        };
        Cell {
            text: format!("{answered} of {calls} calls answered, {sessions} session{plural}"),
            mood: match self.held() {
                true => Mood::Good,
                false => Mood::Bad,
            },
        }
    }
}

fn record(file: &Path, screen: &Screen) -> anyhow::Result<()> {
    let written = std::fs::write(file, svg::draw(screen.rows()));
    written.with_context(|| format!("cannot write {}", file.display()))
}
