//! One endpoint for several servers. A client has an attachment; each server that it uses is a member of it, and a
//! member is an ordinary session: recovery, replay, cookies, sign-in and stores hold for it without a special case.
//!
//! This floor is a client of the exchange. It decides which member a message is for, joins the lists and the streams
//! of all members, and says which servers are missing from what it answers.

pub(crate) mod announcements;
mod asking;
pub(crate) mod attachment;
pub(crate) mod attachments;
mod claims;
mod definition;
pub(crate) mod dialog;
mod joint;
mod known;
mod left_out;
mod list;
mod listening;
mod listing;
mod lists;
mod members;
mod page;
mod record;
mod resources;
mod routing;
mod shown;
mod slot;
mod stored;
mod welcome;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use self::attachment::{Attachment, AttachmentUse};
use self::attachments::Attachments;
use self::known::Known;
use self::left_out::{AllLeftOut, LeftOut};
use self::list::List;
use self::listing::Absence;
use self::shown::SharedNames;
use crate::caller::Caller;
use crate::config::ServerName;
use crate::exchange::leaving::Leaving;
use crate::fault::Fault;
use crate::oauth::Flows;
use crate::registry::Registry;
use crate::upstream::{Carried, Upstream};

/// What all attachments of a gateway share.
#[derive(Debug)]
pub(crate) struct Unions {
    pub(crate) registry: Arc<Registry>,
    pub(crate) attachments: Attachments,
    pub(crate) flows: Arc<Flows>,
    /// What servers said last, for when they cannot be asked.
    known: Known,
    /// What their clients were shown.
    shown: Arc<SharedNames>,
    /// The servers that somebody has waited for in vain, whoever it was: for a list, or for a session.
    doubtful: Mutex<HashSet<(ServerName, Option<List>)>>,
    /// The servers whose lists could not be had the last time that anybody asked, and why.
    absences: Mutex<BTreeMap<ServerName, Arc<Absence>>>,
    left_out: AllLeftOut,
}

/// An attachment that its caller may use, and what its messages are sent with.
#[derive(Debug, Clone)]
pub(crate) struct Attached {
    pub(crate) unions: Arc<Unions>,
    pub(crate) in_use: AttachmentUse,
    pub(crate) carried: Carried,
    /// What it means if the client leaves.
    pub(crate) leaving: Leaving,
    /// Only this floor makes one, and [`Attached::new`] asks.
    _asked: (),
}

// === impl Unions ===

impl Unions {
    pub(crate) fn new(registry: Arc<Registry>, flows: Arc<Flows>) -> Self {
        Self {
            registry,
            attachments: Attachments::default(),
            flows,
            known: Known::default(),
            shown: Arc::default(),
            doubtful: Mutex::default(),
            absences: Mutex::default(),
            left_out: AllLeftOut::default(),
        }
    }

    /// Why a server was missing from the last list of a union, if it was.
    pub(crate) fn absence(&self, server: &ServerName) -> Option<Arc<Absence>> {
        self.absences.lock().get(server).cloned()
    }

    /// Notes that somebody waited in vain for a server: for this list, or for a session where there is none.
    fn doubt(&self, server: &ServerName, list: Option<List>) {
        self.doubtful.lock().insert((server.clone(), list));
    }

    /// Notes that a server has sent this list.
    fn trust(&self, server: &ServerName, list: List) {
        let mut doubtful = self.doubtful.lock();
        doubtful.retain(|(one, of)| one != server || of.is_some_and(|of| of != list));
    }

    /// Whether the last one who waited for this list, or for a session, waited in vain.
    fn is_doubtful(&self, server: &ServerName, list: Option<List>) -> bool {
        self.doubtful.lock().contains(&(server.clone(), list))
    }

    /// What is left out of the last lists of a server because clients could not read it, by list.
    pub(crate) fn left_out(&self, server: &ServerName) -> BTreeMap<&'static str, LeftOut> {
        self.left_out.of(server)
    }

    /// Notes whether a server's list could be had. The log says it when that changes.
    fn note_absence(&self, server: &ServerName, list: List, absence: Option<&Arc<Absence>>) {
        let mut absences = self.absences.lock();
        match absence {
            Some(absence) if !absence.is_servers => {}
            Some(absence) => {
                let before = absences.insert(server.clone(), Arc::clone(absence));
                if before.is_none() {
                    let (reason, list) = (absence.reason, list.items());
                    tracing::warn!(%server, reason, list, "server missing from a union");
                }
            }
            None => {
                if absences.remove(server).is_some() {
                    tracing::info!(%server, "server is back in a union");
                }
            }
        }
    }
}

// === impl Attached ===

impl Attached {
    /// A caller's request of an attachment. One that is another caller's, or whose caller is not known now, is an
    /// unknown one.
    pub(crate) fn new(
        unions: &Arc<Unions>,
        in_use: AttachmentUse,
        caller: &Caller,
        carried: Carried,
        leaving: Leaving,
    ) -> Result<Self, Fault> {
        let attached = Self {
            unions: Arc::clone(unions),
            in_use,
            carried,
            leaving,
            _asked: (),
        };
        match attached.attachment().caller == *caller && attached.is_permitted() {
            true => Ok(attached),
            false => Err(Fault::UnknownSession),
        }
    }

    /// Whether its caller is known now. Which servers it may use is asked for each of them.
    fn is_permitted(&self) -> bool {
        let callers = &self.unions.flows.callers;
        callers.knows(&self.attachment().caller)
    }

    pub(crate) fn attachment(&self) -> &Arc<Attachment> {
        self.in_use.attachment()
    }

    /// The servers that this client may use, in the order of the configuration.
    fn servers(&self) -> Vec<Arc<Upstream>> {
        let now = self.attachment().union.now();
        let servers = now.servers.iter();
        servers.filter(|one| self.may_use(one)).cloned().collect()
    }

    /// One of them.
    fn server(&self, name: &str) -> Option<Arc<Upstream>> {
        let server = self.attachment().union.server(name);
        server.filter(|one| self.may_use(one))
    }

    fn may_use(&self, server: &Upstream) -> bool {
        let caller = &self.attachment().caller;
        !server.is_retired() && server.permit(caller).is_some()
    }

    /// What goes along with a message to this server.
    fn carried_to(&self, server: &Upstream) -> Carried {
        self.carried.for_server(&server.config())
    }
}
