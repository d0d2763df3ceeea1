//! An attachment as it is stored: what another gateway, or this one after a restart, needs to go on with it. Its
//! members are sessions with records of their own.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline_wire::id::SessionId;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

use super::attachment::Attachment;
use super::shown::Shown;
use crate::caller::Caller;
use crate::callers::Callers;
use crate::config::ServerName;
use crate::leg::marks::Seal;
use crate::session_store::record_error::{BadRecord, LAYOUT};
use crate::session_store::records;
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

/// What changes while an attachment is used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) members: Vec<Member>,
    /// How many members there have been. Numbers are not given twice.
    pub(super) numbered: u16,
    /// Servers whose session with this client was lost, which the client has not been told yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "server_names")]
    pub(super) lost: Vec<ServerName>,
    /// The log level that the client set, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) level: Option<String>,
    /// What bare names mean to the client.
    #[serde(default, skip_serializing_if = "Shown::is_empty")]
    pub(super) shown: Shown,
}

/// A session that an attachment has with one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    /// What its marks carry; at least 1.
    pub(super) number: u16,
    #[serde(with = "server_name")]
    pub(super) server: ServerName,
    #[serde(with = "session_id")]
    pub(super) session: SessionId,
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

// === impl State ===

impl State {
    pub(super) fn member_of(&self, server: &ServerName) -> Option<&Member> {
        self.members.iter().find(|member| member.server == *server)
    }

    pub(super) fn member(&self, number: u16) -> Option<&Member> {
        self.members.iter().find(|member| member.number == number)
    }
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Record({} members)", self.state.members.len())
    }
}

mod session_id {
    use super::{
        BASE64_URL_SAFE_NO_PAD, Deserialize as _, Deserializer, Engine as _, Serializer, SessionId,
        de,
    };

    pub(super) fn serialize<S: Serializer>(id: &SessionId, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64_URL_SAFE_NO_PAD.encode(id.as_bytes()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SessionId, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        let bytes = bytes.ok_or_else(|| de::Error::custom("not a session id"))?;
        Ok(SessionId::from_random(bytes))
    }
}

mod server_names {
    use super::{Deserialize as _, Deserializer, Serialize as _, Serializer, ServerName, de};

    pub(super) fn serialize<S: Serializer>(names: &[ServerName], to: S) -> Result<S::Ok, S::Error> {
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        names.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<ServerName>, D::Error> {
        let names = Vec::<String>::deserialize(from)?;
        let names = names.iter().map(|name| name.parse());
        let names: Result<_, _> = names.collect();
        names.map_err(|_| de::Error::custom("not a server's name"))
    }
}

mod server_name {
    use super::{Deserialize as _, Deserializer, Serializer, ServerName, de};

    pub(super) fn serialize<S: Serializer>(name: &ServerName, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(name.as_ref())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ServerName, D::Error> {
        let text = String::deserialize(from)?;
        text.parse()
            .map_err(|_| de::Error::custom("not a server's name"))
    }
}
