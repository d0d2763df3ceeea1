//! What happened, in the order in which it was recorded.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use bowline_testbed::counting::Counting;
use bowline_testbed::stdio::counted::Noted;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::machine::{Machine, Pace};
use crate::server::{PROCESSES, Server};
use crate::world::{World, since};

/// All calls, what they ran, and what was broken meanwhile. Times are from the beginning.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) calls: Vec<Call>,
    /// Executions by key.
    pub(crate) ran: HashMap<String, Vec<Ran>>,
    pub(crate) faults: Vec<Fault>,
    /// How long a call may take.
    pub(crate) limit: Duration,
    /// How much of the time counts.
    pub(crate) pace: Pace,
    pub(crate) afterwards: Afterwards,
    /// When upstream sessions were opened, in this order.
    pub(crate) births: Vec<Duration>,
    /// When processes were started for sessions, in this order.
    pub(crate) process_births: Vec<Duration>,
    /// The same for each client, by its number.
    pub(crate) process_births_of: HashMap<usize, Vec<Duration>>,
    /// When sessions over HTTP+SSE were opened, in this order.
    pub(crate) stream_births: Vec<Duration>,
}

/// What was still wrong when all had been well again for a while.
#[derive(Debug, Default)]
pub(crate) struct Afterwards {
    /// Listening sessions that heard nothing.
    pub(crate) deaf: Vec<usize>,
    /// Sessions that are members of a union's client, whose server was missing from its list of tools.
    pub(crate) partial: Vec<usize>,
}

/// One call of a client.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) session: usize,
    pub(crate) kind: Kind,
    /// Unlike any other call's.
    pub(crate) key: String,
    pub(crate) began: Duration,
    pub(crate) ended: Duration,
    /// Which gateway was asked last.
    pub(crate) gateway: usize,
    pub(crate) outcome: Outcome,
}

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Ping,
    List,
    Resource,
    Read,
    StreamRead,
    Bump,
    Slow,
    /// A tool that runs, and then refuses with the words of a lost session.
    Refuse,
    /// The same with an answer that is cut.
    Torn,
    /// A tool that may have become destructive in its session, and breaks off.
    Turn,
    /// A tool that writes forged messages.
    Forge,
    /// A tool that is destructive at times.
    Flip,
    /// A tool that is cancelled while it runs.
    Long,
    /// A tool with an answer of many bytes.
    Large,
    /// A read-only tool with an event that is larger than events may be.
    LargeEvent,
    /// `initialize`.
    Open,
    /// DELETE.
    Delete,
    /// A ping in a session that was ended.
    Ended,
    /// The GET stream: recorded when it ends, or carries what it must not.
    Listen,
}

/// How a call ended, as its client saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With its own result.
    Answered,
    /// With -31001.
    Unknown,
    /// With another error: its status and code.
    Refused(u16, Option<i64>),
    /// With the 404 of a session that is not there.
    Lost,
    /// With a list that says that this session's server is missing from it, or was not asked.
    Missing(String),
    /// With a list that lacks tools of this session's server, and does not say so.
    Lacks,
    /// With something that belongs to another call, or not to this one alone.
    Wrong(String),
    /// Without an answer: the connection or stream ended.
    Silent(String),
    /// Without an answer, because its client cancelled it: when that was accepted, if it was.
    Cancelled(Option<Duration>),
    /// Without an answer, because its gateway was killed: nobody is left who could tell.
    Orphaned,
    /// Not at all while the client waited.
    Never,
}

/// One execution.
#[derive(Debug, Clone)]
pub(crate) struct Ran {
    pub(crate) replica: String,
    pub(crate) session: String,
    pub(crate) at: Duration,
    pub(crate) finished: Option<Duration>,
    /// Whether the tool was destructive at that time, if it is not always the same.
    pub(crate) destructive: bool,
}

/// One thing that was broken.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) at: Duration,
    /// How long it lasts, or can be met.
    pub(crate) lasts: Duration,
    /// Whose: a replica's (`r0`), a gateway's (`g0`), the store's, or everybody's.
    pub(crate) whose: String,
    /// Its kind, for counting.
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

/// Where it is all written down.
#[derive(Debug)]
pub(crate) struct Recorder {
    origin: Instant,
    date: SystemTime,
    pub(crate) machine: Machine,
    calls: Mutex<Vec<Call>>,
    faults: Mutex<Vec<Fault>>,
}

// === impl History ===

impl History {
    /// When sessions of a server were opened.
    pub(crate) fn births_of(&self, server: Server) -> impl Iterator<Item = Duration> {
        let (some, others): (&[_], &[_]) = match server {
            Server::Replicas => (&self.births, &[]),
            Server::Processes => (&self.process_births, &[]),
            Server::Streams => (&self.stream_births, &[]),
            Server::Mixed => (&self.births, &self.stream_births),
        };
        some.iter().chain(others).copied()
    }
}

// === impl Kind ===

impl Kind {
    pub(crate) const ALL: [Self; 19] = [
        Self::Ping,
        Self::List,
        Self::Resource,
        Self::Read,
        Self::StreamRead,
        Self::Bump,
        Self::Slow,
        Self::Refuse,
        Self::Torn,
        Self::Turn,
        Self::Forge,
        Self::Flip,
        Self::Long,
        Self::Large,
        Self::LargeEvent,
        Self::Open,
        Self::Delete,
        Self::Ended,
        Self::Listen,
    ];

    /// Whether it may run twice.
    pub(crate) fn is_safe(self) -> bool {
        !matches!(
            self,
            Self::Bump
                | Self::Slow
                | Self::Refuse
                | Self::Torn
                | Self::Turn
                | Self::Forge
                | Self::Flip
                | Self::Long
                | Self::Large
        )
    }

    /// Whether it is a tool, whose executions are counted.
    pub(crate) fn tool(self) -> Option<&'static str> {
        match self {
            Self::Read => Some("read"),
            Self::StreamRead => Some("stream_read"),
            Self::Bump => Some("bump"),
            Self::Slow => Some("slow"),
            Self::Refuse | Self::Torn => Some("refuse"),
            Self::Turn => Some("turn"),
            Self::Forge => Some("forge"),
            Self::Flip => Some("flip"),
            Self::Long => Some("long"),
            Self::Large => Some("large"),
            Self::LargeEvent => Some("large_event"),
            Self::Ping
            | Self::List
            | Self::Resource
            | Self::Open
            | Self::Delete
            | Self::Ended
            | Self::Listen => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ping => "ping",
            Self::List => "tools/list",
            Self::Resource => "resources/read",
            Self::Read => "read",
            Self::StreamRead => "stream_read",
            Self::Bump => "bump (unsafe)",
            Self::Slow => "slow (unsafe)",
            Self::Refuse => "refuse (unsafe)",
            Self::Torn => "refuse, cut",
            Self::Turn => "turn (at times)",
            Self::Forge => "forge (unsafe)",
            Self::Flip => "flip (at times)",
            Self::Long => "long, cancelled",
            Self::Large => "large (unsafe)",
            Self::LargeEvent => "large event",
            Self::Open => "initialize",
            Self::Delete => "DELETE",
            Self::Ended => "after DELETE",
            Self::Listen => "GET stream",
        })
    }
}

// === impl Call ===

impl Call {
    pub(crate) fn took(&self) -> Duration {
        self.ended.saturating_sub(self.began)
    }

    /// The server of its session.
    pub(crate) fn server(&self) -> Server {
        Server::of(self.session)
    }
}

// === impl Recorder ===

impl Recorder {
    pub(crate) fn new() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "the only clock that processes share"
        )]
        let date = SystemTime::now();
        let origin = Instant::now();
        Self {
            origin,
            machine: Machine::new(origin),
            date,
            calls: Mutex::default(),
            faults: Mutex::default(),
        }
    }

    /// The time since the beginning.
    pub(crate) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    pub(crate) fn call(&self, call: Call) {
        self.calls.lock().push(call);
    }

    pub(crate) fn fault(
        &self,
        whose: impl Into<String>,
        kind: &'static str,
        text: String,
        lasts: Duration,
    ) {
        let at = self.now();
        self.faults.lock().push(Fault {
            at,
            lasts,
            whose: whose.into(),
            kind,
            text,
        });
    }

    /// How many faults there were.
    pub(crate) fn faults(&self) -> usize {
        self.faults.lock().len()
    }

    /// Looks at the calls after the first `seen`; how many there are now.
    pub(crate) fn since(&self, seen: usize, mut look: impl FnMut(&Call)) -> usize {
        let calls = self.calls.lock();
        calls[seen..].iter().for_each(&mut look);
        calls.len()
    }

    /// Everything, with what the replicas counted.
    pub(crate) fn history(
        &self,
        world: &World,
        limit: Duration,
        afterwards: Afterwards,
    ) -> History {
        let all = world.tally.all().into_iter();
        let ran = all.map(|(key, executions)| {
            let ran = executions.into_iter().map(|one| Ran {
                replica: one.replica,
                session: one.session,
                at: one.at.saturating_duration_since(self.origin),
                finished: one
                    .finished
                    .map(|at| at.saturating_duration_since(self.origin)),
                destructive: one.destructive,
            });
            (key, ran.collect())
        });
        let births = |of: fn(&Counting) -> Vec<Instant>| {
            let all = world.replicas.iter().flat_map(|one| of(&one.server));
            let times = all.map(|at| at.saturating_duration_since(self.origin));
            let mut births: Vec<_> = times.collect();
            births.sort_unstable();
            births
        };
        let mut ran: HashMap<String, Vec<Ran>> = ran.collect();
        let mut process_births = Vec::new();
        let mut process_births_of = HashMap::<usize, Vec<Duration>>::new();
        let processes = world.processes.as_ref();
        // In a long run, a process gets the number of one that has gone.
        let mut lives = HashMap::<u32, usize>::new();
        for note in processes.map_or_else(Vec::new, |it| it.notes_so_far()) {
            let at = since(self.date, &note);
            let life = lives.entry(note.pid).or_default();
            match note.what {
                Noted::Opened { client } => {
                    *life += 1;
                    process_births.push(at);
                    let client = client.unwrap_or_default();
                    process_births_of.entry(client).or_default().push(at);
                }
                Noted::Ran { key, destructive } => ran.entry(key).or_default().push(Ran {
                    replica: PROCESSES.to_owned(),
                    session: format!("{}-{life}", note.pid),
                    at,
                    finished: None,
                    destructive,
                }),
            }
        }
        History {
            calls: self.calls.lock().clone(),
            ran,
            process_births,
            process_births_of,
            faults: self.faults.lock().clone(),
            limit,
            pace: self.machine.pace(),
            afterwards,
            births: births(Counting::births),
            stream_births: births(Counting::stream_births),
        }
    }
}
