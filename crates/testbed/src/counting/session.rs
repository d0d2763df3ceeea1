//! The sessions in a replica's memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::stream::Stream;

/// How many of a session's methods are kept.
const METHODS: usize = 64;

/// What happened in a session.
#[derive(Debug, Clone, Default)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// The parameters of its `initialize`.
    pub parameters: Value,
    /// Whether `notifications/initialized` arrived.
    pub initialized: bool,
    /// The log level that was set.
    pub log_level: Option<String>,
    /// The resources that are subscribed.
    pub subscriptions: BTreeSet<String>,
    /// How many GET streams were opened, resumed ones included.
    pub listens: usize,
    /// The keys of calls after which it was told that the tool that turns has become destructive.
    pub turned: BTreeSet<String>,
    /// The first methods that arrived, in order (`GET` and `DELETE` for requests without a message).
    pub methods: Vec<String>,
}

/// All sessions between two crashes, in the order in which they were opened.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// Never reset, so that an id is never reused.
    born: u64,
    known: BTreeMap<u64, Known>,
}

#[derive(Debug)]
struct Known {
    session: Session,
    streams: HashMap<u64, Arc<Stream>>,
    next_stream: u64,
    /// Calls that can be cancelled, by their id (JSON text).
    running: HashMap<String, CancellationToken>,
}

/// The number of the GET stream among a session's streams.
const GET: u64 = 0;

impl Sessions {
    /// Opens a session and returns its id.
    pub(super) fn open(&self, replica: &str, parameters: Value) -> String {
        self.open_on(Stream::new(GET, true), replica, parameters).0
    }

    /// Opens a session that is a stream; its id and stream.
    pub(super) fn open_stream(&self, replica: &str) -> (String, Arc<Stream>) {
        self.open_on(Stream::lasting(GET), replica, Value::Null)
    }

    fn open_on(
        &self,
        stream: Arc<Stream>,
        replica: &str,
        parameters: Value,
    ) -> (String, Arc<Stream>) {
        let mut table = self.0.lock();
        table.born += 1;
        let number = table.born;
        let id = format!("{replica}-{number}");
        let session = Session {
            id: id.clone(),
            parameters,
            ..Session::default()
        };
        let known = Known {
            session,
            streams: HashMap::from([(GET, Arc::clone(&stream))]),
            next_stream: GET + 1,
            running: HashMap::new(),
        };
        table.known.insert(number, known);
        (id, stream)
    }

    /// The stream that carries everything that the server says unasked, and all of a session that is a stream.
    pub(super) fn main_stream(&self, id: &str) -> Option<Arc<Stream>> {
        self.with(id, |known| Arc::clone(&known.streams[&GET]))
    }

    /// Ends the streams of sessions that are streams.
    pub(super) fn cut_streams(&self) {
        for known in self.0.lock().known.values() {
            let stream = &known.streams[&GET];
            if stream.is_lasting() {
                stream.close();
            }
        }
    }

    pub(super) fn forget(&self) {
        self.0.lock().known.clear();
    }

    pub(super) fn all(&self) -> Vec<Session> {
        let table = self.0.lock();
        let known = table.known.values();
        known.map(|known| known.session.clone()).collect()
    }

    pub(super) fn emit(&self, message: impl Fn(&Session) -> Value) {
        for known in self.0.lock().known.values() {
            // Over HTTP+SSE, a session is there before its `initialize`.
            if !known.session.parameters.is_null() {
                known.streams[&GET].write(&message(&known.session));
            }
        }
    }

    /// Records a request. Returns whether its session is known.
    pub(super) fn note(&self, id: &str, method: &str) -> bool {
        let noted = self.with(id, |known| {
            if known.session.methods.len() < METHODS {
                known.session.methods.push(method.to_owned());
            }
        });
        noted.is_some()
    }

    /// Changes the state of a session.
    pub(super) fn change(&self, id: &str, change: impl FnOnce(&mut Session)) {
        self.with(id, |known| change(&mut known.session));
    }

    /// A session, if it is known.
    pub(super) fn get(&self, id: &str) -> Option<Session> {
        self.with(id, |known| known.session.clone())
    }

    /// Ends a session.
    pub(super) fn end(&self, id: &str) {
        self.0
            .lock()
            .known
            .retain(|_, known| known.session.id != id);
    }

    /// A new stream for the answer to a request.
    pub(super) fn stream(&self, id: &str, with_ids: bool) -> Option<Arc<Stream>> {
        self.with(id, |known| {
            let stream = Stream::new(known.next_stream, with_ids);
            if with_ids {
                known.streams.insert(known.next_stream, Arc::clone(&stream));
            }
            known.next_stream += 1;
            stream
        })
    }

    /// Registers a call that can be cancelled, and returns its signal.
    pub(super) fn begin(&self, id: &str, call: &Value) -> CancellationToken {
        let token = CancellationToken::new();
        let running = (call.to_string(), token.clone());
        self.with(id, |known| known.running.extend([running]));
        token
    }

    /// Cancels the call with this id, if there is one.
    pub(super) fn cancel(&self, id: &str, call: &Value) {
        let running = self.with(id, |known| known.running.remove(&call.to_string()));
        if let Some(token) = running.flatten() {
            token.cancel();
        }
    }

    /// The stream that a GET asks for, and the position to continue from.
    pub(super) fn listen(&self, id: &str, after: Option<&str>) -> Option<(Arc<Stream>, usize)> {
        self.with(id, |known| {
            known.session.listens += 1;
            let Some(after) = after else {
                let stream = Arc::clone(&known.streams[&GET]);
                let end = stream.len();
                return Some((stream, end));
            };
            let (stream, place) = after.split_once('-')?;
            let stream = known.streams.get(&stream.parse().ok()?)?;
            let place: usize = place.parse().ok()?;
            Some((Arc::clone(stream), place + 1))
        })?
    }

    fn with<T>(&self, id: &str, change: impl FnOnce(&mut Known) -> T) -> Option<T> {
        let number = id.rsplit('-').next()?.parse().ok()?;
        let mut table = self.0.lock();
        let known = table.known.get_mut(&number)?;
        (known.session.id == id).then(|| change(known))
    }
}
