//! A sign-in that is under way, as it is written down: what any gateway needs to finish it, and how
//! the last one of a caller at a server ended.

use std::fmt;

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};

use super::account::Whose;
use super::authority::Begun;
use super::grant::{ClientIdentity, Discovered};
use super::identity::name_of;
use super::secret::Secret;
use crate::store::sealed::NoRandomness;

/// How long it takes at most until an answer is exchanged and what it brought is kept, in seconds.
const FINISHED_WITHIN: i64 = 60;

/// A sign-in that waits for a person.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Flow {
    pub(crate) id: FlowId,
    /// The caller's identity.
    pub(crate) caller: String,
    /// The server, by its name in the configuration and by its URL.
    pub(crate) server: String,
    pub(crate) server_url: String,
    pub(crate) found: Discovered,
    pub(crate) kind: Kind,
    pub(crate) asks: Asks,
    /// When it is over, in seconds since 1970.
    pub(crate) ends: i64,
    /// How often the caller had been signed out at this server when it was begun: once more, and it
    /// brings nothing.
    #[serde(default)]
    pub(crate) outs: u64,
    /// When it was answered, in seconds since 1970, if it was: then nobody else answers it.
    pub(crate) taken: Option<i64>,
}

/// Who brings an authorization server's answer. It is written down with the flow, because the gateway
/// that meets it may be configured otherwise than the one that began it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// The browser that went on from the start page; the pages of its gateway are at this URL, which has
    /// no slash at its end.
    Managed { pages: String },
    /// A host, at this URI, to which people come back.
    Drive { redirect_uri: String },
    /// Nobody: a client gets tokens by itself.
    ClientDriven,
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
///
/// Whoever has it can go on from the start page, so it is as secret as the link: `Debug` shows a hash.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// The person, or whoever asked the person, said no; and what the authorization server said of it.
    Declined {
        said: Option<String>,
    },
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
        kind: Kind,
        asks: Asks,
        (ends, outs): (i64, u64),
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
            kind,
            asks,
            ends,
            outs,
            taken: None,
        })
    }

    /// The name of the caller that it is for; empty for the local one.
    pub(crate) fn caller_name(&self) -> &str {
        name_of(&self.caller)
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

    /// Whether people come back to a gateway's own page.
    pub(crate) fn is_managed(&self) -> bool {
        matches!(self.kind, Kind::Managed { .. })
    }

    /// Where a person goes to sign in, if that is what it waits for.
    pub(crate) fn link(&self) -> Option<String> {
        let way = self.authorization()?;
        Some(match &self.kind {
            Kind::Managed { pages } => format!("{pages}/oauth/start?flow={}", self.id.as_str()),
            Kind::Drive { .. } | Kind::ClientDriven => way.begun.authorize_url.clone(),
        })
    }

    pub(crate) fn is_over(&self, now: i64) -> bool {
        now >= self.ends
    }

    /// Whether it can still be answered.
    pub(crate) fn is_open(&self, now: i64) -> bool {
        self.taken.is_none() && !self.is_over(now)
    }

    /// Whether its answer is being worked on. A gateway that died over it has no more than a while.
    pub(super) fn is_finishing(&self, now: i64) -> bool {
        self.taken
            .is_some_and(|taken| now < taken + FINISHED_WITHIN)
    }

    /// Takes it for one answer. `false`: another one has it.
    pub(super) fn take(&mut self, now: i64) -> bool {
        let is_open = self.is_open(now);
        if is_open {
            self.taken = Some(now);
        }
        is_open
    }
}

// === impl FlowId ===

impl FlowId {
    const BYTES: usize = 16;
    /// How much of its hash logs show.
    const SHOWN: usize = 8;
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

    /// The id, for whoever the link is meant for.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// How logs name a flow: nobody gets from there to its link.
impl fmt::Debug for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = digest::digest(&digest::SHA256, self.0.as_bytes());
        let short = &hash.as_ref()[..Self::SHOWN];
        short.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
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
            Self::Declined { .. } => "declined",
            Self::Failed(_) => "failed",
        }
    }
}
