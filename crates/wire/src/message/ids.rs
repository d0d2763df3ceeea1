//! JSON-RPC ids as values: what one peer wrote `1.0` or `"a\/b"`, another may write `1` or `"a/b"`.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

/// Whether two ids (JSON text) are one value. Ids of different kinds are two.
#[must_use]
pub fn same_id(a: &str, b: &str) -> bool {
    // Nearly always the very same bytes.
    a == b || same_value(a, b)
}

/// Whether an answer with the id `answered` answers the request with the id `asked` (both JSON text).
/// The string "1" answers the number 1: some servers know ids as text only, and clients allow for it.
#[must_use]
pub fn answers_id(answered: &str, asked: &str) -> bool {
    answered == asked || same_value(answered, asked) || same_number_as_text(answered, asked)
}

/// Whether a body is an answer that whoever asked under this id (JSON text) can take: it has that id, or
/// is an error that names no request. Read without regard to the rest of it, which is the client's to judge.
#[must_use]
pub fn is_answer_to(body: &[u8], asked: &str) -> bool {
    begins_with_id(body, asked)
        || ends_with_id(body, asked)
        || match Peek::of(body) {
            Some(Peek { id: Some(id), .. }) => answers_id(&id, asked),
            Some(Peek { id: None, is_error }) => is_error,
            None => false,
        }
}

/// Whether a body is the answer to the very request with this id (JSON text).
#[must_use]
pub fn echoes_id(body: &[u8], asked: &str) -> bool {
    Peek::of(body).is_some_and(|peek| peek.id.is_some_and(|id| answers_id(&id, asked)))
}

/// What most servers write: the id second, or last. Then nothing else needs to be read.
fn begins_with_id(body: &[u8], id: &str) -> bool {
    let rest = body.strip_prefix(br#"{"jsonrpc":"2.0","id":"#);
    let rest = rest.and_then(|rest| rest.strip_prefix(id.as_bytes()));
    rest.is_some_and(|rest| rest.first() == Some(&b','))
}

fn ends_with_id(body: &[u8], id: &str) -> bool {
    let rest = body.trim_ascii_end().strip_suffix(b"}");
    let rest = rest.and_then(|rest| rest.strip_suffix(id.as_bytes()));
    rest.is_some_and(|rest| rest.ends_with(br#","id":"#))
}

/// An answer's id, if it has one that is not null, and whether it is an error.
struct Peek {
    id: Option<String>,
    is_error: bool,
}

impl Peek {
    /// `None` if this is not an answer at all. More is forgiven than where a message is passed on: what is
    /// taken for no answer may lead to a repeat.
    fn of(body: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(body);
        let text = text.trim_start_matches('\u{feff}');
        let fields: HashMap<String, &RawValue> = serde_json::from_str(text).ok()?;
        let field = |name: &str| {
            let value = fields.get(name).map(|value| value.get());
            value.filter(|value| *value != "null")
        };
        let is_error = field("error").is_some();
        if field("method").is_some() || !(is_error || fields.contains_key("result")) {
            return None;
        }
        Some(Self {
            id: field("id").map(ToOwned::to_owned),
            is_error,
        })
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
    asked.is_some() && decoded(answered).is_some_and(|text| number(&text) == asked)
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
