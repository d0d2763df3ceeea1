//! A definition's text with what was changed in it. All else stays as it is written: the order of members, numbers that
//! we cannot hold, escapes. It is read once, however deep it is.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// The text of `value`, which was read from the text `before` and then changed.
pub(super) fn written(before: &str, value: &Value) -> String {
    let mut text = String::with_capacity(before.len());
    let mut reader = serde_json::Deserializer::from_str(before);
    let now = Now {
        value,
        text: &mut text,
    };
    match now.deserialize(&mut reader) {
        Ok(()) => text,
        // A name that is there twice: the last one counts.
        Err(_) => value.to_string(),
    }
}

/// What a value is now, to be written behind the text so far in the words of what it was.
struct Now<'v, 't> {
    value: &'v Value,
    text: &'t mut String,
}

impl Now<'_, '_> {
    /// What it was does not matter.
    fn write_anew<E>(self) -> Result<(), E> {
        *self.text += &self.value.to_string();
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Now<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        if self.value.is_object() || self.value.is_array() {
            return input.deserialize_any(self);
        }
        let before: &RawValue = serde::Deserialize::deserialize(input)?;
        match serde_json::from_str(before.get()) {
            Ok::<Value, _>(before_value) if before_value == *self.value => {
                *self.text += before.get();
                Ok(())
            }
            _ => self.write_anew(),
        }
    }
}

impl<'de> Visitor<'de> for Now<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.write_anew()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.write_anew()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.write_anew()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.write_anew()
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.write_anew()
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.write_anew()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut before: A) -> Result<(), A::Error> {
        let Value::Array(values) = self.value else {
            while before.next_element::<IgnoredAny>()?.is_some() {}
            return self.write_anew();
        };
        let text = self.text;
        text.push('[');
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            let now = Now { value, text };
            let is_there = before.next_element_seed(now)?;
            is_there.ok_or_else(|| A::Error::custom("it was shorter"))?;
        }
        text.push(']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut before: A) -> Result<(), A::Error> {
        let Value::Object(members) = self.value else {
            while before.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return self.write_anew();
        };
        let (text, mut known) = (self.text, HashSet::new());
        text.push('{');
        let begin = text.len();
        let name_next = |name: &str, text: &mut String| {
            if text.len() > begin {
                text.push(',');
            }
            *text += &Value::from(name).to_string();
            text.push(':');
        };
        while let Some(name) = before.next_key::<Cow<'de, str>>()? {
            match members.get(&*name) {
                Some(value) => {
                    name_next(&name, text);
                    before.next_value_seed(Now { value, text })?;
                }
                None => _ = before.next_value::<IgnoredAny>()?,
            }
            if !known.insert(name) {
                return Err(A::Error::custom("a name is there twice"));
            }
        }
        let others = members.iter().filter(|(name, _)| !known.contains(&***name));
        for (name, value) in others {
            name_next(name, text);
            *text += &value.to_string();
        }
        text.push('}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_changed_stays_as_it_is_written() {
        let before = r#"{"z":1e2,"a":[1.0,"\u0041"],"b":true,"n":12345678901234567890123,"x":{"y":1}, "l":[]}"#;
        let mut value: Value = serde_json::from_str(before).unwrap();
        assert_eq!(written(before, &value), before.replace(' ', ""));
        value["b"] = json!({});
        value["x"] = json!({"w": 2});
        value["l"] = json!({});
        let now =
            r#"{"z":1e2,"a":[1.0,"\u0041"],"b":{},"n":12345678901234567890123,"x":{"w":2},"l":{}}"#;
        assert_eq!(written(before, &value), now);
        let twice = r#"{"a":1,"b":{"x":1,"x":2}}"#;
        let value = serde_json::from_str(twice).unwrap();
        assert_eq!(written(twice, &value), r#"{"a":1,"b":{"x":2}}"#);
    }
}
