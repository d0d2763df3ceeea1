//! A sign-in that is under way, as it is written down: what any gateway needs to finish it, and how
//! the last one of a caller at a server ended.

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};

use super::authority::Begun;
use super::grant::{ClientIdentity, Discovered};
use super::secret::Secret;

/// A sign-in that waits for a person.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Flow {
    /// The caller's name; empty for the local one.
    pub(crate) caller: String,
    /// The server, by its name in the configuration and by its URL.
    pub(crate) server: String,
    pub(crate) server_url: String,
    pub(crate) found: Discovered,
    pub(crate) client: ClientIdentity,
    pub(crate) begun: Begun,
    /// What the one browser has that opened the start page; nobody has opened it yet if `None`.
    pub(crate) browser: Option<Secret>,
    /// When it is over, in seconds since 1970.
    pub(crate) ends: i64,
}

/// What a flow is called where its state must not be seen: in links, in elicitations, in the store.
/// Whoever has the state can tell it; the other way round is as hard as SHA-256.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct FlowId(Box<str>);

/// The sign-ins of one caller at one server: which one is under way, and how the last one ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Signing {
    pub(crate) flow: Option<FlowId>,
    /// When that one is over, in seconds since 1970.
    pub(crate) ends: i64,
    pub(crate) last: Option<(FlowId, End)>,
    /// Until when the caller is not asked again, in seconds since 1970.
    pub(crate) declined_until: i64,
}

/// How a flow ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    SignedIn,
    /// The person, or whoever asked the person, said no.
    Declined,
    /// For this reason, which holds nothing secret.
    Failed(String),
}

// === impl Flow ===

impl Flow {
    pub(crate) fn id(&self) -> FlowId {
        FlowId::of(self.begun.state.expose())
    }

    pub(crate) fn is_over(&self, now: i64) -> bool {
        now >= self.ends
    }
}

// === impl FlowId ===

impl FlowId {
    const BYTES: usize = 16;

    /// The id of the flow with this state.
    pub(crate) fn of(state: &str) -> Self {
        let hash = digest::digest(&digest::SHA256, state.as_bytes());
        let hex = hash.as_ref()[..Self::BYTES].iter();
        Self(hex.map(|byte| format!("{byte:02x}")).collect())
    }

    /// The flow that somebody names, if that can be one's id.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_one = text.len() == 2 * Self::BYTES
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_one.then(|| Self(text.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

// === impl Signing ===

impl Signing {
    /// The flow that is under way now.
    pub(crate) fn current(&self, now: i64) -> Option<&FlowId> {
        self.flow.as_ref().filter(|_| now < self.ends)
    }

    /// How a flow ended; `None` while it is under way.
    pub(crate) fn end_of(&self, flow: &FlowId, now: i64) -> Option<End> {
        if self.current(now) == Some(flow) {
            return None;
        }
        match &self.last {
            Some((last, end)) if last == flow => Some(end.clone()),
            _ => Some(End::Failed("nobody signed in in time".to_owned())),
        }
    }
}
