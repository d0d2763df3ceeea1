//! What a failure proves: whether the request ran, and whether the upstream still knows the session.
//!
//! These are two separate questions. `exchange/replay` and `exchange/recovery` act on the answers
//! and on nothing else. That a request did not run needs proof: either no byte of it was written,
//! or the server's refusal was read completely and is not the answer to the request.
//!
//! Gateways send each other proofs (`peers/record.rs`): in JSON, each of the two is `true`, `false` or, if it is not
//! known, `null`.

use serde::{Deserialize, Serialize};

/// Whether a request ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Option<bool>", into = "Option<bool>")]
pub(crate) enum Ran {
    No,
    Unknown,
    Yes,
}

/// Whether the upstream still knows the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Option<bool>", into = "Option<bool>")]
pub(crate) enum SessionState {
    /// There is no sign that it is lost.
    Alive,
    Lost,
    /// Only a ping can tell.
    Unproven,
}

/// What a failure proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Proof {
    pub(crate) ran: Ran,
    #[serde(rename = "is_lost")]
    pub(crate) session: SessionState,
}

impl From<Option<bool>> for Ran {
    fn from(ran: Option<bool>) -> Self {
        match ran {
            Some(true) => Self::Yes,
            Some(false) => Self::No,
            None => Self::Unknown,
        }
    }
}

impl From<Ran> for Option<bool> {
    fn from(ran: Ran) -> Self {
        match ran {
            Ran::Yes => Some(true),
            Ran::No => Some(false),
            Ran::Unknown => None,
        }
    }
}

impl From<Option<bool>> for SessionState {
    fn from(is_lost: Option<bool>) -> Self {
        match is_lost {
            Some(true) => Self::Lost,
            Some(false) => Self::Alive,
            None => Self::Unproven,
        }
    }
}

impl From<SessionState> for Option<bool> {
    fn from(session: SessionState) -> Self {
        match session {
            SessionState::Lost => Some(true),
            SessionState::Alive => Some(false),
            SessionState::Unproven => None,
        }
    }
}
