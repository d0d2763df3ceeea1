//! A disk that fails, and the thread that writes to it.

use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64};

use parking_lot::Mutex;
use redb::backends::InMemoryBackend;
use redb::{Builder, Database, StorageBackend};

use super::writer::Work;
use super::*;
use crate::Refusal;

const TIMEOUT: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(600);

/// A disk that accepts a given number of operations and then fails until the test repairs it.
#[derive(Clone, Debug, Default)]
struct Fragile(Arc<State>);

#[derive(Debug)]
struct State {
    bytes: InMemoryBackend,
    left: AtomicI64,
    /// The length at which it is full.
    room: AtomicU64,
    fails_with: Mutex<io::ErrorKind>,
    /// Whether it cannot be read either.
    is_dead: std::sync::atomic::AtomicBool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            bytes: InMemoryBackend::new(),
            left: i64::MAX.into(),
            room: u64::MAX.into(),
            fails_with: Mutex::new(io::ErrorKind::StorageFull),
            is_dead: false.into(),
        }
    }
}

impl Fragile {
    fn fail_after(&self, operations: i64) {
        self.0.left.store(operations, Ordering::SeqCst);
    }

    /// Makes the disk full at its current length.
    fn fill_up(&self) {
        self.0
            .room
            .store(self.0.bytes.len().unwrap(), Ordering::SeqCst);
    }

    fn heal(&self) {
        self.fail_after(i64::MAX);
        self.0.room.store(u64::MAX, Ordering::SeqCst);
        self.0.is_dead.store(false, Ordering::SeqCst);
    }

    fn write(&self, until: u64) -> io::Result<()> {
        if until > self.0.room.load(Ordering::SeqCst) {
            return Err(self.error());
        }
        match self.0.left.fetch_sub(1, Ordering::SeqCst) {
            1.. => Ok(()),
            _ => Err(self.error()),
        }
    }

    fn read(&self) -> io::Result<()> {
        match self.0.is_dead.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(self.error()),
        }
    }

    fn error(&self) -> io::Error {
        io::Error::from(*self.0.fails_with.lock())
    }
}

impl StorageBackend for Fragile {
    fn len(&self) -> io::Result<u64> {
        self.read()?;
        self.0.bytes.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        Self::read(self)?;
        self.0.bytes.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Self::write(self, len)?;
        self.0.bytes.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Self::write(self, 0)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        Self::write(self, offset + data.len() as u64)?;
        self.0.bytes.write(offset, data)
    }
}

impl Backing for Fragile {
    fn open(&self, create: bool) -> Result<Database, StoreError> {
        let opened = Builder::new().create_with_backend(self.clone());
        let database = opened.map_err(StoreError::unreachable)?;
        if create {
            rows::lay_out(&database).map_err(StoreError::unreachable)?;
        }
        Ok(database)
    }

    fn check_room(&self) -> io::Result<()> {
        let is_full = self.0.room.load(Ordering::SeqCst) != u64::MAX;
        match self.0.left.load(Ordering::SeqCst) {
            1.. if !is_full => Ok(()),
            _ => Err(self.error()),
        }
    }

    fn bytes(&self) -> io::Result<u64> {
        self.0.bytes.len()
    }
}

async fn open(disk: &Fragile) -> File {
    let opened = File::open_at(Box::new(disk.clone()), TIMEOUT).await;
    opened.unwrap().unwrap()
}

fn key(number: usize) -> Key {
    Key::named("test", &[&number.to_string()])
}

async fn is_there(file: &File, number: usize) -> bool {
    matches!(file.load(&key(number)).await.unwrap(), KeyState::Live(_))
}

/// Waits until the file accepts writes.
async fn until_mended(file: &File) {
    let waiting = async {
        while file.check_writable().is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = timeout(TIMEOUT, waiting).await;
    assert!(waited.is_ok(), "never recovered");
}

#[tokio::test]
async fn a_full_disk_is_read_and_written_again_once_there_is_room() {
    let disk = Fragile::default();
    let file = open(&disk).await;
    assert!(file.create(&key(1), b"1", b"", LONG).await.unwrap());
    disk.fill_up();
    // The file has some free space of its own.
    let mut number = 10;
    let refused = loop {
        number += 1;
        match file.create(&key(number), &[7; 100_000], b"", LONG).await {
            Ok(created) => assert!(created && number < 1000),
            Err(error) => break error,
        }
    };
    let why = match refused {
        StoreError::Refused { why, .. } => why,
        other => panic!("{other}"),
    };
    assert_eq!(why, Refusal::DiskFull);
    // The problem is reported, and reads still work.
    assert!(file.check_writable().is_err());
    assert!(is_there(&file, 1).await);
    file.ping().await.unwrap();
    assert!(file.end(&key(1), LONG).await.is_err());
    assert!(is_there(&file, 1).await, "an end that failed is none");
    disk.heal();
    until_mended(&file).await;
    assert!(file.create(&key(3), b"3", b"", LONG).await.unwrap());
    drop(file);
    let file = open(&disk).await;
    for number in [1, 3].into_iter().chain(11..number) {
        assert!(is_there(&file, number).await, "{number}");
    }
}

#[tokio::test]
async fn a_disk_that_cannot_be_read_is_unreachable_and_comes_back() {
    let disk = Fragile::default();
    *disk.0.fails_with.lock() = io::ErrorKind::Other;
    let file = open(&disk).await;
    assert!(file.create(&key(1), b"1", b"", LONG).await.unwrap());
    disk.0.is_dead.store(true, Ordering::SeqCst);
    disk.fail_after(0);
    let refused = file.create(&key(2), b"2", b"", LONG).await.unwrap_err();
    let fails = matches!(refused, StoreError::Refused { why, .. } if why == Refusal::DiskFails);
    assert!(fails, "{refused}");
    for cannot_know in [file.load(&key(1)).await.err(), file.ping().await.err()] {
        let is_away = matches!(cannot_know, Some(StoreError::Unreachable(_)));
        assert!(is_away, "{cannot_know:?}");
    }
    disk.heal();
    until_mended(&file).await;
    assert!(is_there(&file, 1).await);
    assert!(file.create(&key(3), b"3", b"", LONG).await.unwrap());
}

/// No matter at which operation the disk fails, confirmed writes are there afterwards.
#[tokio::test]
async fn nothing_that_was_confirmed_is_lost() {
    let disk = Fragile::default();
    let file = open(&disk).await;
    let mut confirmed = Vec::new();
    let mut number = 0;
    for operations in (0..40).step_by(3) {
        disk.fail_after(operations);
        loop {
            number += 1;
            match file.create(&key(number), &[7; 500], b"jar", LONG).await {
                Ok(created) => {
                    assert!(created);
                    confirmed.push(number);
                }
                Err(_) => break,
            }
        }
        disk.heal();
        until_mended(&file).await;
        for number in &confirmed {
            assert!(is_there(&file, *number).await, "{number} of {confirmed:?}");
        }
    }
    drop(file);
    let file = open(&disk).await;
    for number in &confirmed {
        assert!(is_there(&file, *number).await, "{number} of {confirmed:?}");
    }
}

/// The writer's requests and actions, in order.
type Log = Arc<Mutex<Vec<&'static str>>>;

struct Logged {
    log: Log,
    succeeds: bool,
}

impl Work for Logged {
    fn run(&mut self, _: &mut Tables<'_>) -> Result<(), redb::Error> {
        self.log.lock().push("work");
        match self.succeeds {
            true => Ok(()),
            false => Err(redb::Error::DatabaseClosed),
        }
    }

    fn tell(self: Box<Self>) {
        self.log.lock().push("tell");
    }
}

/// Runs these, which are all queued from the start, and returns the order of events.
fn run_all(works: Vec<bool>) -> Vec<&'static str> {
    let disk = Disk::open(Box::new(Fragile::default())).unwrap();
    let log = Log::default();
    let (commands, waiting) = mpsc::channel();
    for succeeds in works {
        let log = Arc::clone(&log);
        let work = Box::new(Logged { log, succeeds });
        commands.send(Command::Write(work)).unwrap();
    }
    drop(commands);
    writer::run(&disk, &waiting);
    let log = log.lock();
    log.clone()
}

#[test]
fn those_who_wait_share_a_commit_and_are_told_after_it() {
    let expected = [vec!["work"; 100], vec!["tell"; 100]].concat();
    assert_eq!(run_all(vec![true; 100]), expected);
}

#[test]
fn nobody_is_told_of_a_commit_that_failed() {
    assert_eq!(run_all(vec![true, false, true]), ["work", "work"]);
}

#[test]
fn no_group_is_without_bound() {
    let group = writer::GROUP;
    let log = run_all(vec![true; group + 1]);
    assert_eq!(log[..group], vec!["work"; group]);
    assert_eq!(log[group], "tell");
    assert_eq!(log.len(), 2 * (group + 1));
}
