//! The one thread that writes the file. Whoever waits while it syncs shares the next sync.
//!
//! When a commit fails, it says so to all who wait and to all who come, closes the file and opens it
//! again: at once, so that it can be read, and before each later attempt to write. There is a pause
//! before each, and nobody waits for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use redb::{Database, TableDefinition};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::disk::{Disk, Trouble};
use super::rows::{self, CLOCK_KEY, META};
use super::tables::Tables;
use crate::store::LARGEST_VALUE;

/// How long touches wait for a commit to go with.
const TOUCHES_WAIT: Duration = Duration::from_secs(1);
/// How often what has expired is thrown away, and the clock is written down.
pub(super) const SWEEP: Duration = Duration::from_secs(60);
/// How many writes share a commit at most, so that a failure does not meet everybody.
pub(super) const GROUP: usize = 1024;
/// How long to wait before a disk that failed is tried again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What the thread is asked to do.
pub(super) enum Command {
    Write(Box<dyn Work>),
    /// There are touches.
    Touched,
    /// Somebody could not read.
    CannotRead,
}

/// Something to write, for somebody who waits.
pub(super) trait Work: Send {
    fn run(&mut self, tables: &mut Tables<'_>) -> Result<(), redb::Error>;

    /// Tells what came of it, once that is on the disk. Whoever is not told learns that from the loss
    /// of the channel, and why from [`Disk::refusal`].
    fn tell(self: Box<Self>);
}

/// One who waits for a write.
pub(super) struct Asked<T, W> {
    work: Option<W>,
    outcome: Option<T>,
    tell: oneshot::Sender<T>,
}

/// The thread's own.
struct Writer<'a> {
    disk: &'a Disk,
    swept: Option<Instant>,
    failing: Option<Failing>,
}

/// While the disk does not take what is written.
struct Failing {
    /// Since when the file could not even be opened, if so.
    closed: Option<Instant>,
    pause: Duration,
    next_try: Instant,
}

/// Writes until nobody can ask any more.
pub(super) fn run(disk: &Disk, commands: &Receiver<Command>) {
    let mut writer = Writer {
        disk,
        swept: None,
        failing: None,
    };
    loop {
        writer.mend_if_due();
        let (first, over) = match commands.recv_timeout(writer.patience()) {
            // They go with the next commit, or when their wait is over.
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

    /// Writes all of these, and what else waits, or nothing.
    fn write(&mut self, mut group: Vec<Box<dyn Work>>, over: bool) {
        if self.failing.is_some() {
            // Whoever waits is told by the loss of the channel.
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

    /// Somebody could not read: redb refuses to write then, too.
    fn look(&mut self) {
        let disk = self.disk;
        let looking = || disk.with(|database| rows::meta(database).map(drop));
        if self.failing.is_none()
            && let Err(trouble) = attempt(looking)
        {
            self.fail(trouble);
        }
    }

    /// From now on nothing is written until [`Writer::mend_if_due`] finds that it can be.
    fn fail(&mut self, trouble: Trouble) {
        // First: whoever is told by the loss of a channel asks why.
        self.disk.fail(trouble);
        self.failing = Some(Failing {
            closed: None,
            pause: FIRST_PAUSE,
            next_try: Instant::now() + FIRST_PAUSE,
        });
        self.open_again();
    }

    fn open_again(&mut self) {
        #[cfg(feature = "planted")]
        if crate::planted::has(crate::planted::Bug::FullDiskIsFinal) {
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

    /// Tries whether the disk takes what is written again.
    fn mend_if_due(&mut self) {
        let now = Instant::now();
        match &mut self.failing {
            Some(failing) if failing.next_try <= now => {
                failing.pause = (failing.pause * 2).min(LONGEST_PAUSE);
            }
            _ => return,
        }
        match self.mend() {
            Ok(()) => {
                self.failing = None;
                self.disk.mended();
            }
            Err(trouble) => self.disk.fail(trouble),
        }
        if let Some(failing) = &mut self.failing {
            failing.next_try = Instant::now() + failing.pause;
        }
    }

    fn mend(&mut self) -> Result<(), Trouble> {
        let disk = self.disk;
        if self.failing.as_ref().is_some_and(|it| it.closed.is_some()) {
            self.open_again();
        }
        if self.failing.as_ref().is_some_and(|it| it.closed.is_some()) {
            return Err(disk.trouble());
        }
        disk.has_room()?;
        let tried = attempt(|| disk.with(try_room));
        if tried.is_err() {
            self.open_again();
        }
        tried
    }
}

/// A panic is how redb gives up on some damage.
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

/// Writes as much as the largest record has, and takes it back.
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

// === impl Asked ===

impl<T, W> Asked<T, W>
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

impl<T, W> Work for Asked<T, W>
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
            // A caller that left is no failure.
            self.tell.send(outcome).ok();
        }
    }
}
