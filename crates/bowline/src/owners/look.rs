//! Who may act: what a look at the list of gateways allows this one.
//!
//! **An owner goes on** for as long as its own presence has left. If it cannot renew that, it goes on for [`ALONE`]
//! after each look that finds it listed and no other gateway present: whoever could take over what it owns would have
//! to be present first.
//!
//! **A gateway takes over** from one that is not listed: that one has left. From one that is listed and not present it
//! takes over only after it was present itself for [`ALONE`] without a gap: an owner that thought to be alone has seen
//! it by then.
//!
//! So an owner needs a store that it can read, and without that it stops when what it read last is over.

use std::time::Duration;

use bowline_store::{ListedGateway, Presence};
use tokio::time::Instant;

/// How often a gateway looks, and renews its presence.
pub(crate) const EVERY: Duration = Duration::from_secs(3);
/// For how long a presence is renewed.
pub(crate) const HOLDS: Duration = Duration::from_secs(12);
/// How long being alone counts. A gateway that cannot renew its presence looks much more often.
const ALONE: Duration = EVERY;

/// A look at the list of gateways.
#[derive(Debug)]
pub(crate) struct Look<'a> {
    me: &'a str,
    began: Instant,
    listed: &'a [ListedGateway],
}

/// Since when this gateway has been present without a gap, for others to see, and under which name.
#[derive(Debug, Default)]
pub(crate) struct Visible(Option<(Box<str>, Instant)>);

// === impl Look ===

impl<'a> Look<'a> {
    /// A look of the gateway `me` that began then.
    pub(crate) fn new(me: &'a str, began: Instant, listed: &'a [ListedGateway]) -> Self {
        Self { me, began, listed }
    }

    /// Until when this gateway may use what it owns.
    pub(crate) fn holds_until(&self) -> Instant {
        let left = self.mine().map(|one| one.left.min(HOLDS)).max();
        let is_alone = !self.others().any(is_present);
        let alone = if is_alone { ALONE } else { Duration::ZERO };
        self.began + left.map_or(Duration::ZERO, |left| left.max(alone))
    }

    /// Whether a gateway that is listed and not present is gone, for one that has been present itself like this.
    pub(crate) fn knows_gone(&self, me: &Visible) -> bool {
        me.0.as_ref()
            .is_some_and(|(_, since)| self.began >= *since + ALONE)
    }

    /// Those that are present.
    pub(crate) fn present(&self) -> impl Iterator<Item = &'a Presence> {
        let present = self.listed.iter().filter(|one| is_present(one));
        present.filter_map(|one| one.presence.as_ref())
    }

    /// Those that are not gone; `None` if one of them cannot be read, which may be anybody.
    pub(crate) fn not_gone(&self, me: &Visible) -> Option<Vec<&'a Presence>> {
        let knows_gone = self.knows_gone(me);
        let not_gone = self
            .listed
            .iter()
            .filter(|one| is_present(one) || !knows_gone);
        not_gone.map(|one| one.presence.as_ref()).collect()
    }

    /// Those that are gone.
    pub(crate) fn gone(&self, me: &Visible) -> impl Iterator<Item = &'a ListedGateway> {
        let knows_gone = self.knows_gone(me);
        self.listed
            .iter()
            .filter(move |one| knows_gone && !is_present(one))
    }

    /// How many that are present cannot be read.
    pub(crate) fn unreadable(&self) -> usize {
        let present = self.listed.iter().filter(|one| is_present(one));
        present.filter(|one| one.presence.is_none()).count()
    }

    fn mine(&self) -> impl Iterator<Item = &'a ListedGateway> {
        self.listed.iter().filter(|one| self.is_mine(one))
    }

    fn others(&self) -> impl Iterator<Item = &'a ListedGateway> {
        self.listed.iter().filter(|one| !self.is_mine(one))
    }

    fn is_mine(&self, one: &ListedGateway) -> bool {
        one.presence
            .as_ref()
            .is_some_and(|presence| presence.id == self.me)
    }
}

fn is_present(one: &ListedGateway) -> bool {
    !one.left.is_zero()
}

// === impl Visible ===

impl Visible {
    /// Notes what a look shows of this gateway, which has ended now.
    pub(crate) fn note(&mut self, look: &Look<'_>) {
        let now = look.mine().find(|one| is_present(one)).map(|one| &one.name);
        match (&self.0, now) {
            // It would have another name after a gap.
            (Some((name, _)), Some(now)) if name == now => {}
            (_, now) => self.0 = now.map(|name| (name.clone(), Instant::now())),
        }
    }
}

#[cfg(test)]
mod tests;
