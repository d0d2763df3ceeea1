//! One message of a session and its reply. This floor owns sending, listening, batches, cancels, recovery,
//! replay and sign-in prompts. It knows messages and no HTTP.

pub(crate) mod announcements;
pub(crate) mod answer;
pub(crate) mod batch;
mod call;
pub(crate) mod call_timeout;
pub(crate) mod cancel;
mod get;
pub(crate) mod keep_alive;
pub(crate) mod leaving;
mod listen;
mod listening;
mod memory;
mod notify;
pub(crate) mod open;
mod open_leg;
pub(crate) mod outlet;
pub(crate) mod own_tool;
mod ping;
pub(crate) mod reader;
pub(crate) mod recovery;
pub(crate) mod replay;
pub(crate) mod reply;
pub(crate) mod rescue;
mod send;
pub(crate) mod sign_in;
mod strays;
pub(crate) mod stream;
pub(crate) mod tool_filter;
mod tool_lesson;

use std::sync::Arc;

use bowline_egress::Sent;
use bowline_wire::id::SessionId;
use bowline_wire::message::{Kind, Message, RawId, RawIdBuf};
use bytes::Bytes;

use self::leaving::{Departure, Leaving};
use self::notify::{Notice, notify};
use self::outlet::Outlet;
use self::reader::Reader;
use self::rescue::Rescue;
use self::send::Request;
use self::stream::LiveStream;
use self::stream::relay::Relay;
use crate::caller::Caller;
use crate::fault::Fault;
use crate::leg::marks::StreamOrigin;
use crate::registry::{Ending, Registry};
use crate::session::streams::ClientStream as _;
use crate::session::{Call, InUse, Session};
use crate::session_store::announcement::Announcement;
use crate::share::Permit;
use crate::upstream::{Carried, UpstreamError};

/// The reply to a client's message, with its stream as the client reads it.
pub(crate) type Reply = reply::Reply<Outlet>;

/// A session that its caller may use, and what its messages are sent with. It is made for one request: what stays
/// open keeps an [`InUse`].
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) registry: Arc<Registry>,
    pub(crate) id: SessionId,
    pub(crate) in_use: InUse,
    pub(crate) carried: Carried,
    /// What it means if the client leaves.
    pub(crate) leaving: Leaving,
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
        leaving: Leaving,
    ) -> Result<Self, Fault> {
        match in_use.session().is_for(caller) {
            true => Ok(Self {
                registry: Arc::clone(registry),
                id: in_use.session().id,
                in_use,
                carried,
                leaving,
                _asked: (),
            }),
            false => Err(Fault::UnknownSession),
        }
    }

    /// Sends one message and returns the reply. Dropping the reply counts as the client's disconnect.
    pub(crate) fn handle(self, message: Message) -> impl Future<Output = Result<Reply, Fault>> {
        self.take(message, OnSignIn::Asks)
    }

    /// The same for a request that is not worth a sign-in: where one is needed, that is the fault.
    pub(crate) fn handle_unasked(
        self,
        message: Message,
    ) -> impl Future<Output = Result<Reply, Fault>> {
        self.take(message, OnSignIn::Fails)
    }

    fn take(
        self,
        message: Message,
        on_sign_in: OnSignIn,
    ) -> impl Future<Output = Result<Reply, Fault>> {
        let sent = Sent::default();
        let departure = self.departure();
        departure.watch(self.converse(message, sent.clone(), on_sign_in), sent)
    }

    /// What it means if the client leaves, for a request of this session.
    fn departure(&self) -> Departure {
        Departure::of(self.leaving, &self.registry, self.in_use.session())
    }

    async fn converse(
        self,
        message: Message,
        sent: Sent,
        on_sign_in: OnSignIn,
    ) -> Result<Reply, Fault> {
        let (session, carried) = (self.in_use.session(), &self.carried);
        // The block keeps its variables out of the future of a request, which then stays small.
        let wanted = {
            let mut asked = None;
            let reply = match message.kind() {
                Kind::Request => {
                    // Whether the response is a stream is known only after the request ran.
                    let place = session.stream_place().map_err(Fault::TooManyStreams)?;
                    let call = Call::begin(session, message.id().unwrap_or_default());
                    asked = Some((place, Arc::clone(&call)));
                    call::answer(Request {
                        session,
                        message: message.clone(),
                        call,
                        carried,
                        sent,
                    })
                    .await
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
                Ok(reply) => {
                    let (place, call) = asked.unzip();
                    let rescue = || {
                        let (carried, message) = (carried.clone(), message.clone());
                        let rescue = Rescue::request(session, carried, message, call?);
                        Some(Box::new(rescue))
                    };
                    let departure = self.departure();
                    return Ok(deliver(departure, session, &message, reply, place, rescue));
                }
                Err(UpstreamError::SignIn(wanted))
                    if on_sign_in == OnSignIn::Asks && message.kind() == Kind::Request =>
                {
                    wanted
                }
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
    ) -> Result<reply::Reply<Relay>, UpstreamError> {
        match answer {
            AnswerTo::Server(answer) => notify(self.notice(message, answer, sent)).await,
            AnswerTo::Own(question) => {
                sign_in::answered(self.in_use.session(), question.as_id(), message).await;
                Ok(reply::Reply::Accepted)
            }
            AnswerTo::TooLate => Ok(reply::Reply::Accepted),
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

/// What happens if a request needs a sign-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnSignIn {
    /// The client is asked to sign in, and the request goes on.
    Asks,
    Fails,
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
    departure: Departure,
    session: &Arc<Session>,
    message: &Message,
    reply: reply::Reply<Relay>,
    place: Option<Permit>,
    rescue: impl FnOnce() -> Option<Box<Rescue>>,
) -> Reply {
    reply.map_stream(|relay| {
        let (sent_as, rescue) = match &relay {
            Relay::Events(_) => (None, rescue()),
            // A part was passed on, and there is no event id to resume from.
            Relay::Frames(frames) => (Some(frames.sent_as.clone()), None),
        };
        let stream = Arc::new(LiveStream::new(relay));
        // The session may have ended, but the request ran, so the client still gets the response.
        session.attach(stream_key(message), &stream);
        // The caller may have signed out while the request ran.
        if session.leg().is_signed_out() {
            stream.end();
        }
        let reader = Reader::new(stream, session.begin_use(), place, rescue);
        let outlet = Outlet::events(reader, departure);
        match sent_as {
            None => outlet,
            Some(sent_as) => outlet.frames(sent_as),
        }
    })
}
