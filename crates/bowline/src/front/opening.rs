//! `initialize`: opens the leg, then the session, then answers. A client never hears of a session
//! that is not.

use std::sync::Arc;

use bowline_wire::header as mcp;
use bowline_wire::id::SessionId;
use bowline_wire::message::Message;
use http::{HeaderValue, Response};

use super::arrival::Arrival;
use super::exchange::{fault_of, respond, stream_key, stream_permit};
use super::reply::{self, ReplyBody};
use crate::body::Sent;
use crate::detach::see_through;
use crate::fault::Fault;
use crate::gateway::Shared;
use crate::leg::{self, First, Reply};
use crate::session::{Seal, Session, Vacancy};
use crate::upstream::Carried;

/// What came of opening a session.
enum Opening {
    Opened(Newborn, Reply),
    Declined(Reply),
}

/// A session whose client has not heard of it yet. If the client left meanwhile nobody knows the
/// id, so dropping this ends the session.
struct Newborn {
    shared: Arc<Shared>,
    id: SessionId,
    session: Arc<Session>,
    announced: bool,
}

/// Serves `initialize`.
pub(super) async fn initialize(
    arrival: Arrival,
    message: Message,
) -> Result<Response<ReplyBody>, Fault> {
    let shared = Arc::clone(&arrival.shared);
    let vacancy = shared.table.reserve().ok_or(Fault::TooManySessions)?;
    let permit = stream_permit(&shared)?;
    let (key, sent) = (stream_key(&message), Sent::default());
    let opening = open(arrival, message, vacancy, sent.clone());
    match see_through(opening, sent, shared.tracker.clone()).await? {
        Opening::Declined(reply) => Ok(declined(reply).await),
        Opening::Opened(newborn, reply) => {
            let mut response = respond(&shared, &newborn.session, key, reply, permit)?;
            let leg = &newborn.session.leg;
            tracing::info!(server = %leg.upstream.name, version = leg.version(), "session opened");
            response
                .headers_mut()
                .insert(mcp::SESSION_ID, newborn.announce());
            Ok(response)
        }
    }
}

async fn open(
    arrival: Arrival,
    message: Message,
    vacancy: Vacancy,
    sent: Sent,
) -> Result<Opening, Fault> {
    let seal = Seal::generate().map_err(|_| Fault::Random)?;
    let upstream = Arc::clone(&arrival.upstream);
    let opened = leg::open(upstream, message, &arrival.carried, &seal, sent).await;
    let First { leg, reply } = opened.map_err(|error| fault_of(&arrival.upstream, error))?;
    let Some(leg) = leg else {
        return Ok(Opening::Declined(reply));
    };
    let (id, session) = vacancy
        .fill(Session::new(arrival.caller, seal, leg))
        .map_err(|_| Fault::Random)?;
    let newborn = Newborn {
        shared: arrival.shared,
        id,
        session,
        announced: false,
    };
    Ok(Opening::Opened(newborn, reply))
}

/// The server's refusal of `initialize`: there is no session that a stream could belong to, so it
/// is passed on whole.
async fn declined(reply: Reply) -> Response<ReplyBody> {
    let (status, content_type, body) = reply.into_whole().await;
    reply::whole(status, content_type, body)
}

// === impl Newborn ===

impl Newborn {
    fn announce(mut self) -> HeaderValue {
        self.announced = true;
        self.id.to_header()
    }
}

impl Drop for Newborn {
    fn drop(&mut self) {
        if !self.announced {
            self.shared
                .end_session(&self.id, "unclaimed", Carried::default());
        }
    }
}
