//! `initialize`: opens the leg, then stores the session, then replies. A client never gets the id of a
//! session that does not exist.

mod first;
mod unopened;

use std::sync::Arc;

use bowline_egress::Sent;
use bowline_wire::id::SessionId;
use bowline_wire::message::Message;

use self::first::{First, FirstLeg};
use self::unopened::unopened;
use crate::caller::Caller;
use crate::exchange::leaving::{Departure, Leaving};
use crate::exchange::reply;
use crate::exchange::stream::relay::Relay;
use crate::exchange::{Reply, deliver};
use crate::fault::Fault;
use crate::leg::Generation;
use crate::leg::marks::Seal;
use crate::registry::{Ending, Registry, Vacancy};
use crate::session::{ClientState, MAX_OPENING, Session};
use crate::share::memory::Room;
use crate::upstream::{Carried, Upstream, UpstreamError};

/// A client's `initialize`, and everything else that is needed to open a session.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) registry: Arc<Registry>,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) caller: Caller,
    pub(crate) carried: Carried,
    pub(crate) message: Message,
    /// What it means if the client leaves.
    pub(crate) leaving: Leaving,
    /// Whose member the session will be, if anybody's.
    pub(crate) member: Option<Membership>,
}

/// What makes a session a member of an attachment: marks of all members are sealed with one key, and say whose
/// they are.
#[derive(Debug, Clone)]
pub(crate) struct Membership {
    pub(crate) seal: Seal,
    /// At least 1.
    pub(crate) number: u16,
}

/// The outcome of opening a session.
enum Opened {
    Session(Newborn, reply::Reply<Relay>),
    Declined(reply::Reply<Relay>),
}

/// A session whose id the client does not have yet. Dropping this ends the session: if the client has left,
/// nobody can use it.
#[derive(Debug)]
pub(crate) struct Newborn {
    registry: Arc<Registry>,
    id: SessionId,
    pub(crate) session: Arc<Session>,
    announced: bool,
}

// === impl Opening ===

impl Opening {
    /// Opens a session. Returns the server's answer and, unless the server declined, the session.
    pub(crate) async fn open(self) -> Result<(Reply, Option<Newborn>), Fault> {
        if self.upstream.permit(&self.caller).is_none() {
            return Err(Fault::NoSuchServer);
        }
        let kept = self.message.raw().len() + self.carried.len();
        if kept > MAX_OPENING {
            return Err(Fault::InitializeTooLarge { limit: MAX_OPENING });
        }
        let registry = Arc::clone(&self.registry);
        let room = registry.table.keep_opening(&self.caller, kept);
        let room = room.ok_or(Fault::TooManyBodies)?;
        let message = self.message.clone();
        let vacancy = registry.table.reserve(&self.caller);
        let vacancy = vacancy.map_err(Fault::TooManySessions)?;
        let share = self.upstream.streams.of_caller(&self.caller);
        let place = share.take();
        let place =
            place.ok_or_else(|| Fault::TooManyStreams(self.upstream.streams.exhausted()))?;
        let (leaving, idle) = (self.leaving, registry.idle);
        let departure = Departure::new(leaving, &self.upstream, &share, idle);
        let sent = Sent::default();
        let opening = self.open_leg(vacancy, room, sent.clone());
        // The opening holds the permit, also when it continues after the client's disconnect.
        let opening = async move { opening.await.map(|opened| (opened, place)) };
        let (opened, place) = departure.watch(opening, sent).await?;
        match opened {
            // Without a session there is no stream to deliver.
            Opened::Declined(reply) => Ok((reply.into_whole(), None)),
            Opened::Session(newborn, reply) => {
                let session = &newborn.session;
                let departure = Departure::of(leaving, &registry, session);
                let reply = deliver(departure, session, &message, reply, Some(place), || None);
                let leg = session.leg();
                leg.upstream.answered.sessions_opened.inc();
                tracing::info!(
                    session = %session.hash,
                    server = %leg.upstream.name,
                    endpoint = %leg.endpoint.address,
                    version = leg.version(),
                    "session opened"
                );
                Ok((reply, Some(newborn)))
            }
        }
    }

    async fn open_leg(self, vacancy: Vacancy, room: Room, sent: Sent) -> Result<Opened, Fault> {
        let (seal, id) = Seal::with_id().map_err(|_| Fault::Random)?;
        let Self {
            registry,
            upstream,
            caller,
            carried,
            message,
            member,
            leaving: _,
        } = self;
        let Membership { seal, number } = member.unwrap_or(Membership { seal, number: 0 });
        let account = upstream.account(&caller);
        let opening = async {
            let first = FirstLeg {
                upstream: &upstream,
                caller: &caller,
                account: account.as_ref(),
                message: &message,
                carried: &carried,
                seal: &seal,
                number,
                sent,
            };
            match (first.open().await, account.clone()) {
                (Err(UpstreamError::SignIn(_)), Some(account)) => {
                    Box::pin(unopened(Arc::clone(&upstream), account, &message, number)).await
                }
                (opened, _) => opened,
            }
        };
        let opened = opening.await;
        let First {
            leg,
            capabilities,
            reply,
        } = opened.map_err(|error| Fault::Upstream {
            server: upstream.name.clone(),
            generation: Generation::FIRST.number,
            error,
        })?;
        let Some(leg) = leg else {
            return Ok(Opened::Declined(reply));
        };
        let client_state = ClientState::new(message.raw(), carried.to_keep(), capabilities);
        let client_state = client_state.holding(room);
        let session = Session::new(&id, caller, seal, leg, client_state);
        let session = match vacancy.fill(session).await {
            Ok(session) => session,
            Err((error, session)) => {
                // The client will never get this session's id.
                session.leg().discard(Arc::new(carried));
                return Err(Fault::store_failed(&error));
            }
        };
        session.watch_tools(&session.leg());
        let newborn = Newborn {
            registry,
            id,
            session,
            announced: false,
        };
        Ok(Opened::Session(newborn, reply))
    }
}

// === impl Newborn ===

impl Newborn {
    /// Returns the id for the client, and keeps the session.
    pub(crate) fn announce(mut self) -> SessionId {
        self.announced = true;
        self.id
    }
}

impl Drop for Newborn {
    fn drop(&mut self) {
        if !self.announced {
            self.registry
                .end_session(&self.id, Ending::Unclaimed, &Carried::default());
        }
    }
}
