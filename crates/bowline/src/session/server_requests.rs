//! Requests of the server that the client has received and not answered yet.
//!
//! When a recovery replaces the generation that sent them, no server waits for the responses any more.
//! The client then gets cancellations: on the stream that carried the request, or else on its GET
//! stream.

use bowline_wire::compose;
use bowline_wire::message::{RawId, RawIdBuf};
use bowline_wire::sse::Event;
use parking_lot::Mutex;

use crate::leg::marks::StreamOrigin;

/// The maximum number of open requests remembered per session, and of cancellations that wait for a
/// stream.
const MAX_OPEN: usize = 64;

/// A session's open server requests. Most sessions have none and allocate nothing.
#[derive(Debug, Default)]
pub(crate) struct ServerRequests(Mutex<Option<Box<Noted>>>);

#[derive(Debug, Default)]
struct Noted {
    open: Vec<ServerRequest>,
    /// Cancellations that could not be delivered on any stream yet.
    untold: Vec<Event>,
}

/// A request of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServerRequest {
    /// The id that the client saw.
    pub(crate) mark: RawIdBuf,
    /// The stream that carried it to the client.
    pub(crate) shown_on: StreamOrigin,
}

impl ServerRequests {
    /// Records that a request was shown to the client.
    pub(crate) fn asked(&self, question: ServerRequest) {
        let mut noted = self.0.lock();
        let open = &mut noted.get_or_insert_default().open;
        if !open.contains(&question) {
            push_bounded(open, question);
        }
    }

    /// Removes a request that the client answered or the server cancelled.
    pub(crate) fn settled(&self, mark: RawId<'_>) {
        let mut noted = self.0.lock();
        if let Some(some) = &mut *noted {
            some.open.retain(|question| question.mark.as_id() != mark);
            if some.open.is_empty() && some.untold.is_empty() {
                *noted = None;
            }
        }
    }

    /// Whether the server waits for a response.
    pub(crate) fn are_open(&self) -> bool {
        let noted = self.0.lock();
        noted.as_ref().is_some_and(|noted| !noted.open.is_empty())
    }

    /// Removes and returns all open requests.
    pub(crate) fn take(&self) -> Vec<ServerRequest> {
        let mut noted = self.0.lock();
        let open = noted.as_mut().map(|noted| std::mem::take(&mut noted.open));
        open.unwrap_or_default()
    }

    /// Queues a cancellation for the next stream.
    pub(crate) fn tell_later(&self, event: Event) {
        let mut noted = self.0.lock();
        push_bounded(&mut noted.get_or_insert_default().untold, event);
    }

    /// Cancellations that were not delivered yet. Each is returned once.
    pub(crate) fn take_untold(&self) -> Vec<Event> {
        let mut noted = self.0.lock();
        let Some(some) = &mut *noted else {
            return Vec::new();
        };
        let untold = std::mem::take(&mut some.untold);
        if some.open.is_empty() {
            *noted = None;
        }
        untold
    }
}

impl ServerRequest {
    /// The cancellation of this request.
    pub(crate) fn cancelled(&self) -> Event {
        let (mark, reason) = (&self.mark, "the server's session was lost or moved");
        Event::of_message(compose::cancelled(mark, reason))
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
            mark: RawIdBuf::new(format!("\"{number}\"")),
            shown_on: StreamOrigin::Standalone,
        }
    }

    #[test]
    fn nothing_is_kept_once_all_is_settled() {
        let questions = ServerRequests::default();
        questions.asked(question(1));
        questions.asked(question(1));
        assert!(questions.are_open());
        questions.settled(RawId::new("\"2\""));
        assert!(questions.are_open());
        questions.settled(RawId::new("\"1\""));
        assert!(questions.0.lock().is_none());
        questions.tell_later(question(1).cancelled());
        assert_eq!(questions.take_untold().len(), 1);
        assert!(questions.0.lock().is_none());
        assert!(questions.take_untold().is_empty());
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
        assert_eq!(questions.take_untold().len(), MAX_OPEN);
    }
}
