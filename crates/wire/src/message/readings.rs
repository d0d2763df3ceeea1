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
        if are_plainly_one(params, names) {
            return None;
        }
        odd_member(params, names)
    }
}

/// The first of these members of an object that is not the same for every reader.
fn odd_member(object: &str, names: &'static [&'static str]) -> Option<&'static str> {
    let mut reader = serde_json::Deserializer::from_str(object);
    let mut odd = None;
    let looked = reader.deserialize_map(Params {
        names,
        odd: &mut odd,
    });
    // What cannot be read has a name that is no text.
    odd.or_else(|| looked.err().map(|_| "params"))
}

/// Whether no string in this object can be taken for one of these names, but for each name itself, once. That is seen
/// without reading the object, and is so for most.
fn are_plainly_one(object: &str, names: &[&str]) -> bool {
    if object.contains('\\') || !object.is_ascii() {
        return false;
    }
    let mut seen = [false; MAX_NAMES];
    // Without escapes, every other part between quotation marks is a string.
    object.split('"').skip(1).step_by(2).all(|text| {
        let mut known = names.iter().zip(&mut seen);
        let found = known.find(|(known, _)| text.eq_ignore_ascii_case(known));
        found.is_none_or(|(known, is_seen)| text == *known && !std::mem::replace(is_seen, true))
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_plain_at_a_glance_is_not_odd() {
        let names = &["name", "_meta"];
        let members = [
            r#""name":"a""#,
            r#""name": "name""#,
            r#""Name":"b""#,
            r#""na\u006de":1"#,
            r#""name\u0000":1"#,
            "\"\u{212a}\":1",
            r#""_META":{}"#,
            r#""_meta":{"progressToken":"t"}"#,
            r#""arguments":{"x":["y",{}]}"#,
            r#""arguments":{"name":"c"}"#,
        ];
        let mut plain = 0;
        for first in members {
            for second in members {
                let object = format!("{{{first},{second}}}");
                if are_plainly_one(&object, names) {
                    assert_eq!(odd_member(&object, names), None, "{object}");
                    plain += 1;
                }
            }
        }
        assert_eq!(plain, 11);
    }
}
