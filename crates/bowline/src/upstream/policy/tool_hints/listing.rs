//! Reads from one answer to `tools/list` which tools are safe to repeat.
//!
//! Each tool is parsed on its own, so that one invalid entry does not affect the others. A tool is
//! safe to repeat if `readOnlyHint` or `idempotentHint` is `true`. `destructiveHint` does not
//! count: by the protocol it has no meaning beside `readOnlyHint`, and a destructive tool may be
//! idempotent. A tool with a hint that is not a boolean, or that appears twice, is not safe to
//! repeat.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::stored::SafeTools;

/// A page of a listing.
#[derive(Debug)]
pub(super) struct Listing {
    /// By name, whether each is safe to repeat.
    tools: HashMap<Box<str>, bool>,
    /// No page follows.
    pub(super) is_last: bool,
}

/// What the pages of one list say.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pub(super) safe: SafeTools,
    /// What some page said to be unsafe. Another page cannot say otherwise.
    pub(super) refused: SafeTools,
    /// All of them were read.
    is_whole: bool,
}

/// The values of two members of an object. Each may appear several times.
type Two<'a> = [Vec<&'a RawValue>; 2];

impl Listing {
    /// Reads the result of `tools/list` (JSON text). `None`: it is no listing.
    pub(super) fn read(result: &str) -> Option<Self> {
        let [tools, next] = members(result, ["tools", "nextCursor"])?;
        let [tools] = tools[..] else { return None };
        let tools: Vec<&RawValue> = serde_json::from_str(tools.get()).ok()?;
        let mut listing = Self {
            tools: HashMap::with_capacity(tools.len()),
            is_last: next.iter().all(|next| next.get() == "null"),
        };
        tools.iter().for_each(|tool| listing.add(tool.get()));
        Some(listing)
    }

    fn add(&mut self, tool: &str) {
        let Some([names, annotations]) = members(tool, ["name", "annotations"]) else {
            return;
        };
        let is_safe = names.len() == 1 && annotations.len() == 1 && is_safe(annotations[0].get());
        let names = names
            .iter()
            .filter_map(|name| serde_json::from_str::<Box<str>>(name.get()).ok());
        for name in names {
            // If a name is listed twice, both entries must say that it is safe to repeat.
            *self.tools.entry(name).or_insert(true) &= is_safe;
        }
    }

    pub(super) fn into_tools(self) -> impl Iterator<Item = (Box<str>, bool)> {
        self.tools.into_iter()
    }

    /// Whether a tool is not safe that was believed to be.
    pub(super) fn takes_back(&self, is_believed: impl Fn(&str) -> bool) -> bool {
        let mut tools = self.tools.iter();
        tools.any(|(tool, is_safe)| !is_safe && is_believed(tool))
    }
}

// === impl Pages ===

impl Pages {
    /// The first pages said this.
    pub(super) fn after(safe: SafeTools, refused: SafeTools) -> Self {
        Self {
            safe,
            refused,
            is_whole: false,
        }
    }

    /// Adds the result of the next request (JSON text), whatever it is.
    pub(crate) fn add_result(&mut self, result: Option<&str>) {
        match result.and_then(Listing::read) {
            Some(page) => self.add(page),
            None => *self = Self::default(),
        }
    }

    pub(super) fn add(&mut self, page: Listing) {
        self.is_whole = page.is_last;
        for (tool, is_safe) in page.tools {
            let is_refused = self.refused.is_full() || self.refused.names.contains(&tool);
            self.safe.set(&tool, is_safe && !is_refused);
            if !is_safe {
                self.refused.set(&tool, true);
            }
        }
    }

    /// Whether the whole list was read, and says that this tool is safe to repeat.
    pub(crate) fn say_safe(&self, tool: &str) -> bool {
        self.is_whole && self.safe.names.contains(tool)
    }
}

/// Whether annotations (JSON text) say that a tool may run twice.
fn is_safe(annotations: &str) -> bool {
    let hint = |values: &[&RawValue]| match values {
        [] => Some(false),
        [value] => match value.get() {
            "true" => Some(true),
            "false" | "null" => Some(false),
            _ => None,
        },
        _ => None,
    };
    let Some([reads_only, is_idempotent]) =
        members(annotations, ["readOnlyHint", "idempotentHint"])
    else {
        return false;
    };
    match (hint(&reads_only), hint(&is_idempotent)) {
        (Some(reads_only), Some(is_idempotent)) => reads_only || is_idempotent,
        _ => false,
    }
}

/// What stands under these names in an object (JSON text). `None`: it is no object.
fn members<'a>(object: &'a str, names: [&str; 2]) -> Option<Two<'a>> {
    struct Members<'n>([&'n str; 2]);

    impl<'de> Visitor<'de> for Members<'_> {
        type Value = Two<'de>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Two<'de>, A::Error> {
            let mut found = Two::default();
            while let Some(name) = map.next_key::<Cow<'de, str>>()? {
                match self.0.iter().position(|wanted| *wanted == name) {
                    Some(place) => found[place].push(map.next_value()?),
                    None => drop(map.next_value::<IgnoredAny>()?),
                }
            }
            Ok(found)
        }
    }

    let mut text = serde_json::Deserializer::from_str(object);
    let found = text.deserialize_map(Members(names)).ok()?;
    text.end().ok()?;
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tools: &str) -> Vec<(String, bool)> {
        let listing = Listing::read(&format!(r#"{{"tools":[{tools}],"nextCursor":"c"}}"#));
        let mut tools: Vec<_> = listing
            .unwrap()
            .into_tools()
            .map(|(name, is_safe)| (name.into_string(), is_safe))
            .collect();
        tools.sort();
        tools
    }

    #[test]
    fn a_tool_may_run_twice_if_it_says_so() {
        for (annotations, expected) in [
            (r#"{"readOnlyHint":true}"#, true),
            (r#"{"idempotentHint":true,"title":"x"}"#, true),
            (r#"{"readOnlyHint":true,"destructiveHint":true}"#, true),
            (r#"{"idempotentHint":true,"destructiveHint":true}"#, true),
            (r#"{"readOnlyHint":true,"idempotentHint":null}"#, true),
            (r#"{"readOnly\u0048int":true}"#, true),
            (r#"{"readOnlyHint":false,"destructiveHint":false}"#, false),
            (r#"{"readOnlyHint":null}"#, false),
            (r#"{"readOnlyHint":"true"}"#, false),
            (r#"{"readOnlyHint":1}"#, false),
            (r#"{"readOnlyHint":true,"idempotentHint":"no"}"#, false),
            (r#"{"readOnlyHint":false,"readOnlyHint":true}"#, false),
            (r#"{"destructiveHint":false}"#, false),
            ("null", false),
            ("[true,true]", false),
            (r#""readOnlyHint""#, false),
            ("{}", false),
        ] {
            let tool = format!(r#"{{"name":"t","annotations":{annotations}}}"#);
            assert_eq!(read(&tool), [("t".to_owned(), expected)], "{annotations}");
        }
        assert_eq!(read(r#"{"name":"t"}"#), [("t".to_owned(), false)]);
    }

    #[test]
    fn an_odd_entry_says_nothing_of_the_others() {
        let good = r#"{"name":"g","annotations":{"readOnlyHint":true}}"#;
        for odd in [
            "7",
            "null",
            "[]",
            r#""x""#,
            "{}",
            r#"{"name":null}"#,
            r#"{"name":7,"annotations":{"readOnlyHint":true}}"#,
            r#"{"annotations":{"readOnlyHint":true}}"#,
            r#"{"name":"\ud800","annotations":{"readOnlyHint":true}}"#,
        ] {
            let expected = [("g".to_owned(), true)];
            assert_eq!(read(&format!("{odd},{good}")), expected, "{odd}");
            assert_eq!(read(&format!("{good},{odd}")), expected, "{odd}");
        }
        let hint = r#""annotations":{"readOnlyHint":true}"#;
        let two_names = format!(r#"{{"name":"a","name":"b",{hint}}},{good}"#);
        let expected = [("a", false), ("b", false), ("g", true)];
        assert_eq!(
            read(&two_names),
            expected.map(|(name, is)| (name.to_owned(), is))
        );
        let contradicting = format!(r#"{good},{{"name":"g"}}"#);
        assert_eq!(read(&contradicting), [("g".to_owned(), false)]);
    }

    #[test]
    fn what_is_no_listing_is_none() {
        for result in [
            "nonsense",
            "{}",
            "null",
            "[[]]",
            r#"{"tools":null}"#,
            r#"{"tools":{"x":{}}}"#,
            r#"{"tools":[],"tools":[]}"#,
            r#"{"tools":[}"#,
        ] {
            assert!(Listing::read(result).is_none(), "{result}");
        }
        assert!(Listing::read(r#"{"tools":[]}"#).is_some());
    }
}
