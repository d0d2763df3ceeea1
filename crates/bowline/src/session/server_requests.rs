//! Requests of a server's that its client was shown and has not answered yet.
//!
//! When the generation that asked is left, nobody waits for the answers any more: the client hears
//! that they are cancelled, where it heard the question, or on its GET stream.

use bowline_wire::compose;
use bowline_wire::message::same_id;
use bowline_wire::sse::event_of;
use bytes::Bytes;
use parking_lot::Mutex;

use crate::leg::marks::Born;

/// The most questions of one session that are remembered, and the most cancellations that wait for
/// a stream.
const MAX_OPEN: usize = 64;

/// A session's open questions. Most sessions have none, and pay for none.
#[derive(Debug, Default)]
pub(crate) struct ServerRequests(Mutex<Option<Box<Noted>>>);

#[derive(Debug, Default)]
struct Noted {
    open: Vec<ServerRequest>,
    /// Cancellations that had no stream.
    untold: Vec<Bytes>,
}

/// A request of a server's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServerRequest {
    /// Its id as the client saw it, as JSON text.
    pub(crate) mark: Box<str>,
    /// The stream on which the client saw it.
    pub(crate) shown_on: Born,
}

impl ServerRequests {
    /// The client was shown a question.
    pub(crate) fn asked(&self, question: ServerRequest) {
        let mut noted = self.0.lock();
        let open = &mut noted.get_or_insert_default().open;
        if !open.contains(&question) {
            push_bounded(open, question);
        }
    }

    /// A question is settled: answered, or taken back by the server.
    pub(crate) fn settled(&self, mark: &str) {
        let mut noted = self.0.lock();
        if let Some(some) = &mut *noted {
            some.open.retain(|question| !same_id(&question.mark, mark));
            if some.open.is_empty() && some.untold.is_empty() {
                *noted = None;
            }
        }
    }

    /// Whether the server waits for an answer.
    pub(crate) fn are_open(&self) -> bool {
        let noted = self.0.lock();
        noted.as_ref().is_some_and(|noted| !noted.open.is_empty())
    }

    /// All questions, which are no longer open.
    pub(crate) fn take(&self) -> Vec<ServerRequest> {
        let mut noted = self.0.lock();
        let open = noted.as_mut().map(|noted| std::mem::take(&mut noted.open));
        open.unwrap_or_default()
    }

    /// A cancellation waits for the next stream.
    pub(crate) fn tell_later(&self, event: Bytes) {
        let mut noted = self.0.lock();
        push_bounded(&mut noted.get_or_insert_default().untold, event);
    }

    /// Cancellations that the client has not heard of; each is handed out once.
    pub(crate) fn take_untold(&self) -> Option<Bytes> {
        let mut noted = self.0.lock();
        let untold = std::mem::take(&mut noted.as_mut()?.untold);
        if noted.as_ref().is_some_and(|noted| noted.open.is_empty()) {
            *noted = None;
        }
        (!untold.is_empty()).then(|| untold.concat().into())
    }
}

impl ServerRequest {
    /// What tells the client that nobody waits for its answer, as an event.
    pub(crate) fn cancelled(&self) -> Bytes {
        let (mark, reason) = (&self.mark, "the server's session was lost or moved");
        event_of(compose::cancelled(mark, reason).as_bytes())
    }
}

fn push_bounded<T>(list: &mut Vec<T>, item: T) {
    if list.len() >= MAX_OPEN {
        list.remove(0);
    }
    list.push(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(number: usize) -> ServerRequest {
        ServerRequest {
            mark: format!("\"{number}\"").into(),
            shown_on: Born::Standalone,
        }
    }

    #[test]
    fn nothing_is_kept_once_all_is_settled() {
        let questions = ServerRequests::default();
        questions.asked(question(1));
        questions.asked(question(1));
        assert!(questions.are_open());
        questions.settled("\"2\"");
        assert!(questions.are_open());
        questions.settled("\"1\"");
        assert!(questions.0.lock().is_none());
        questions.tell_later(question(1).cancelled());
        assert!(questions.take_untold().is_some());
        assert!(questions.0.lock().is_none());
        assert!(questions.take_untold().is_none());
    }

    #[test]
    fn a_server_that_never_stops_asking_costs_no_more() {
        let questions = ServerRequests::default();
        (0..1000).for_each(|number| questions.asked(question(number)));
        let open = questions.take();
        assert_eq!(
            (open.len(), &open[MAX_OPEN - 1]),
            (MAX_OPEN, &question(999))
        );
        (0..1000).for_each(|number| questions.tell_later(question(number).cancelled()));
        let untold = questions.take_untold().unwrap();
        assert!(untold.len() < 1000 * MAX_OPEN);
    }
}
