//! A sign-in that is under way, as it is written down: what any gateway needs to finish it, and how
//! the last one of a caller at a server ended.

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};

use super::account::Whose;
use super::authority::Begun;
use super::grant::{ClientIdentity, Discovered};
use super::secret::Secret;
use crate::store::sealed::NoRandomness;

/// A sign-in that waits for a person.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Flow {
    pub(crate) id: FlowId,
    /// The caller's name; empty for the local one.
    pub(crate) caller: String,
    /// The server, by its name in the configuration and by its URL.
    pub(crate) server: String,
    pub(crate) server_url: String,
    pub(crate) found: Discovered,
    pub(crate) asks: Asks,
    /// When it is over, in seconds since 1970.
    pub(crate) ends: i64,
}

/// What a flow waits for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Asks {
    /// Who Bowline is at an authorization server that registers nobody; then another flow goes on.
    Client {
        redirect_uri: String,
        scopes: Vec<String>,
    },
    /// Tokens, from a client that gets them by itself.
    Tokens { scopes: Vec<String> },
    /// The authorization server's answer.
    Authorization(Box<Authorization>),
}

/// A person's way to an authorization server and back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Authorization {
    pub(crate) client: ClientIdentity,
    /// Whether the caller named that client, and nobody knows yet whether it is one.
    pub(crate) is_client_named: bool,
    pub(crate) begun: Begun,
    /// What the one browser has that opened the start page; nobody has opened it yet if `None`.
    pub(crate) browser: Option<Secret>,
}

/// How it stands with a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    UnderWay,
    Ended(End),
    /// Another one goes on in its place.
    Replaced,
}

/// What a flow is called where its state must not be seen: in links, in elicitations, in the store.
/// Whoever has the state can tell it; the other way round is as hard as SHA-256. One without a state
/// has a random one.
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
    /// A flow of this caller at this server, which waits until `ends`.
    pub(super) fn new(
        (caller, server_url): &Whose,
        server: &str,
        found: Discovered,
        asks: Asks,
        ends: i64,
    ) -> Result<Self, NoRandomness> {
        let id = match &asks {
            Asks::Authorization(way) => FlowId::of(way.begun.state.expose()),
            Asks::Client { .. } | Asks::Tokens { .. } => FlowId::random()?,
        };
        Ok(Self {
            id,
            caller: caller.to_string(),
            server: server.to_string(),
            server_url: server_url.to_string(),
            found,
            asks,
            ends,
        })
    }

    /// Whether it is this caller's, at this server.
    pub(super) fn is_of(&self, (caller, server_url): &Whose) -> bool {
        (self.caller.as_str(), self.server_url.as_str()) == (caller, server_url)
    }

    /// What it asks for at the authorization server.
    pub(crate) fn scopes(&self) -> &[String] {
        match &self.asks {
            Asks::Client { scopes, .. } | Asks::Tokens { scopes } => scopes,
            Asks::Authorization(way) => &way.begun.scopes,
        }
    }

    /// The person's way, if it is one that a person goes.
    pub(crate) fn authorization(&self) -> Option<&Authorization> {
        match &self.asks {
            Asks::Authorization(way) => Some(way),
            Asks::Client { .. } | Asks::Tokens { .. } => None,
        }
    }

    pub(crate) fn is_over(&self, now: i64) -> bool {
        now >= self.ends
    }
}

// === impl FlowId ===

impl FlowId {
    const BYTES: usize = 16;
    /// The length of one as text.
    pub(crate) const LENGTH: usize = 2 * Self::BYTES;

    /// The id of the flow with this state.
    pub(crate) fn of(state: &str) -> Self {
        let hash = digest::digest(&digest::SHA256, state.as_bytes());
        let hex = hash.as_ref()[..Self::BYTES].iter();
        Self(hex.map(|byte| format!("{byte:02x}")).collect())
    }

    /// The id of a flow that has no state.
    fn random() -> Result<Self, NoRandomness> {
        let random = Secret::random().map_err(|_| NoRandomness)?;
        Ok(Self::of(random.expose()))
    }

    /// The flow that somebody names, if that can be one's id.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_one = text.len() == Self::LENGTH
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

    /// How it stands with a flow of theirs.
    pub(crate) fn of(&self, flow: &Flow, now: i64) -> Standing {
        if self.current(now) == Some(&flow.id) {
            return Standing::UnderWay;
        }
        match &self.last {
            Some((last, end)) if *last == flow.id => Standing::Ended(end.clone()),
            _ if !flow.is_over(now) => Standing::Replaced,
            _ => Standing::Ended(End::Failed("nobody signed in in time".to_owned())),
        }
    }
}

// === impl End ===

impl End {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::SignedIn => "signed_in",
            Self::Declined => "declined",
            Self::Failed(_) => "failed",
        }
    }
}
