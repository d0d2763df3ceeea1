//! The streams of all members as one. An event id of it carries the positions of all members that issue ids, so a
//! client can resume them all with the last one. `list_changed` is told once for many.

use std::collections::{BTreeSet, HashMap};
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bowline_wire::compose;
use bowline_wire::message::Message;
use bowline_wire::sse::Event;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Attached;
use super::record::Member;
use crate::exchange::outlet::Outlet;
use crate::leg::capabilities::LISTS;
use crate::leg::marks::{Seal, StreamOrigin};

/// The pause before a member's stream is opened again, which doubles while it fails.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The least time between two `list_changed` of one list.
const COALESCED: Duration = Duration::from_secs(1);

/// How often it is looked whether servers are back whose lists could not be had.
const MISSING_EVERY: Duration = Duration::from_secs(1);

/// The longest event id. Members that do not fit resume from now on.
const MAX_ID: usize = 2048;

/// How far a client has read the streams of the members: their last event ids, newest last.
#[derive(Debug, Default)]
pub(super) struct Positions(Vec<(u16, Bytes)>);

/// The joined stream of one client.
#[derive(Debug)]
pub(super) struct Joint {
    attached: Attached,
    positions: Positions,
    /// The number of this stream among those of the attachment, if gateways share it.
    number: Option<u64>,
    /// To the client.
    events: mpsc::Sender<Event>,
    /// From the members.
    inbox: mpsc::Receiver<FromMember>,
    members: mpsc::Sender<FromMember>,
    /// The members that are listened to.
    heard: BTreeSet<u16>,
    /// When a change of a list was told last, by its bit.
    told: HashMap<u8, Instant>,
    over: CancellationToken,
}

#[derive(Debug)]
struct FromMember {
    number: u16,
    event: Event,
}

// === impl Positions ===

impl Positions {
    /// Reads an event id of a joined stream; `None` if it is none of this attachment's.
    pub(super) fn parse(id: &[u8], seal: &Seal) -> Option<Self> {
        let mut positions = Vec::new();
        for mark in id.split(|byte| *byte == b',') {
            let opened = seal.open_event(mark)?;
            if opened.origin != StreamOrigin::Standalone {
                return None;
            }
            positions.push((opened.leg.leg, Bytes::copy_from_slice(mark)));
        }
        Some(Self(positions))
    }

    /// Whether the position of some member is not known.
    pub(super) fn lacks_some(&self, members: &[Member]) -> bool {
        members
            .iter()
            .any(|member| self.of(member.number).is_none())
    }

    fn of(&self, number: u16) -> Option<&Bytes> {
        let found = self.0.iter().find(|(known, _)| *known == number);
        found.map(|(_, mark)| mark)
    }

    fn reach(&mut self, number: u16, mark: &[u8]) {
        self.0.retain(|(known, _)| *known != number);
        self.0.push((number, Bytes::copy_from_slice(mark)));
    }

    /// All of them as one event id. The oldest are left out if it would be too long.
    fn id(&self) -> String {
        let mut id = String::new();
        for (_, mark) in self.0.iter().rev() {
            let mark = String::from_utf8_lossy(mark);
            if !id.is_empty() {
                if id.len() + 1 + mark.len() > MAX_ID {
                    break;
                }
                id.push(',');
            }
            id.push_str(&mark);
        }
        id
    }
}

// === impl Joint ===

impl Joint {
    pub(super) fn new(
        attached: Attached,
        positions: Positions,
        number: Option<u64>,
        events: mpsc::Sender<Event>,
        over: CancellationToken,
    ) -> Self {
        let (members, inbox) = mpsc::channel(1);
        Self {
            attached,
            positions,
            number,
            events,
            inbox,
            members,
            heard: BTreeSet::new(),
            told: HashMap::new(),
            over,
        }
    }

    pub(super) fn attached(&self) -> &Attached {
        &self.attached
    }

    /// Passes events on until the client leaves.
    pub(super) async fn run(mut self) {
        let news = Arc::clone(&self.attached.attachment().listening.news);
        let mut missing = tokio::time::interval(MISSING_EVERY);
        missing.reset();
        loop {
            self.hear_new_members();
            if self.pass_said_on().await.is_err() {
                return;
            }
            let next = match self.tell_changes().await {
                Ok(next) => next,
                Err(_) => return,
            };
            tokio::select! {
                () = news.notified() => {}
                from = self.inbox.recv() => {
                    if let Some(from) = from
                        && let Some(event) = self.joined(from)
                        && self.events.send(event).await.is_err()
                    {
                        return;
                    }
                }
                () = sleep_until(next) => {}
                _ = missing.tick() => self.attached.ask_for_missing(),
            }
            if !self.attached.is_permitted() {
                return;
            }
        }
    }

    /// Passes on what servers said beside answers, unless the caller may not use them any more.
    async fn pass_said_on(&self) -> Result<(), mpsc::error::SendError<Event>> {
        while let Some((server, said)) = self.attached.attachment().listening.take_said() {
            if self.attached.server(server.as_ref()).is_some() {
                self.events.send(said).await?;
            }
        }
        Ok(())
    }

    /// Listens to members that were opened since.
    fn hear_new_members(&mut self) {
        let members = self.attached.attachment().members();
        self.heard
            .retain(|heard| members.iter().any(|member| member.number == *heard));
        for member in members {
            let number = member.number;
            if !self.heard.insert(number) {
                continue;
            }
            let hearing = hear(
                self.attached.clone(),
                number,
                self.positions.of(number).cloned(),
                self.members.clone(),
                self.number,
                self.over.clone(),
            );
            let over = self.over.clone();
            let tracker = &self.attached.unions.registry.tracker;
            tracker.spawn(async move { over.run_until_cancelled(hearing).await });
        }
    }

    /// A member's event as the client gets it; `None` if it gets nothing now.
    fn joined(&mut self, from: FromMember) -> Option<Event> {
        let FromMember { number, event } = from;
        let id = event.id().filter(|id| !id.is_empty());
        let has_id = id.is_some();
        if let Some(id) = id {
            self.positions.reach(number, id);
        }
        if let Some(bit) = changed_list(&event) {
            self.attached.attachment().listening.add_due(bit);
            return None;
        }
        Some(match has_id {
            true => event.with_id(self.positions.id()),
            false => event,
        })
    }

    /// Tells the client of lists that have changed, unless that was told a moment ago. Returns when the rest is to
    /// be told.
    async fn tell_changes(&mut self) -> Result<Option<Instant>, mpsc::error::SendError<Event>> {
        let listening = &self.attached.attachment().listening;
        let (due, now) = (listening.due(), Instant::now());
        let mut next: Option<Instant> = None;
        for (list, bit) in LISTS.iter().filter(|(_, bit)| due & bit != 0) {
            let again = self.told.get(bit).map(|told| *told + COALESCED);
            if let Some(again) = again.filter(|again| *again > now) {
                next = Some(next.map_or(again, |next| next.min(again)));
                continue;
            }
            if listening.take_due(*bit) == 0 {
                continue;
            }
            self.told.insert(*bit, now);
            let method = format!("notifications/{list}/list_changed");
            let event = Event::of_message(compose::bare_notification(&method));
            self.events.send(event).await?;
        }
        Ok(next)
    }
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// The list that an event says has changed, by its bit.
fn changed_list(event: &Event) -> Option<u8> {
    let message = Message::from_server(event.data()?).ok()?;
    let method = message.method()?.strip_prefix("notifications/")?;
    let list = method.strip_suffix("/list_changed")?;
    let found = LISTS.iter().find(|(name, _)| *name == list);
    found.map(|(_, bit)| *bit)
}

/// Reads the stream of one member, and opens it again whenever it ends, until the member is gone.
async fn hear(
    attached: Attached,
    number: u16,
    mut last: Option<Bytes>,
    inbox: mpsc::Sender<FromMember>,
    stream: Option<u64>,
    over: CancellationToken,
) {
    let mut pause = PAUSE;
    while let Some(exchange) = attached.numbered(number).await {
        match exchange.listen(last.as_deref()).await {
            Ok(outlet) => {
                pause = PAUSE;
                if read(outlet, number, &mut last, &inbox).await.is_none() {
                    return;
                }
            }
            Err(fault) => {
                tracing::debug!(%fault, "a member's stream could not be opened");
                // A position that its server refuses would be refused again.
                last = None;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        if attached.is_overtaken(stream).await {
            over.cancel();
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

/// Passes on the events of one stream until it ends. `None`: nobody reads them any more.
async fn read(
    mut outlet: Outlet,
    number: u16,
    last: &mut Option<Bytes>,
    inbox: &mpsc::Sender<FromMember>,
) -> Option<()> {
    while let Some(Ok(piece)) = poll_fn(|cx| outlet.poll_next(cx)).await {
        let Some(event) = piece.into_event() else {
            continue;
        };
        if let Some(id) = event.id() {
            let id = Some(id).filter(|id| !id.is_empty());
            *last = id.map(Bytes::copy_from_slice);
        }
        inbox.send(FromMember { number, event }).await.ok()?;
    }
    Some(())
}

impl Attached {
    /// Whether the client has opened another stream elsewhere since this one, whose number this is.
    async fn is_overtaken(&self, number: Option<u64>) -> bool {
        let (Some(stored), Some(number)) = (&self.attachment().stored, number) else {
            return false;
        };
        let newest = stored.last_number().await;
        matches!(newest, Ok(Some(newest)) if newest > number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leg::Generation;
    use crate::leg::marks::EventMark;

    fn mark(seal: &Seal, number: u16, id: &str) -> String {
        let mark = EventMark {
            leg: Generation::first_of(number),
            origin: StreamOrigin::Standalone,
            id: id.as_bytes().into(),
        };
        seal.event(&mark).unwrap()
    }

    #[test]
    fn positions_come_back_and_those_of_others_do_not() {
        let (seal, other) = (Seal::generate().unwrap(), Seal::generate().unwrap());
        let mut positions = Positions::default();
        positions.reach(1, mark(&seal, 1, "a").as_bytes());
        positions.reach(2, mark(&seal, 2, "b").as_bytes());
        positions.reach(1, mark(&seal, 1, "c").as_bytes());
        let read = Positions::parse(positions.id().as_bytes(), &seal).unwrap();
        assert_eq!(read.of(1).unwrap(), mark(&seal, 1, "c").as_bytes());
        assert_eq!(read.of(2).unwrap(), mark(&seal, 2, "b").as_bytes());
        assert!(Positions::parse(positions.id().as_bytes(), &other).is_none());
        let forged = format!("{},{}", mark(&seal, 1, "a"), mark(&other, 2, "b"));
        assert!(Positions::parse(forged.as_bytes(), &seal).is_none());
        assert!(Positions::parse(b"", &seal).is_none());
    }

    #[test]
    fn an_id_stays_short_and_keeps_the_newest() {
        let seal = Seal::generate().unwrap();
        let mut positions = Positions::default();
        for number in 1..200 {
            positions.reach(number, mark(&seal, number, &"x".repeat(100)).as_bytes());
        }
        let id = positions.id();
        assert!(id.len() <= MAX_ID, "{}", id.len());
        let read = Positions::parse(id.as_bytes(), &seal).unwrap();
        assert!(read.of(199).is_some());
        assert!(read.of(1).is_none());
    }
}
