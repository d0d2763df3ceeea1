//! The sessions: each calls what may and what may not run twice, and looks at every answer.

mod calls;
mod forge;
mod judge;
mod large;
pub(crate) mod listen;
mod odd;
mod over_sse;
mod rover;
mod union;
mod visitor;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::ensure;
use bowline_testbed::client::{Answer, VERSION};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use self::calls::Calls;
use self::judge::Expected;
use self::listen::Heard;
use self::over_sse::OverSse;
use self::rover::Failure;
pub(crate) use self::rover::Rover;
use crate::Arguments;
use crate::gateway::Gateways;
use crate::history::{Call, Kind, Outcome, Recorder};
use crate::server::{Server, Target, is_in_union};
use crate::trouble::Trouble;

/// How many calls of a session may be under way at the same time.
const LANES: usize = 2;
/// How long it waits after a gateway that is not there before it asks the next.
const BEFORE_THE_NEXT: Duration = Duration::from_millis(10);
/// How long the client waits after a call's limit, to tell late from never. Gateways that are several may be
/// stopped meanwhile, or die one after the other.
const GRACE: Duration = Duration::from_secs(30);
/// The revision that has batches, which one session in so many speaks.
const WITH_BATCHES: &str = "2025-03-26";
const ONE_WITH_BATCHES_IN: usize = 5;
/// One call in so many is a batch there, and how many members it has at most.
const ONE_BATCH_IN: u8 = 5;
const MEMBERS: usize = 4;
/// How long a client that cancelled waits for the end.
const AFTER_A_CANCEL: Duration = Duration::from_secs(2);

/// A session's share of the calls: one after the other, on a connection of its own.
#[derive(Debug)]
struct Lane<C> {
    session: usize,
    calls: Calls,
    client: C,
    recorder: Arc<Recorder>,
    heard: Arc<Heard>,
    limit: Duration,
    has_batches: bool,
}

/// The client of a session, in its transport.
trait Speaks: Sized + Send + 'static {
    /// Opens a session; how that was answered.
    fn open(&mut self) -> impl Future<Output = Result<Answer, Failure>> + Send;
    /// Sends a message to the next gateway and reads all that answers it.
    fn send(&mut self, message: &Value) -> impl Future<Output = Result<Answer, Failure>> + Send;
    /// A client in the same session with connections of its own.
    fn twin(&self) -> Self;
    /// Which gateway was asked last.
    fn latest(&self) -> usize;
}

/// Sessions that do not listen, by their numbers.
#[derive(Debug)]
pub(crate) struct Others {
    streamable: Vec<(usize, Rover)>,
    over_sse: Vec<(usize, OverSse)>,
}

/// What the sessions are made of.
#[derive(Debug)]
pub(crate) struct Load<'a> {
    pub(crate) arguments: &'a Arguments,
    pub(crate) gateways: &'a Arc<Gateways>,
    pub(crate) recorder: &'a Arc<Recorder>,
    pub(crate) heard: &'a Arc<Heard>,
    /// How long a call may take.
    pub(crate) limit: Duration,
}

impl Load<'_> {
    /// Opens all sessions, before anything is broken, and has each see the list of tools.
    pub(crate) async fn open(&self) -> anyhow::Result<Vec<Rover>> {
        let mut clients = Vec::new();
        for session in 0..self.arguments.sessions {
            let version = match self.has_batches(session) {
                true => WITH_BATCHES,
                false => VERSION,
            };
            let client = self.rover(Server::Replicas, session, version)?;
            clients.push(self.open_one(session, client).await?);
        }
        Ok(clients)
    }

    /// The same for sessions with processes and over HTTP+SSE, on either side.
    pub(crate) async fn open_others(&self) -> anyhow::Result<Others> {
        let (mut streamable, mut over_sse) = (Vec::new(), Vec::new());
        for server in Server::ALL {
            let sessions = match server {
                Server::Replicas => 0,
                _ => self.arguments.sessions_with(server),
            };
            for session in (server.first()..).take(sessions) {
                let client = self.rover(server, session, VERSION)?;
                streamable.push((session, self.open_one(session, client).await?));
            }
            let sessions = self.arguments.over_sse_with(server);
            for session in (server.first_over_sse()..).take(sessions) {
                let client = OverSse::new(self.gateways, self.recorder, session);
                over_sse.push((session, self.open_one(session, client).await?));
            }
        }
        Ok(Others {
            streamable,
            over_sse,
        })
    }

    fn rover(
        &self,
        server: Server,
        session: usize,
        version: &'static str,
    ) -> anyhow::Result<Rover> {
        let name = listen::name(session);
        Rover::new(self.gateways, Target::One(server), session, &name, version)
    }

    async fn open_one<C: Speaks>(&self, session: usize, mut client: C) -> anyhow::Result<C> {
        let opened = client.open().await;
        let is_open = opened.as_ref().is_ok_and(|answer| answer.status == 200);
        ensure!(is_open, "session {session} was not opened: {opened:?}");
        let mut lane = self.lane(session, LANES, client);
        let outcome = lane.record(Kind::List).await;
        ensure!(outcome == Outcome::Answered, "tools/list: {outcome:?}");
        Ok(lane.client)
    }

    /// Calls in all sessions until then, and waits for the last answers.
    pub(crate) async fn call(
        &self,
        sessions: &[Rover],
        unions: &[(usize, Rover)],
        others: Others,
        until: Instant,
    ) {
        let mut tasks = JoinSet::new();
        for (session, client) in sessions.iter().enumerate() {
            self.call_in(&mut tasks, session, client, until);
        }
        for (session, client) in others.streamable.iter().chain(unions) {
            self.call_in(&mut tasks, *session, client, until);
        }
        for (session, client) in &others.over_sse {
            self.call_in(&mut tasks, *session, client, until);
        }
        // The last of them ends its stream.
        drop(others);
        self.visit(&mut tasks, until);
        self.call_large(&mut tasks, until);
        tasks.join_all().await;
    }

    fn call_in<C: Speaks>(
        &self,
        tasks: &mut JoinSet<()>,
        session: usize,
        client: &C,
        until: Instant,
    ) {
        for number in 0..LANES {
            let lane = self.lane(session, number, client.twin());
            tasks.spawn(lane.run(self.arguments.pause, until));
        }
    }

    fn lane<C: Speaks>(&self, session: usize, lane: usize, client: C) -> Lane<C> {
        let servers = match is_in_union(session) {
            true => Server::ALL.to_vec(),
            false => vec![Server::of(session)],
        };
        Lane {
            session,
            calls: Calls::new(self.arguments, session, servers, lane),
            client,
            recorder: Arc::clone(self.recorder),
            heard: Arc::clone(self.heard),
            limit: self.limit,
            has_batches: self.has_batches(session),
        }
    }

    fn has_batches(&self, session: usize) -> bool {
        let is_one = session % ONE_WITH_BATCHES_IN == ONE_WITH_BATCHES_IN - 1;
        let can = session < self.arguments.sessions || is_in_union(session);
        is_one && can && self.arguments.tries(Trouble::Batch)
    }
}

impl<C: Speaks> Lane<C> {
    async fn run(mut self, pause: u64, until: Instant) {
        loop {
            sleep(Duration::from_millis(self.calls.random().u64(..=pause))).await;
            if Instant::now() >= until {
                return;
            }
            if self.has_batches && self.calls.random().u8(..ONE_BATCH_IN) == 0 {
                self.record_batch().await;
                continue;
            }
            if let Some(pair) = self.calls.pair() {
                self.record_pair(pair).await;
                continue;
            }
            let kind = match self.heard.take_stale(self.session) {
                true => Kind::List,
                false => self.calls.kind(),
            };
            if self.record(kind).await == Outcome::Lost && !self.reopen(until).await {
                return;
            }
        }
    }

    /// Makes one call and writes down how it ended.
    async fn record(&mut self, kind: Kind) -> Outcome {
        let expected = self.calls.next(kind);
        let (began, limit) = (self.recorder.now(), self.limit + GRACE);
        let exchange = async {
            match kind {
                Kind::Long => self.exchange_and_cancel(&expected).await,
                Kind::Turn => self.exchange_turned(&expected).await,
                _ => self.exchange(&expected).await,
            }
        };
        let outcome = timeout(limit, exchange).await;
        let outcome = outcome.unwrap_or(Outcome::Never);
        self.write_down(&expected, began, outcome.clone());
        outcome
    }

    fn write_down(&self, expected: &Expected, began: Duration, outcome: Outcome) {
        self.recorder.call(Call {
            session: expected.session,
            kind: expected.kind,
            key: expected.key.clone(),
            began,
            ended: self.recorder.now(),
            gateway: self.client.latest(),
            outcome,
        });
    }

    /// Opens a session in place of the lost one; `false` when the time was over before.
    async fn reopen(&mut self, until: Instant) -> bool {
        while Instant::now() < until {
            let opened = timeout(GRACE, self.client.open()).await;
            if matches!(opened, Ok(Ok(answer)) if answer.status == 200) {
                return true;
            }
            sleep(Duration::from_millis(100)).await;
        }
        false
    }

    /// Makes one call and looks at the answer. Where a gateway dies, the next is asked, if nothing was
    /// sent or what was sent may run twice.
    async fn exchange(&mut self, expected: &Expected) -> Outcome {
        let mut expected = expected.clone();
        let mut attempts = 0;
        loop {
            if attempts > 0 {
                // The first attempt may still run, and tell its progress.
                expected.token = format!("{}, again {attempts}", expected.key);
                expected.id = json!(expected.token);
            }
            let message = self.calls.message(&expected);
            match self.client.send(&message).await {
                Ok(answer) => return judge::outcome(&expected, &answer),
                Err(Failure::Broken(error)) => return Outcome::Silent(error),
                // What can never succeed is not worth another gateway.
                Err(Failure::Orphaned)
                    if !expected.kind.is_safe() || expected.kind == Kind::LargeEvent =>
                {
                    return Outcome::Orphaned;
                }
                Err(Failure::Orphaned) => attempts += 1,
                Err(Failure::NotThere) => sleep(BEFORE_THE_NEXT).await,
            }
        }
    }

    /// Makes one call and cancels it after a while, on another connection.
    async fn exchange_and_cancel(&mut self, expected: &Expected) -> Outcome {
        let message = self.calls.message(expected);
        let after = Duration::from_millis(self.calls.random().u64(50..800));
        let mut canceller = self.client.twin();
        let recorder = Arc::clone(&self.recorder);
        let is_cancelled = AtomicBool::new(false);
        let cancel = async {
            sleep(after).await;
            is_cancelled.store(true, Ordering::SeqCst);
            let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": expected.id}});
            let accepted = canceller.send(&cancelled).await;
            let is_accepted = accepted.is_ok_and(|answer| answer.status == 202);
            is_accepted.then(|| recorder.now())
        };
        let mut cancel = std::pin::pin!(cancel);
        let mut answering = std::pin::pin!(self.client.send(&message));
        let accepted = tokio::select! {
            answer = &mut answering => {
                let outcome = match answer {
                    Ok(answer) => judge::outcome(expected, &answer),
                    Err(Failure::Broken(error)) => Outcome::Silent(error),
                    // Nothing was sent, or nobody is left who could tell.
                    Err(Failure::Orphaned | Failure::NotThere) => Outcome::Orphaned,
                };
                // What is cancelled may end without an answer, before the client hears of the cancel.
                return match outcome {
                    Outcome::Silent(_) if is_cancelled.load(Ordering::SeqCst) => {
                        Outcome::Cancelled(cancel.await)
                    }
                    outcome => outcome,
                };
            }
            accepted = &mut cancel => accepted,
        };
        // What comes now is of no interest, unless it belongs to another call.
        if let Ok(Ok(answer)) = timeout(AFTER_A_CANCEL, answering).await
            && let wrong @ Outcome::Wrong(_) = judge::outcome(expected, &answer)
        {
            return wrong;
        }
        Outcome::Cancelled(accepted)
    }

    /// Makes several calls in one message, and writes down how each ended.
    async fn record_batch(&mut self) {
        let count = self.calls.random().usize(2..=MEMBERS);
        let members: Vec<_> = (0..count).map(|_| self.calls.member()).collect();
        let messages = members.iter().map(|member| self.calls.message(member));
        let batch = Value::Array(messages.collect());
        let began = self.recorder.now();
        let outcomes = match timeout(self.limit + GRACE, self.client.send(&batch)).await {
            Ok(Ok(answer)) => judge::outcomes(&members, &answer),
            Ok(Err(Failure::Broken(error))) => vec![Outcome::Silent(error); count],
            Ok(Err(Failure::Orphaned | Failure::NotThere)) => vec![Outcome::Orphaned; count],
            Err(_) => vec![Outcome::Never; count],
        };
        for (member, outcome) in members.iter().zip(outcomes) {
            self.write_down(member, began, outcome);
        }
    }
}
