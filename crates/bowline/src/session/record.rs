//! A session as it is stored: what another gateway, or this one after a restart, needs to continue it.
//! It contains no live state, and endpoints are named by id.

use std::net::IpAddr;

use bowline_wire::id::UpstreamSessionId;
use bowline_wire::version::Agreed;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::caller::Caller;
use crate::callers::Callers;
use crate::leg::capabilities::{Capabilities, MissingLists};
use crate::leg::marks::Seal;
use crate::leg::{Generation, Leg};
use crate::session::Session;
use crate::session::client_state::ClientState;
use crate::session::client_state::Said;
use crate::session_store::record_error::{BadRecord, LAYOUT};
use crate::session_store::records;
use crate::upstream::{Carried, Credentials};

/// The content of a record.
#[derive(Serialize, Deserialize)]
pub(crate) struct Record {
    layout: u8,
    /// The caller's name; `None` is the local caller.
    caller: Option<String>,
    /// The fingerprint of the caller's key. Records of early releases lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// The key that seals the session's marks.
    seal: Seal,
    /// Seconds since 1970.
    pub(crate) opened: i64,
    pub(crate) generation: u32,
    /// Its number among the members of an attachment.
    #[serde(default, skip_serializing_if = "is_zero")]
    member: u16,
    endpoint: String,
    /// Where the server was reached, if that was by a name. Records of early releases lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    home: Option<IpAddr>,
    /// The session id that the server issued.
    upstream: Option<String>,
    version: String,
    /// The gateway that owns what lives in one process, such as a server's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    /// The number of the sign-in that the server's session belongs to; 0 for none.
    #[serde(default, skip_serializing_if = "is_zero")]
    sign_in: u64,
    /// Whether the server's session was opened where callers sign in, although its caller may not have: then it
    /// is a caller's, and otherwise the operator's.
    #[serde(default, skip_serializing_if = "is_false")]
    account: bool,
    /// Whether the server's session was opened with a token that the operator configured.
    #[serde(default, skip_serializing_if = "is_false")]
    token: bool,
    /// Lists that the client was promised by a guess and that the server does not have.
    #[serde(
        default,
        rename = "lacks",
        skip_serializing_if = "MissingLists::is_nothing"
    )]
    pub(crate) missing_lists: MissingLists,
    /// The last generation for which the client was notified of possible changes.
    #[serde(default)]
    pub(crate) told: u32,
    #[serde(rename = "offered")]
    capabilities: Capabilities,
    initialized: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    level: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    subscriptions: Vec<Box<RawValue>>,
    initialize: Box<RawValue>,
    /// The headers and query carried with `initialize`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    carried: Option<Box<Carried>>,
}

// === impl Record ===

impl Record {
    /// The session's current state with this leg; `opened` is in seconds since 1970.
    pub(crate) fn of(session: &Session, leg: &Leg, opened: i64) -> Result<Self, BadRecord> {
        let said = session.client_state.restorable();
        let raw = |text: Box<str>| RawValue::from_string(text.into());
        let initialize = std::str::from_utf8(&session.client_state.initialize)
            .map_err(|_| BadRecord::Impossible("initialize"))?;
        Ok(Self {
            layout: LAYOUT,
            caller: session.caller.name().map(str::to_owned),
            key: session.caller.key().map(|key| key.to_string()),
            seal: session.seal.clone(),
            opened,
            generation: leg.generation.number,
            member: leg.generation.leg,
            endpoint: leg.endpoint.id.to_string(),
            home: leg.home(),
            upstream: leg.upstream_session().map(|id| id.as_str().to_owned()),
            version: leg.version().to_owned(),
            owner: None,
            sign_in: leg.credentials.sign_in(),
            account: matches!(leg.credentials, Credentials::Caller { .. }),
            token: leg.credentials == Credentials::Operator,
            missing_lists: leg.missing_lists(),
            told: 0,
            capabilities: session.client_state.capabilities,
            initialized: session.client_state.is_initialized(),
            level: said.level.map(raw).transpose()?,
            subscriptions: said
                .subscriptions
                .into_iter()
                .map(raw)
                .collect::<Result<_, _>>()?,
            initialize: RawValue::from_string(initialize.to_owned())?,
            carried: session.client_state.carried.clone(),
        })
    }

    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, BadRecord> {
        Ok(serde_json::to_vec(self)?)
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, BadRecord> {
        records::parse(bytes)
    }

    /// The session's caller. A record without a key fingerprint belongs to whichever key has the name
    /// now.
    pub(crate) fn caller(&self, known: &Callers) -> Result<Caller, BadRecord> {
        records::caller(self.caller.as_deref(), self.key.as_deref(), known)
    }

    /// With whose credentials the server's session was opened.
    pub(crate) fn credentials(&self) -> Credentials {
        match (self.account, self.sign_in, self.token) {
            // Early releases wrote the number alone.
            (true, sign_in, _) | (false, sign_in @ 1.., _) => Credentials::Caller { sign_in },
            (false, 0, true) => Credentials::Operator,
            (false, 0, false) => Credentials::Nobody,
        }
    }

    /// Whether the record lacks the fingerprint of its caller's key.
    pub(crate) fn lacks_key(&self) -> bool {
        self.caller.is_some() && self.key.is_none()
    }

    pub(crate) fn seal(&self) -> Seal {
        self.seal.clone()
    }

    pub(crate) fn client_state(&self) -> ClientState {
        let initialize = self.initialize.get().as_bytes();
        let client_state = ClientState::new(initialize, self.carried.clone(), self.capabilities);
        self.said_to(&client_state);
        client_state
    }

    /// Copies the stored settings into `client_state`.
    pub(crate) fn said_to(&self, client_state: &ClientState) {
        let text = |raw: &RawValue| Box::from(raw.get());
        client_state.set(
            self.initialized,
            Said {
                level: self.level.as_deref().map(text),
                subscriptions: self.subscriptions.iter().map(|uri| text(uri)).collect(),
            },
        );
    }

    /// The id of the leg's endpoint.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Where the server was reached.
    pub(crate) fn home(&self) -> Option<IpAddr> {
        self.home
    }

    pub(crate) fn generation(&self) -> Generation {
        Generation {
            number: self.generation,
            leg: self.member,
        }
    }

    pub(crate) fn upstream_session(&self) -> Result<Option<UpstreamSessionId>, BadRecord> {
        let Some(text) = &self.upstream else {
            return Ok(None);
        };
        UpstreamSessionId::parse(text.as_bytes())
            .map(Some)
            .map_err(|_| BadRecord::Impossible("upstream session"))
    }

    /// The gateway that owns what lives in one process.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    pub(crate) fn version(&self) -> Result<Agreed, BadRecord> {
        Agreed::on(&self.version).ok_or(BadRecord::Impossible("version"))
    }
}

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Record(generation {})", self.generation)
    }
}

#[cfg(test)]
mod tests {
    use bowline_wire::id::SessionId;

    use super::*;

    #[test]
    fn a_record_that_names_no_key_is_whose_the_name_is_now() {
        use crate::config::{self, KeyHash};
        use std::collections::BTreeMap;
        let identities = Callers::default();
        let give = |key: &[u8]| {
            let caller = config::Caller::with_key(KeyHash::of(key));
            identities.replace(&BTreeMap::from([("bob".parse().unwrap(), caller)]));
            identities.named("bob".parse().unwrap())
        };
        let record = |key: &str| {
            let seal = serde_json::to_string(&Seal::generate().unwrap()).unwrap();
            let capabilities = serde_json::to_string(&Capabilities::default()).unwrap();
            let record = format!(
                r#"{{"layout":1,"caller":"bob"{key},"seal":{seal},"opened":1,"generation":1,
                "endpoint":"e","upstream":null,"version":"2025-11-25","offered":{capabilities},
                "initialized":true,"initialize":{{}}}}"#
            );
            Record::parse(record.as_bytes()).unwrap()
        };
        let first = give(b"first");
        let old = record("");
        assert!(old.lacks_key());
        assert_eq!(old.caller(&identities).unwrap(), first);
        let new = record(&format!(r#","key":"{}""#, first.key().unwrap()));
        let second = give(b"second");
        assert!(!new.lacks_key());
        assert_eq!(new.caller(&identities).unwrap(), first);
        assert_eq!(old.caller(&identities).unwrap(), second);
        let odd = record(r#","key":"odd""#).caller(&identities);
        assert!(matches!(odd, Err(BadRecord::Impossible("key"))));
    }

    #[test]
    fn credentials_are_written_as_they_always_were() {
        let written = |credentials| {
            let mut leg = Leg::idle();
            leg.credentials = credentials;
            let client_state = ClientState::new(b"{}", None, Capabilities::default());
            let id = SessionId::from_random([7; SessionId::BYTES]);
            let seal = Seal::generate().unwrap();
            let session = Session::new(&id, Caller::Local, seal, leg, client_state);
            let record = Record::of(&session, &session.leg(), 1).unwrap();
            let record = serde_json::to_value(&record).unwrap();
            let fields = ["sign_in", "account", "token"];
            fields.map(|field| record.get(field).map(ToString::to_string))
        };
        let read = |[sign_in, account, token]: [Option<String>; 3]| {
            let mut fields = String::new();
            for (name, value) in [("sign_in", sign_in), ("account", account), ("token", token)] {
                fields.extend(value.map(|value| format!(r#""{name}":{value},"#)));
            }
            let seal = serde_json::to_string(&Seal::generate().unwrap()).unwrap();
            let capabilities = serde_json::to_string(&Capabilities::default()).unwrap();
            let record = format!(
                r#"{{{fields}"layout":1,"caller":null,"seal":{seal},"opened":1,"generation":1,"endpoint":"e",
                "upstream":null,"version":"2025-11-25","offered":{capabilities},"initialized":true,
                "initialize":{{}}}}"#
            );
            Record::parse(record.as_bytes()).unwrap().credentials()
        };
        let text = |text: &str| Some(text.to_owned());
        for (credentials, fields) in [
            (Credentials::Nobody, [None, None, None]),
            (Credentials::Operator, [None, None, text("true")]),
            (
                Credentials::Caller { sign_in: 0 },
                [None, text("true"), None],
            ),
            (
                Credentials::Caller { sign_in: 7 },
                [text("7"), text("true"), None],
            ),
        ] {
            assert_eq!(written(credentials), fields);
            assert_eq!(read(fields), credentials);
        }
        // As early releases wrote it.
        assert_eq!(
            read([text("7"), None, None]),
            Credentials::Caller { sign_in: 7 }
        );
    }

    #[test]
    fn what_is_wrong_with_a_record_quotes_none_of_it() {
        let secret = r#"{"layout":1,"caller":{"of":"secret-42"},"seal":"secret-43"}"#;
        let bad = Record::parse(secret.as_bytes()).unwrap_err();
        assert!(matches!(bad, BadRecord::Malformed(_)), "{bad:?}");
        let odd = r#"{"layout":"secret-44"}"#;
        let worse = Record::parse(odd.as_bytes()).unwrap_err();
        let told = format!("{bad} {bad:?} {worse} {worse:?}");
        assert!(!told.contains("secret"), "{told}");
    }
}
