//! The streams of HTTP+SSE clients: each has a mailbox at the gateway where it is open, and a token by which
//! the client's messages find it, whichever gateway they reach.
//!
//! A token is the stream and its gateway, sealed for one caller and one server with the keys of the store, which
//! all gateways on it have. So it discloses nothing, nobody can make one up, and for another caller or on the
//! path of another server it is worth nothing. It names no session: there is none before `initialize`.

pub(crate) mod room;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline_store::sealed::{NoRandomness, SealKeys};
use bowline_wire::message::{Kind, Message};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::room::{Room, RoomPermit};
use crate::callers::Permitted;
use crate::config::Limits;
use crate::fault::Fault;
use crate::owners::Owners;
use crate::upstream::Carried;

/// How long a message waits to learn whether the gateway of its stream is still there.
const LOOK: Duration = Duration::from_secs(2);

/// No token is longer than this.
const MAX_TOKEN: usize = 512;

/// The streams that are open in this gateway.
#[derive(Debug)]
pub(crate) struct Mailboxes {
    keys: SealKeys,
    /// This gateway's name among those on the store.
    me: Box<str>,
    open: Mutex<HashMap<StreamId, Arc<Mailbox>>>,
}

/// One stream among those of its gateway.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct StreamId([u8; Self::BYTES]);

/// Where the messages of one client are put.
#[derive(Debug)]
pub(crate) struct Mailbox {
    /// The query of the request that opened the stream, which goes with every message.
    pub(crate) query: Option<Box<str>>,
    letters: mpsc::Sender<Letter>,
    requests: Room,
    /// A place of their own: a request may end only after the client has answered something.
    notices: Room,
}

/// A client's message on its way to the task of its stream.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) content: Content,
    pub(crate) carried: Carried,
    pub(crate) place: RoomPermit,
}

#[derive(Debug)]
pub(crate) enum Content {
    Message(Message),
    /// A JSON array of messages.
    Batch(Bytes),
}

/// A stream that is open here, for the task that serves it. Dropping this closes its mailbox.
#[derive(Debug)]
pub(crate) struct OpenMailbox {
    mailboxes: Arc<Mailboxes>,
    id: StreamId,
}

/// Where the stream is that a token names.
#[derive(Debug)]
pub(crate) enum StreamAt {
    /// In this gateway.
    Here(Arc<Mailbox>),
    /// At the gateway of this name, which is present as far as is known.
    Elsewhere(Box<str>),
    /// Nowhere: it has ended, its gateway is gone, or the token is not this caller's for this server.
    Gone,
}

// === impl Mailboxes ===

impl Mailboxes {
    /// Those of a gateway of this name, on a store with these keys.
    pub(crate) fn new(me: &str, keys: SealKeys) -> Self {
        Self {
            keys,
            me: me.into(),
            open: Mutex::default(),
        }
    }

    /// Opens a mailbox. Returns it with its token and what is put into it.
    pub(crate) fn open(
        self: &Arc<Self>,
        permitted: &Permitted<'_>,
        query: Option<Box<str>>,
        limits: &Limits,
    ) -> Result<(OpenMailbox, String, mpsc::Receiver<Letter>), NoRandomness> {
        let id = StreamId::generate()?;
        let plain = [&id.0, self.me.as_bytes()].concat();
        let sealed = self.keys.seal(&place(permitted), &plain)?;
        // Every letter has a place in one of the rooms.
        let (letters, incoming) = mpsc::channel(2 * room::MAX_REQUESTS);
        let mailbox = Mailbox {
            query,
            letters,
            requests: Room::new(limits),
            notices: Room::new(limits),
        };
        self.open.lock().insert(id, Arc::new(mailbox));
        let open = OpenMailbox {
            mailboxes: Arc::clone(self),
            id,
        };
        Ok((open, BASE64_URL_SAFE_NO_PAD.encode(sealed), incoming))
    }

    /// Where the stream is that this token names, which came from this caller on the path of this server or union. The
    /// one place where that is decided.
    pub(crate) async fn locate(
        &self,
        token: &str,
        permitted: &Permitted<'_>,
        owners: &Owners,
    ) -> StreamAt {
        let Some((id, gateway)) = self.read(token, permitted) else {
            return StreamAt::Gone;
        };
        if gateway == self.me {
            let found = self.open.lock().get(&id).cloned();
            return found.map_or(StreamAt::Gone, StreamAt::Here);
        }
        let now = Instant::now();
        owners.look(&gateway, now, LOOK).await;
        match owners.is_gone(&gateway, now) {
            true => StreamAt::Gone,
            false => StreamAt::Elsewhere(gateway),
        }
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.open.lock().len()
    }

    fn read(&self, token: &str, permitted: &Permitted<'_>) -> Option<(StreamId, Box<str>)> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        let sealed = BASE64_URL_SAFE_NO_PAD.decode(token).ok()?;
        let plain = self.keys.open(&place(permitted), &sealed).ok()?;
        let (id, gateway) = plain.split_first_chunk()?;
        Some((StreamId(*id), std::str::from_utf8(gateway).ok()?.into()))
    }
}

/// Whose token it is, and for what.
fn place(permitted: &Permitted<'_>) -> Vec<u8> {
    let (server, caller) = (permitted.at(), permitted.caller());
    let (name, key) = (caller.name(), caller.key());
    let key = key.map(|key| key.to_string()).unwrap_or_default();
    // Names have no line breaks.
    let place = format!(
        "http+sse stream\n{server}\n{}\n{key}",
        name.unwrap_or_default()
    );
    place.into_bytes()
}

// === impl Mailbox ===

impl Mailbox {
    /// Puts a message in, to be taken in the order of arrival.
    pub(crate) fn put(&self, content: Content, carried: Carried) -> Result<(), Fault> {
        let (room, bytes) = match &content {
            Content::Message(message) if message.kind() == Kind::Request => {
                (&self.requests, message.raw().len())
            }
            Content::Message(message) => (&self.notices, message.raw().len()),
            Content::Batch(array) => (&self.requests, array.len()),
        };
        let place = room.take(bytes)?;
        let letter = Letter {
            content,
            carried,
            place,
        };
        match self.letters.try_send(letter) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => Err(Fault::TooManyBodies),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Fault::UnknownSession),
        }
    }
}

// === impl OpenMailbox ===

impl Drop for OpenMailbox {
    fn drop(&mut self) {
        self.mailboxes.open.lock().remove(&self.id);
    }
}

// === impl StreamId ===

impl StreamId {
    const BYTES: usize = 16;

    fn generate() -> Result<Self, NoRandomness> {
        let mut bytes = [0; Self::BYTES];
        rand::fill(&mut bytes).map_err(|_| NoRandomness)?;
        Ok(Self(bytes))
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamId(…)")
    }
}

#[cfg(test)]
mod tests;
