//! The keys of unions, and of what a server says about its tools.

use super::{Key, Kind, Shape};
use crate::config::UnionNames;

const NAMES: Key = Key::new(
    "names",
    Kind::Choice(&UnionNames::NAMES),
    "What tools and prompts are called: `prefixed`: `SERVER__NAME`; `bare`: `NAME`, and prefixed where that is ambiguous.",
)
.default(r#""prefixed""#)
.open();

const SEPARATOR: Key = Key::new(
    "separator",
    Kind::Text,
    "What stands between a server's prefix and the name: 1 to 8 ASCII letters, digits, `-`, `_` or `.`.",
)
.default(r#""__""#)
.open();

/// What `/mcp` is where there are several servers.
pub(super) static UNION: Shape = Shape::new(&[
    Key::new(
        "servers",
        Kind::Texts,
        "The servers that are part of it; all when left out.",
    )
    .example(r#"["files", "web"]"#)
    .open(),
    NAMES,
    SEPARATOR,
]);

/// A union with a name.
pub(super) static NAMED_UNION: Shape = Shape::new(&[
    Key::new(
        "servers",
        Kind::Texts,
        "The servers that are part of it, at least one.",
    )
    .example(r#"["files", "web"]"#)
    .open(),
    NAMES,
    SEPARATOR,
])
.one_of(&["servers"]);

/// Which of a server's tools may be used.
pub(super) static TOOLS: Shape = Shape::new(&[
    Key::new(
        "allow",
        Kind::Texts,
        "Names of tools that may be used, with `*` and `?`; all when left out.",
    )
    .example(r#"["get_*", "search"]"#)
    .open(),
    Key::new(
        "deny",
        Kind::Texts,
        "Names of tools that may not be used, with `*` and `?`, even if `allow` has them.",
    )
    .default("[]")
    .example(r#"["*_secret"]"#)
    .open(),
]);
