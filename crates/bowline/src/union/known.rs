//! What servers said last to each caller: served when a server cannot be asked, and marked as such. It is kept in
//! memory, within bounds.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bowline_wire::message::Message;
use parking_lot::Mutex;

use super::Attached;
use super::list::List;
use super::listing::{Listing, text_member};
use crate::caller::Caller;
use crate::config::ServerName;
use crate::upstream::Upstream;

/// How many listings are kept, and how many bytes of them.
const MAX_LISTINGS: usize = 16 * 1024;
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// How much of a server's instructions is passed on.
const MAX_INSTRUCTIONS: usize = 4096;

/// What servers said last.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    listings: HashMap<(Audience, List), Arc<Listing>>,
    instructions: HashMap<Audience, Arc<str>>,
    /// Oldest first.
    order: VecDeque<Forgettable>,
    bytes: usize,
}

/// Whom a server said it to: one caller, with the same headers and query, because servers may answer by those.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Audience {
    server: ServerName,
    caller: Caller,
    carried: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Forgettable {
    Listing(Audience, List),
    Instructions(Audience),
}

// === impl Known ===

impl Known {
    pub(super) fn listing(
        &self,
        to: &Attached,
        server: &Upstream,
        list: List,
    ) -> Option<Arc<Listing>> {
        let listings = &self.0.lock().listings;
        listings.get(&(Audience::of(to, server), list)).cloned()
    }

    /// Keeps a list. If it is the same as before, it is in memory once for all clients of this caller.
    pub(super) fn note(
        &self,
        to: &Attached,
        server: &Upstream,
        list: List,
        listing: Arc<Listing>,
    ) -> Arc<Listing> {
        let audience = Audience::of(to, server);
        let mut inner = self.0.lock();
        let key = (audience.clone(), list);
        if let Some(before) = inner.listings.get(&key)
            && *before == listing
        {
            return Arc::clone(before);
        }
        inner.bytes += listing.len();
        match inner.listings.insert(key, Arc::clone(&listing)) {
            Some(before) => inner.bytes -= before.len(),
            None => inner.order.push_back(Forgettable::Listing(audience, list)),
        }
        inner.fit();
        listing
    }

    pub(super) fn instructions(&self, to: &Attached, server: &Upstream) -> Option<Arc<str>> {
        let instructions = &self.0.lock().instructions;
        instructions.get(&Audience::of(to, server)).cloned()
    }

    /// Notes what a server said of itself in its answer to `initialize`.
    pub(super) fn note_instructions(&self, to: &Attached, server: &Upstream, answer: &Message) {
        let said = answer
            .result()
            .and_then(|result| text_member(result, "instructions"));
        let Some(said) = said.filter(|said| !said.is_empty()) else {
            return;
        };
        let end = said.floor_char_boundary(MAX_INSTRUCTIONS);
        let (audience, said) = (Audience::of(to, server), Arc::from(&said[..end]));
        let mut inner = self.0.lock();
        inner.bytes += end;
        match inner.instructions.insert(audience.clone(), said) {
            Some(before) => inner.bytes -= before.len(),
            None => inner.order.push_back(Forgettable::Instructions(audience)),
        }
        inner.fit();
    }
}

// === impl Inner ===

impl Inner {
    fn fit(&mut self) {
        while self.bytes > MAX_BYTES || self.order.len() > MAX_LISTINGS {
            let forgotten = match self.order.pop_front() {
                Some(Forgettable::Listing(audience, list)) => {
                    let listing = self.listings.remove(&(audience, list));
                    listing.map(|listing| listing.len())
                }
                Some(Forgettable::Instructions(audience)) => {
                    let said = self.instructions.remove(&audience);
                    said.map(|said| said.len())
                }
                None => return,
            };
            self.bytes -= forgotten.unwrap_or_default();
        }
    }
}

// === impl Audience ===

impl Audience {
    fn of(to: &Attached, server: &Upstream) -> Self {
        let attachment = to.attachment();
        let (own, config) = (to.carried_to(server), server.config());
        let carried = match &attachment.carried {
            Some(opening) => own.or(&opening.for_server(&config), &config),
            None => own,
        };
        Self {
            server: server.name.clone(),
            caller: attachment.caller.clone(),
            carried: carried.fingerprint(),
        }
    }
}
