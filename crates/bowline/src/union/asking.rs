//! Asking one server for one of its lists. A server that is slow delays a list by its deadline once, and after that
//! not at all: it is asked in the background, and the client is told when it answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Attached;
use super::known::Audience;
use super::list::List;
use super::listing::{Absence, Listing};
use super::slot::{Asked, Slot};
use crate::exchange::tool_filter::ActiveFilter;
use crate::fault::Fault;
use crate::upstream::Upstream;

/// How long a server is waited for that could not be asked the last time, by this client or another.
const DOUBTFUL: Duration = Duration::from_secs(1);

/// How long a server may owe an answer that nobody waits for.
const LONGEST: Duration = Duration::from_secs(120);

/// What a list says of one server.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) server: Arc<Upstream>,
    /// Its list: as it answered, or as it answered last.
    pub(super) listing: Option<Arc<Listing>>,
    /// Why it could not be asked now.
    pub(super) absence: Option<Arc<Absence>>,
}

impl Attached {
    /// Asks all servers for a list, side by side.
    pub(super) async fn ask_all(&self, list: List) -> Vec<Told> {
        self.ask_these(&self.servers(), list).await
    }

    /// Asks these servers for a list, side by side.
    pub(super) async fn ask_these(&self, servers: &[Arc<Upstream>], list: List) -> Vec<Told> {
        let asking: Vec<_> = servers
            .iter()
            .map(|server| (Arc::clone(server), self.begin(server, list)))
            .collect();
        let mut told = Vec::with_capacity(asking.len());
        for (server, asked) in asking {
            let asked = match asked {
                Ok(asking) => asking.finish(list).await,
                Err(absence) => Err(absence),
            };
            let slot = self.attachment().slot(&server.name);
            if asked.is_err()
                && let Some(absence) = slot.absence(list)
            {
                self.unions.note_absence(&server.name, list, Some(&absence));
                let is_open = self.attachment().member_of(&server.name).is_some();
                if slot.is_overdue(list) {
                    self.unions.doubt(&server.name, is_open.then_some(list));
                }
            }
            told.push(self.told(server, list, asked));
        }
        told
    }

    fn told(&self, server: Arc<Upstream>, list: List, asked: Asked) -> Told {
        match asked {
            Ok(listing) => Told {
                listing: Some(allowed(&server, list, listing)),
                server,
                absence: None,
            },
            Err(absence) => Told {
                listing: self.listing(&server, list),
                absence: Some(absence),
                server,
            },
        }
    }

    /// The last list of a server that is known, and that this client may see now.
    pub(super) fn listing(&self, server: &Upstream, list: List) -> Option<Arc<Listing>> {
        let audience = Audience::of(self, server);
        let slot = self.attachment().slot(&server.name);
        let listing = slot.listing(list, audience.source());
        let listing = listing.or_else(|| self.unions.known.listing(audience, list));
        listing.map(|listing| allowed(server, list, listing))
    }

    /// Begins to ask a server, unless it still owes an answer.
    fn begin(&self, server: &Arc<Upstream>, list: List) -> Result<Asking, Arc<Absence>> {
        let slot = self.attachment().slot(&server.name);
        let before = slot.absence(list);
        if let Some(before) = before.clone().filter(|_| slot.is_overdue(list)) {
            return Err(before);
        }
        let limit = server.config().list_timeout;
        let is_doubtful = |list| self.unions.is_doubtful(&server.name, list);
        let is_open = self.attachment().member_of(&server.name).is_some();
        let is_slow = is_doubtful(Some(list)) || (!is_open && is_doubtful(None));
        let limit = match before.is_some() || is_slow {
            true => limit.min(DOUBTFUL),
            false => limit,
        };
        let answers = slot.answers(list);
        let (answer, answered) = oneshot::channel();
        let (attached, own) = (self.clone(), Arc::clone(server));
        self.unions.registry.tracker.spawn(async move {
            let over = attached.attachment().over.clone();
            let asking = tokio::time::timeout(LONGEST, attached.ask(&own, list));
            let Some(asked) = over.run_until_cancelled(asking).await else {
                return;
            };
            let late = |_| (Err(Arc::new(Absence::late(list, LONGEST))), None);
            let (asked, audience) = asked.unwrap_or_else(late);
            let asked = attached.note(&own, list, asked, audience);
            // If nobody waits for it any more, the client is told that the list has changed.
            drop(answer.send(asked));
        });
        let until = tokio::time::Instant::now() + limit;
        Ok(Asking {
            slot,
            answers,
            answered,
            until,
            limit,
        })
    }

    /// Asks a server; its answer, and whom it is for, if that has not changed meanwhile.
    async fn ask(&self, server: &Arc<Upstream>, list: List) -> (Asked, Option<Audience>) {
        let asking = async {
            let exchange = self.member(server).await?;
            let session = exchange.in_use.session();
            let audience = Audience::on(&session.leg(), self);
            let listing = Listing::fetch(&exchange, list, &self.attachment().listening).await;
            if let Err(fault) = &listing
                && fault.is_session_lost()
            {
                self.lost(&exchange.id, false).await;
            }
            let audience = audience.filter(|_| audience == Audience::on(&session.leg(), self));
            listing.map(|listing| (listing, audience))
        };
        match asking.await {
            Ok((listing, audience)) => (Ok(Arc::new(listing)), audience),
            Err(fault) => (Err(Arc::new(Absence::of(&fault))), None),
        }
    }

    /// Notes what a server answered. If its list could not be had before and can now, the client is told.
    fn note(
        &self,
        server: &Arc<Upstream>,
        list: List,
        asked: Asked,
        audience: Option<Audience>,
    ) -> Asked {
        let asked = asked.map(|listing| match audience {
            Some(audience) => self.unions.known.note(audience, list, listing),
            None => listing,
        });
        if let Ok(listing) = &asked {
            let left_out = &listing.left_out;
            self.unions.left_out.note(&server.name, list, left_out);
        }
        let absence = asked.as_ref().err();
        self.unions.note_absence(&server.name, list, absence);
        if asked.is_ok() {
            self.unions.trust(&server.name, list);
        }
        let source = audience.map(|audience| audience.source());
        let attachment = self.attachment();
        if let (List::Resources, Ok(listing)) = (list, &asked) {
            let mut uris = attachment.uris.lock();
            uris.keep_listed(&server.name, |uri| listing.has(uri));
        }
        if attachment.slot(&server.name).note(list, &asked, source) {
            attachment.listening.changed(list);
        }
        asked
    }

    /// Asks again for what could not be had, as soon as its server is well, and then less and less often.
    pub(super) fn ask_for_missing(&self) {
        for (name, slot) in self.attachment().slots() {
            let Some(server) = self.server(name.as_ref()) else {
                continue;
            };
            for list in slot.missing() {
                if slot.is_due(list, server.has_well_endpoint()) {
                    drop(self.begin(&server, list));
                }
            }
        }
    }

    /// Asks a server again for what could not be had, when the request has ended that may prompt now: somebody may have
    /// signed in.
    pub(super) fn ask_after_turn(&self, server: &Arc<Upstream>) {
        let (attached, server) = (self.clone(), Arc::clone(server));
        self.unions.registry.tracker.spawn(async move {
            let attachment = Arc::clone(attached.attachment());
            let turn = attachment.prompting.lock();
            if let Some(turn) = attachment.over.run_until_cancelled(turn).await {
                drop(turn);
                for list in attachment.slot(&server.name).missing() {
                    drop(attached.begin(&server, list));
                }
            }
        });
    }
}

/// A list without the tools that the operator does not allow now, whatever was allowed when it was asked for.
fn allowed(server: &Upstream, list: List, listing: Arc<Listing>) -> Arc<Listing> {
    match ActiveFilter::of(server) {
        Some(filter) if list == List::Tools => listing.keeping(|item| filter.allows(&item.key)),
        _ => listing,
    }
}

/// A server that was asked for a list.
struct Asking {
    slot: Arc<Slot>,
    /// How often the server had answered before.
    answers: u64,
    answered: oneshot::Receiver<Asked>,
    until: tokio::time::Instant,
    limit: Duration,
}

impl Asking {
    async fn finish(self, list: List) -> Asked {
        match tokio::time::timeout_at(self.until, self.answered).await {
            Ok(Ok(asked)) => asked,
            Ok(Err(_)) => Err(Arc::new(Absence::of(&Fault::Stopping))),
            Err(_) => {
                let late = Arc::new(Absence::late(list, self.limit));
                self.slot.give_up(list, self.answers, late)
            }
        }
    }
}
