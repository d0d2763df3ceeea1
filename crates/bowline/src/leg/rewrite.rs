//! Events on their way to the client: the few places where bytes change.
//!
//! An event's id becomes a mark (an empty one stays empty), and so does the id of a server's
//! request, also where the server cancels it; an answer to a repeated request gets the client's own id
//! back. A batch is split, so that none of its messages is
//! shown without its mark. What only Bowline says does not pass. Everything else passes as it came.

use bowline_wire::batch::{self, BadBatch};
use bowline_wire::message::{Kind, Message, Span};
use bowline_wire::sse::Event;
use bytes::Bytes;

use super::Generation;
use crate::leg::marks::{Born, EventMark, Seal};
use crate::leg::repeat_id::{given_back, original};
use crate::upstream::MAX_BATCH;
use crate::upstream::reserved::Reserved;

/// What an event's data holds.
#[derive(Debug)]
pub(crate) enum Content {
    Message(Message),
    /// The members of a batch; at least one.
    Batch(Vec<Bytes>),
    /// Nothing that is known: the data as it came, if there is any.
    Other(Bytes),
}

/// Rewrites the events of one stream.
#[derive(Debug)]
pub(crate) struct Rewrite {
    seal: Seal,
    leg: Generation,
    born: Born,
    reserved: Reserved,
}

impl Rewrite {
    pub(crate) fn new(seal: Seal, leg: Generation, born: Born, reserved: Reserved) -> Self {
        Self {
            seal,
            leg,
            born,
            reserved,
        }
    }

    /// What of an event's content may be shown; `None` if nothing may.
    pub(crate) fn admitted(&self, event: &Event, content: Content) -> Option<Content> {
        match content {
            Content::Message(message) => self.reserved.cleared(message).map(Content::Message),
            Content::Batch(members) => {
                let members = self.reserved.cleared_batch(members);
                (!members.is_empty()).then_some(Content::Batch(members))
            }
            // The client may read more in it than Bowline does.
            Content::Other(data) => {
                let is_shown = !self.reserved.are_in(&data) && !self.reserved.are_in(event.raw());
                is_shown.then_some(Content::Other(data))
            }
        }
    }

    /// The members of a batch as the client may see them.
    pub(crate) fn members(&self, members: Vec<Bytes>) -> Option<Vec<Bytes>> {
        let members = self.reserved.cleared_batch(members);
        members.iter().map(|raw| self.member(raw)).collect()
    }

    /// Whether a message is the answer that the stream was opened for.
    pub(crate) fn is_answer(&self, message: &Message) -> bool {
        let Born::Request(id) = &self.born else {
            return false;
        };
        message.answers(id)
            || (message.kind() == Kind::Response
                && message.id().and_then(original).as_deref() == Some(&**id))
    }

    /// Whether a message answers another request than the one that the stream was opened for, if any.
    pub(crate) fn is_anothers(&self, message: &Message) -> bool {
        let is_addressed = message.kind() == Kind::Response && message.id().is_some();
        is_addressed && !self.is_answer(message)
    }

    /// The generation that the stream is read from.
    pub(crate) fn leg(&self) -> Generation {
        self.leg
    }

    /// Which stream this is.
    pub(crate) fn born(&self) -> &Born {
        &self.born
    }

    /// The event as the client may see it; `None` if it cannot be shown.
    pub(crate) fn event(&self, event: &Event, content: &Content) -> Option<Bytes> {
        let id = event.id().filter(|id| !id.is_empty());
        let id = match id {
            Some(id) => Some(self.seal.event(&EventMark {
                leg: self.leg,
                born: self.born.clone(),
                id: id.into(),
            })?),
            None => None,
        };
        let data = match content {
            Content::Message(message) => self.message(message)?,
            Content::Batch(members) => {
                let members: Option<Vec<_>> = members.iter().map(|raw| self.member(raw)).collect();
                return Some(event.split(id.as_deref(), &members?));
            }
            Content::Other(_) => None,
        };
        if id.is_none() && data.is_none() {
            return Some(event.raw().clone());
        }
        Some(event.rewritten(id.as_deref(), data.as_deref()))
    }

    /// A member of a batch as the client may see it.
    fn member(&self, raw: &Bytes) -> Option<Bytes> {
        match Message::from_server(raw.clone()) {
            Ok(message) => Some(self.message(&message)?.unwrap_or_else(|| raw.clone())),
            Err(_) => Some(raw.clone()),
        }
    }

    /// The message with its mark, if it must carry one.
    fn message(&self, message: &Message) -> Option<Option<Bytes>> {
        if message.kind() == Kind::Response {
            return Some(given_back(message));
        }
        let Some(span) = marked_id(message) else {
            return Some(None);
        };
        let mark = self.seal.request(self.leg, message.text(span))?;
        Some(Some(message.splice(span, &mark)))
    }

    /// The mark (JSON text) that a message carries when it is shown.
    pub(crate) fn mark(&self, message: &Message) -> Option<String> {
        self.seal
            .request(self.leg, message.text(marked_id(message)?))
    }
}

/// Where the id is that must become a mark: a server's request's, also where it is cancelled.
fn marked_id(message: &Message) -> Option<Span> {
    match message.kind() {
        Kind::Request => message.id_span(),
        Kind::Notification => message.cancelled_request(),
        Kind::Response => None,
    }
}

// === impl Content ===

impl Content {
    /// Looks into an event's data. What cannot be read is not refused: it may be the client's to
    /// know. A batch that is too large to look into is.
    pub(crate) fn of(data: Bytes) -> Result<Self, BadBatch> {
        if !batch::is_batch(&data) {
            return Ok(Message::from_server(data.clone()).map_or(Self::Other(data), Self::Message));
        }
        match batch::split(&data, MAX_BATCH) {
            Ok(members) if !members.is_empty() => Ok(Self::Batch(members)),
            Ok(_) | Err(BadBatch::NotJson(_)) => Ok(Self::Other(data)),
            Err(error @ BadBatch::TooMany { .. }) => Err(error),
        }
    }

    /// Whether this says that a request goes on.
    pub(crate) fn is_progress(&self) -> bool {
        let says_so = |message: &Message| message.method() == Some("notifications/progress");
        match self {
            Self::Message(message) => says_so(message),
            Self::Batch(members) => {
                let mut messages = members
                    .iter()
                    .filter_map(|raw| Message::from_server(raw.clone()).ok());
                messages.any(|message| says_so(&message))
            }
            Self::Other(_) => false,
        }
    }

    /// How far a request says that it has got.
    pub(crate) fn progress(&self) -> Option<f64> {
        let Self::Message(message) = self else {
            return None;
        };
        let progress: f64 = message.text(message.param("progress")?).parse().ok()?;
        // What is beyond every number would hide all that comes after it.
        Some(progress).filter(|progress| progress.is_finite())
    }

    /// The message that passes the test, alone or among others.
    pub(crate) fn find(self, is_it: impl Fn(&Message) -> bool) -> Option<Message> {
        match self {
            Self::Message(message) => Some(message).filter(is_it),
            Self::Batch(members) => {
                let mut messages = members
                    .into_iter()
                    .filter_map(|raw| Message::from_server(raw).ok());
                messages.find(is_it)
            }
            Self::Other(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use bowline_wire::sse::Decoder;

    use super::*;
    use crate::leg::repeat_id::renamed;

    fn show(rewrite: &Rewrite, text: &str) -> String {
        let mut decoder = Decoder::new(1 << 20);
        decoder.push(Bytes::copy_from_slice(text.as_bytes()));
        let event = decoder.next_event().unwrap().unwrap();
        let data = event.data().map(|data| Bytes::copy_from_slice(&data));
        let content = Content::of(data.unwrap_or_default()).unwrap();
        let shown = rewrite.event(&event, &content).unwrap();
        String::from_utf8(shown.to_vec()).unwrap()
    }

    fn rewrite_of(born: Born) -> Rewrite {
        let reserved = Reserved::new("bowline");
        Rewrite::new(Seal::generate().unwrap(), Generation::FIRST, born, reserved)
    }

    fn rewrite() -> Rewrite {
        rewrite_of(Born::Standalone)
    }

    #[test]
    fn the_answer_to_a_repeated_request_is_shown_under_the_clients_own_id() {
        let born = Born::Request("\"s-1\"".into());
        let rewrite = rewrite_of(born);
        let answer =
            |id: &str| format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n\n");
        let again = answer(&renamed("\"s-1\"", 1));
        assert_eq!(show(&rewrite, &again), answer("\"s-1\""));
        assert_eq!(show(&rewrite, &answer("7")), answer("7"));
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
        let mark = rewrite.seal.request(Generation::FIRST, "42").unwrap();
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
    fn a_batch_becomes_single_messages_each_with_its_mark() {
        let rewrite = rewrite();
        let mark = rewrite.seal.request(Generation::FIRST, "42").unwrap();
        let shown = show(
            &rewrite,
            "event: message\nid: 7\ndata: [{\"jsonrpc\":\"2.0\", \"id\":42,\"method\":\"roots/list\"} , 1.0,{\"jsonrpc\":\"2.0\",\"id\":42,\"result\":{}}]\n\n",
        );
        let asked = format!(
            "event: message\ndata: {{\"jsonrpc\":\"2.0\", \"id\":{mark},\"method\":\"roots/list\"}}\n\nevent: message\ndata: 1.0\n\nevent: message\nid: "
        );
        let rest = shown.strip_prefix(&asked).expect(&shown);
        let (id, rest) = rest.split_once('\n').unwrap();
        assert_eq!(*rewrite.seal.open_event(id.as_bytes()).unwrap().id, *b"7");
        assert_eq!(
            rest,
            "data: {\"jsonrpc\":\"2.0\",\"id\":42,\"result\":{}}\n\n"
        );
        for other in ["data: []\n\n", "data: [\n\n"] {
            assert_eq!(show(&rewrite, other), other);
        }
    }

    #[test]
    fn a_batch_too_large_to_look_into_is_refused() {
        let array = |members| Bytes::from(format!("[{}1]", "1,".repeat(members - 1)));
        assert!(matches!(
            Content::of(array(MAX_BATCH)),
            Ok(Content::Batch(_))
        ));
        assert!(Content::of(array(MAX_BATCH + 1)).is_err());
    }

    #[test]
    fn data_in_several_lines_is_one_message() {
        let shown = show(
            &rewrite(),
            "data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":42,\"method\":\"ping\"}\n\n",
        );
        assert!(!shown.contains("\"id\":42"), "{shown}");
        assert_eq!(
            shown
                .lines()
                .filter(|line| line.starts_with("data: "))
                .count(),
            2
        );
    }

    /// Any JSON, written in any way that JSON allows.
    fn any_json() -> impl proptest::strategy::Strategy<Value = String> {
        use proptest::prelude::{Strategy as _, any, prop, prop_oneof};
        let leaf = prop_oneof![
            prop::sample::select(vec![
                "null",
                "true",
                "1.0",
                "-0",
                "1e5",
                "\"\\u0041\"",
                "\"é\""
            ])
            .prop_map(str::to_owned),
            any::<i32>().prop_map(|number| number.to_string()),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4)
                    .prop_map(|all| format!("[ {} ]", all.join(" ,"))),
                prop::collection::vec(inner, 0..4).prop_map(|all| {
                    let members: Vec<String> = all
                        .iter()
                        .enumerate()
                        .map(|(n, value)| format!("\"k{n}\" :{value}"))
                        .collect();
                    format!("{{{}}}", members.join(", "))
                }),
            ]
        })
    }

    proptest::proptest! {
        #[test]
        fn what_is_not_rewritten_is_byte_identical(
            value in any_json(),
            shape in 0..3_u8,
            ending in proptest::sample::select(vec!["\n", "\r\n"]),
            comment in "[ -~]{0,20}",
        ) {
            let message = match shape {
                0 => format!("{{\"result\":{value} ,\"id\":7,\"jsonrpc\":\"2.0\",\"extra\":{value}}}"),
                1 => format!("{{\"jsonrpc\":\"2.0\", \"error\":{value},\"id\":\"a\"}}"),
                _ => format!("{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{value}}}"),
            };
            let text = format!(":{comment}{ending}event: message{ending}data: {message}{ending}retry: 5{ending}{ending}");
            assert_eq!(show(&rewrite(), &text), text);
        }
    }
}
