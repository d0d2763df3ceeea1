//! A configuration file as a tree of values with their places, whatever its format.
//!
//! TOML becomes such a tree in [`toml_file`](super::toml_file), JSON in [`json`](super::json); variables are put in
//! by [`expand`](super::expand), and [`read`](super::read) hands the values out.

use std::ops::Range;

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

/// A key below a path, quoted where TOML would want it.
pub(super) fn join(path: &str, key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match (path, key.chars().all(bare)) {
        ("", _) => key.escape_debug().to_string(),
        (_, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}.{key:?}"),
    }
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
