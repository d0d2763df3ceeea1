//! A batch: several messages in one JSON array, which revision 2025-03-26 allows.
//!
//! Splitting finds the members as slices of the bytes. It copies nothing and does not judge the members:
//! each is parsed as a message of its own, by the same rules as a single message.

use std::fmt;

use bytes::Bytes;
use serde::de::{Deserializer as _, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use thiserror::Error;

/// JSON's white space.
const JSON_SPACE: &[u8] = b" \t\r\n";

/// Why bytes are not a batch.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadBatch {
    /// Not a JSON array.
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    /// More members than allowed.
    #[error("a batch of more than {max} messages")]
    TooMany {
        /// The limit.
        max: usize,
    },
}

/// Whether JSON text is an array, provided that it is valid.
pub fn is_batch(raw: &[u8]) -> bool {
    raw.iter().find(|byte| !JSON_SPACE.contains(byte)) == Some(&b'[')
}

/// The members of a batch of at most `max`, as slices of its bytes.
pub fn split(raw: &Bytes, max: usize) -> Result<Vec<Bytes>, BadBatch> {
    let mut parser = serde_json::Deserializer::from_slice(raw);
    let members = parser.deserialize_seq(Members { max });
    let members = members.and_then(|members| parser.end().map(|()| members));
    let members = members.map_err(|error| BadBatch::NotJson(error.to_string()))?;
    if members.len() > max {
        return Err(BadBatch::TooMany { max });
    }
    let slice = |member: &RawValue| raw.slice_ref(member.get().as_bytes());
    Ok(members.into_iter().map(slice).collect())
}

/// Collects members, one more than allowed at most, and checks that the rest is JSON.
struct Members {
    max: usize,
}

impl<'de> Visitor<'de> for Members {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while members.len() <= self.max {
            match array.next_element()? {
                Some(member) => members.push(member),
                None => return Ok(members),
            }
        }
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};
    use serde_json::Value;

    use super::*;

    fn members(text: &str, max: usize) -> Result<Vec<String>, BadBatch> {
        let split = split(&Bytes::copy_from_slice(text.as_bytes()), max)?;
        let text = |member: Bytes| String::from_utf8(member.to_vec()).unwrap();
        Ok(split.into_iter().map(text).collect())
    }

    #[test]
    fn members_are_the_bytes_between_the_commas() {
        let text = " [ {\"b\" : 1.0,\"a\":[1,2]} ,\n\"x,]\", 1e2,[ ] ]\r\n";
        let expected = ["{\"b\" : 1.0,\"a\":[1,2]}", "\"x,]\"", "1e2", "[ ]"];
        assert_eq!(members(text, 4).unwrap(), expected);
        assert_eq!(members("[]", 4).unwrap(), [""; 0]);
    }

    #[test]
    fn members_are_places_not_copies() {
        let raw = Bytes::from_static(b"[{\"a\":1},2]");
        let split = split(&raw, 9).unwrap();
        assert_eq!(split[0].as_ptr(), raw[1..].as_ptr());
    }

    #[test]
    fn too_many_are_refused() {
        assert_eq!(members("[1,2,3]", 3).unwrap().len(), 3);
        assert_eq!(members("[1,2,3,4]", 3), Err(BadBatch::TooMany { max: 3 }));
        let broken = members("[1,2,3,4,{]", 3);
        assert!(matches!(broken, Err(BadBatch::NotJson(_))), "{broken:?}");
    }

    #[test]
    fn what_is_no_array_says_why() {
        for bad in [
            "",
            "[",
            "{}",
            "[1,]",
            "[1] 2",
            "[1}",
            "\u{b}[1]",
            "[\"\u{1}\"]",
        ] {
            let split = members(bad, 9);
            assert!(matches!(split, Err(BadBatch::NotJson(_))), "{bad:?}");
        }
    }

    #[test]
    fn an_array_is_told_by_its_first_byte() {
        for batch in ["[", " \t\r\n[1]", "[]"] {
            assert!(is_batch(batch.as_bytes()));
        }
        for other in ["", " ", "{}", "1", "\u{b}[1]", "\"[\""] {
            assert!(!is_batch(other.as_bytes()));
        }
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack() {
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        assert_eq!(
            members(&format!("[{deep},{deep}]"), 1),
            Err(BadBatch::TooMany { max: 1 })
        );
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 5, |inner| {
            let object = prop::collection::hash_map(any::<String>(), inner.clone(), 0..5);
            prop_oneof![
                prop::collection::vec(inner, 0..5).prop_map(Value::from),
                object.prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json(values in prop::collection::vec(any_value(), 0..12), pretty: bool) {
            let array = Value::from(values.clone());
            let text = if pretty { serde_json::to_string_pretty(&array) } else { serde_json::to_string(&array) }.unwrap();
            let members = members(&text, 12).unwrap();
            let parsed: Vec<Value> = members.iter().map(|member| serde_json::from_str(member).unwrap()).collect();
            assert_eq!(parsed, values);
        }

        #[test]
        fn never_panics_and_accepts_what_serde_json_does(bytes in prop::collection::vec(prop_oneof![Just(b'['), Just(b']'), Just(b','), Just(b'1'), Just(b'"'), any::<u8>()], 0..40)) {
            let split = split(&Bytes::from(bytes.clone()), usize::MAX);
            let oracle = serde_json::from_slice::<Vec<&RawValue>>(&bytes);
            assert_eq!(split.ok().map(|members| members.len()), oracle.ok().map(|members| members.len()));
        }
    }
}
