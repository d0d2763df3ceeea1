//! `initialize`: opens the leg, then the session, then answers. A client never hears of a session
//! that is not.

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::header as mcp;
use bowline_wire::id::SessionId;
use bowline_wire::message::Message;
use http::{HeaderValue, Response, StatusCode};

use super::arrival::Arrival;
use super::embedder;
use super::exchange::{respond, stream_place};
use super::reply::{self, ReplyBody};
use crate::body::Sent;
use crate::detach::{Abandoned, see_through};
use crate::fault::Fault;
use crate::gateway::{Ending, Shared};
use crate::leg::{self, First, LegRef, Reply};
use crate::session::{Believed, MAX_OPENING, Seal, Session, Vacancy};
use crate::upstream::{Carried, UpstreamError};

/// How long a server may take to answer `initialize`: longer than any sane start, and bounded
/// because a place among the sessions is held meanwhile.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(60);

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
    mut arrival: Arrival,
    message: Message,
) -> Result<Response<ReplyBody>, Fault> {
    let shared = Arc::clone(&arrival.shared);
    if shared.drain.has_begun() {
        return Err(Fault::Stopping);
    }
    if arrival.upstream.is_retired() {
        return Err(Fault::NoSuchServer);
    }
    if shared.pseudonym.is_in(&arrival.headers) {
        let server = arrival.upstream.name.clone();
        tracing::warn!(%server, "its address leads back to this gateway");
        return Err(Fault::Loop { server });
    }
    arrival.carried.way = shared.pseudonym.after(&arrival.headers);
    if message.raw().len() + arrival.carried.len() > MAX_OPENING {
        return Err(Fault::InitializeTooLarge { limit: MAX_OPENING });
    }
    let vacancy = shared.table.reserve(&arrival.caller);
    let vacancy = vacancy.map_err(Fault::TooManySessions)?;
    let share = arrival.upstream.streams.of_caller(&arrival.caller);
    let place = stream_place(&arrival.upstream, &share)?;
    let idle = shared.limits.session_idle;
    let abandoned = Abandoned::new(&arrival.upstream, &share, idle);
    let wants_hash = embedder::wants_hash(&arrival.headers);
    let sent = Sent::default();
    let opening = open(arrival, message.clone(), vacancy, sent.clone());
    // The place is the opening's: it is held also if that goes on without its client.
    let opening = async move { opening.await.map(|opening| (opening, place)) };
    let (opening, place) = see_through(opening, sent, abandoned).await?;
    match opening {
        Opening::Declined(reply) => Ok(declined(reply)),
        Opening::Opened(newborn, reply) => {
            let mut response = respond(&shared, &newborn.session, &message, reply, Some(place));
            let leg = newborn.session.leg();
            let (session, server) = (newborn.session.hash, &leg.upstream.name);
            leg.upstream.answered.sessions_opened.inc();
            tracing::info!(
                %session,
                %server,
                endpoint = %leg.endpoint.origin,
                version = leg.version(),
                "session opened"
            );
            let headers = response.headers_mut();
            if wants_hash {
                headers.extend(embedder::told_hash(session));
            }
            headers.insert(mcp::SESSION_ID, newborn.announce());
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
    let (seal, id) = Seal::with_id().map_err(|_| Fault::Random)?;
    let (upstream, initialize) = (Arc::clone(&arrival.upstream), message.raw().clone());
    let account = upstream.account(&arrival.caller);
    let opening = async {
        let (to, first) = ((Arc::clone(&upstream), account.clone()), message.clone());
        let opened = leg::open(to, first, &arrival.carried, &seal, sent).await;
        match (opened, account) {
            (Err(UpstreamError::SignIn(_)), Some(account)) => {
                Box::pin(leg::unopened(upstream, account, &message)).await
            }
            (opened, _) => opened,
        }
    };
    let opened = tokio::time::timeout(INITIALIZE_TIMEOUT, opening).await;
    let opened = opened.unwrap_or(Err(UpstreamError::InitializeTimeout(INITIALIZE_TIMEOUT)));
    let First {
        leg,
        offered,
        reply,
    } = opened.map_err(|error| Fault::Upstream {
        server: arrival.upstream.name.clone(),
        generation: LegRef::FIRST.generation,
        error,
    })?;
    let Some(leg) = leg else {
        return Ok(Opening::Declined(reply));
    };
    let believed = Believed::new(&initialize, arrival.carried.to_keep(), offered);
    let session = Session::new(&id, arrival.caller, seal, leg, believed);
    let session = match vacancy.fill(session).await {
        Ok(session) => session,
        Err((unsure, session)) => {
            // Nobody will ever hear of it.
            leg::discard(session.leg(), Arc::new(arrival.carried));
            return Err(Fault::unsure(&unsure));
        }
    };
    let newborn = Newborn {
        shared: arrival.shared,
        id,
        session,
        announced: false,
    };
    Ok(Opening::Opened(newborn, reply))
}

/// The server's refusal of `initialize`: there is no session that a stream could belong to.
fn declined(reply: Reply) -> Response<ReplyBody> {
    match reply {
        Reply::Whole {
            status,
            content_type,
            body,
        } => reply::whole(status, content_type, body),
        Reply::Accepted | Reply::Stream { .. } => reply::empty(StatusCode::ACCEPTED),
    }
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
                .end_session(&self.id, Ending::Unclaimed, &Carried::default());
        }
    }
}
