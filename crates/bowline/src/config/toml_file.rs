//! TOML as a tree of values with their places.

use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mask::Mask;
use super::report::Findings;
use super::tree::{Member, Node, Value};

/// Reads TOML; `None` when it is not TOML, for then no value has a sure meaning.
pub(super) fn parse(text: &str, findings: &mut Findings) -> Option<Node> {
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
