//! The streams of a session that are open towards its client.

use std::sync::Arc;

use bowline_store::StoreError;
use bytes::Bytes;

use crate::leg::marks::Born;
use crate::session::Session;
use crate::session::server_requests::ServerRequest;
use crate::session_store::announcement::Announcement;

/// Streams of a session that are told apart: one of each at a time.
pub(crate) type StreamKey = Born;

/// A stream towards a client, as its session knows it.
pub(crate) trait ClientStream: std::fmt::Debug + Send + Sync {
    /// Says something of our own between two events. `false`: nobody would hear it.
    fn say(&self, event: &Bytes) -> bool;

    /// Reads the stream of a GET anew, from where the session is now.
    fn restart(&self);

    /// Ends the stream and closes what it reads from, now.
    fn end(&self);
}

#[derive(Debug, Default)]
pub(crate) struct Streams {
    pub(crate) ended: bool,
    /// The number of the newest stream of a GET, here or elsewhere.
    pub(crate) newest: u64,
    pub(crate) live: Vec<(StreamKey, Arc<dyn ClientStream>)>,
}

// === impl Session ===

impl Session {
    /// Tells the client something on the stream of its GET, now or when it opens one.
    pub(crate) fn tell(&self, event: &Bytes) {
        let standalone = self.streams.lock().find(&StreamKey::Standalone);
        if !standalone.is_some_and(|stream| stream.say(event)) {
            self.server_requests.tell_later(event.clone());
        }
    }

    /// Tells the client that nobody waits for its answer: where it was asked, or else on the stream
    /// of its GET, now or when it opens one.
    pub(crate) fn cancel(&self, question: &ServerRequest) {
        let event = question.cancelled();
        let streams =
            [&question.shown_on, &StreamKey::Standalone].map(|key| self.streams.lock().find(key));
        let mut streams = streams.into_iter().flatten();
        if !streams.any(|stream| stream.say(&event)) {
            self.server_requests.tell_later(event);
        }
    }

    /// How many streams of it are live.
    pub(crate) fn live_streams(&self) -> usize {
        self.streams.lock().live.len()
    }

    /// Puts a stream under this key, ending the one that had it. `false`: the session has ended; or its
    /// caller is not configured any more, and so the stream has.
    pub(crate) fn attach<S: ClientStream + 'static>(
        &self,
        key: StreamKey,
        stream: &Arc<S>,
    ) -> bool {
        let replaced = {
            let mut streams = self.streams.lock();
            if streams.ended {
                return false;
            }
            // Under the lock, so that whoever ends streams after a reload finds this one.
            if !self.is_callers() {
                drop(streams);
                stream.end();
                return false;
            }
            let replaced = streams.take(&key);
            streams.live.push((key, Arc::clone(stream) as _));
            replaced
        };
        if let Some(replaced) = replaced {
            replaced.end();
        }
        true
    }

    /// Ends the stream that has this key, if there is one.
    pub(crate) fn end_stream(&self, key: &StreamKey) {
        let found = self.streams.lock().take(key);
        if let Some(stream) = found {
            stream.end();
        }
    }

    /// Attaches the stream of a GET, which takes over from the one before, also at another gateway.
    /// Of several at once the one with the highest number stays: the others end.
    pub(crate) async fn attach_listener<S: ClientStream + 'static>(&self, stream: &Arc<S>) -> bool {
        let number = match &self.persistence {
            Some(persistence) => persistence.next_number().await,
            None => None,
        };
        let is_newest = {
            let mut streams = self.streams.lock();
            let number = number.unwrap_or(streams.newest);
            let is_newest = number >= streams.newest;
            streams.newest = streams.newest.max(number);
            is_newest
        };
        if !is_newest {
            stream.end();
            return true;
        }
        let is_attached = self.attach(StreamKey::Standalone, stream);
        if let Some(number) = number {
            self.announce(|session| Announcement::Listens(session, number));
        }
        is_attached
    }

    /// The client opened the stream of a GET at another gateway, with this number.
    pub(crate) fn listens_elsewhere(&self, number: u64) {
        let older = {
            let mut streams = self.streams.lock();
            if number <= streams.newest {
                return;
            }
            streams.newest = number;
            streams.take(&StreamKey::Standalone)
        };
        if let Some(older) = older {
            older.end();
        }
    }

    /// Ends the stream of a GET here if the client has opened a newer one elsewhere, of which nothing may
    /// have been heard.
    pub(crate) async fn give_way_to_newer(&self) -> Result<(), StoreError> {
        if let Some(persistence) = &self.persistence
            && let Some(number) = persistence.last_number().await?
        {
            self.listens_elsewhere(number);
        }
        Ok(())
    }

    /// Whether the stream of a GET is open here.
    pub(crate) fn listens(&self) -> bool {
        let streams = self.streams.lock();
        streams.find(&StreamKey::Standalone).is_some()
    }

    /// Forgets a stream that is over.
    pub(crate) fn detach<S: ClientStream + 'static>(&self, stream: &Arc<S>) {
        let own = Arc::as_ptr(stream).cast::<()>();
        self.streams
            .lock()
            .live
            .retain(|(_, live)| !std::ptr::eq(Arc::as_ptr(live).cast::<()>(), own));
    }

    /// Ends every stream that there is now.
    pub(crate) fn cut_streams(&self) {
        let live = std::mem::take(&mut self.streams.lock().live);
        for (_, stream) in live {
            stream.end();
        }
    }

    /// Ends every stream, and every later one at once.
    pub(crate) fn end_streams(&self) {
        let live = {
            let mut streams = self.streams.lock();
            streams.ended = true;
            std::mem::take(&mut streams.live)
        };
        for (_, stream) in live {
            stream.end();
        }
    }
}

// === impl Streams ===

impl Streams {
    pub(crate) fn find(&self, key: &StreamKey) -> Option<Arc<dyn ClientStream>> {
        let found = self.live.iter().find(|(live, _)| live == key)?;
        Some(Arc::clone(&found.1))
    }

    pub(crate) fn take(&mut self, key: &StreamKey) -> Option<Arc<dyn ClientStream>> {
        let at = self.live.iter().position(|(live, _)| live == key)?;
        Some(self.live.swap_remove(at).1)
    }
}
