//! What servers said last to each caller: served when a server cannot be asked, and marked as such. It is kept in
//! memory, within bounds.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use aws_lc_rs::digest;
use bowline_wire::message::Message;
use parking_lot::Mutex;

use super::Attached;
use super::list::List;
use super::listing::{Listing, text_member};
use crate::caller::Caller;
use crate::callers::identity_of;
use crate::leg::Leg;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Audience {
    source: Source,
    /// A hash.
    whom: [u8; 16],
}

/// Who said it, as a hash: a server at these URLs, because at others it is another one, to whoever is signed in there
/// as this account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Source([u8; 16]);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Forgettable {
    Listing(Audience, List),
    Instructions(Audience),
}

// === impl Known ===

impl Known {
    pub(super) fn listing(&self, audience: Audience, list: List) -> Option<Arc<Listing>> {
        let listings = &self.0.lock().listings;
        listings.get(&(audience, list)).cloned()
    }

    /// Keeps a list. If it is the same as before, it is in memory once for all clients of this caller.
    pub(super) fn note(
        &self,
        audience: Audience,
        list: List,
        listing: Arc<Listing>,
    ) -> Arc<Listing> {
        let mut inner = self.0.lock();
        let key = (audience, list);
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

    pub(super) fn instructions(&self, audience: Audience) -> Option<Arc<str>> {
        let instructions = &self.0.lock().instructions;
        instructions.get(&audience).cloned()
    }

    /// Notes what a server said of itself in its answer to `initialize`.
    pub(super) fn note_instructions(&self, audience: Audience, answer: &Message) {
        let said = answer
            .result()
            .and_then(|result| text_member(result, "instructions"));
        let Some(said) = said.filter(|said| !said.is_empty()) else {
            return;
        };
        let end = said.floor_char_boundary(MAX_INSTRUCTIONS);
        let said = Arc::from(&said[..end]);
        let mut inner = self.0.lock();
        inner.bytes += end;
        match inner.instructions.insert(audience, said) {
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
    /// Whom a server would say something to now.
    pub(super) fn of(to: &Attached, server: &Upstream) -> Self {
        let attachment = to.attachment();
        let (own, config) = (to.carried_to(server), server.config());
        let carried = match &attachment.carried {
            Some(opening) => own.or(&opening.for_server(&config), &config),
            None => own,
        };
        let caller = &attachment.caller;
        Self {
            source: Source::of(server, caller),
            whom: hash(&[&identity_of(caller), &carried.fingerprint()]),
        }
    }

    /// The same, if it is what the server says on this leg: not for another account, and not at a URL of before.
    pub(super) fn on(leg: &Leg, to: &Attached) -> Option<Self> {
        let server = &leg.upstream;
        let account = leg.account.as_ref();
        let is_current = account
            .is_none_or(|account| account.sign_in() == leg.credentials.sign_in())
            && server.is_configured(&leg.endpoint);
        is_current.then(|| Self::of(to, server))
    }

    pub(super) fn source(&self) -> Source {
        self.source
    }
}

// === impl Source ===

impl Source {
    pub(super) fn of(server: &Upstream, caller: &Caller) -> Self {
        let account = server.account(caller);
        let sign_in = account.map_or(0, |account| account.sign_in());
        let (name, identity) = (server.name.as_ref(), server.identity());
        Self(hash(&[name, &identity, &sign_in.to_string()]))
    }
}

/// A hash of these parts, none of which has a NUL.
fn hash(parts: &[&str]) -> [u8; 16] {
    let digest = digest::digest(&digest::SHA256, parts.join("\0").as_bytes());
    let mut hash = [0; 16];
    hash.copy_from_slice(&digest.as_ref()[..16]);
    hash
}
