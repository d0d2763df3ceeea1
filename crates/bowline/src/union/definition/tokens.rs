//! Keys by which serde_json takes a text in an object for the JSON that is in it. What is judged would be another value
//! than the one that clients read.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

const PREFIX: &str = "$serde_json::private::";

/// Any JSON without such keys, which is not kept.
pub(super) struct Plain;

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Plain;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_bool<E: Error>(self, _: bool) -> Result<Plain, E> {
                Ok(Plain)
            }

            fn visit_i64<E: Error>(self, _: i64) -> Result<Plain, E> {
                Ok(Plain)
            }

            fn visit_u64<E: Error>(self, _: u64) -> Result<Plain, E> {
                Ok(Plain)
            }

            fn visit_f64<E: Error>(self, _: f64) -> Result<Plain, E> {
                Ok(Plain)
            }

            fn visit_str<E: Error>(self, _: &str) -> Result<Plain, E> {
                Ok(Plain)
            }

            fn visit_unit<E: Error>(self) -> Result<Plain, E> {
                Ok(Plain)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Plain, A::Error> {
                while items.next_element::<Plain>()?.is_some() {}
                Ok(Plain)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Plain, A::Error> {
                while let Some((key, _)) = members.next_entry::<Cow<'de, str>, Plain>()? {
                    if key.starts_with(PREFIX) {
                        return Err(A::Error::custom("a reserved key"));
                    }
                }
                Ok(Plain)
            }
        }

        input.deserialize_any(Any)
    }
}
