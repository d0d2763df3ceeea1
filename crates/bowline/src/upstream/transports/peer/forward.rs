//! An operation on a leg, as it is forwarded: whose session, which generation of it, and what to do.

use std::str::FromStr as _;

use bowline_wire::id::SessionId;
use http::HeaderValue;
use serde::{Deserialize, Serialize};

use crate::caller::{Caller, KeyPrint};
use crate::config::ServerName;
use crate::upstream::policy::Carried;
use crate::upstream::transports::live::Remote;

/// What to do with a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LegOperation {
    Request,
    Notify,
    Say,
    Ping,
    Doubt,
    Listen,
    End,
}

/// An operation on a leg. The receiver checks all of it again.
#[derive(Serialize, Deserialize)]
pub(crate) struct LegForward {
    pub(crate) operation: LegOperation,
    session: String,
    pub(crate) generation: u32,
    #[serde(flatten)]
    pub(crate) whose: Whose,
    #[serde(default)]
    pub(crate) carried: Carried,
}

/// For which server, and in whose name.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Whose {
    server: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    caller: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl LegForward {
    pub(super) fn new(
        operation: LegOperation,
        server: &ServerName,
        remote: &Remote,
        carried: &Carried,
    ) -> Self {
        let session = remote.session.to_header();
        Self {
            operation,
            session: session.to_str().unwrap_or_default().to_owned(),
            generation: remote.generation,
            whose: Whose::new(server, &remote.caller),
            carried: carried.clone(),
        }
    }

    /// The session's id; `None` if it is none.
    pub(crate) fn session(&self) -> Option<SessionId> {
        let header = HeaderValue::from_str(&self.session).ok()?;
        SessionId::from_header(&header)
    }
}

impl Whose {
    pub(crate) fn new(server: &ServerName, caller: &Caller) -> Self {
        Self {
            server: server.as_ref().to_owned(),
            caller: caller.name().map(str::to_owned),
            key: caller.key().map(|key| key.to_string()),
        }
    }

    /// The name of the server.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// The caller; `None` if it is none.
    pub(crate) fn caller(&self) -> Option<Caller> {
        match (&self.caller, &self.key) {
            (None, None) => Some(Caller::Local),
            (Some(name), Some(key)) => {
                let key = KeyPrint::from_str(key).ok()?;
                Some(Caller::Named(name.parse().ok()?, Some(key)))
            }
            _ => None,
        }
    }
}

// It has a session's id.
impl std::fmt::Debug for LegForward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LegForward").field(&self.operation).finish()
    }
}
