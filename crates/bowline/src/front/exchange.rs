//! One message of a session and whatever answers it.

use std::sync::Arc;

use bowline_wire::id::SessionId;
use bowline_wire::message::{Kind, Message};
use bytes::Bytes;
use http::{Response, StatusCode};

use super::reply::{self, ReplyBody, StreamBody};
use super::sign_in;
use crate::body::Sent;
use crate::detach::see_through;
use crate::fault::Fault;
use crate::gateway::{Ending, Shared};
use crate::leg::{self, LegRef, Relay, Reply};
use crate::session::{Born, InUse, LiveStream, News, Session, Source, StreamKey};
use crate::share::{Place, Share};
use crate::upstream::{Carried, Upstream, UpstreamError};

/// A session that was found, and what its messages are sent with.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) shared: Arc<Shared>,
    pub(super) id: SessionId,
    pub(super) in_use: InUse,
    pub(super) carried: Carried,
}

// === impl Exchange ===

impl Exchange {
    /// Sends one message and makes a response of what comes back. Dropping that response, as
    /// happens when the client left meanwhile, is the same as the client's leaving later.
    pub(super) fn serve(
        self,
        message: Message,
    ) -> impl Future<Output = Result<Response<ReplyBody>, Fault>> {
        let (sent, abandoned) = (
            Sent::default(),
            self.shared.abandoned(self.in_use.session()),
        );
        see_through(self.converse(message, sent.clone()), sent, abandoned)
    }

    async fn converse(self, message: Message, sent: Sent) -> Result<Response<ReplyBody>, Fault> {
        let (session, carried) = (self.in_use.session(), &self.carried);
        // Within a block, so that a request's future does not keep what the block is done with.
        let wanted = {
            let mut permit = None;
            let reply = match message.kind() {
                Kind::Request => {
                    permit = Some(stream_place(&session.upstream, &session.share)?);
                    leg::request(session, message.clone(), carried, sent).await
                }
                Kind::Notification => {
                    let body = message.raw().clone();
                    Box::pin(leg::notify(session, &message, body, carried, sent)).await
                }
                Kind::Response => {
                    let answer = restore(session, &message)?;
                    Box::pin(hand_back(answer, session, &message, carried, sent)).await
                }
            };
            match reply {
                Ok(reply) => return Ok(respond(&self.shared, session, &message, reply, permit)),
                Err(UpstreamError::SignIn(wanted)) if message.kind() == Kind::Request => wanted,
                Err(error) => return Err(failed(&self.shared, &self.id, session, error)),
            }
        };
        Box::pin(sign_in::ask(self, message, wanted)).await
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
    session.questions.settled(mark);
    // Whichever gateway showed the question.
    session.announce(|session| News::Settled(session, mark.into()));
    Ok(match at {
        LegRef::OWN => Restored::Own(id),
        at if at == session.leg().at => Restored::Server(answer.splice(span, &id)),
        _ => Restored::TooLate,
    })
}

/// Gives a client's answer to whoever asked.
async fn hand_back(
    answer: Restored,
    session: &Arc<Session>,
    message: &Message,
    carried: &Carried,
    sent: Sent,
) -> Result<Reply, UpstreamError> {
    match answer {
        Restored::Server(answer) => leg::notify(session, message, answer, carried, sent).await,
        Restored::Own(question) => {
            sign_in::answered(session, &question, message).await;
            Ok(Reply::Accepted)
        }
        Restored::TooLate => Ok(Reply::Accepted),
    }
}

/// A place among the streams: whether an answer will stream is known only after the request ran.
pub(super) fn stream_place(upstream: &Upstream, share: &Arc<Share>) -> Result<Place, Fault> {
    let place = share.take();
    place.ok_or_else(|| Fault::TooManyStreams(upstream.streams.exhausted()))
}

pub(super) fn stream_key(message: &Message) -> StreamKey {
    Born::Request(message.id().unwrap_or_default().into())
}

/// What a failure within a session means for the client, and for the session.
pub(super) fn failed(
    shared: &Shared,
    id: &SessionId,
    session: &Session,
    error: UpstreamError,
) -> Fault {
    if matches!(error, UpstreamError::SessionLost) {
        shared.end_session(id, Ending::Lost, &Carried::default());
    }
    session.leg().fault(error)
}

/// A reply to this message as a response.
pub(super) fn respond(
    shared: &Shared,
    session: &Arc<Session>,
    message: &Message,
    reply: Reply,
    permit: Option<Place>,
) -> Response<ReplyBody> {
    match reply {
        Reply::Accepted => reply::empty(StatusCode::ACCEPTED),
        Reply::Whole {
            status,
            content_type,
            body,
        } => reply::whole(status, content_type, body),
        Reply::Stream {
            status,
            content_type,
            relay,
            rescue,
        } => {
            let is_events = matches!(relay, Relay::Events(_));
            let stream = Arc::new(LiveStream::new(Source::Relay(relay), rescue));
            // If the session ended meanwhile the answer is still the answer: the request ran.
            session.attach(stream_key(message), Arc::clone(&stream));
            // Its caller may have signed out since it was asked for.
            if session.leg().is_signed_out() {
                stream.end();
            }
            let abandoned = shared.abandoned(session);
            let mut body = StreamBody::new(stream, session.begin_use(), abandoned, permit);
            if is_events {
                body = body.with_heartbeat();
            }
            reply::stream(status, content_type, body)
        }
    }
}
