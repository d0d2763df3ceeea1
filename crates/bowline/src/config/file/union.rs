//! Unions, and which tools of a server may be used, as written.

use toml::Spanned;

use super::Text;
use crate::config::read::{Table, Texts};

/// The table `union`, and a table in `unions`.
#[derive(Default)]
pub(in crate::config) struct Union {
    pub(in crate::config) servers: Option<Texts>,
    pub(in crate::config) names: Text,
    pub(in crate::config) separator: Text,
}

/// The table `tools` of a server.
pub(in crate::config) struct Tools {
    pub(in crate::config) allow: Option<Texts>,
    pub(in crate::config) deny: Option<Texts>,
}

/// The table `union`.
pub(super) fn read_union(top: &mut Table<'_, '_>) -> Union {
    top.table("union").map(read).unwrap_or_default()
}

/// A table in `unions`.
pub(super) fn read_named_union(
    name: Spanned<String>,
    mut table: Table<'_, '_>,
) -> Option<(Spanned<String>, Union)> {
    table.exactly_one(name.span());
    Some((name, read(table)))
}

fn read(mut table: Table<'_, '_>) -> Union {
    let union = Union {
        servers: table.texts("servers"),
        names: table.text("names"),
        separator: table.text("separator"),
    };
    table.finish();
    union
}

/// The table `tools` of a server.
pub(super) fn read_tools(server: &mut Table<'_, '_>) -> Option<Tools> {
    let mut table = server.table("tools")?;
    let tools = Tools {
        allow: table.texts("allow"),
        deny: table.texts("deny"),
    };
    table.finish();
    Some(tools)
}
