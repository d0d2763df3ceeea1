//! A stream and the URL for its messages: together they are one session of a server.

mod events;
mod late_cookies;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::uri::PathAndQuery;
use tokio_util::sync::CancellationToken;

pub(super) use self::events::Events;
pub(super) use self::late_cookies::LateCookies;
use super::error::{End, LiveError};
use super::live::{Incoming, LiveChannels, Routing};
use crate::config::ServerName;
use crate::share::Permit;

/// A stream and the URL for its messages. Dropping it closes the stream, which ends the session.
#[derive(Debug)]
pub(crate) struct Pair {
    routing: Arc<Routing>,
    message_url: PathAndQuery,
    closing: CancellationToken,
    late: LateCookies,
    /// It is being asked whether it is still there.
    is_doubted: AtomicBool,
    /// The session has a newer generation: nothing more is sent on this one.
    is_replaced: Arc<AtomicBool>,
    /// Its place among the streams that its caller may have.
    _place: Permit,
}

impl Pair {
    /// Reads the stream in a task of its own, until it ends or is closed.
    pub(super) fn start(
        events: Events,
        message_url: PathAndQuery,
        server: &ServerName,
        channels: &LiveChannels,
        place: Permit,
    ) -> Arc<Self> {
        let routing = Routing::new(channels.unread());
        let closing = channels.closing();
        channels.tasks().spawn(events.deliver(
            server.clone(),
            Arc::clone(&routing),
            closing.clone(),
        ));
        Arc::new(Self {
            routing,
            message_url,
            closing,
            late: LateCookies::default(),
            is_doubted: AtomicBool::new(false),
            is_replaced: Arc::default(),
            _place: place,
        })
    }

    pub(in crate::upstream) fn message_url(&self) -> &PathAndQuery {
        &self.message_url
    }

    pub(super) fn routing(&self) -> &Arc<Routing> {
        &self.routing
    }

    pub(super) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// The cookies of answers to messages that came late.
    pub(super) fn late(&self) -> &LateCookies {
        &self.late
    }

    /// Has this told whenever the server says that its tools have changed.
    pub(in crate::upstream) fn watch_tools(&self, watcher: Box<dyn Fn() + Send + Sync>) {
        self.routing.watch_tools(watcher);
    }

    /// What the server says unasked.
    pub(super) async fn listen(&self) -> Result<Incoming, LiveError> {
        Incoming::of_listener(&self.routing).await
    }

    /// Closes the stream, for this reason.
    pub(super) fn close(&self, why: &str) {
        self.routing.end(&Arc::new(End::new("stream", why)));
        self.closing.cancel();
    }

    /// Closes the stream at once: another gateway has opened the session's next generation.
    pub(crate) fn abandon(&self) {
        self.close("another gateway has the session");
    }

    /// Sends nothing more: the session has a newer generation. What was sent may still be answered.
    pub(crate) fn replace(&self) {
        self.is_replaced.store(true, Ordering::Release);
    }

    pub(super) fn replaced(&self) -> &Arc<AtomicBool> {
        &self.is_replaced
    }

    /// Whether nobody else asks it at the moment.
    pub(super) fn begin_doubt(&self) -> bool {
        !self.is_doubted.swap(true, Ordering::AcqRel)
    }

    pub(super) fn end_doubt(&self) {
        self.is_doubted.store(false, Ordering::Release);
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}
