//! A configuration file as a tree of values with their places, whatever its format.
//!
//! TOML becomes such a tree here, JSON in [`json`](super::json); variables are put in by
//! [`expand`](super::expand), and [`read`](super::read) hands the values out.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mask::Mask;
use super::report::Findings;

/// A value; there is no `Debug`, because it may be a secret.
pub(super) struct Node {
    pub(super) span: Range<usize>,
    pub(super) value: Value,
}

/// What a value is.
pub(super) enum Value {
    Text(String),
    /// One too large becomes the nearest that is not.
    Integer(i128),
    Flag(bool),
    Array(Vec<Node>),
    Table(Vec<Member>),
    /// Something that no key wants, by its name.
    Other(&'static str),
    /// Something with a problem that was reported already.
    Broken,
}

/// A key of a table, and its value.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) key: Range<usize>,
    pub(super) node: Node,
}

/// Reads TOML; `None` when it is not TOML, for then no value has a sure meaning.
pub(super) fn parse_toml(text: &str, findings: &mut Findings) -> Option<Node> {
    let (tree, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        let node = Node {
            span: tree.span(),
            value: of_table(tree.get_ref()),
        };
        findings.mask = Mask::of_tree(&node, text);
        return Some(node);
    }
    findings.mask = Mask::of_text(text);
    for error in errors {
        // The parser's messages are fixed sentences; they have no part of the file in them.
        let message = error.message().trim_end_matches(", expected nothing");
        let help = match message {
            "duplicate key" => "keep one of them",
            _ => "correct the syntax, such as a missing quote; the values are checked after that",
        };
        findings.add(
            error.span().unwrap_or_default(),
            format!("this is not valid TOML: {message}"),
            help,
        );
    }
    None
}

/// A key below a path, quoted where TOML would want it.
pub(super) fn join(path: &str, key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match (path, key.chars().all(bare)) {
        ("", _) => key.escape_debug().to_string(),
        (_, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}.{key:?}"),
    }
}

fn of_table(table: &DeTable<'_>) -> Value {
    let member = |(key, value): (&Spanned<Cow<'_, str>>, _)| Member {
        name: key.get_ref().to_string(),
        key: key.span(),
        node: of_value(value),
    };
    Value::Table(table.iter().map(member).collect())
}

fn of_value(value: &Spanned<DeValue<'_>>) -> Node {
    let span = value.span();
    let value = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(integer) => {
            let digits = integer.as_str();
            let too_far = if digits.starts_with('-') {
                i128::MIN
            } else {
                i128::MAX
            };
            Value::Integer(i128::from_str_radix(digits, integer.radix()).unwrap_or(too_far))
        }
        DeValue::Float(_) => Value::Other("a float"),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Array(array) => Value::Array(array.iter().map(of_value).collect()),
        DeValue::Table(table) => of_table(table),
    };
    Node { span, value }
}

// === impl Node ===

impl Node {
    /// What it is, in words.
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            Value::Text(_) => "a string",
            Value::Integer(_) => "an integer",
            Value::Flag(_) => "a boolean",
            Value::Array(_) => "an array",
            Value::Table(_) => "a table",
            Value::Other(kind) => kind,
            Value::Broken => "broken",
        }
    }
}
