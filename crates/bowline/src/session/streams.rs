//! The open streams from a session to its client.

use std::sync::Arc;

use bowline_store::StoreError;
use bowline_wire::sse::Event;

use crate::leg::marks::StreamOrigin;
use crate::session::Session;
use crate::session::server_requests::ServerRequest;
use crate::session_store::announcement::Announcement;

/// A stream to a client, as its session uses it.
pub(crate) trait ClientStream: std::fmt::Debug + Send + Sync {
    /// Sends one of Bowline's own events between two others. `false`: the stream is over.
    fn say(&self, event: &Event) -> bool;

    /// Reopens a GET stream on the session's current leg.
    fn restart(&self);

    /// Ends the stream and closes its source immediately.
    fn end(&self);
}

#[derive(Debug, Default)]
pub(crate) struct Streams {
    pub(crate) ended: bool,
    /// The number of the newest GET stream, at any gateway.
    pub(crate) newest: u64,
    /// The newest last. Only requests that share an id have several of one origin.
    pub(crate) live: Vec<(StreamOrigin, Arc<dyn ClientStream>)>,
}

// === impl Session ===

impl Session {
    /// Sends an event on the GET stream, now or when the client opens one.
    pub(crate) fn tell(&self, event: Event) {
        let standalone = self.streams.lock().find(&StreamOrigin::Standalone);
        if !standalone.is_some_and(|stream| stream.say(&event)) {
            self.server_requests.tell_later(event);
        }
    }

    /// Sends the cancellation of a server request: on the stream that carried the request, or else on
    /// the GET stream, now or when the client opens one.
    pub(crate) fn cancel(&self, question: &ServerRequest) {
        let event = question.cancelled();
        let streams = [&question.shown_on, &StreamOrigin::Standalone]
            .map(|key| self.streams.lock().find(key));
        let mut streams = streams.into_iter().flatten();
        if !streams.any(|stream| stream.say(&event)) {
            self.server_requests.tell_later(event);
        }
    }

    /// The number of open streams.
    pub(crate) fn live_streams(&self) -> usize {
        self.streams.lock().live.len()
    }

    /// Registers the stream of a new request. `false`: the session has ended, or its caller may not use it any more
    /// and the new stream was ended.
    pub(crate) fn attach<S: ClientStream + 'static>(
        &self,
        key: StreamOrigin,
        stream: &Arc<S>,
    ) -> bool {
        self.register(key, stream, |_, _| None)
    }

    /// The same for a stream that takes the place of the previous one with this key, which ends.
    pub(crate) fn replace<S: ClientStream + 'static>(
        &self,
        key: StreamOrigin,
        stream: &Arc<S>,
    ) -> bool {
        self.register(key, stream, Streams::take)
    }

    fn register<S: ClientStream + 'static>(
        &self,
        key: StreamOrigin,
        stream: &Arc<S>,
        taken: impl FnOnce(&mut Streams, &StreamOrigin) -> Option<Arc<dyn ClientStream>>,
    ) -> bool {
        let replaced = {
            let mut streams = self.streams.lock();
            if streams.ended {
                return false;
            }
            // Under the lock, so that a reload that ends streams finds this one.
            if !self.is_permitted() {
                drop(streams);
                stream.end();
                return false;
            }
            let replaced = taken(&mut streams, &key);
            streams.live.push((key, Arc::clone(stream) as _));
            replaced
        };
        if let Some(replaced) = replaced {
            replaced.end();
        }
        true
    }

    /// Ends the stream with this key, if there is one.
    pub(crate) fn end_stream(&self, key: &StreamOrigin) {
        let found = self.streams.lock().take(key);
        if let Some(stream) = found {
            stream.end();
        }
    }

    /// Registers a GET stream, which replaces the previous one, even one at another gateway. If several
    /// are opened at once, the one with the highest number stays and the others end.
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
        let is_attached = self.replace(StreamOrigin::Standalone, stream);
        if let Some(number) = number {
            self.announce(|session| Announcement::Listens(session, number));
        }
        is_attached
    }

    /// Handles the announcement that the client opened GET stream `number` at another gateway.
    pub(crate) fn listens_elsewhere(&self, number: u64) {
        let older = {
            let mut streams = self.streams.lock();
            if number <= streams.newest {
                return;
            }
            streams.newest = number;
            streams.take(&StreamOrigin::Standalone)
        };
        if let Some(older) = older {
            older.end();
        }
    }

    /// Ends the GET stream here if the client has opened a newer one elsewhere. This covers
    /// announcements that were missed.
    pub(crate) async fn give_way_to_newer(&self) -> Result<(), StoreError> {
        if let Some(persistence) = &self.persistence
            && let Some(number) = persistence.last_number().await?
        {
            self.listens_elsewhere(number);
        }
        Ok(())
    }

    /// Whether the GET stream is open here.
    pub(crate) fn listens(&self) -> bool {
        let streams = self.streams.lock();
        streams.find(&StreamOrigin::Standalone).is_some()
    }

    /// Removes a stream that has ended.
    pub(crate) fn detach<S: ClientStream + 'static>(&self, stream: &Arc<S>) {
        let own = Arc::as_ptr(stream).cast::<()>();
        self.streams
            .lock()
            .live
            .retain(|(_, live)| !std::ptr::eq(Arc::as_ptr(live).cast::<()>(), own));
    }

    /// Ends every open stream.
    pub(crate) fn cut_streams(&self) {
        let live = std::mem::take(&mut self.streams.lock().live);
        for (_, stream) in live {
            stream.end();
        }
    }

    /// Ends every open stream, and every later one as soon as it is attached.
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
    pub(crate) fn find(&self, key: &StreamOrigin) -> Option<Arc<dyn ClientStream>> {
        let found = self.live.iter().rev().find(|(live, _)| live == key)?;
        Some(Arc::clone(&found.1))
    }

    pub(crate) fn take(&mut self, key: &StreamOrigin) -> Option<Arc<dyn ClientStream>> {
        let at = self.live.iter().rposition(|(live, _)| live == key)?;
        Some(self.live.remove(at).1)
    }
}
