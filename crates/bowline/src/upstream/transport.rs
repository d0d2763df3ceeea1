//! The transports: each opens, sends, listens and ends, and says what came of it ([`Outcome`],
//! [`UpstreamError`]). Which one leads to an endpoint is the endpoint's [`Address`](super::address::Address).

use bowline_wire::message::Message;
use bytes::Bytes;

use super::outcome::{NotSaid, Outcome, Pulse, Reading, Whole};
use super::streamable::{Initialized, Listening};
use super::{Link, Upstream, UpstreamError};
use bowline_egress::Sent;

/// A way to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    StreamableHttp,
}

impl Upstream {
    /// Sends an `initialize`.
    pub(crate) fn initialize(
        &self,
        link: Link<'_>,
        message: Bytes,
        sent: Sent,
    ) -> impl Future<Output = Result<Initialized, UpstreamError>> {
        match link.endpoint.address.transport() {
            Transport::StreamableHttp => self.http_initialize(link, message, sent),
        }
    }

    /// Sends a request and reads its answer as far as it is held.
    pub(crate) fn request(
        &self,
        link: Link<'_>,
        message: &Message,
        reading: Reading<'_>,
        sent: Sent,
    ) -> impl Future<Output = Result<Outcome, UpstreamError>> {
        match link.endpoint.address.transport() {
            Transport::StreamableHttp => self.http_request(link, message, reading, sent),
        }
    }

    /// Sends what nobody answers. `Some`: the server's own error, for the client.
    pub(crate) fn notify(
        &self,
        link: Link<'_>,
        message: Bytes,
        sent: Sent,
    ) -> impl Future<Output = Result<Option<Whole>, UpstreamError>> {
        match link.endpoint.address.transport() {
            Transport::StreamableHttp => self.http_notify(link, message, sent),
        }
    }

    /// Sends a message of Bowline's own whose answer goes to nobody.
    pub(crate) fn say(
        &self,
        link: Link<'_>,
        message: Bytes,
    ) -> impl Future<Output = Result<Result<(), NotSaid>, UpstreamError>> {
        match link.endpoint.address.transport() {
            Transport::StreamableHttp => self.http_say(link, message),
        }
    }

    /// Asks whether the session is still known.
    pub(crate) fn ping(&self, link: Link<'_>, ping: &Message) -> impl Future<Output = Pulse> {
        match link.endpoint.address.transport() {
            Transport::StreamableHttp => self.http_ping(link, ping),
        }
    }

    /// Opens the stream of what the server says unasked, or resumes a stream after the event `last`.
    pub(crate) fn listen(
        &self,
        link: Link<'_>,
        last: Option<&Bytes>,
    ) -> impl Future<Output = Result<Listening, UpstreamError>> {
        match link.endpoint.address.transport() {
            Transport::StreamableHttp => self.http_listen(link, last),
        }
    }

    /// Ends the upstream's session.
    pub(crate) fn end(&self, link: Link<'_>) -> impl Future<Output = Result<(), UpstreamError>> {
        match link.endpoint.address.transport() {
            Transport::StreamableHttp => self.http_end(link),
        }
    }
}
