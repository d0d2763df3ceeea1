//! The transports. Each one can initialize, send, listen and end, and reports an [`Outcome`] or an
//! [`UpstreamError`]. An endpoint's [`Address`](super::endpoints::Address) determines its transport; at a URL,
//! the leg's [`Conversation`] does.

mod answer;
mod body;
mod choice;
mod conversation;
mod error;
mod event_source;
mod http_sse;
mod judge;
mod limits;
mod link;
mod live;
mod opening;
mod outcome;
mod pair;
mod passing;
mod peer;
mod peer_events;
mod process;
mod stdio;
mod streamable;

use bowline_egress::Sent;
use bowline_wire::message::Message;
use bytes::Bytes;

pub(crate) use self::answer::Answer;
pub(crate) use self::body::poll_data;
pub(crate) use self::choice::is_wrong_transport;
pub(crate) use self::conversation::{Conversation, Issued};
pub(crate) use self::error::{
    Declined, ForwardError, LiveError, ProcessError, SseError, Status, StreamError, UpstreamError,
};
pub(crate) use self::event_source::{EventSource, SourceError};
pub(crate) use self::limits::{MAX_BATCH, MAX_HELD_ANSWER, SMALL_ANSWER};
use self::link::Route;
pub(crate) use self::link::{Link, Repeat};
pub(crate) use self::live::{LiveChannels, Remote, Unread};
pub(crate) use self::opening::{Declination, InitializeAnswer, Initialized};
pub(crate) use self::outcome::{
    Frames, Listening, NotSaid, Outcome, Pulse, Reading, SentAs, Whole,
};
pub(crate) use self::passing::Passing;
pub(crate) use self::peer::{LegForward, LegOperation, Whose};
pub(super) use self::stdio::starts;
pub(crate) use self::streamable::{is_lie, may_lie};
use super::Upstream;
use crate::caller::Caller;

// What is not HTTP is boxed: a request's future is as large as its largest part.
impl Upstream {
    /// Sends an `initialize`, for a session of this caller.
    pub(crate) async fn initialize(
        &self,
        link: Link<'_>,
        caller: &Caller,
        message: Bytes,
        sent: Sent,
    ) -> Result<Initialized, UpstreamError> {
        match link.route(self)? {
            Route::Http(link) => self.open_by_url(link, caller, message, sent).await,
            // It is opened already: a new session begins without it.
            Route::HttpSse(_) => Err(UpstreamError::SessionLost),
            Route::Stdio(link) => {
                Box::pin(self.stdio_initialize(link, caller, message, sent)).await
            }
            // What is opened is opened here.
            Route::Peer(_) => Err(UpstreamError::SessionLost),
        }
    }

    /// Sends a request and reads its answer as far as it is buffered.
    pub(crate) async fn request(
        &self,
        link: Link<'_>,
        message: &Message,
        reading: Reading<'_>,
        sent: Sent,
    ) -> Result<Outcome, UpstreamError> {
        match link.route(self)? {
            Route::Http(link) => self.http_request(link, message, reading, sent).await,
            Route::HttpSse(link) => Box::pin(self.sse_request(link, message, sent)).await,
            Route::Stdio(link) => Box::pin(self.stdio_request(link, message, sent)).await,
            Route::Peer(link) => Box::pin(self.peer_request(link, message, sent)).await,
        }
    }

    /// Sends a message that gets no answer. `Some` is the server's own error, for the client.
    pub(crate) async fn notify(
        &self,
        link: Link<'_>,
        message: Bytes,
        sent: Sent,
    ) -> Result<Option<Whole>, UpstreamError> {
        match link.route(self)? {
            Route::Http(link) => self.http_notify(link, message, sent).await,
            Route::HttpSse(link) => Box::pin(self.sse_notify(link, message, sent)).await,
            Route::Stdio(link) => {
                let told = Box::pin(self.stdio_notify(link, message, sent)).await;
                told.map(|()| None)
            }
            Route::Peer(link) => Box::pin(self.peer_notify(link, &message, sent)).await,
        }
    }

    /// Sends a message of Bowline's own, whose answer is discarded.
    pub(crate) async fn say(
        &self,
        link: Link<'_>,
        message: Bytes,
    ) -> Result<Result<(), NotSaid>, UpstreamError> {
        match link.route(self)? {
            Route::Http(link) => self.http_say(link, message).await,
            Route::HttpSse(link) => Box::pin(self.sse_say(link, message)).await,
            Route::Stdio(link) => self.stdio_say(link, message).await.map(Ok),
            Route::Peer(link) => {
                let saying = self.peer_do(link, LegOperation::Say, &message);
                Box::pin(saying).await.map(Ok)
            }
        }
    }

    /// Pings the upstream to find out whether it still knows the session.
    pub(crate) async fn ping(&self, link: Link<'_>, ping: &Message) -> Pulse {
        match link.route(self) {
            Ok(Route::Http(link)) => self.http_ping(link, ping).await,
            Ok(Route::HttpSse(link)) => Box::pin(self.sse_ping(link, ping)).await,
            Ok(Route::Stdio(link)) => self.stdio_ping(link, ping).await,
            Ok(Route::Peer(link)) => Box::pin(self.peer_ping(link, ping)).await,
            Err(_) => Pulse::Lost,
        }
    }

    /// A call got no answer in time. Where the transport has a process or a stream of its own for the session, and
    /// it hangs, the session is lost from now on.
    pub(crate) async fn doubt(&self, link: Link<'_>, ping: &Message) {
        match link.route(self) {
            Ok(Route::HttpSse(link)) => Box::pin(self.sse_doubt(link, ping)).await,
            Ok(Route::Stdio(link)) => self.stdio_doubt(link, ping).await,
            Ok(Route::Peer(link)) => {
                let doubting = self.peer_do(link, LegOperation::Doubt, ping.raw());
                if let Err(error) = Box::pin(doubting).await {
                    tracing::debug!(%error, "another gateway was not asked whether its process hangs");
                }
            }
            // The server is not ours to end, and the next request finds out about the session.
            Ok(Route::Http(_)) | Err(_) => {}
        }
    }

    /// Opens the stream of messages that answer no request, or resumes a stream after the event
    /// `last`.
    pub(crate) async fn listen(
        &self,
        link: Link<'_>,
        last: Option<&Bytes>,
    ) -> Result<Listening, UpstreamError> {
        match link.route(self)? {
            Route::Http(link) => self.http_listen(link, last).await,
            Route::HttpSse(link) => self.sse_listen(link).await,
            Route::Stdio(link) => self.stdio_listen(link).await,
            Route::Peer(link) => Box::pin(self.peer_listen(link, last)).await,
        }
    }

    /// Ends the upstream session.
    pub(crate) async fn end(&self, link: Link<'_>) -> Result<(), UpstreamError> {
        match link.route(self)? {
            Route::Http(link) => self.http_end(link).await,
            Route::HttpSse(link) => self.sse_end(link),
            Route::Stdio(link) => self.stdio_end(link).await,
            Route::Peer(link) => {
                let nothing = Bytes::new();
                Box::pin(self.peer_do(link, LegOperation::End, &nothing)).await
            }
        }
    }
}
