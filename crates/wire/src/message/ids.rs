//! Compares JSON-RPC ids by value: one peer may write `1.0` or `"a\/b"` where another writes `1` or
//! `"a/b"`.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::names::reads_as;

/// An id as its sender wrote it: JSON text, with the quotes of a string. Ids are equal if their values are;
/// ids of different types never are.
#[derive(Debug, Clone, Copy, Default)]
pub struct RawId<'a>(&'a str);

/// An owned [`RawId`].
#[derive(Debug, Clone)]
pub struct RawIdBuf(Box<str>);

// === impl RawId ===

impl<'a> RawId<'a> {
    /// The id of a response to something that has none.
    pub const NULL: RawId<'static> = RawId("null");

    /// An id that is JSON text already.
    #[must_use]
    pub const fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// The JSON text.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// The same id, owned.
    #[must_use]
    pub fn to_buf(self) -> RawIdBuf {
        RawIdBuf(self.0.into())
    }

    /// Whether a response with this id answers the request with the id `asked`. The string "1" answers the
    /// number 1, because some servers handle ids as text only and clients accept it. This holds only for
    /// what such a server would write, an integer in its canonical form: "07", "1.0" and "-0" answer no
    /// number.
    #[must_use]
    pub fn answers(self, asked: RawId<'_>) -> bool {
        self == asked || same_number_as_text(self.0, asked.0)
    }
}

impl PartialEq for RawId<'_> {
    fn eq(&self, other: &Self) -> bool {
        // Nearly always the same bytes, or two integers of which each has one notation only.
        let are_printed = || is_printed_integer(self.0) && is_printed_integer(other.0);
        self.0 == other.0 || (!are_printed() && same_value(self.0, other.0))
    }
}

impl Eq for RawId<'_> {}

impl fmt::Display for RawId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

// === impl RawIdBuf ===

impl RawIdBuf {
    /// An id that is JSON text already.
    #[must_use]
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The id, borrowed.
    #[must_use]
    pub fn as_id(&self) -> RawId<'_> {
        RawId(&self.0)
    }

    /// The JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl PartialEq for RawIdBuf {
    fn eq(&self, other: &Self) -> bool {
        self.as_id() == other.as_id()
    }
}

impl Eq for RawIdBuf {}

impl fmt::Display for RawIdBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a body is a response that the sender of this id can accept: it has that id, or is an error
/// without an id. The rest of it is not checked; that is up to the client.
#[must_use]
pub fn is_answer_to(body: &[u8], asked: RawId<'_>) -> bool {
    let is_plainly_one = begins_with_id(body, asked.0) || ends_with_id(body, asked.0);
    (is_plainly_one && !may_be_request(body))
        || match Peek::of(body) {
            Some(peek) if peek.ids.is_empty() => peek.is_error,
            Some(peek) => peek.ids.iter().all(|id| RawId(id).answers(asked)),
            None => false,
        }
}

/// Whether a body is the response to the request with exactly this id.
#[must_use]
pub fn echoes_id(body: &[u8], asked: RawId<'_>) -> bool {
    Peek::of(body).is_some_and(|peek| peek.ids.iter().any(|id| RawId(id).answers(asked)))
}

/// Recognizes the form that most servers write, with the id second or last, without reading the rest.
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

/// How a name begins that some reader takes for `method`.
static METHOD: LazyLock<[Finder<'static>; 2]> =
    LazyLock::new(|| [Finder::new(br#""m"#), Finder::new(br#""M"#)]);

/// Whether a body may have a method, so that some parser would read it as a request.
fn may_be_request(body: &[u8]) -> bool {
    let is_method = |at: usize| {
        let rest = body.get(at + 2..).and_then(<[u8]>::first_chunk::<5>);
        rest.is_some_and(|rest| rest.eq_ignore_ascii_case(b"ethod"))
    };
    let mut starts = METHOD.iter().flat_map(|start| start.find_iter(body));
    has_escapes(body) || starts.any(is_method)
}

static ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br"\u"));

/// Whether letters may be written as escapes. An escaped backslash before a `u` counts as well.
fn has_escapes(body: &[u8]) -> bool {
    ESCAPE.find(body).is_some()
}

/// A response's id, if it is not null, and whether it is an error. If there are two ids, both count,
/// because peers differ in which one they read.
struct Peek {
    ids: Vec<String>,
    is_error: bool,
}

impl Peek {
    /// `None` if this is not a response. This is more lenient than forwarding, because a response that
    /// is not recognized may lead to a retry.
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

/// The relevant members of a message. If several have the same name, all count.
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
                        name if reads_as(name, "method") => {
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

/// Whether a text is an integer in canonical form: no leading zeros, no plus, no `-0`.
fn is_printed_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let has_value = digits.starts_with(|first| matches!(first, '1'..='9'));
    text == "0" || has_value && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The value of a JSON string.
fn decoded(id: &str) -> Option<Cow<'_, str>> {
    let inner = id.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str(id).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// The exact value of a number in a unique form: `digits * 10^exponent`.
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
