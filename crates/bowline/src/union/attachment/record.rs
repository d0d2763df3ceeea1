//! An attachment as it is stored: what another gateway, or this one after a restart, needs to go on with it. Its
//! members are sessions with records of their own.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Attachment;
use crate::caller::Caller;
use crate::callers::Callers;
use crate::leg::marks::Seal;
use crate::session_store::record_error::{BadRecord, LAYOUT};
use crate::session_store::records;
use crate::union::state::State;
use crate::upstream::Carried;

/// The content of a record.
#[derive(Serialize, Deserialize)]
pub(super) struct Record {
    layout: u8,
    /// The caller's name; `None` is the local caller.
    caller: Option<String>,
    /// The fingerprint of the caller's key.
    key: Option<String>,
    /// The key that seals the marks of all members.
    pub(super) seal: Seal,
    /// Seconds since 1970.
    pub(super) opened: i64,
    /// The revision that was agreed on.
    pub(super) version: String,
    pub(super) initialize: Box<RawValue>,
    /// The headers and query carried with `initialize`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) carried: Option<Box<Carried>>,
    pub(super) state: State,
}

// === impl Record ===

impl Record {
    pub(super) fn of(attachment: &Attachment, state: &State) -> Result<Self, BadRecord> {
        let initialize = std::str::from_utf8(attachment.initialize.raw());
        let initialize = initialize.map_err(|_| BadRecord::Impossible("initialize"))?;
        Ok(Self {
            layout: LAYOUT,
            caller: attachment.caller.name().map(str::to_owned),
            key: attachment.caller.key().map(|key| key.to_string()),
            seal: attachment.seal.clone(),
            opened: attachment.opened_at,
            version: attachment.version.as_str().to_owned(),
            initialize: RawValue::from_string(initialize.to_owned())?,
            carried: attachment.carried.clone(),
            state: state.clone(),
        })
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, BadRecord> {
        Ok(serde_json::to_vec(self)?)
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, BadRecord> {
        records::parse(bytes)
    }

    pub(super) fn caller(&self, known: &Callers) -> Result<Caller, BadRecord> {
        records::caller(self.caller.as_deref(), self.key.as_deref(), known)
    }
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Record({} members)", self.state.members.len())
    }
}
