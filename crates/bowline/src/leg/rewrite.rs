//! Events on their way to the client: the few places where bytes change.
//!
//! An event's id becomes a mark (an empty one stays empty), and so does the id of a server's
//! request, also where the server cancels it. Everything else passes as it came.

use bowline_wire::message::{Kind, Message};
use bowline_wire::sse::Event;
use bytes::Bytes;

use super::LegRef;
use crate::session::{Born, EventMark, Seal};

/// Rewrites the events of one stream.
#[derive(Debug)]
pub(crate) struct Rewrite {
    seal: Seal,
    leg: LegRef,
    born: Born,
}

impl Rewrite {
    pub(crate) fn new(seal: Seal, leg: LegRef, born: Born) -> Self {
        Self { seal, leg, born }
    }

    /// Which stream this is.
    pub(crate) fn born(&self) -> &Born {
        &self.born
    }

    /// The event as the client may see it; `None` if it cannot be shown.
    pub(crate) fn event(&self, event: &Event, message: Option<&Message>) -> Option<Bytes> {
        let id = event.id().filter(|id| !id.is_empty());
        let id = match id {
            Some(id) => Some(self.seal.event(&EventMark {
                leg: self.leg,
                born: self.born.clone(),
                id: id.into(),
            })?),
            None => None,
        };
        let data = match message {
            Some(message) => self.message(message)?,
            None => None,
        };
        if id.is_none() && data.is_none() {
            return Some(event.raw().clone());
        }
        Some(event.rewritten(id.as_deref(), data.as_deref()))
    }

    /// The message with its mark, if it must carry one.
    fn message(&self, message: &Message) -> Option<Option<Bytes>> {
        let span = match message.kind() {
            Kind::Request => message.id_span(),
            Kind::Notification => message.cancelled_request(),
            Kind::Response => None,
        };
        let Some(span) = span else { return Some(None) };
        let mark = self.seal.request(self.leg, message.text(span))?;
        Some(Some(message.splice(span, &mark)))
    }
}

#[cfg(test)]
mod tests {
    use bowline_wire::sse::Decoder;

    use super::*;

    fn show(rewrite: &Rewrite, text: &str) -> String {
        let mut decoder = Decoder::new(1 << 20);
        decoder.push(Bytes::copy_from_slice(text.as_bytes()));
        let event = decoder.next_event().unwrap().unwrap();
        let data = event.data().map(|data| Bytes::copy_from_slice(&data));
        let message = data.and_then(|data| Message::parse(data).ok());
        let shown = rewrite.event(&event, message.as_ref()).unwrap();
        String::from_utf8(shown.to_vec()).unwrap()
    }

    fn rewrite() -> Rewrite {
        Rewrite::new(Seal::generate().unwrap(), LegRef::FIRST, Born::Standalone)
    }

    #[test]
    fn what_needs_no_mark_passes_byte_for_byte() {
        for text in [
            ": comment\n\n",
            "retry: 100\n\n",
            "id:\ndata: \n\n",
            "event: message\r\ndata: {\"jsonrpc\":\"2.0\", \"id\":1,\"result\":{ \"x\":1.0}}\r\n\r\n",
            "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{}}\n\n",
            "data: not json\n\n",
        ] {
            assert_eq!(show(&rewrite(), text), text);
        }
    }

    #[test]
    fn event_ids_become_marks() {
        let rewrite = rewrite();
        let shown = show(&rewrite, "id: stream-1/7\nretry: 5\ndata: x\n\n");
        let mark = shown
            .strip_prefix("id: ")
            .and_then(|rest| rest.strip_suffix("\nretry: 5\ndata: x\n\n"))
            .unwrap();
        let opened = rewrite.seal.open_event(mark.as_bytes()).unwrap();
        assert_eq!(*opened.id, *b"stream-1/7");
    }

    #[test]
    fn a_servers_request_and_its_cancellation_carry_one_mark() {
        let rewrite = rewrite();
        let mark = rewrite.seal.request(LegRef::FIRST, "42").unwrap();
        let asked = show(
            &rewrite,
            "data: {\"jsonrpc\":\"2.0\",\"id\":42,\"method\":\"roots/list\"}\n\n",
        );
        assert_eq!(
            asked,
            format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{mark},\"method\":\"roots/list\"}}\n\n")
        );
        let cancelled = show(
            &rewrite,
            "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":42}}\n\n",
        );
        assert!(
            cancelled.contains(&format!("\"requestId\":{mark}")),
            "{cancelled}"
        );
    }

    #[test]
    fn data_in_several_lines_is_one_message() {
        let shown = show(
            &rewrite(),
            "data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":42,\"method\":\"ping\"}\n\n",
        );
        assert!(!shown.contains("42"), "{shown}");
        assert_eq!(
            shown
                .lines()
                .filter(|line| line.starts_with("data: "))
                .count(),
            2
        );
    }
}
