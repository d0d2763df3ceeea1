//! The one thread that writes the file. All writes that arrive during a sync share the next one.
//!
//! When a commit fails, every waiting and every later write gets an error, and the thread closes the file
//! and opens it again: at once, so that it can be read, and before each later attempt to write. There is
//! a pause before each attempt, and no caller waits for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use redb::{Database, TableDefinition};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::disk::{Disk, Trouble};
use super::rows::{self, CLOCK_KEY, META};
use super::tables::Tables;
use crate::LARGEST_VALUE;

/// How long touches wait for a commit to go with.
const TOUCHES_WAIT: Duration = Duration::from_secs(1);
/// How often expired records are removed and the clock is saved.
pub(super) const SWEEP: Duration = Duration::from_secs(60);
/// How many writes share a commit at most, so that one failure does not affect all of them.
pub(super) const GROUP: usize = 1024;
/// How long to wait before a disk that failed is tried again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What the thread is asked to do.
pub(super) enum Command {
    Write(Box<dyn Work>),
    /// There are touches.
    Touched,
    /// A read failed.
    CannotRead,
}

/// Something to write, for a caller that waits.
pub(super) trait Work: Send {
    fn run(&mut self, tables: &mut Tables<'_>) -> Result<(), redb::Error>;

    /// Sends the result to the caller once it is on the disk. If the channel closes instead, the caller
    /// finds the reason in [`Disk::refusal`].
    fn tell(self: Box<Self>);
}

/// A write whose caller waits.
pub(super) struct PendingWrite<T, W> {
    work: Option<W>,
    outcome: Option<T>,
    tell: oneshot::Sender<T>,
}

/// The state of the thread.
struct Writer<'a> {
    disk: &'a Disk,
    swept: Option<Instant>,
    failing: Option<Failure>,
}

/// The state while the disk accepts no writes.
struct Failure {
    /// Since when the file could not even be opened, if so.
    closed: Option<Instant>,
    pause: Duration,
    next_try: Instant,
}

/// Writes until the store is dropped.
pub(super) fn run(disk: &Disk, commands: &Receiver<Command>) {
    let mut writer = Writer {
        disk,
        swept: None,
        failing: None,
    };
    loop {
        writer.recover_if_due();
        let (first, over) = match commands.recv_timeout(writer.patience()) {
            // Touches are written with the next commit, or when their wait is over.
            Ok(Command::Touched) => continue,
            Ok(command) => (Some(command), false),
            Err(RecvTimeoutError::Timeout) => (None, false),
            Err(RecvTimeoutError::Disconnected) => (None, true),
        };
        let mut group = Vec::new();
        for command in first.into_iter().chain(commands.try_iter()) {
            match command {
                Command::Write(work) => group.push(work),
                Command::Touched => {}
                Command::CannotRead => writer.look(),
            }
            if group.len() == GROUP {
                break;
            }
        }
        writer.write(group, over);
        if over {
            return;
        }
    }
}

// === impl Writer ===

impl Writer<'_> {
    /// How long to wait for something to write.
    fn patience(&self) -> Duration {
        match &self.failing {
            Some(failing) => failing.next_try.saturating_duration_since(Instant::now()),
            None if self.disk.touches.is_empty() => SWEEP,
            None => TOUCHES_WAIT,
        }
    }

    /// Writes all of these and the waiting touches, or nothing.
    fn write(&mut self, mut group: Vec<Box<dyn Work>>, over: bool) {
        if self.failing.is_some() {
            // The waiting callers see that their channels close.
            return;
        }
        let sweep = over || self.swept.is_none_or(|swept| swept.elapsed() >= SWEEP);
        if group.is_empty() && self.disk.touches.is_empty() && !sweep {
            return;
        }
        let disk = self.disk;
        match attempt(|| disk.with(|database| commit(disk, database, &mut group, sweep))) {
            Ok(()) => {
                if sweep {
                    self.swept = Some(Instant::now());
                }
                group.into_iter().for_each(Work::tell);
            }
            Err(trouble) => self.fail(trouble),
        }
    }

    /// Handles a failed read: redb then rejects writes as well.
    fn look(&mut self) {
        let disk = self.disk;
        let looking = || disk.with(|database| rows::meta(database).map(drop));
        if self.failing.is_none()
            && let Err(trouble) = attempt(looking)
        {
            self.fail(trouble);
        }
    }

    /// Stops writing until [`Writer::recover_if_due`] succeeds.
    fn fail(&mut self, trouble: Trouble) {
        // First, because a caller whose channel closes looks for the reason.
        self.disk.fail(trouble);
        self.failing = Some(Failure {
            closed: None,
            pause: FIRST_PAUSE,
            next_try: Instant::now() + FIRST_PAUSE,
        });
        self.open_again();
    }

    fn open_again(&mut self) {
        #[cfg(feature = "planted")]
        if crate::planted::keeps_disk_errors() {
            return;
        }
        let disk = self.disk;
        if let Err(trouble) = attempt(|| {
            disk.close();
            Ok(())
        }) {
            disk.fail(trouble);
        }
        let opened = catch_unwind(AssertUnwindSafe(|| disk.open_again()));
        let error = match opened {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("it is damaged".to_owned()),
        };
        let Some(failing) = &mut self.failing else {
            return;
        };
        match error {
            None => {
                if let Some(closed) = failing.closed.take() {
                    disk.clock.skip(closed.elapsed());
                }
            }
            Some(error) => {
                disk.fail(disk.trouble().and(error));
                failing.closed.get_or_insert_with(Instant::now);
            }
        }
    }

    /// Tries whether the disk accepts writes again.
    fn recover_if_due(&mut self) {
        let now = Instant::now();
        match &mut self.failing {
            Some(failing) if failing.next_try <= now => {
                failing.pause = (failing.pause * 2).min(LONGEST_PAUSE);
            }
            _ => return,
        }
        match self.recover() {
            Ok(()) => {
                self.failing = None;
                self.disk.recovered();
            }
            Err(trouble) => self.disk.fail(trouble),
        }
        if let Some(failing) = &mut self.failing {
            failing.next_try = Instant::now() + failing.pause;
        }
    }

    fn recover(&mut self) -> Result<(), Trouble> {
        let disk = self.disk;
        if self.failing.as_ref().is_some_and(|it| it.closed.is_some()) {
            self.open_again();
        }
        if self.failing.as_ref().is_some_and(|it| it.closed.is_some()) {
            return Err(disk.trouble());
        }
        disk.check_room()?;
        let tried = attempt(|| disk.with(try_room));
        if tried.is_err() {
            self.open_again();
        }
        tried
    }
}

/// redb panics on some kinds of damage.
fn attempt<T>(work: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, Trouble> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(Trouble::of(&error)),
        Err(_) => Err(Trouble::fails("it is damaged".to_owned())),
    }
}

fn commit(
    disk: &Disk,
    database: &Database,
    group: &mut [Box<dyn Work>],
    sweep: bool,
) -> Result<(), redb::Error> {
    let touched = disk.touches.waiting();
    let transaction = database.begin_write()?;
    let mut tables = Tables::open(&transaction, disk)?;
    for work in group {
        work.run(&mut tables)?;
    }
    tables.keep(&touched)?;
    if sweep {
        tables.sweep()?;
        transaction
            .open_table(META)?
            .insert(CLOCK_KEY, disk.clock.now())?;
    }
    let changes = tables.changes();
    transaction.commit()?;
    changes.apply(disk);
    disk.touches.committed(&touched);
    Ok(())
}

/// Writes and removes as much data as the largest record has.
fn try_room(database: &Database) -> Result<(), redb::Error> {
    const ROOM: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("room");
    let large = vec![1; LARGEST_VALUE];
    let write = database.begin_write()?;
    write.open_table(ROOM)?.insert("", large.as_slice())?;
    write.commit()?;
    let write = database.begin_write()?;
    write.delete_table(ROOM)?;
    Ok(write.commit()?)
}

// === impl PendingWrite ===

impl<T, W> PendingWrite<T, W>
where
    T: Send + 'static,
    W: FnOnce(&mut Tables<'_>) -> Result<T, redb::Error> + Send + 'static,
{
    pub(super) fn boxed(work: W, tell: oneshot::Sender<T>) -> Box<dyn Work> {
        Box::new(Self {
            work: Some(work),
            outcome: None,
            tell,
        })
    }
}

impl<T, W> Work for PendingWrite<T, W>
where
    T: Send,
    W: FnOnce(&mut Tables<'_>) -> Result<T, redb::Error> + Send,
{
    fn run(&mut self, tables: &mut Tables<'_>) -> Result<(), redb::Error> {
        if let Some(work) = self.work.take() {
            self.outcome = Some(work(tables)?);
        }
        Ok(())
    }

    fn tell(self: Box<Self>) {
        if let Some(outcome) = self.outcome {
            // A caller that no longer waits is no failure.
            self.tell.send(outcome).ok();
        }
    }
}
