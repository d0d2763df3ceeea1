//! What a client sets at its server is remembered once the server has accepted it, and before the client
//! hears so: a recovery sets it again. What the server refused is not.

use std::sync::Arc;

use bowline_wire::message::{Kind, Message};
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::exchange::recovery::restore::say_again_on;
use crate::leg::Leg;
use crate::leg::rewrite::Content;
use crate::session::Session;
use crate::session::client_state::ClientState;
use crate::upstream::Carried;

/// A request that is remembered if its answer is a result.
#[derive(Debug)]
pub(crate) struct Memory {
    message: Message,
    carried: Carried,
}

/// Resolves when something was remembered, or could not be.
pub(crate) type Remembered = oneshot::Receiver<std::convert::Infallible>;

impl Memory {
    /// For a request that a recovery would have to repeat; most are none.
    pub(crate) fn of(message: &Message, carried: &Carried) -> Option<Box<Self>> {
        ClientState::is_restorable(message).then(|| {
            Box::new(Self {
                message: message.clone(),
                carried: carried.clone(),
            })
        })
    }

    /// Remembers the request, which the server has accepted on this leg.
    pub(crate) async fn remember(&self, session: &Arc<Session>, leg: &Leg) {
        if let Some(newer) = session.remember(&self.message).await
            && newer.generation != leg.generation
        {
            // Another gateway has opened the session again: what was set is set there, too.
            let carried = session.carried(&self.carried);
            say_again_on(&newer, &self.message, &carried).await;
        }
    }

    /// The same for whoever must not wait: a stream, which is polled under a lock. `None`: it is done.
    pub(crate) fn begin(self, session: &Arc<Session>, leg: &Arc<Leg>) -> Option<Remembered> {
        if !session.is_persisted() {
            session.client_state.note(&self.message);
            return None;
        }
        let (session, leg) = (Arc::clone(session), Arc::clone(leg));
        let (done, remembered) = oneshot::channel();
        session.upstream.tracker().clone().spawn(async move {
            self.remember(&session, &leg).await;
            drop(done);
        });
        Some(remembered)
    }
}

/// Whether a whole answer, alone or among others, is a result.
pub(crate) fn is_result(body: &Bytes) -> bool {
    let is_it = |message: &Message| message.kind() == Kind::Response && accepts(message);
    let content = Content::of(body.clone());
    content.is_ok_and(|content| content.find(is_it).is_some())
}

/// Whether an answer says that its request was accepted.
pub(crate) fn accepts(answer: &Message) -> bool {
    answer.result().is_some()
}
