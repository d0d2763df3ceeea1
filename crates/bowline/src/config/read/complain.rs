//! What can be wrong with a table as such: keys missing, unknown, or of the wrong type.

use std::ops::Range;

use super::Table;
use crate::config::keys::Key;
use crate::config::suggest;
use crate::config::tree::{Member, Node, Value, join};

impl Table<'_, '_> {
    /// Reports unless exactly one of the keys is there that must be, or one that can be in its place; before any
    /// is asked for.
    pub(in crate::config) fn exactly_one(&mut self, owner: Range<usize>) {
        let names = self.shape.one_of;
        let found: Vec<_> = names
            .iter()
            .filter_map(|name| Some((*name, self.find(name)?)))
            .collect();
        let owned = match self.path.as_str() {
            "" => "the file".to_owned(),
            path => format!("`{path}`"),
        };
        let first = names.first().and_then(|name| self.shape.key(name));
        let line = first.map(|key| self.shape.line(key)).unwrap_or_default();
        let alternatives = self.shape.or.iter();
        let has_alternative = alternatives.clone().any(|name| self.find(name).is_some());
        match (&found[..], names) {
            ([], _) if has_alternative => {}
            ([], [name]) => self.findings.add(
                owner,
                format!("{owned} has no `{name}`"),
                format!("add a line such as `{line}`"),
            ),
            ([], _) => {
                let all: Vec<_> = names.iter().chain(alternatives).copied().collect();
                self.findings.add(
                    owner,
                    format!("{owned} has neither `{}`", all.join("` nor `")),
                    format!("add a line such as `{line}`"),
                );
            }
            ([(one, _), (other, place), ..], _) => self.findings.add(
                place.clone(),
                format!("{owned} has both `{one}` and `{other}`"),
                "keep one of them",
            ),
            ([_], _) => {}
        }
    }

    /// Reports the keys that nobody asked for.
    pub(in crate::config) fn finish(self) {
        let unasked = |key: &&Key| !self.asked.contains(&key.name);
        let forgotten = self.shape.keys.iter().find(unasked);
        debug_assert!(
            forgotten.is_none(),
            "declared and never read: {forgotten:?}"
        );
        let known: Vec<_> = self.shape.keys.iter().map(|key| key.name).collect();
        for member in self.members {
            let shown = member.name.escape_debug();
            let message = match self.path.as_str() {
                "" => format!("unknown key `{shown}`"),
                path => format!("unknown key `{shown}` in `{path}`"),
            };
            let help = match suggest::nearest(&member.name, &known) {
                Some(name) => {
                    if self.shape.key(name).is_some_and(|key| key.open) {
                        self.findings.mask.reveal(member.node.span.clone());
                    }
                    format!("did you mean `{name}`?")
                }
                None => format!("the keys allowed here are `{}`", known.join("`, `")),
            };
            self.findings.add(member.key.clone(), message, help);
        }
    }

    /// Something that is not a table.
    pub(super) fn wrong_table(&mut self, key: &Key, member: &Member) {
        let what = format!("`{}`", join(&self.path, key.name));
        self.wrong(key, member, &what, "a table");
    }

    /// Something that is not a list of tables.
    pub(super) fn wrong_list(&mut self, key: &Key, member: &Member) {
        if matches!(member.node.value, Value::Broken) {
            return;
        }
        let path = join(&self.path, key.name);
        let kind = member.node.kind();
        self.findings.add(
            member.key.clone(),
            format!("`{path}` must be an array of tables, not {kind}"),
            format!("write `[[{path}]]` above each"),
        );
    }

    /// Something in a list of tables that is not one.
    pub(super) fn wrong_item(&mut self, key: &Key, member: &Member, item: &Node) {
        if matches!(item.value, Value::Broken) {
            return;
        }
        let path = join(&self.path, key.name);
        self.findings.add(
            member.key.clone(),
            format!("`{path}` has {} in it", item.kind()),
            format!("write `[[{path}]]` above each"),
        );
    }

    /// A value of another type than wanted.
    pub(super) fn wrong_type<T>(&mut self, key: &Key, member: &Member, wanted: &str) -> Option<T> {
        self.wrong(key, member, &format!("`{}`", key.name), wanted);
        None
    }

    /// Points at the key, because the value may be a secret, or a table that is elsewhere.
    pub(super) fn wrong(&mut self, key: &Key, member: &Member, what: &str, wanted: &str) {
        if matches!(member.node.value, Value::Broken) {
            return;
        }
        let message = format!("{what} must be {wanted}, not {}", member.node.kind());
        let help = format!("write it like `{}`", self.shape.line(key));
        self.findings.add(member.key.clone(), message, help);
    }
}
