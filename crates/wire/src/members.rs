//! The members of a JSON object in their order, repeated ones too, with their values as they are written.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::names::{reads_as, up_to_nul};

/// The members of an object.
#[derive(Debug)]
pub struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// The members of a JSON text; `None` if it is no object.
    #[must_use]
    pub fn of(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The same for bytes, which may not be text.
    #[must_use]
    pub fn of_bytes(text: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// All names with their values.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &'a str)> {
        self.0.iter().map(|(name, value)| (&**name, value.get()))
    }

    /// The value of a name that is there once.
    #[must_use]
    pub fn only(&self, name: &str) -> Option<&'a RawValue> {
        let mut found = self.0.iter().filter(|(key, _)| key == name);
        match (found.next(), found.next()) {
            (Some((_, value)), None) => Some(value),
            _ => None,
        }
    }

    /// The members that some reader takes for this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Vec<(&str, &'a RawValue)> {
        let members = self.0.iter();
        let named = members.filter(|(key, _)| reads_as(key, name));
        named.map(|(key, value)| (key.as_ref(), *value)).collect()
    }

    /// The text of this name; `None` if there is none, or more than one, or some readers stop within it.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        match &self.named(name)[..] {
            [(key, value)] if *key == name => {
                let text: String = serde_json::from_str(value.get()).ok()?;
                (up_to_nul(&text) == text).then_some(text)
            }
            _ => None,
        }
    }

    /// The object as text in which `name` is there once, at the end and with this value, which must be JSON. All others
    /// stay as they are written.
    #[must_use]
    pub fn with(&self, name: &str, value: &str) -> String {
        let others = self.iter().filter(|(known, _)| *known != name);
        written(others.chain([(name, value)]))
    }
}

/// An object with these members, whose values are JSON.
pub fn written<'m>(members: impl IntoIterator<Item = (&'m str, &'m str)>) -> String {
    let mut text = String::from("{");
    for (name, value) in members {
        if text.len() > 1 {
            text.push(',');
        }
        text += &serde_json::Value::from(name).to_string();
        text.push(':');
        text += value;
    }
    text.push('}');
    text
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(key) = map.next_key::<Key<'de>>()? {
                    members.push((key.0, map.next_value()?));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Reader)
    }
}

/// A key, copied only if it has escapes.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_member_is_replaced_and_all_others_stay_as_they_are_written() {
        let text = r#"{ "a" : 1e400,"m":1, "\u006d":2,"M":3, "x":[ 1 ]}"#;
        let members = Members::of(text).unwrap();
        assert_eq!(
            members.with("m", "{}"),
            r#"{"a":1e400,"M":3,"x":[ 1 ],"m":{}}"#
        );
        assert_eq!(Members::of("{}").unwrap().with("\"", "0"), r#"{"\"":0}"#);
        assert!(members.only("m").is_none());
        assert_eq!(members.only("a").unwrap().get(), "1e400");
        assert!(Members::of("[]").is_none());
    }
}
