//! One message of a session and whatever answers it. This floor owns sending, listening, batches, cancels,
//! recovery, replay and the conversation about signing in; it knows messages and no HTTP.

pub(crate) mod announcements;
pub(crate) mod batch;
pub(crate) mod call_timeout;
pub(crate) mod cancel;
pub(crate) mod detach;
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
pub(crate) mod stream;
mod unopened;

use std::sync::Arc;

use bowline_egress::Sent;
use bowline_wire::id::SessionId;
use bowline_wire::message::{Kind, Message};
use bytes::Bytes;

use self::detach::{Abandoned, detachable};
use self::notify::{Notice, notify};
use self::reply::{Arriving, Reply};
use self::send::request;
use self::stream::outlet::Outlet;
use self::stream::relay::Relay;
use self::stream::{LiveStream, Source};
use crate::fault::Fault;
use crate::leg::Generation;
use crate::leg::marks::Born;
use crate::registry::{Ending, Registry};
use crate::session::streams::{ClientStream as _, StreamKey};
use crate::session::{InUse, Session};
use crate::session_store::announcement::Announcement;
use crate::share::Permit;
use crate::upstream::{Carried, UpstreamError};

/// A session that was found, and what its messages are sent with.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) registry: Arc<Registry>,
    pub(crate) id: SessionId,
    pub(crate) in_use: InUse,
    pub(crate) carried: Carried,
}

// === impl Exchange ===

impl Exchange {
    /// Sends one message; what comes back. Dropping the reply, as happens when the client left meanwhile, is
    /// the same as the client's leaving later.
    pub(crate) fn handle(self, message: Message) -> impl Future<Output = Result<Reply, Fault>> {
        let sent = Sent::default();
        let abandoned = Abandoned::of(&self.registry, self.in_use.session());
        detachable(self.converse(message, sent.clone()), sent, abandoned)
    }

    async fn converse(self, message: Message, sent: Sent) -> Result<Reply, Fault> {
        let (session, carried) = (self.in_use.session(), &self.carried);
        // Within a block, so that a request's future does not keep what the block is done with.
        let wanted = {
            let mut place = None;
            let reply = match message.kind() {
                Kind::Request => {
                    // Whether an answer will stream is known only after the request ran.
                    place = Some(session.stream_place().map_err(Fault::TooManyStreams)?);
                    request(session, message.clone(), carried, sent).await
                }
                Kind::Notification => {
                    let body = message.raw().clone();
                    Box::pin(notify(self.notice(&message, body, sent))).await
                }
                Kind::Response => {
                    let answer = restore(session, &message)?;
                    Box::pin(self.hand_back(answer, &message, sent)).await
                }
            };
            match reply {
                Ok(reply) => return Ok(deliver(&self.registry, session, &message, reply, place)),
                Err(UpstreamError::SignIn(wanted)) if message.kind() == Kind::Request => wanted,
                Err(error) => return Err(self.failed(error)),
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

    /// Gives a client's answer to whoever asked.
    async fn hand_back(
        &self,
        answer: Restored,
        message: &Message,
        sent: Sent,
    ) -> Result<Reply<Arriving>, UpstreamError> {
        match answer {
            Restored::Server(answer) => notify(self.notice(message, answer, sent)).await,
            Restored::Own(question) => {
                sign_in::answered(self.in_use.session(), &question, message).await;
                Ok(Reply::Accepted)
            }
            Restored::TooLate => Ok(Reply::Accepted),
        }
    }

    /// What a failure within the session means for the client, and for the session.
    fn failed(&self, error: UpstreamError) -> Fault {
        if matches!(error, UpstreamError::SessionLost) {
            self.registry
                .end_session(&self.id, Ending::Lost, &Carried::default());
        }
        Fault::on(&self.in_use.session().leg(), error)
    }
}

/// A client's answer, and who asked.
enum Restored {
    /// The server, whose own id it has again.
    Server(Bytes),
    /// Bowline itself, this.
    Own(Box<str>),
    /// Somebody who is gone.
    TooLate,
}

fn restore(session: &Session, answer: &Message) -> Result<Restored, Fault> {
    let span = answer.id_span().ok_or(Fault::StrayAnswer)?;
    let mark = answer.text(span);
    let (at, id) = session.seal.open_request(mark).ok_or(Fault::StrayAnswer)?;
    session.server_requests.settled(mark);
    // Whichever gateway showed the question.
    session.announce(|session| Announcement::Settled(session, mark.into()));
    Ok(match at {
        Generation::OWN => Restored::Own(id),
        at if at == session.leg().generation => Restored::Server(answer.splice(span, &id)),
        _ => Restored::TooLate,
    })
}

fn stream_key(message: &Message) -> StreamKey {
    Born::Request(message.id().unwrap_or_default().into())
}

/// A reply to this message as its client reads it: a stream becomes one of the session's.
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
        // If the session ended meanwhile the answer is still the answer: the request ran.
        session.attach(stream_key(message), &stream);
        // Its caller may have signed out since it was asked for.
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
