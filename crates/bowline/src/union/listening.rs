//! The GET stream of an attachment: at most one at a time among all gateways, and what it still has to say.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bowline_wire::message::Message;
use bowline_wire::sse::Event;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::Attached;
use super::joint::{Joint, Positions};
use super::list::List;
use crate::config::ServerName;
use crate::exchange::outlet::Outlet;
use crate::fault::Fault;
use crate::leg::capabilities::LISTS;
use crate::leg::marks::StreamOrigin;
use crate::session_store::announcement::Announcement;

/// How many events wait for a client that does not read. After that its members' streams are not read.
const WAITING: usize = 16;

/// How many messages are kept for a client that has no stream.
const MAX_SAID: usize = 64;
const MAX_SAID_BYTES: usize = 256 * 1024;

/// The GET stream of an attachment.
#[derive(Debug, Default)]
pub(super) struct Listening {
    current: Mutex<Current>,
    /// The lists of which the client has to be told that they changed.
    due: AtomicU8,
    /// What servers said beside an answer that the client did not ask for itself, and which server.
    said: Mutex<VecDeque<(ServerName, Bytes)>>,
    /// Something is due, or the members have changed.
    pub(super) news: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Current {
    /// The number of the newest stream, at any gateway.
    newest: u64,
    /// Ends the stream that is open here.
    over: Option<CancellationToken>,
    has_ended: bool,
}

// === impl Listening ===

impl Listening {
    /// A list has changed.
    pub(super) fn changed(&self, list: List) {
        let bit = LISTS.iter().find(|(name, _)| *name == list.capability());
        self.add_due(bit.map_or(0, |(_, bit)| *bit));
    }

    /// All lists may have changed.
    pub(super) fn all_changed(&self) {
        self.add_due(LISTS.iter().fold(0, |all, (_, bit)| all | bit));
    }

    pub(super) fn add_due(&self, bits: u8) {
        self.due.fetch_or(bits, Ordering::AcqRel);
        self.news.notify_one();
    }

    /// Passes on what a server said, now or when the client opens a stream. The oldest gives way.
    pub(super) fn say(&self, server: &ServerName, message: &Message) {
        let mut said = self.said.lock();
        said.push_back((server.clone(), message.raw().clone()));
        let bytes =
            |said: &VecDeque<(_, Bytes)>| said.iter().map(|(_, said)| said.len()).sum::<usize>();
        while said.len() > MAX_SAID || bytes(&said) > MAX_SAID_BYTES {
            said.pop_front();
        }
        drop(said);
        self.news.notify_one();
    }

    pub(super) fn take_said(&self) -> Option<(ServerName, Event)> {
        let (server, said) = self.said.lock().pop_front()?;
        Some((server, Event::of_message(said)))
    }

    pub(super) fn take_due(&self, bits: u8) -> u8 {
        self.due.fetch_and(!bits, Ordering::AcqRel) & bits
    }

    pub(super) fn due(&self) -> u8 {
        self.due.load(Ordering::Acquire)
    }

    /// There are other members.
    pub(super) fn members_changed(&self) {
        self.news.notify_one();
    }

    /// Ends the stream that is open here.
    pub(super) fn cut(&self) {
        if let Some(over) = self.current.lock().over.take() {
            over.cancel();
        }
    }

    /// Ends the stream that is open here, and every later one.
    pub(super) fn end(&self) {
        let mut current = self.current.lock();
        current.has_ended = true;
        if let Some(over) = current.over.take() {
            over.cancel();
        }
    }

    /// The client has opened another stream with this number at another gateway.
    pub(super) fn listens_elsewhere(&self, number: u64) {
        let mut current = self.current.lock();
        if number > current.newest {
            current.newest = number;
            if let Some(over) = current.over.take() {
                over.cancel();
            }
        }
    }

    /// Takes the place of the stream before. `None`: another one is newer, or the attachment has ended.
    fn begin(&self, number: Option<u64>) -> Option<CancellationToken> {
        let mut current = self.current.lock();
        let number = number.unwrap_or(current.newest);
        if current.has_ended || number < current.newest {
            return None;
        }
        current.newest = number;
        let over = CancellationToken::new();
        if let Some(before) = current.over.replace(over.clone()) {
            before.cancel();
        }
        Some(over)
    }
}

// === impl Attached ===

impl Attached {
    /// Opens a stream to the client: that of all members or, after the event `last`, the rest of one that answers a
    /// request.
    pub(crate) async fn listen(self, last: Option<&[u8]>) -> Result<Outlet, Fault> {
        let attachment = Arc::clone(self.attachment());
        let positions = match last {
            None => Positions::default(),
            Some(last) => {
                if let Some(mark) = attachment.seal.open_event(last)
                    && matches!(mark.origin, StreamOrigin::Request(_))
                {
                    let exchange = self.numbered(mark.leg.leg).await;
                    let exchange = exchange.ok_or(Fault::LastEventId)?;
                    return exchange.listen(Some(last)).await;
                }
                Positions::parse(last, &attachment.seal).ok_or(Fault::LastEventId)?
            }
        };
        let number = match &attachment.stored {
            Some(stored) => stored.next_number().await,
            None => None,
        };
        let (events, outgoing) = mpsc::channel(WAITING);
        let Some(over) = attachment.listening.begin(number) else {
            let over = CancellationToken::new();
            return Ok(Outlet::joined(
                Vec::new(),
                outgoing,
                Some(over.drop_guard()),
            ));
        };
        if let (Some(stored), Some(number)) = (&attachment.stored, number) {
            let news = Announcement::Listens(attachment.id, number);
            stored.session_store.announce(news);
        }
        if last.is_some() && positions.lacks_some(&attachment.members()) {
            // What they said meanwhile is not known.
            attachment.listening.all_changed();
        }
        let joint = Joint::new(self, positions, number, events, over.clone());
        let tracker = joint.attached().unions.registry.tracker.clone();
        let own = over.clone();
        tracker.spawn(async move { own.run_until_cancelled(joint.run()).await });
        Ok(Outlet::joined(
            Vec::new(),
            outgoing,
            Some(over.drop_guard()),
        ))
    }
}
