//! The supervisor process: starts children, ends them with all their descendants, and exits when the gateway
//! is gone and nothing is left.
//!
//! One thread, no runtime, and little memory: it waits in `poll` for the gateway's socket and for signals.

mod family;
mod launch;
mod signals;

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, wait};
use tokio::time::Instant;

use self::family::Family;
use self::signals::Signals;
use crate::descendants::{self, Census, Root};
use crate::exit::Exit;
use crate::protocol::{self, ChildId, Event, Request};
use crate::socket;
use crate::spawn::TAG;

/// How long children may take to exit when the gateway is gone, before SIGTERM and again before SIGKILL.
const GATEWAY_GONE_GRACE: Duration = Duration::from_secs(1);

/// How soon it is checked whether all are gone that belong to no child any more.
const CHECK_STRAYS: Duration = Duration::from_millis(20);

const CHUNK: usize = 16 << 10;

/// The main function of the supervisor process, whose stdin is a socket to its gateway.
///
/// Returns when the gateway is gone, and so are all children and their descendants.
///
/// # Errors
///
/// If stdin is no such socket, or the system refuses what a supervisor needs.
pub fn supervise() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if let Some(of) = launch::step::is_of() {
        return launch::step::become_child(&of);
    }
    // The requests that it gets have the secrets of all children.
    bowline_system::privacy::keep_private()?;
    // Without a terminal, and out of reach of Ctrl-C, which is the gateway's.
    if let Err(error) = rustix::process::setsid()
        && error != Errno::PERM
    {
        return Err(error.into());
    }
    #[cfg(target_os = "linux")]
    {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        // Instead of `exe`, from `/proc/self/exe`. Only people read it.
        _ = rustix::thread::set_name(c"bowline-superv");
    }
    let signals = Signals::new()?;
    let mut state = State::new();
    state.report(Event::Ready);
    state.run(&signals)
}

struct State {
    received: BytesMut,
    /// The descriptors of requests that are not read yet, in their order.
    descriptors: VecDeque<Vec<OwnedFd>>,
    reports: BytesMut,
    families: HashMap<ChildId, Family>,
    /// The gateway is gone, or a signal asked for the end.
    closing: bool,
    /// Whether the system has no child of this process left, not even one that it inherited.
    childless: bool,
    check_strays: Option<Instant>,
    /// Processes could not be listed. It is tried again then.
    blocked: Option<Instant>,
    /// Why the gateway could not be understood.
    failure: Option<io::Error>,
    /// The tags of gateways around this one.
    outer_tags: Option<OsString>,
}

// === impl State ===

impl State {
    fn new() -> Self {
        Self {
            received: BytesMut::new(),
            descriptors: VecDeque::new(),
            reports: BytesMut::new(),
            families: HashMap::new(),
            closing: false,
            childless: true,
            check_strays: None,
            blocked: None,
            failure: None,
            outer_tags: std::env::var_os(TAG),
        }
    }

    fn run(&mut self, signals: &Signals) -> io::Result<()> {
        let stdin = io::stdin();
        let socket = stdin.as_fd();
        loop {
            self.send_reports(socket);
            if self.closing && self.families.is_empty() && self.childless {
                return self.failure.take().map_or(Ok(()), Err);
            }
            let mut events = PollFlags::empty();
            events.set(PollFlags::IN, !self.closing);
            events.set(PollFlags::OUT, !self.reports.is_empty());
            // A socket that is closed on the other side would wake this again and again.
            let sources = &mut [
                PollFd::new(signals, PollFlags::IN),
                PollFd::from_borrowed_fd(socket, events),
            ];
            let sources = if events.is_empty() {
                &mut sources[..1]
            } else {
                &mut sources[..]
            };
            wait_for(sources, self.timeout())?;
            signals.clear();
            if signals.asked_to_end() {
                self.close();
            }
            if !self.closing
                && let Err(error) = self.receive(socket)
            {
                // Children must not survive that either.
                self.failure = Some(error);
                self.close();
            }
            self.reap();
            self.advance();
        }
    }

    /// How long to wait for the next event.
    fn timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        let due = self.families.values().filter_map(|family| family.due(now));
        let due = due.chain(self.check_strays).min();
        let due = due.max(self.blocked.filter(|_| due.is_some()));
        due.map(|due| due.saturating_duration_since(now))
    }

    /// Serves the requests that arrived.
    fn receive(&mut self, socket: impl std::os::fd::AsFd) -> io::Result<()> {
        let mut chunk = [0; CHUNK];
        loop {
            match socket::receive(&socket, &mut chunk) {
                Ok(received) => {
                    self.descriptors.extend(received.descriptors);
                    if received.bytes == 0 {
                        self.close();
                        return Ok(());
                    }
                    self.received.extend_from_slice(&chunk[..received.bytes]);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted => {}
                    // The gateway died before it read everything.
                    io::ErrorKind::ConnectionReset => {
                        self.close();
                        return Ok(());
                    }
                    _ => return Err(error),
                },
            }
            while let Some(frame) =
                protocol::next_frame(&mut self.received).map_err(io::Error::other)?
            {
                self.serve(Request::decode(&frame).map_err(io::Error::other)?);
            }
            if self.received.is_empty() {
                // The memory of a large request is given back.
                self.received = BytesMut::new();
            }
        }
    }

    fn serve(&mut self, request: Request) {
        match request {
            Request::Spawn { id, tag, spawn } => {
                let descriptors = self.descriptors.pop_front().unwrap_or_default();
                let mut tags = self.outer_tags.clone().unwrap_or_default();
                if !tags.is_empty() {
                    tags.push(" ");
                }
                tags.push(&tag);
                match launch::launch(&spawn, &tags, descriptors) {
                    Ok(pid) => {
                        let start = descendants::start_of(pid);
                        self.families.insert(id, Family::new(pid, start, tag));
                        self.childless = false;
                        let pid = pid.as_raw_nonzero().get();
                        self.report(Event::Spawned { id, pid });
                    }
                    Err(failure) => self.report(Event::Failed { id, failure }),
                }
            }
            Request::End { id, grace } => {
                if let Some(family) = self.families.get_mut(&id) {
                    family.end(grace, Instant::now());
                }
            }
        }
    }

    /// Ends everything.
    fn close(&mut self) {
        if !self.closing {
            self.closing = true;
            self.check_strays = Some(Instant::now());
        }
        for family in self.families.values_mut() {
            family.end(GATEWAY_GONE_GRACE, Instant::now());
        }
    }

    /// Waits for all that exited, also for what this process inherited.
    fn reap(&mut self) {
        let mut reaped = false;
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    reaped = true;
                    self.note_exit(pid, status);
                }
                Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => {
                    self.childless = true;
                    break;
                }
            }
        }
        if reaped {
            self.families.values_mut().for_each(Family::look);
        }
    }

    fn note_exit(&mut self, pid: Pid, status: WaitStatus) {
        let exit = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => return,
        };
        let is_this = |family: &Family| family.exit.is_none() && family.pid == pid;
        let found = self.families.iter_mut().find(|(_, family)| is_this(family));
        if let Some((&id, family)) = found {
            family.exit = Some(exit);
            self.report(Event::Exited { id, exit });
        }
    }

    /// Takes the steps that are due.
    fn advance(&mut self) {
        let now = Instant::now();
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        if !is_due(self.check_strays) && !self.families.values().any(|one| is_due(one.due(now))) {
            return;
        }
        if self.blocked.is_some_and(|blocked| now < blocked) {
            return;
        }
        let roots: Vec<Root<'_>> = self
            .families
            .iter()
            .map(|(id, one)| one.root(*id))
            .collect();
        let mut census = match descendants::take_census(&roots) {
            Ok(census) => census,
            // Without /proc, the groups of children are all that can be ended.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Census::default(),
            // Without a descriptor to read with.
            Err(_) => {
                self.blocked = Some(now + CHECK_STRAYS);
                return;
            }
        };
        let mut gone = Vec::new();
        for (id, family) in &mut self.families {
            let members = census.members.remove(id).unwrap_or_default();
            if family.advance(&members, census.has_unknown, now) {
                gone.push(*id);
            }
        }
        for id in gone {
            self.families.remove(&id);
            self.report(Event::Gone { id });
        }
        for process in &census.strays {
            descendants::signal(process, Signal::KILL);
        }
        let check = self.closing || !census.strays.is_empty();
        self.check_strays = check.then_some(now + CHECK_STRAYS);
    }

    fn report(&mut self, event: Event) {
        self.reports.extend_from_slice(&event.encode());
    }

    /// Sends reports as far as the gateway takes them; one that is gone needs none.
    fn send_reports(&mut self, socket: impl std::os::fd::AsFd) {
        while !self.reports.is_empty() {
            match socket::send(&socket, &self.reports, &[]) {
                Ok(sent) => self.reports.advance(sent),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::Interrupted => {}
                    _ => self.reports.clear(),
                },
            }
        }
    }
}

fn wait_for(sources: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(sources, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
