//! What changes while an attachment is used: its members and what its client has set. It is stored with the attachment.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline_wire::id::SessionId;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::shown::Shown;
use crate::config::ServerName;

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

// === impl State ===

impl State {
    pub(super) fn member_of(&self, server: &ServerName) -> Option<&Member> {
        self.members.iter().find(|member| member.server == *server)
    }

    pub(super) fn member(&self, number: u16) -> Option<&Member> {
        self.members.iter().find(|member| member.number == number)
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
