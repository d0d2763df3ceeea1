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
use crate::upstream::Carried;

/// The layout that this Bowline writes; it reads this one and older ones.
const LAYOUT: u8 = 1;

/// What is in a record.
#[derive(Serialize, Deserialize)]
pub(crate) struct Written {
    layout: u8,
    /// The caller's name; none is the local one.
    caller: Option<String>,
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

    pub(super) fn caller(&self) -> Result<Caller, BadRecord> {
        match &self.caller {
            None => Ok(Caller::Local),
            Some(name) => match name.parse() {
                Ok(name) => Ok(Caller::Named(name)),
                Err(_) => Err(BadRecord::Impossible("caller")),
            },
        }
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
