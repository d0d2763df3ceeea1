//! One message of a session and its reply. This floor owns sending, listening, batches, cancels, recovery,
//! replay and sign-in prompts. It knows messages and no HTTP.

pub(crate) mod announcements;
pub(crate) mod answer;
pub(crate) mod batch;
pub(crate) mod call_timeout;
pub(crate) mod cancel;
pub(crate) mod detach;
pub(crate) mod keep_alive;
mod listen;
mod notify;
pub(crate) mod open;
mod open_leg;
mod ping;
pub(crate) mod recovery;
pub(crate) mod replay;
pub(crate) mod reply;
mod send;
pub(crate) mod sign_in;
mod strays;
pub(crate) mod stream;
pub(crate) mod tool_filter;
mod unopened;

use std::sync::Arc;

use bowline_egress::Sent;
use bowline_wire::id::SessionId;
use bowline_wire::message::{Kind, Message, RawId, RawIdBuf};
use bytes::Bytes;

use self::detach::{Abandoned, detachable};
use self::notify::{Notice, notify};
use self::reply::{Arriving, Reply};
use self::send::request;
use self::stream::outlet::Outlet;
use self::stream::relay::Relay;
use self::stream::{LiveStream, Source};
use crate::caller::Caller;
use crate::fault::Fault;
use crate::leg::marks::StreamOrigin;
use crate::registry::{Ending, Registry};
use crate::session::streams::ClientStream as _;
use crate::session::{InUse, Session};
use crate::session_store::announcement::Announcement;
use crate::share::Permit;
use crate::upstream::{Carried, UpstreamError};

/// A session that its caller may use, and what its messages are sent with. It is made for one request: what stays
/// open keeps an [`InUse`].
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) registry: Arc<Registry>,
    pub(crate) id: SessionId,
    pub(crate) in_use: InUse,
    pub(crate) carried: Carried,
    /// Nothing but [`Exchange::new`] makes one, and that asks.
    _asked: (),
}

// === impl Exchange ===

impl Exchange {
    /// A caller's request of a session. One that is another caller's, or that the caller may not use now, is an unknown
    /// one.
    pub(crate) fn new(
        registry: &Arc<Registry>,
        in_use: InUse,
        caller: &Caller,
        carried: Carried,
    ) -> Result<Self, Fault> {
        match in_use.session().is_for(caller) {
            true => Ok(Self {
                registry: Arc::clone(registry),
                id: in_use.session().id,
                in_use,
                carried,
                _asked: (),
            }),
            false => Err(Fault::UnknownSession),
        }
    }

    /// Sends one message and returns the reply. Dropping the reply counts as the client's disconnect.
    pub(crate) fn handle(self, message: Message) -> impl Future<Output = Result<Reply, Fault>> {
        let sent = Sent::default();
        let abandoned = Abandoned::of(&self.registry, self.in_use.session());
        detachable(self.converse(message, sent.clone()), sent, abandoned)
    }

    /// The same for a request that is not worth a sign-in: where one is needed, that is the fault.
    pub(crate) fn handle_unasked(
        self,
        message: Message,
    ) -> impl Future<Output = Result<Reply, Fault>> {
        let sent = Sent::default();
        let abandoned = Abandoned::of(&self.registry, self.in_use.session());
        detachable(
            self.converse_unasked(message, sent.clone()),
            sent,
            abandoned,
        )
    }

    async fn converse_unasked(self, message: Message, sent: Sent) -> Result<Reply, Fault> {
        let session = self.in_use.session();
        let place = session.stream_place().map_err(Fault::TooManyStreams)?;
        let reply = request(session, message.clone(), &self.carried, sent).await;
        let reply = reply.map_err(|error| self.fail(error))?;
        Ok(deliver(
            &self.registry,
            session,
            &message,
            reply,
            Some(place),
        ))
    }

    async fn converse(self, message: Message, sent: Sent) -> Result<Reply, Fault> {
        let (session, carried) = (self.in_use.session(), &self.carried);
        // The block keeps its variables out of the future of a request, which then stays small.
        let wanted = {
            let mut place = None;
            let reply = match message.kind() {
                Kind::Request => {
                    // Whether the response is a stream is known only after the request ran.
                    place = Some(session.stream_place().map_err(Fault::TooManyStreams)?);
                    request(session, message.clone(), carried, sent).await
                }
                Kind::Notification => {
                    if session.upstream.filters_tools() {
                        tool_filter::check_call(&session.leg(), &message)?;
                    }
                    let body = message.raw().clone();
                    Box::pin(notify(self.notice(&message, body, sent))).await
                }
                Kind::Response => {
                    let answer = unmark(session, &message)?;
                    Box::pin(self.hand_back(answer, &message, sent)).await
                }
            };
            match reply {
                Ok(reply) => return Ok(deliver(&self.registry, session, &message, reply, place)),
                Err(UpstreamError::SignIn(wanted)) if message.kind() == Kind::Request => wanted,
                Err(error) => return Err(self.fail(error)),
            }
        };
        Box::pin(sign_in::ask(self, message, wanted)).await
    }

    fn notice<'a>(&'a self, message: &'a Message, body: Bytes, sent: Sent) -> Notice<'a> {
        Notice {
            session: self.in_use.session(),
            message,
            body,
            carried: &self.carried,
            sent,
        }
    }

    /// Delivers a client's response to the server or to Bowline's own prompt.
    async fn hand_back(
        &self,
        answer: AnswerTo,
        message: &Message,
        sent: Sent,
    ) -> Result<Reply<Arriving>, UpstreamError> {
        match answer {
            AnswerTo::Server(answer) => notify(self.notice(message, answer, sent)).await,
            AnswerTo::Own(question) => {
                sign_in::answered(self.in_use.session(), question.as_id(), message).await;
                Ok(Reply::Accepted)
            }
            AnswerTo::TooLate => Ok(Reply::Accepted),
        }
    }

    /// Maps a failure to a fault for the client. A lost session ends here.
    fn fail(&self, error: UpstreamError) -> Fault {
        if matches!(error, UpstreamError::SessionLost) {
            self.registry
                .end_session(&self.id, Ending::Lost, &Carried::default());
        }
        Fault::on(&self.in_use.session().leg(), error)
    }
}

/// A client's response, and who sent the request.
enum AnswerTo {
    /// The server. The response carries the server's own request id.
    Server(Bytes),
    /// Bowline itself. This is the id of its prompt.
    Own(RawIdBuf),
    /// An earlier generation, which no longer waits for it.
    TooLate,
}

/// Replaces the mark in a client's answer by the id that the server gave its request.
fn unmark(session: &Session, answer: &Message) -> Result<AnswerTo, Fault> {
    let span = answer.id_span().ok_or(Fault::StrayAnswer)?;
    let mark = RawId::new(answer.text(span));
    let (at, id) = session.seal.open_request(mark).ok_or(Fault::StrayAnswer)?;
    session.server_requests.settled(mark);
    // The request may have been shown by another gateway.
    session.announce(|session| Announcement::Settled(session, mark.to_buf()));
    Ok(match at {
        at if at.is_own() => AnswerTo::Own(id),
        at if at == session.leg().generation => AnswerTo::Server(answer.splice(span, id.as_str())),
        _ => AnswerTo::TooLate,
    })
}

fn stream_key(message: &Message) -> StreamOrigin {
    StreamOrigin::Request(message.id().unwrap_or_default().to_buf())
}

/// The reply to this message, for its client. A stream becomes one of the session's streams.
fn deliver(
    registry: &Registry,
    session: &Arc<Session>,
    message: &Message,
    reply: Reply<Arriving>,
    place: Option<Permit>,
) -> Reply {
    reply.map_stream(|arriving| {
        let is_events = matches!(arriving.relay, Relay::Events(_));
        let stream = LiveStream::new(Source::Relay(arriving.relay), arriving.rescue);
        let stream = Arc::new(stream);
        // The session may have ended, but the request ran, so the client still gets the response.
        session.attach(stream_key(message), &stream);
        // The caller may have signed out while the request ran.
        if session.leg().is_signed_out() {
            stream.end();
        }
        let abandoned = Abandoned::of(registry, session);
        let outlet = Outlet::events(stream, session.begin_use(), abandoned, place);
        match is_events {
            true => outlet,
            false => outlet.frames(arriving.sent_as),
        }
    })
}
