//! Log level and subscriptions are remembered once the server has accepted them, and before the client gets
//! the response: a recovery restores them. Requests that the server refused are not remembered.

use std::sync::Arc;

use bowline_wire::message::{Kind, Message};
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::leg::Leg;
use crate::leg::rewrite::Content;
use crate::session::Session;
use crate::session::client_state::ClientState;
use crate::upstream::Carried;
use crate::upstream::budget::errand;

/// The id of Bowline's own requests that restore what a client had set. Clients do not use this prefix.
pub(crate) const RESTORE_ID: &str = "\"bowline-restore\"";

/// A request that is remembered if its answer is a result.
#[derive(Debug)]
pub(crate) struct Memory {
    message: Message,
    carried: Carried,
}

/// Resolves when the request was remembered, or could not be.
pub(crate) type Remembered = oneshot::Receiver<std::convert::Infallible>;

impl Memory {
    /// For a request that a recovery would have to repeat. `None` for most requests.
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
            // Another gateway has recovered the session, so the request is repeated there.
            let carried = session.carried(&self.carried);
            repeat_on(&newer, &self.message, &carried).await;
        }
    }

    /// The same for a stream, which is polled under a lock and cannot wait. `None`: it is done.
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

/// Repeats a client's request on a newer generation than the one that it was sent to.
async fn repeat_on(leg: &Leg, message: &Message, carried: &Carried) {
    let Some(span) = message.id_span() else {
        return;
    };
    let link = leg.link(carried).safe();
    let saying = leg.upstream.say(link, message.splice(span, RESTORE_ID));
    let said = tokio::time::timeout(errand(&leg.upstream.config().recovery), saying).await;
    if !matches!(said, Ok(Ok(Ok(())))) {
        tracing::debug!("request could not be restored on the newer generation");
    }
}

/// Whether a complete response, alone or in a batch, is a result.
pub(crate) fn is_result(body: &Bytes) -> bool {
    let is_it = |message: &Message| message.kind() == Kind::Response && accepts(message);
    let content = Content::of(body.clone());
    content.is_ok_and(|content| content.find(is_it).is_some())
}

/// Whether a response says that its request was accepted.
pub(crate) fn accepts(answer: &Message) -> bool {
    answer.result().is_some()
}
