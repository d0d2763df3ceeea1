//! The members of a message that a gateway reads.
//!
//! Readers differ in what they take for a name: some ignore case, some stop at a NUL. A name that only such a
//! reader takes for one of these makes a client's message ambiguous, and one that it takes for `method` makes a
//! response so. Names are compared exactly first, so only unknown ones cost more.

use std::borrow::Cow;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor,
};
use serde_json::value::RawValue;

use super::{Kind, Malformed};
use crate::names::reads_as;

#[derive(Default)]
pub(super) struct Fields<'a> {
    jsonrpc: Option<Cow<'a, str>>,
    pub(super) id: Option<&'a RawValue>,
    pub(super) method: Option<&'a RawValue>,
    pub(super) params: Option<&'a RawValue>,
    pub(super) result: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
    /// The first that another name is taken for by some reader.
    odd: Option<&'static str>,
    /// Another name that some reader takes for `method`, with a value that is not `null`.
    has_odd_method: bool,
    /// All of the message is UTF-8.
    pub(super) is_text: bool,
}

/// Finds the member of an object with this name: the last one, if there are several.
pub(super) struct Member<'n>(pub(super) &'n str);

enum Name {
    Jsonrpc,
    Id,
    Method,
    Params,
    Result,
    Error,
    /// Some reader takes it for this one.
    Odd(&'static str),
    Other,
}

// === impl Member ===

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key_seed(IsNamed(self.0))? {
            match name {
                true => found = Some(map.next_value()?),
                false => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

/// Whether a member's name is this one, however it is spelled.
struct IsNamed<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for IsNamed<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<bool, D::Error> {
        input.deserialize_str(self)
    }
}

impl Visitor<'_> for IsNamed<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

// === impl Name ===

impl Name {
    const ALL: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Name, E> {
                Ok(match name {
                    "jsonrpc" => Name::Jsonrpc,
                    "id" => Name::Id,
                    "method" => Name::Method,
                    "params" => Name::Params,
                    "result" => Name::Result,
                    "error" => Name::Error,
                    _ => {
                        let mut all = Name::ALL.into_iter();
                        let odd = all.find(|known| reads_as(name, known));
                        odd.map_or(Name::Other, Name::Odd)
                    }
                })
            }

            // A name that is not UTF-8 is nobody's.
            fn visit_bytes<E: Error>(self, _: &[u8]) -> Result<Name, E> {
                Ok(Name::Other)
            }
        }

        input.deserialize_identifier(Text)
    }
}

// === impl Fields ===

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Fields::default();
                while let Some(name) = members.next_key()? {
                    let (field, name) = match name {
                        Name::Jsonrpc if fields.jsonrpc.is_some() => {
                            return Err(A::Error::duplicate_field("jsonrpc"));
                        }
                        Name::Jsonrpc => {
                            fields.jsonrpc = Some(members.next_value::<Text<'de>>()?.0);
                            continue;
                        }
                        Name::Odd(known) => {
                            let value: &RawValue = members.next_value()?;
                            fields.has_odd_method |= known == "method" && value.get() != "null";
                            fields.odd.get_or_insert(known);
                            continue;
                        }
                        Name::Other => {
                            members.next_value::<IgnoredAny>()?;
                            continue;
                        }
                        Name::Id => (&mut fields.id, "id"),
                        Name::Method => (&mut fields.method, "method"),
                        Name::Params => (&mut fields.params, "params"),
                        Name::Result => (&mut fields.result, "result"),
                        Name::Error => (&mut fields.error, "error"),
                    };
                    // A `null` is there, too.
                    if field.replace(members.next_value()?).is_some() {
                        return Err(A::Error::duplicate_field(name));
                    }
                }
                Ok(fields)
            }
        }

        input.deserialize_map(Members)
    }
}

#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Fields<'_> {
    /// Refuses names that readers take differently, and bytes that some of them drop: one of them would find another
    /// message than Bowline did.
    pub(super) fn refuse_odd(&self) -> Result<(), Malformed> {
        match self.odd {
            Some(known) => Err(Malformed::OddName(known)),
            None if self.is_text => Ok(()),
            None => Err(Malformed::NotJson("it is not UTF-8".to_owned())),
        }
    }

    /// Some servers write both `result` and `error`, one of them `null`: then the other one counts.
    pub(super) fn forget_null(&mut self) {
        let is_null = |value: Option<&RawValue>| value.is_some_and(|value| value.get() == "null");
        if self.result.is_some() && is_null(self.error) {
            self.error = None;
        } else if self.error.is_some() && is_null(self.result) {
            self.result = None;
        }
    }

    /// Removes every member that is `null`, except the result of a response.
    pub(super) fn forget_nulls(&mut self) {
        let is_null = |value: Option<&RawValue>| value.is_some_and(|value| value.get() == "null");
        self.method = self.method.filter(|method| !is_null(Some(method)));
        if self.method.is_some() {
            self.id = self.id.filter(|id| !is_null(Some(id)));
            self.result = self.result.filter(|result| !is_null(Some(result)));
            self.error = self.error.filter(|error| !is_null(Some(error)));
        }
        self.forget_null();
    }

    /// The same, and `jsonrpc` may be missing.
    pub(super) fn forget_all_null(&mut self) {
        self.jsonrpc = Some(Cow::Borrowed("2.0"));
        self.forget_nulls();
    }

    pub(super) fn kind(&self) -> Result<Kind, Malformed> {
        let wrong = |what: &str| Err(Malformed::NotJsonRpc(what.to_owned()));
        if self.jsonrpc.as_deref() != Some("2.0") {
            return wrong("`jsonrpc` must be \"2.0\"");
        }
        let answers = usize::from(self.result.is_some()) + usize::from(self.error.is_some());
        let id = self.id.map(|id| id.get().as_bytes()[0]);
        match (self.method.is_some(), answers, id) {
            (true, 0, None) => Ok(Kind::Notification),
            (true, 0, Some(b'"' | b'-' | b'0'..=b'9')) => Ok(Kind::Request),
            (true, 0, Some(_)) => wrong("a request's `id` must be a string or a number"),
            (true, _, _) => Err(Malformed::Ambiguous),
            (false, 1.., _) if self.has_odd_method => Err(Malformed::Ambiguous),
            (false, 1, None | Some(b'n' | b'"' | b'-' | b'0'..=b'9')) => Ok(Kind::Response),
            (false, 1, Some(_)) => wrong("a response's `id` must be a string or a number"),
            (false, 0, _) => wrong("`method`, `result` and `error` are all missing"),
            (false, _, _) => wrong("`result` cannot stand beside `error`"),
        }
    }
}
