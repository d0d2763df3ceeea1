//! A session as it is written into a store: what another gateway, or this one after a restart, needs
//! to go on with it. Nothing that is live is in it, and no address: endpoints are named by id.

use bowline_wire::id::UpstreamSessionId;
use bowline_wire::version::Agreed;
use http::HeaderValue;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

use super::believed::{Lacks, Offered, Said};
use super::{Believed, Caller, Seal, Session};
use crate::leg::{Leg, LegRef};
use crate::oauth::Identities;
use crate::upstream::Carried;

/// The layout that this Bowline writes; it reads this one and older ones.
const LAYOUT: u8 = 1;

/// What is in a record.
#[derive(Serialize, Deserialize)]
pub(crate) struct Written {
    layout: u8,
    /// The caller's name; none is the local one.
    caller: Option<String>,
    /// The fingerprint of the caller's key. A record of before it was written down has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// The session's key for marks.
    seal: Seal,
    /// Seconds since 1970.
    pub(super) opened: i64,
    pub(super) generation: u32,
    endpoint: String,
    /// What the server issued.
    upstream: Option<String>,
    version: String,
    /// The number of the sign-in that the server's session belongs to; 0 for none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) sign_in: u64,
    /// Lists that the client was shown on a guess and the server does not have.
    #[serde(default, skip_serializing_if = "Lacks::is_nothing")]
    pub(super) lacks: Lacks,
    /// The generation up to which the client was told what may have changed.
    #[serde(default)]
    pub(super) told: u32,
    offered: Offered,
    initialized: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    level: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    subscriptions: Vec<Box<RawValue>>,
    initialize: Box<RawValue>,
    /// What was carried along with `initialize`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    carried: Option<Box<Carried>>,
}

/// Why a record cannot be used.
#[derive(Debug, Error)]
pub(crate) enum BadRecord {
    /// Where it stops making sense; what stands there is not told.
    #[error("a session's record cannot be read from byte {0} on")]
    Malformed(usize),
    #[error("a session was written by a newer Bowline (layout {0}, and this one knows {LAYOUT})")]
    Newer(u8),
    #[error("a session's record has an impossible {0}")]
    Impossible(&'static str),
}

// === impl Written ===

impl Written {
    /// A session as it is now, on this leg, opened so many seconds after 1970.
    pub(super) fn of(session: &Session, leg: &Leg, opened: i64) -> Result<Self, BadRecord> {
        let said = session.believed.restorable();
        let raw = |text: Box<str>| RawValue::from_string(text.into());
        let initialize = std::str::from_utf8(&session.believed.initialize)
            .map_err(|_| BadRecord::Impossible("initialize"))?;
        Ok(Self {
            layout: LAYOUT,
            caller: session.caller.name().map(str::to_owned),
            key: session.caller.key().map(|key| key.to_string()),
            seal: session.seal.clone(),
            opened,
            generation: leg.at.generation,
            endpoint: leg.endpoint.id.to_string(),
            upstream: leg.upstream_session().map(|id| id.as_str().to_owned()),
            version: leg.version().to_owned(),
            sign_in: leg.sign_in(),
            lacks: leg.lacks(),
            told: 0,
            offered: session.believed.offered,
            initialized: session.believed.is_initialized(),
            level: said.level.map(raw).transpose()?,
            subscriptions: said
                .subscriptions
                .into_iter()
                .map(raw)
                .collect::<Result<_, _>>()?,
            initialize: RawValue::from_string(initialize.to_owned())?,
            carried: session.believed.carried.clone(),
        })
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, BadRecord> {
        Ok(serde_json::to_vec(self)?)
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, BadRecord> {
        #[derive(Deserialize)]
        struct Layout {
            layout: u8,
        }
        match serde_json::from_slice::<Layout>(bytes)?.layout {
            newer if newer > LAYOUT => Err(BadRecord::Newer(newer)),
            _ => Ok(serde_json::from_slice(bytes)?),
        }
    }

    /// Whose it is. One that does not say with which key is taken to be whose the name is now.
    pub(super) fn caller(&self, known: &Identities) -> Result<Caller, BadRecord> {
        let Some(name) = &self.caller else {
            return Ok(Caller::Local);
        };
        let name = name.parse().map_err(|_| BadRecord::Impossible("caller"))?;
        match &self.key {
            None => Ok(known.named(name)),
            Some(key) => match key.parse() {
                Ok(key) => Ok(Caller::Named(name, Some(key))),
                Err(_) => Err(BadRecord::Impossible("key")),
            },
        }
    }

    /// Whether it does not say with which key its caller came.
    pub(super) fn lacks_key(&self) -> bool {
        self.caller.is_some() && self.key.is_none()
    }

    pub(super) fn seal(&self) -> Seal {
        self.seal.clone()
    }

    pub(super) fn believed(&self) -> Believed {
        let initialize = self.initialize.get().as_bytes();
        let believed = Believed::new(initialize, self.carried.clone(), self.offered);
        self.said_to(&believed);
        believed
    }

    /// Makes this what the client has said.
    pub(super) fn said_to(&self, believed: &Believed) {
        let text = |raw: &RawValue| Box::from(raw.get());
        believed.set(
            self.initialized,
            Said {
                level: self.level.as_deref().map(text),
                subscriptions: self.subscriptions.iter().map(|uri| text(uri)).collect(),
            },
        );
    }

    /// The endpoint that the leg is on.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(super) fn at(&self) -> LegRef {
        LegRef {
            generation: self.generation,
            ..LegRef::FIRST
        }
    }

    pub(super) fn upstream_session(&self) -> Result<Option<UpstreamSessionId>, BadRecord> {
        let Some(text) = &self.upstream else {
            return Ok(None);
        };
        HeaderValue::from_str(text)
            .ok()
            .and_then(|value| UpstreamSessionId::issued(&value).ok())
            .map(Some)
            .ok_or(BadRecord::Impossible("upstream session"))
    }

    pub(super) fn version(&self) -> Result<Agreed, BadRecord> {
        Agreed::on(&self.version).ok_or(BadRecord::Impossible("version"))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

// === impl BadRecord ===

impl From<serde_json::Error> for BadRecord {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(error.column())
    }
}

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Written(generation {})", self.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_names_no_key_is_whose_the_name_is_now() {
        use crate::config::{self, KeyHash};
        use std::collections::BTreeMap;
        let identities = Identities::default();
        let give = |key: &[u8]| {
            let caller = config::Caller {
                key: KeyHash::of(key),
            };
            identities.know(&BTreeMap::from([("bob".parse().unwrap(), caller)]));
            identities.named("bob".parse().unwrap())
        };
        let record = |key: &str| {
            let seal = serde_json::to_string(&Seal::generate().unwrap()).unwrap();
            let offered = serde_json::to_string(&Offered::default()).unwrap();
            let record = format!(
                r#"{{"layout":1,"caller":"bob"{key},"seal":{seal},"opened":1,"generation":1,
                "endpoint":"e","upstream":null,"version":"2025-11-25","offered":{offered},
                "initialized":true,"initialize":{{}}}}"#
            );
            Written::parse(record.as_bytes()).unwrap()
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
    fn what_is_wrong_with_a_record_quotes_none_of_it() {
        let secret = r#"{"layout":1,"caller":{"of":"secret-42"},"seal":"secret-43"}"#;
        let bad = Written::parse(secret.as_bytes()).unwrap_err();
        assert!(matches!(bad, BadRecord::Malformed(_)), "{bad:?}");
        let odd = r#"{"layout":"secret-44"}"#;
        let worse = Written::parse(odd.as_bytes()).unwrap_err();
        let told = format!("{bad} {bad:?} {worse} {worse:?}");
        assert!(!told.contains("secret"), "{told}");
    }
}
