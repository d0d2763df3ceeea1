//! The attachments in this gateway's memory: open, find, end, expire. With a store this is a near cache of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_system::clock;
use bowline_wire::id::SessionId;
use bowline_wire::message::Message;
use bowline_wire::version::Agreed;
use parking_lot::Mutex;
use serde_json::Value;

use super::attachment::stored::Stored;
use super::attachment::{Attachment, AttachmentUse, Parts};
use super::shown::Shown;
use super::state::{Member, State};
use super::{Attached, Unions, welcome};
use crate::caller::Caller;
use crate::exchange::Reply;
use crate::exchange::leaving::Leaving;
use crate::fault::Fault;
use crate::leg::marks::Seal;
use crate::registry::Ending;
use crate::route::union::Union;
use crate::session::{MAX_OPENING, Session};
use crate::session_store::{PersistenceError, SessionStore};
use crate::telemetry::SessionHash;
use crate::upstream::Carried;

/// The attachments of one gateway.
#[derive(Debug, Default)]
pub(crate) struct Attachments(Mutex<HashMap<SessionId, Arc<Attachment>>>);

/// A client's `initialize`, and everything else that is needed to open an attachment.
#[derive(Debug)]
pub(crate) struct Attaching {
    pub(crate) unions: Arc<Unions>,
    pub(crate) union: Arc<Union>,
    pub(crate) caller: Caller,
    pub(crate) carried: Carried,
    pub(crate) message: Message,
    /// What it means if the client leaves.
    pub(crate) leaving: Leaving,
}

// === impl Attachments ===

impl Attachments {
    pub(crate) fn cached(&self, id: &SessionId) -> Option<AttachmentUse> {
        self.0.lock().get(id).map(Attachment::begin_use)
    }

    fn by_hash(&self, hash: &str) -> Option<AttachmentUse> {
        let all = self.0.lock();
        let mut all = all.values();
        let found = all.find(|attachment| attachment.hash.to_string() == hash)?;
        Some(found.begin_use())
    }

    pub(super) fn all(&self) -> Vec<Arc<Attachment>> {
        self.0.lock().values().cloned().collect()
    }

    /// Adds one, unless another task was faster.
    fn insert(&self, attachment: Attachment) -> AttachmentUse {
        let mut all = self.0.lock();
        let entry = all.entry(attachment.id);
        entry.or_insert_with(|| Arc::new(attachment)).begin_use()
    }

    /// Removes one: its id is unknown here from now on, and its stream is over.
    pub(super) fn remove(&self, id: &SessionId) -> Option<Arc<Attachment>> {
        let removed = self.0.lock().remove(id)?;
        removed.over.cancel();
        removed.listening.end();
        drop(removed.place.lock().take());
        Some(removed)
    }
}

// === impl Attaching ===

impl Attaching {
    /// Opens an attachment. No server is asked anything.
    pub(crate) async fn open(self) -> Result<(Reply, Attached), Fault> {
        let kept = self.message.raw().len() + self.carried.len();
        if kept > MAX_OPENING {
            return Err(Fault::InitializeTooLarge { limit: MAX_OPENING });
        }
        let (unions, union) = (self.unions, self.union);
        if !unions.flows.callers.knows(&self.caller) {
            return Err(Fault::NoSuchServer);
        }
        let table = &unions.registry.table;
        let room = table.keep_opening(&self.caller, kept);
        let room = room.ok_or(Fault::TooManyBodies)?;
        let initialize = room.until_gone(self.message.raw().clone());
        let place = table
            .take_place(&self.caller)
            .map_err(Fault::TooManySessions)?;
        let (seal, id) = Seal::with_id().map_err(|_| Fault::Random)?;
        let stored = table
            .session_store()
            .map(|store| Stored::new(store, &unions.shown, &id, &union));
        let shown = Shown::nothing(&union.now().names, &unions.shown);
        let attachment = Attachment::new(Parts {
            id,
            caller: self.caller,
            union,
            seal,
            version: Agreed::asked_by(&self.message),
            carried: self.carried.to_keep(),
            opened_at: clock::unix_seconds(),
            before: Duration::ZERO,
            state: State {
                shown,
                ..State::default()
            },
            initialize: self.message.clone().held_by(initialize),
            stored,
        });
        *attachment.place.lock() = Some(place);
        if let Some(stored) = &attachment.stored {
            let created = stored.create(&attachment).await;
            created.map_err(|error| Fault::store_failed(&error))?;
        }
        let in_use = unions.attachments.insert(attachment);
        let attachment = in_use.attachment();
        attachment.union.answered.sessions_opened.inc();
        tracing::info!(
            session = %attachment.hash,
            union = %attachment.union.name,
            version = attachment.version.as_str(),
            "attachment opened"
        );
        let carried = self.carried;
        let attached = Attached {
            unions,
            in_use,
            carried,
            leaving: self.leaving,
            _asked: (),
        };
        let result = welcome::result(&attached);
        Ok((Reply::result(&self.message, &result), attached))
    }
}

// === impl Unions ===

impl Unions {
    /// Finds an attachment of this union by its id.
    pub(crate) async fn find(
        &self,
        id: &SessionId,
        union: &Arc<Union>,
    ) -> Result<Option<AttachmentUse>, PersistenceError> {
        let cached = self.attachments.cached(id);
        let Some(session_store) = self.registry.table.session_store() else {
            return Ok(cached);
        };
        let Some(in_use) = cached else {
            return self.load(session_store, id, union).await;
        };
        let attachment = in_use.attachment();
        let is_there = match &attachment.stored {
            Some(stored) if !stored.is_fresh() => stored.refresh(attachment).await?,
            _ => true,
        };
        if !is_there {
            self.attachments.remove(id);
        }
        Ok(is_there.then_some(in_use))
    }

    pub(crate) fn has_cached(&self, id: &SessionId) -> bool {
        self.attachments.0.lock().contains_key(id)
    }

    async fn load(
        &self,
        session_store: &Arc<SessionStore>,
        id: &SessionId,
        union: &Arc<Union>,
    ) -> Result<Option<AttachmentUse>, PersistenceError> {
        let callers = &self.flows.callers;
        let loaded = Stored::load(session_store, &self.shown, id, union, callers).await?;
        Ok(loaded.map(|attachment| self.attachments.insert(attachment)))
    }

    /// Ends an attachment and its members, at all gateways. `false`: it had already ended.
    pub(crate) async fn end(
        &self,
        attachment: &Arc<Attachment>,
        ending: Ending,
    ) -> Result<bool, PersistenceError> {
        let state = match &attachment.stored {
            Some(stored) => stored.end(&attachment.id).await?,
            None => Some(attachment.state.lock().clone()),
        };
        let was_cached = self.attachments.remove(&attachment.id).is_some();
        let Some(state) = state.filter(|_| was_cached || attachment.stored.is_some()) else {
            return Ok(false);
        };
        self.told_end(attachment, ending);
        self.end_members(attachment, state.members, ending).await;
        Ok(true)
    }

    /// The same in the background.
    pub(crate) fn end_later(self: &Arc<Self>, attachment: &Arc<Attachment>, ending: Ending) {
        let (unions, attachment) = (Arc::clone(self), Arc::clone(attachment));
        self.registry.tracker.spawn(async move {
            if let Err(error) = unions.end(&attachment, ending).await {
                tracing::warn!(session = %attachment.hash, %error, "could not persist the end of an attachment");
            }
        });
    }

    fn told_end(&self, attachment: &Attachment, ending: Ending) {
        let (hash, union): (SessionHash, _) = (attachment.hash, &attachment.union.name);
        self.registry.metrics.session_ended(union, ending.reason());
        tracing::info!(session = %hash, %union, reason = ending.reason(), "attachment ended");
    }

    async fn end_members(&self, attachment: &Attachment, members: Vec<Member>, ending: Ending) {
        let carried = attachment.carried.as_deref().cloned().unwrap_or_default();
        for member in members {
            self.end_member(attachment, &member, ending, &carried).await;
        }
    }

    /// Ends the session of a member that is no member any more.
    pub(super) async fn end_member(
        &self,
        attachment: &Attachment,
        member: &Member,
        ending: Ending,
        carried: &Carried,
    ) {
        let table = &self.registry.table;
        if self.registry.end_session(&member.session, ending, carried) {
            return;
        }
        let Some(upstream) = attachment.union.server(member.server.as_ref()) else {
            return;
        };
        match table.find(&member.session, &upstream).await {
            Ok(Some(in_use)) => {
                drop(in_use);
                self.registry.end_session(&member.session, ending, carried);
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "could not end a member's session"),
        }
    }

    /// Keeps the members of attachments that are used, and ends attachments that are not, or are too old.
    pub(crate) async fn expire(&self, idle: Duration) {
        for attachment in self.attachments.all() {
            if self.registry.is_too_old(|| attachment.age()) {
                if let Err(error) = self.end(&attachment, Ending::TooOld).await {
                    tracing::debug!(%error, "could not end an attachment that is too old");
                }
                continue;
            }
            if attachment.idle_for() < idle {
                self.keep_members(&attachment).await;
                continue;
            }
            match &attachment.stored {
                Some(stored) if stored.session_store.is_shared() => {
                    self.expire_shared(&attachment, stored).await;
                }
                _ => {
                    if let Err(error) = self.end(&attachment, Ending::Idle).await {
                        tracing::debug!(%error, "could not end an unused attachment");
                    }
                }
            }
        }
    }

    /// Uses the members of an attachment that is used, also those that only another gateway, or one before this, has
    /// used.
    async fn keep_members(&self, attachment: &Attachment) {
        let table = &self.registry.table;
        for member in attachment.members() {
            if table.cached(&member.session).is_none()
                && attachment.stored.is_some()
                && let Some(server) = attachment.union.server(member.server.as_ref())
                && let Err(error) = table.find(&member.session, &server).await
            {
                tracing::debug!(%error, "could not keep a member");
            }
        }
    }

    /// The shared store alone knows whether another gateway has used an attachment since.
    async fn expire_shared(&self, attachment: &Arc<Attachment>, stored: &Stored) {
        if attachment.idle_for() < stored.session_store.unused_after() {
            return;
        }
        match stored.expire(&attachment.id).await {
            Ok(Some(state)) => {
                self.attachments.remove(&attachment.id);
                self.told_end(attachment, Ending::Idle);
                self.end_members(attachment, state.members, Ending::Idle)
                    .await;
            }
            Ok(None) => drop(self.attachments.remove(&attachment.id)),
            Err(error) => {
                tracing::debug!(%error, "could not check whether an attachment is in use")
            }
        }
    }

    /// Every attachment as operators see it.
    pub(crate) fn report(&self) -> Vec<Value> {
        let all = self.attachments.all();
        all.iter().map(|attachment| attachment.report()).collect()
    }

    /// The sessions that an attachment with this hash has in this gateway's memory.
    pub(crate) fn sessions_of(&self, hash: &str) -> Option<Vec<Arc<Session>>> {
        let in_use = self.attachments.by_hash(hash)?;
        let members = in_use.attachment().members();
        let cached = members.iter().filter_map(|member| {
            let in_use = self.registry.table.cached(&member.session)?;
            Some(Arc::clone(in_use.session()))
        });
        Some(cached.collect())
    }

    /// Tells every client that its lists may have changed.
    pub(crate) fn all_changed(&self) {
        for attachment in self.attachments.all() {
            attachment.listening.all_changed();
        }
    }

    /// Ends the streams of callers that are known no more.
    pub(crate) fn end_streams_of_the_unpermitted(&self) {
        for attachment in self.attachments.all() {
            if !self.flows.callers.knows(&attachment.caller) {
                attachment.listening.cut();
            }
        }
    }

    /// Ends the streams of all attachments: the gateway stops.
    pub(crate) fn end_streams(&self) {
        for attachment in self.attachments.all() {
            attachment.over.cancel();
            attachment.listening.end();
        }
    }
}
