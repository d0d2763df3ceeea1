//! JSON-RPC ids as values: what one peer wrote `1.0` or `"a\/b"`, another may write `1` or `"a/b"`.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Whether two ids (JSON text) are one value. Ids of different kinds are two.
#[must_use]
pub fn same_id(a: &str, b: &str) -> bool {
    // Nearly always the very same bytes.
    a == b || same_value(a, b)
}

/// Whether an answer with the id `answered` answers the request with the id `asked` (both JSON text).
/// The string "1" answers the number 1: some servers know ids as text only, and clients allow for it. Only
/// what such a server would write does: an integer in the one way in which it is printed. So "07", "1.0" and
/// "-0" answer no number.
#[must_use]
pub fn answers_id(answered: &str, asked: &str) -> bool {
    answered == asked || same_value(answered, asked) || same_number_as_text(answered, asked)
}

/// Whether a body is an answer that whoever asked under this id (JSON text) can take: it has that id, or
/// is an error that names no request. Read without regard to the rest of it, which is the client's to judge.
#[must_use]
pub fn is_answer_to(body: &[u8], asked: &str) -> bool {
    let is_plainly_one = begins_with_id(body, asked) || ends_with_id(body, asked);
    (is_plainly_one && !may_be_request(body))
        || match Peek::of(body) {
            Some(peek) if peek.ids.is_empty() => peek.is_error,
            Some(peek) => peek.ids.iter().all(|id| answers_id(id, asked)),
            None => false,
        }
}

/// Whether a body is the answer to the very request with this id (JSON text).
#[must_use]
pub fn echoes_id(body: &[u8], asked: &str) -> bool {
    Peek::of(body).is_some_and(|peek| peek.ids.iter().any(|id| answers_id(id, asked)))
}

/// What most servers write: the id second, or last. Then nothing else needs to be read.
fn begins_with_id(body: &[u8], id: &str) -> bool {
    let rest = body.strip_prefix(br#"{"jsonrpc":"2.0","id":"#);
    let rest = rest.and_then(|rest| rest.strip_prefix(id.as_bytes()));
    let rest = rest.and_then(|rest| rest.strip_prefix(b","));
    rest.is_some_and(begins_with_outcome)
}

fn ends_with_id(body: &[u8], id: &str) -> bool {
    let rest = body.trim_ascii_end().strip_suffix(b"}");
    let rest = rest.and_then(|rest| rest.strip_suffix(id.as_bytes()));
    let start = body.strip_prefix(br#"{"jsonrpc":"2.0","#);
    let start = start.or_else(|| body.strip_prefix(b"{"));
    rest.is_some_and(|rest| rest.ends_with(br#","id":"#)) && start.is_some_and(begins_with_outcome)
}

fn begins_with_outcome(members: &[u8]) -> bool {
    members.starts_with(br#""result":"#) || members.starts_with(br#""error":"#)
}

static METHOD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""method""#));

/// Whether a body may have a method, so that some reader would take it for a request.
fn may_be_request(body: &[u8]) -> bool {
    METHOD.find(body).is_some() || has_escapes(body)
}

static ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br"\u"));

/// Whether letters may be written as escapes. Text that has an escaped backslash before a `u` counts, too.
fn has_escapes(body: &[u8]) -> bool {
    ESCAPE.find(body).is_some()
}

/// An answer's id, if it has one that is not null, and whether it is an error. An id that stands there
/// twice is read differently by different peers, so both count.
struct Peek {
    ids: Vec<String>,
    is_error: bool,
}

impl Peek {
    /// `None` if this is not an answer at all. More is forgiven than where a message is passed on: what is
    /// taken for no answer may lead to a repeat.
    fn of(body: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(body);
        let text = text.trim_start_matches('\u{feff}');
        let seen: Seen<'_> = serde_json::from_str(text).ok()?;
        if seen.has_method || !(seen.is_error || seen.has_result) {
            return None;
        }
        Some(Self {
            ids: seen.ids.into_iter().map(ToOwned::to_owned).collect(),
            is_error: seen.is_error,
        })
    }
}

/// What is seen of a message's members. Of those with one name, every one counts.
#[derive(Default)]
struct Seen<'a> {
    ids: Vec<&'a str>,
    has_method: bool,
    has_result: bool,
    is_error: bool,
}

impl<'de> Deserialize<'de> for Seen<'de> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Seen<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Seen<'de>, A::Error> {
                let mut seen = Seen::default();
                while let Some((name, value)) = members.next_entry::<String, &RawValue>()? {
                    let value = Some(value.get()).filter(|value| *value != "null");
                    match name.as_str() {
                        "id" => seen.ids.extend(value),
                        "error" => seen.is_error |= value.is_some(),
                        "result" => seen.has_result = true,
                        // Some readers do not mind its case.
                        name if name.eq_ignore_ascii_case("method") => {
                            seen.has_method |= value.is_some();
                        }
                        _ => {}
                    }
                }
                Ok(seen)
            }
        }

        input.deserialize_map(Members)
    }
}

fn same_value(a: &str, b: &str) -> bool {
    match (decoded(a), decoded(b)) {
        (Some(a), Some(b)) => a == b,
        (None, None) => number(a).is_some_and(|number_of_a| number(b) == Some(number_of_a)),
        _ => false,
    }
}

fn same_number_as_text(answered: &str, asked: &str) -> bool {
    let asked = number(asked);
    let text = decoded(answered).filter(|text| is_printed_integer(text));
    asked.is_some() && text.is_some_and(|text| number(&text) == asked)
}

/// Whether a text is an integer as it is printed: no zeros in front, no plus, no `-0`.
fn is_printed_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let has_value = digits.starts_with(|first| matches!(first, '1'..='9'));
    text == "0" || has_value && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// What a JSON string says.
fn decoded(id: &str) -> Option<Cow<'_, str>> {
    let inner = id.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str(id).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// A number without a choice of how to write it, as exact as it was written: `digits * 10^exponent`.
#[derive(PartialEq, Eq)]
struct Number {
    is_negative: bool,
    /// Without zeros at either end; empty for zero.
    digits: String,
    exponent: i64,
}

fn number(text: &str) -> Option<Number> {
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = [whole, fraction].concat();
    if whole.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = all.trim_end_matches('0');
    if digits.is_empty() {
        return Some(Number {
            is_negative: false,
            digits: String::new(),
            exponent: 0,
        });
    }
    let zeros = i64::try_from(all.len() - digits.len()).ok()?;
    let places = i64::try_from(fraction.len()).ok()?;
    Some(Number {
        is_negative,
        digits: digits.trim_start_matches('0').to_owned(),
        exponent: exponent.checked_add(zeros)?.checked_sub(places)?,
    })
}

#[cfg(test)]
mod tests;
