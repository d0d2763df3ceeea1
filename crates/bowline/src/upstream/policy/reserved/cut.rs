//! Cuts members out of a JSON text. Everything else stays byte for byte: numbers, the order of the keys, escapes.

use std::borrow::Cow;

use bowline_wire::names::{plain, up_to_nul};
use memchr::memchr2;

/// An object or array that has not ended.
#[derive(Debug, Default)]
struct Open {
    is_object: bool,
    part: Part,
    /// Where the current member begins: with the comma before it, if there is one.
    member: usize,
    /// Whether the current member's name was read.
    is_named: bool,
    /// What the current member's value is.
    next: Part,
    /// Whether a member before this one stays.
    has_members: bool,
}

/// Which part of a message an object or array is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The message itself.
    Message,
    Result,
    /// A tool's own data, or a part of it: what is called `_meta` there is not the protocol's.
    Own,
    /// The value of a `_meta`.
    Meta,
    #[default]
    Other,
}

impl Part {
    /// What the value of a member of this name is. The name is as the most lenient reader takes it, `written` as the
    /// strictest one does.
    fn member(self, name: &str, written: &[u8]) -> Self {
        match (self, written) {
            (Self::Own, _) => Self::Own,
            (Self::Message, b"result") => Self::Result,
            (Self::Result, b"structuredContent") => Self::Own,
            _ if name == "_meta" => Self::Meta,
            _ => Self::Other,
        }
    }
}

/// The text without the members of each `_meta` that are reserved, judged by their names as the most lenient reader
/// takes them. The text must be JSON; how deep it is does not matter.
pub(super) fn without(text: &[u8], is_reserved: impl Fn(&str) -> bool) -> Cow<'_, [u8]> {
    let mut kept = Vec::new();
    // What follows this is not in `kept` yet.
    let mut rest = 0;
    let mut open: Vec<Open> = Vec::new();
    // How many objects and arrays are open around a member that is cut.
    let mut cut_at = None;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let depth = open.len();
        match (byte, open.last_mut()) {
            (b'"', inner) => {
                let end = text_end(text, at);
                match inner {
                    Some(object) if object.is_object && !object.is_named && cut_at.is_none() => {
                        object.is_named = true;
                        let name = plain(&String::from_utf8_lossy(&text[at + 1..end]));
                        let name = up_to_nul(&name);
                        object.next = object.part.member(name, &text[at + 1..end]);
                        if object.part == Part::Meta && is_reserved(name) {
                            kept.extend_from_slice(&text[rest..object.member]);
                            rest = object.member;
                            cut_at = Some(depth);
                        } else if !object.has_members {
                            object.has_members = true;
                            if text[object.member] == b',' {
                                kept.extend_from_slice(&text[rest..object.member]);
                                rest = object.member + 1;
                            }
                        }
                    }
                    _ => {}
                }
                at = end;
            }
            (b'{' | b'[', outer) => {
                let is_object = byte == b'{';
                let part = match outer {
                    None => Part::Message,
                    // Nothing in an array has a name of its own.
                    Some(array) if !array.is_object => match array.part {
                        Part::Own => Part::Own,
                        Part::Message | Part::Result | Part::Meta | Part::Other => Part::Other,
                    },
                    Some(object) => object.next,
                };
                open.push(Open {
                    is_object,
                    part,
                    member: at + 1,
                    ..Open::default()
                });
            }
            (b',' | b'}' | b']', inner) => {
                if cut_at == Some(depth) {
                    cut_at = None;
                    rest = at;
                }
                match inner {
                    Some(inner) if byte == b',' => {
                        inner.member = at;
                        inner.is_named = false;
                        inner.next = Part::Other;
                    }
                    _ => _ = open.pop(),
                }
            }
            _ => {}
        }
        at += 1;
    }
    if rest == 0 {
        return Cow::Borrowed(text);
    }
    kept.extend_from_slice(&text[rest..]);
    Cow::Owned(kept)
}

/// Where the string ends that begins here: at its second quote.
fn text_end(text: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while let Some(found) = text.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if text[at] == b'"' {
            return at;
        }
        at += 2;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> String {
        let without = without(text.as_bytes(), |name| name.starts_with("x/"));
        String::from_utf8(without.into_owned()).unwrap()
    }

    #[test]
    fn the_comma_goes_with_the_member() {
        for (text, left) in [
            (r#"{"_meta":{"x/a":1}}"#, r#"{"_meta":{}}"#),
            (
                r#"{"_meta":{ "x/a" : 1 , "b":2 }}"#,
                r#"{"_meta":{ "b":2 }}"#,
            ),
            (r#"{"_meta":{"a":1, "x/b":2 }}"#, r#"{"_meta":{"a":1}}"#),
            (
                r#"{"_meta":{"x/a":1,"x/b":[{"_meta":{"x/c":",}"}}],"c":"\"x/","x/d":3,"e":4}}"#,
                r#"{"_meta":{"c":"\"x/","e":4}}"#,
            ),
            (
                r#"{"_meta":{"x/a":{"b":[1,{}]},"x/b":2},"c":[1,2]}"#,
                r#"{"_meta":{},"c":[1,2]}"#,
            ),
            (
                r#"[{"a":{"_meta":{"x/a":1},"_meta":{"b":{"_meta":{"x/a":1}}}}}]"#,
                r#"[{"a":{"_meta":{},"_meta":{"b":{"_meta":{}}}}}]"#,
            ),
        ] {
            assert_eq!(cut(text), left);
        }
    }

    #[test]
    fn other_members_stay_as_they_are_written() {
        for text in [
            r#"{"x/a":1,"b":{"x/c":1},"_meta":"x/d","e":["_meta",{"x/f":1}]}"#,
            r#"{"_meta":{"b":{"x/c":1},"d":"x/e"}, "_meta":[{"x/f":1}]}"#,
            r#"{"z":1e400,"a":123456789012345678901234567890,"\ud800":"\ud800\\"}"#,
            "[]",
            "1",
            "\"_meta\"",
            "",
        ] {
            assert_eq!(cut(text), text);
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let text = format!(r#"{{"a":{deep},"_meta":{{"x/a":{deep},"b":1e400}}}}"#);
        assert_eq!(
            cut(&text),
            format!(r#"{{"a":{deep},"_meta":{{"b":1e400}}}}"#)
        );
    }

    #[test]
    fn what_a_tool_has_structured_stays_as_it_is() {
        let own = r#"{"a":[{"_meta":{"x/a":1,"_meta":{"x/b":2}}}],"result":{"_meta":{"x/c":1}}}"#;
        let text = format!(r#"{{"id":1,"result":{{"structuredContent":{own}}}}}"#);
        assert_eq!(cut(&text), text);
        let beside = format!(
            r#"{{"result":{{"structuredContent":{own},"_meta":{{"x/a":1}},"content":[{{"_meta":{{"x/a":1}}}}]}}}}"#
        );
        assert_eq!(
            cut(&beside),
            format!(
                r#"{{"result":{{"structuredContent":{own},"_meta":{{}},"content":[{{"_meta":{{}}}}]}}}}"#
            )
        );
        // Only there: elsewhere, and in other spellings, it is what some reader may look into.
        for elsewhere in [
            r#"{"structuredContent":{"_meta":{"x/a":1}}}"#,
            r#"{"params":{"structuredContent":{"_meta":{"x/a":1}}}}"#,
            r#"{"result":{"content":{"structuredContent":{"_meta":{"x/a":1}}}}}"#,
            r#"{"result":{"StructuredContent":{"_meta":{"x/a":1}}}}"#,
            r#"{"result":[{"structuredContent":{"_meta":{"x/a":1}}}]}"#,
        ] {
            assert_eq!(cut(elsewhere), elsewhere.replace(r#""x/a":1"#, ""));
        }
    }

    #[test]
    fn what_is_no_json_does_not_break_it() {
        for text in [
            "}",
            "]]",
            ",",
            "{\"",
            "{\"_meta\":{\"x/a",
            "{\"a\\",
            "{\"_meta\":{\"x/a\":1",
        ] {
            _ = cut(text);
        }
    }
}
