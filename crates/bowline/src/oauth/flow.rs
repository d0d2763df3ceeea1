//! A flow, a sign-in under way, as it is stored: what any gateway needs to finish it, and how the last flow
//! of an account ended.

use std::fmt;

use aws_lc_rs::digest;
use bowline_store::sealed::NoRandomness;
use serde::{Deserialize, Serialize};

use super::account_key::AccountKey;
use super::auth_server::AuthorizationRequest;
use super::grant::{ClientIdentity, Discovery};
use super::secret::Secret;
use super::vault::Registrar;
use crate::callers::name_of;

/// How long the exchange of a code and the saving of its tokens may take, in seconds.
const FINISHED_WITHIN: i64 = 60;

/// A sign-in under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Flow {
    pub(crate) id: FlowId,
    /// The caller's identity.
    pub(crate) caller: String,
    /// The server, by its name in the configuration and by its URL.
    pub(crate) server: String,
    pub(crate) server_url: String,
    #[serde(rename = "found")]
    pub(crate) discovery: Discovery,
    pub(crate) kind: FlowKind,
    #[serde(rename = "asks")]
    pub(crate) awaited: AwaitedInput,
    /// When it expires, in seconds since 1970.
    pub(crate) ends: i64,
    /// How often the caller had been signed out at this server when the flow started. If that number rises,
    /// the flow brings no grant.
    #[serde(default, rename = "outs")]
    pub(crate) sign_outs: u64,
    /// The number of the sign-in whose token the server refused; 0 for none.
    #[serde(default)]
    pub(crate) after: u64,
    /// The scopes that the caller's grant lacked.
    #[serde(default, rename = "missing", skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing_scopes: Vec<String>,
    /// When it was answered, in seconds since 1970, if it was: a flow takes one answer.
    pub(crate) taken: Option<i64>,
}

/// How the authorization server's answer reaches Bowline. It is stored with the flow, because the gateway
/// that gets the answer may be configured differently from the one that started the flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FlowKind {
    /// Through the browser that continued from the start page; the gateway's pages are at this URL, which has
    /// no slash at its end.
    Managed { pages: String },
    /// Through the application at this redirect URI, which forwards the authorization code to Bowline.
    Drive { redirect_uri: String },
    /// Through this process's own listener for the flow, on the loopback interface.
    Loopback(LoopbackAddress),
    /// Not at all: the client gets tokens by itself.
    ClientDriven,
}

/// A flow's own listener on the loopback interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoopbackAddress {
    pub(crate) redirect_uri: String,
    /// The URL, without any secret, that leads this user's browser to the authorization server. `None` where
    /// the system does not say whose a connection is.
    pub(crate) start_url: Option<String>,
}

/// What a flow waits for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum AwaitedInput {
    /// A client id, because the authorization server registers no clients; then another flow replaces this
    /// one.
    Client {
        redirect_uri: String,
        scopes: Vec<String>,
    },
    /// Tokens, from a client that gets them by itself.
    Tokens { scopes: Vec<String> },
    /// The authorization server's answer.
    Authorization(Box<Authorization>),
}

/// A person's authorization at the authorization server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Authorization {
    pub(crate) client: ClientIdentity,
    /// Whether the caller named that client, which is not verified yet.
    pub(crate) is_client_named: bool,
    #[serde(rename = "begun")]
    pub(crate) request: AuthorizationRequest,
    /// The secret of the browser that continued from the start page; `None` until one does.
    pub(crate) browser: Option<Secret>,
}

/// What was known of the account when a flow started.
#[derive(Clone, Debug)]
pub(super) struct Since {
    /// How often the caller had been signed out.
    pub(super) sign_outs: u64,
    /// The number of the sign-in whose token the server refused; 0 for none.
    pub(super) sign_in: u64,
    /// The scopes that it lacked.
    pub(super) missing_scopes: Vec<String>,
}

/// The progress of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FlowProgress {
    UnderWay,
    Ended(FlowOutcome),
    /// Another flow replaced it.
    Replaced,
}

/// A flow's id where its state must not be seen: in links, in elicitations, in the store. It is a hash of the
/// state, so the state cannot be computed from it. A flow without a state has a random id.
///
/// The id is enough to continue from the start page, so it is as secret as the link: `Debug` shows a hash of
/// it.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct FlowId(Box<str>);

/// The flows of one account: which one is under way, and how the last one ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FlowState {
    pub(crate) flow: Option<FlowId>,
    /// When that flow expires, in seconds since 1970.
    pub(crate) ends: i64,
    pub(crate) last: Option<(FlowId, FlowOutcome)>,
    /// Until when the caller is not asked again after the last one, in seconds since 1970.
    #[serde(rename = "declined_until")]
    pub(crate) not_asked_until: i64,
}

/// How a flow ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FlowOutcome {
    SignedIn,
    /// The person or the client declined; with what the authorization server answered, if it was there.
    Declined {
        said: Option<String>,
    },
    /// With this reason, which contains nothing secret.
    Failed(String),
}

// === impl Flow ===

impl Flow {
    /// A flow of this caller at this server, which waits until `ends`.
    pub(super) fn new(
        key: &AccountKey,
        server: &str,
        discovery: Discovery,
        kind: FlowKind,
        awaited: AwaitedInput,
        ends: i64,
        since: Since,
    ) -> Result<Self, NoRandomness> {
        let id = match &awaited {
            AwaitedInput::Authorization(authorization) => {
                FlowId::of(authorization.request.state.expose())
            }
            AwaitedInput::Client { .. } | AwaitedInput::Tokens { .. } => FlowId::random()?,
        };
        Ok(Self {
            id,
            caller: key.caller.to_string(),
            server: server.to_string(),
            server_url: key.server_url.to_string(),
            discovery,
            kind,
            awaited,
            ends,
            sign_outs: since.sign_outs,
            after: since.sign_in,
            missing_scopes: since.missing_scopes,
            taken: None,
        })
    }

    /// The name of the caller that it is for; empty for the local one.
    pub(crate) fn caller_name(&self) -> &str {
        name_of(&self.caller)
    }

    /// Whether it is this caller's, at this server.
    pub(super) fn is_of(&self, key: &AccountKey) -> bool {
        *self.caller == *key.caller && *self.server_url == *key.server_url
    }

    /// Where its client is registered.
    pub(super) fn registrar(&self) -> Registrar<'_> {
        Registrar {
            server_url: &self.server_url,
            issuer: &self.discovery.issuer,
        }
    }

    /// The scopes that it asks for.
    pub(crate) fn scopes(&self) -> &[String] {
        match &self.awaited {
            AwaitedInput::Client { scopes, .. } | AwaitedInput::Tokens { scopes } => scopes,
            AwaitedInput::Authorization(authorization) => &authorization.request.scopes,
        }
    }

    /// The authorization, if the flow waits for one.
    pub(crate) fn authorization(&self) -> Option<&Authorization> {
        match &self.awaited {
            AwaitedInput::Authorization(authorization) => Some(authorization),
            AwaitedInput::Client { .. } | AwaitedInput::Tokens { .. } => None,
        }
    }

    /// Whether the browser leaves from a gateway's start page.
    pub(crate) fn is_managed(&self) -> bool {
        matches!(self.kind, FlowKind::Managed { .. })
    }

    /// Whether the browser returns to Bowline, and the client has nothing to pass on.
    pub(crate) fn returns_to_bowline(&self) -> bool {
        matches!(self.kind, FlowKind::Managed { .. } | FlowKind::Loopback(_))
    }

    /// Its own listener on the loopback interface, if it has one.
    pub(crate) fn loopback(&self) -> Option<&LoopbackAddress> {
        match &self.kind {
            FlowKind::Loopback(address) => Some(address),
            _ => None,
        }
    }

    /// The link where a person signs in, if the flow waits for that.
    pub(crate) fn link(&self) -> Option<String> {
        let authorization = self.authorization()?;
        Some(match &self.kind {
            FlowKind::Managed { pages } => format!("{pages}/oauth/start?flow={}", self.id.as_str()),
            FlowKind::Loopback(LoopbackAddress {
                start_url: Some(start_url),
                ..
            }) => start_url.clone(),
            FlowKind::Loopback(_) | FlowKind::Drive { .. } | FlowKind::ClientDriven => {
                authorization.request.authorize_url.clone()
            }
        })
    }

    pub(crate) fn is_over(&self, now: i64) -> bool {
        now >= self.ends
    }

    /// Whether it can still be answered.
    pub(crate) fn is_open(&self, now: i64) -> bool {
        self.taken.is_none() && !self.is_over(now)
    }

    /// Whether its answer is being processed. If the gateway dies meanwhile, this ends after a while.
    pub(super) fn is_finishing(&self, now: i64) -> bool {
        self.taken
            .is_some_and(|taken| now < taken + FINISHED_WITHIN)
    }

    /// Takes it for one answer. `false`: it was answered before, or has expired.
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
    /// How many bytes of its hash the logs show.
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

    /// Parses an id.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_one = text.len() == Self::LENGTH
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_one.then(|| Self(text.into()))
    }

    /// The id, for the person or the host that the link is meant for.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// How logs name a flow: its link cannot be computed from it.
impl fmt::Debug for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = digest::digest(&digest::SHA256, self.0.as_bytes());
        let short = &hash.as_ref()[..Self::SHOWN];
        short.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

// === impl FlowState ===

impl FlowState {
    /// The flow that is under way now.
    pub(crate) fn current(&self, now: i64) -> Option<&FlowId> {
        self.flow.as_ref().filter(|_| now < self.ends)
    }

    /// How the last flow ended, if that is why the caller is not asked again yet.
    pub(crate) fn not_asked(&self, now: i64) -> Option<&FlowOutcome> {
        let (_, outcome) = self.last.as_ref()?;
        (now < self.not_asked_until).then_some(outcome)
    }

    /// Forgets that the caller declined. `false`: it did not.
    pub(crate) fn forget_decline(&mut self) -> bool {
        let is_decline = matches!(self.last, Some((_, FlowOutcome::Declined { .. })));
        is_decline && std::mem::take(&mut self.not_asked_until) != 0
    }

    /// The progress of a flow of this account.
    pub(crate) fn of(&self, flow: &Flow, now: i64) -> FlowProgress {
        if self.current(now) == Some(&flow.id) {
            return FlowProgress::UnderWay;
        }
        match &self.last {
            Some((last, outcome)) if *last == flow.id => FlowProgress::Ended(outcome.clone()),
            _ if !flow.is_over(now) => FlowProgress::Replaced,
            _ => FlowProgress::Ended(FlowOutcome::Failed("the sign-in expired".to_owned())),
        }
    }
}

// === impl FlowOutcome ===

impl FlowOutcome {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::SignedIn => "signed_in",
            Self::Declined { .. } => "declined",
            Self::Failed(_) => "failed",
        }
    }
}

#[cfg(test)]
mod tests;
