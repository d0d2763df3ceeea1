//! The server over HTTP+SSE (2024-11-05): sessions that are streams.

use std::cell::RefCell;
use std::collections::HashMap;

use bytes::Bytes;
use http::{Response, StatusCode, Uri};
use tokio::sync::mpsc;

use super::{MAX_FILLING, Message, Reply, events, reply};
use crate::echo;

/// Where streams are opened, and where messages go.
pub(super) const PATH: &str = "/sse";
pub(super) const MESSAGES: &str = "/messages";

/// The streams that are open, by their number.
#[derive(Debug, Default)]
pub(super) struct Streams {
    open: HashMap<u64, mpsc::UnboundedSender<Bytes>>,
    opened: u64,
}

/// Opens a stream.
pub(super) fn open(streams: &RefCell<Streams>) -> Response<Reply> {
    let mut streams = streams.borrow_mut();
    streams.opened += 1;
    let (number, (sender, more)) = (streams.opened, mpsc::unbounded_channel());
    // Those that nobody reads any more are left.
    streams.open.retain(|_, stream| !stream.is_closed());
    streams.open.insert(number, sender);
    let first = format!("event: endpoint\ndata: {MESSAGES}?{number}\n\n");
    events(Reply {
        more: Some(more),
        sized: false,
        ..Reply::whole(first)
    })
}

/// Takes a message, and answers it on its stream.
pub(super) fn post(streams: &RefCell<Streams>, uri: &Uri, body: &[u8]) -> Response<Reply> {
    let number = uri.query().and_then(|query| query.parse().ok());
    let streams = streams.borrow();
    let Some(stream) = number.and_then(|number: u64| streams.open.get(&number)) else {
        return reply(StatusCode::NOT_FOUND, Reply::empty());
    };
    let Ok(message) = serde_json::from_slice::<Message<'_>>(body) else {
        return reply(StatusCode::BAD_REQUEST, Reply::empty());
    };
    let id = message.id.map(|id| id.get());
    let answer = match (message.method, id) {
        (_, None) => None,
        ("initialize", Some(id)) => Some(echo::initialized(id)),
        (_, Some(id)) => message.called().map(|(_, called)| {
            echo::answer(id, called.text.get(), called.filling.min(MAX_FILLING))
        }),
    };
    if let Some(answer) = answer {
        let event = format!("event: message\ndata: {answer}\n\n");
        // Whoever left does not mind.
        drop(stream.send(event.into()));
    }
    reply(StatusCode::ACCEPTED, Reply::empty())
}
