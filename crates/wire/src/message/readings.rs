//! Refuses a client's message that two servers could read differently where a gateway decides by it.
//!
//! Which tool is called, which resource is read, what is cancelled: a policy holds only if the server finds the same
//! there as the gateway did. Some readers take the first of two equal members, some the last; some ignore the case of
//! names; some stop at a NUL, and some drop or replace half of a surrogate pair. What none of them can take for anything
//! else passes unchanged. The envelope's own members are judged where they are read ([`fields`](super::fields)).

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Malformed, Message, Method, RawId};
use crate::names::reads_as;

/// The largest number of them.
const MAX_NAMES: usize = 3;

/// The params by which a gateway decides, method by method.
const DECISIVE: [(&str, &[&str]); 10] = [
    ("tools/call", &["name", "_meta"]),
    ("prompts/get", &["name", "_meta"]),
    ("resources/read", &["uri", "_meta"]),
    ("resources/subscribe", &["uri", "_meta"]),
    ("resources/unsubscribe", &["uri", "_meta"]),
    ("completion/complete", &["ref", "_meta"]),
    ("logging/setLevel", &["level", "_meta"]),
    ("initialize", &["protocolVersion", "capabilities", "_meta"]),
    ("notifications/cancelled", &["requestId"]),
    ("notifications/progress", &["progressToken"]),
];

// === impl Message ===

impl Message {
    /// Checks that every reader finds the same where a gateway decides.
    pub(super) fn has_one_reading(&self) -> Result<(), Malformed> {
        if self.0.id.is_some_and(|id| !is_plain(self.text(id))) {
            return Err(Malformed::TwoReadings {
                what: "id",
                id: None,
            });
        }
        self.has_two_readings().map_or(Ok(()), |what| {
            let id = self.id().map(RawId::to_buf);
            Err(Malformed::TwoReadings { what, id })
        })
    }

    /// What is not the same for every reader, besides the id.
    fn has_two_readings(&self) -> Option<&'static str> {
        let method = self.method()?;
        let is_common = matches!(self.0.method, Some(Method::Common(_)));
        if !is_common && method.contains('\0') {
            return Some("method");
        }
        let mut table = DECISIVE.iter();
        let (known, names) = table.find(|(known, _)| match is_common {
            true => *known == method,
            false => reads_as(method, known),
        })?;
        match *known == method {
            true => self.odd_param(names),
            false => Some("method"),
        }
    }

    /// The first of these members of the params that is not the same for every reader.
    fn odd_param(&self, names: &'static [&'static str]) -> Option<&'static str> {
        let params = self.object(self.0.params?)?;
        let mut reader = serde_json::Deserializer::from_str(params);
        let mut odd = None;
        let looked = reader.deserialize_map(Params {
            names,
            odd: &mut odd,
        });
        // What cannot be read has a name that is no text.
        odd.or_else(|| looked.err().map(|_| "params"))
    }
}

/// Whether all readers take a JSON value for the same, if it is a string.
fn is_plain(value: &str) -> bool {
    // Without an escape there is neither a NUL nor half a pair.
    !value.starts_with('"')
        || !value.contains('\\')
        || serde_json::from_str::<Cow<'_, str>>(value).is_ok_and(|text| !text.contains('\0'))
}

/// Looks for members with these names.
struct Params<'a> {
    names: &'static [&'static str],
    odd: &'a mut Option<&'static str>,
}

#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Visitor<'de> for Params<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut seen = [false; MAX_NAMES];
        while let Some(Name(name)) = members.next_key()? {
            let mut known = self.names.iter().zip(&mut seen);
            let Some((known, is_seen)) = known.find(|(known, _)| reads_as(&name, known)) else {
                members.next_value::<IgnoredAny>()?;
                continue;
            };
            let value: &RawValue = members.next_value()?;
            let is_again = std::mem::replace(is_seen, true);
            if is_again || name != *known || !is_plain(value.get()) {
                self.odd.get_or_insert(known);
            }
        }
        Ok(())
    }
}
