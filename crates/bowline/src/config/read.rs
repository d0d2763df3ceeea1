//! Typed reading of one table, with every problem collected.
//!
//! serde stops at the first unknown key or wrong type, so tables are read by hand: [`Table`] hands
//! out each value that is asked for, and what its [`Shape`] does not have is an unknown key.
//! [`file`](super::file) and [`editor`](super::editor) say what to ask for.

mod complain;

use std::ops::Range;

use toml::Spanned;

use super::keys::{Key, Kind, Shape};
use super::report::Findings;
use super::tree::{Member, Node, Value, join};

/// A table of the file that is being read.
pub(super) struct Table<'t, 'f> {
    /// The whole file.
    text: &'t str,
    pub(super) findings: &'f mut Findings,
    /// Where it is in the file, such as `servers.files`; empty at the top.
    path: String,
    shape: &'static Shape,
    /// What nobody asked for yet.
    members: Vec<&'t Member>,
    asked: Vec<&'static str>,
}

/// A name and its secret, such as a header; there is no `Debug`.
pub(super) struct Secret {
    pub(super) name: Spanned<String>,
    pub(super) value: String,
}

/// A list of strings, each with its place.
pub(super) type Texts = Spanned<Vec<Spanned<String>>>;

/// A string, or a list of them.
pub(super) enum OneOrMany {
    One(Spanned<String>),
    Many(Texts),
}

// === impl Table ===

impl<'t, 'f> Table<'t, 'f> {
    /// The whole file; an empty table if it is something else.
    pub(super) fn top(
        root: &'t Node,
        shape: &'static Shape,
        text: &'t str,
        findings: &'f mut Findings,
    ) -> Self {
        let members: &[_] = match &root.value {
            Value::Table(members) => members,
            _ => &[],
        };
        Self {
            text,
            findings,
            path: String::new(),
            shape,
            members: members.iter().collect(),
            asked: Vec::new(),
        }
    }

    /// A string.
    pub(super) fn text(&mut self, name: &'static str) -> Option<Spanned<String>> {
        let (key, member) = self.take(name)?;
        self.reveal(key, &member.node);
        match &member.node.value {
            Value::Text(text) => Some(Spanned::new(member.node.span.clone(), text.clone())),
            _ => self.wrong_type(key, member, "a string"),
        }
    }

    /// A list of strings; one that is broken leaves the list shorter.
    pub(super) fn texts(&mut self, name: &'static str) -> Option<Texts> {
        let (key, member) = self.take(name)?;
        self.reveal(key, &member.node);
        match &member.node.value {
            Value::Array(items) => self.strings(key, member, items),
            _ => self.wrong_type(key, member, "an array of strings"),
        }
    }

    /// A string, or a list of strings.
    pub(super) fn text_or_texts(&mut self, name: &'static str) -> Option<OneOrMany> {
        let (key, member) = self.take(name)?;
        self.reveal(key, &member.node);
        match &member.node.value {
            Value::Text(text) => {
                let text = Spanned::new(member.node.span.clone(), text.clone());
                Some(OneOrMany::One(text))
            }
            Value::Array(items) => self.strings(key, member, items).map(OneOrMany::Many),
            _ => self.wrong_type(key, member, "a string or an array of strings"),
        }
    }

    fn strings(&mut self, key: &'static Key, member: &Member, items: &[Node]) -> Option<Texts> {
        let mut texts = Vec::new();
        for item in items {
            match &item.value {
                Value::Text(text) => texts.push(Spanned::new(item.span.clone(), text.clone())),
                Value::Broken => {}
                _ => {
                    let message = format!("`{}` has {} in it", key.name, item.kind());
                    self.findings.add(
                        member.key.clone(),
                        message,
                        format!("write it like `{}`", self.shape.line(key)),
                    );
                    return None;
                }
            }
        }
        // An empty list counts as one only if it was written empty.
        (texts.is_empty() == items.is_empty())
            .then(|| Spanned::new(member.node.span.clone(), texts))
    }

    /// A whole number.
    pub(super) fn integer(&mut self, name: &'static str) -> Option<Spanned<i128>> {
        let (key, member) = self.take(name)?;
        self.reveal(key, &member.node);
        match member.node.value {
            Value::Integer(number) => Some(Spanned::new(member.node.span.clone(), number)),
            _ => self.wrong_type(key, member, "an integer"),
        }
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, name: &'static str) -> Option<bool> {
        let (key, member) = self.take(name)?;
        self.reveal(key, &member.node);
        match member.node.value {
            Value::Flag(flag) => Some(flag),
            _ => self.wrong_type(key, member, "a boolean"),
        }
    }

    /// Names with a secret each.
    pub(super) fn secrets(&mut self, name: &'static str) -> Vec<Secret> {
        let Some((key, member)) = self.take(name) else {
            return Vec::new();
        };
        let Value::Table(members) = &member.node.value else {
            self.wrong_table(key, member);
            return Vec::new();
        };
        let mut secrets = Vec::new();
        for one in members {
            match &one.node.value {
                Value::Text(value) => secrets.push(Secret {
                    name: Spanned::new(one.key.clone(), one.name.clone()),
                    value: value.clone(),
                }),
                Value::Broken => {}
                _ => {
                    let (shown, kind) = (one.name.escape_debug(), one.node.kind());
                    let what = if name == "env" { "variable" } else { "header" };
                    let message = format!("the {what} `{shown}` must be a string, not {kind}");
                    let help = format!("write it like `{}`", self.shape.line(key));
                    self.findings.add(one.key.clone(), message, help);
                }
            }
        }
        // Two spellings of one header are reported at the later one.
        secrets.sort_by_key(|secret| secret.name.span().start);
        secrets
    }

    /// A table with keys of its own.
    pub(super) fn table(&mut self, name: &'static str) -> Option<Table<'t, '_>> {
        let (key, member) = self.take(name)?;
        let Kind::Table(shape) = key.kind else {
            debug_assert!(false, "{name} is not declared as a table");
            return None;
        };
        let path = join(&self.path, name);
        self.inside(key, member, path, shape)
    }

    /// Tables by their names, in the order of the file.
    pub(super) fn named<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(Spanned<String>, Table<'t, '_>) -> Option<T>,
    ) -> Vec<T> {
        let Some((key, member)) = self.take(name) else {
            return Vec::new();
        };
        let (Kind::Named(shape), Value::Table(members)) = (&key.kind, &member.node.value) else {
            self.wrong_table(key, member);
            return Vec::new();
        };
        let mut members: Vec<_> = members.iter().collect();
        members.sort_by_key(|member| member.key.start);
        let mut all = Vec::new();
        for one in members {
            let name = Spanned::new(one.key.clone(), one.name.clone());
            let path = join(key.name, &one.name);
            let table = self.inside(key, one, path, shape);
            all.extend(table.and_then(|table| read(name, table)));
        }
        all
    }

    /// Tables without names, each with its place.
    pub(super) fn list<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(Range<usize>, Table<'t, '_>) -> T,
    ) -> Vec<T> {
        let Some((key, member)) = self.take(name) else {
            return Vec::new();
        };
        let (Kind::List(shape), Value::Array(items)) = (&key.kind, &member.node.value) else {
            self.wrong_list(key, member);
            return Vec::new();
        };
        let path = join(&self.path, name);
        let mut all = Vec::new();
        for item in items {
            let Value::Table(_) = item.value else {
                self.wrong_item(key, member, item);
                continue;
            };
            let table = Table {
                path: path.clone(),
                ..Table::top(item, shape, self.text, self.findings)
            };
            all.push(read(item.span.clone(), table));
        }
        all
    }

    /// Takes note of keys that mean nothing here and may be there all the same.
    pub(super) fn ignore(&mut self, names: &[&str]) {
        self.members
            .retain(|member| !names.contains(&member.name.as_str()));
    }

    /// The place of a key that is there, asked for or not.
    pub(super) fn find(&self, name: &str) -> Option<Range<usize>> {
        let found = self.members.iter().find(|member| member.name == name);
        found.map(|member| member.key.clone())
    }

    fn take(&mut self, name: &'static str) -> Option<(&'static Key, &'t Member)> {
        self.asked.push(name);
        let key = self.shape.key(name);
        debug_assert!(key.is_some(), "read and never declared: {name}");
        let at = self.members.iter().position(|member| member.name == name)?;
        Some((key?, self.members.remove(at)))
    }

    fn inside(
        &mut self,
        key: &'static Key,
        member: &'t Member,
        path: String,
        shape: &'static Shape,
    ) -> Option<Table<'t, '_>> {
        let Value::Table(_) = member.node.value else {
            let what = format!("`{path}`");
            self.wrong(key, member, &what, "a table");
            return None;
        };
        Some(Table {
            path,
            ..Table::top(&member.node, shape, self.text, self.findings)
        })
    }

    fn reveal(&mut self, key: &Key, node: &Node) {
        match (&key.kind, &node.value) {
            (Kind::Url, _) => self.findings.mask.reveal_url(self.text, node.span.clone()),
            (Kind::Urls, Value::Array(items)) => {
                for item in items {
                    self.findings.mask.reveal_url(self.text, item.span.clone());
                }
            }
            _ if key.open => self.findings.mask.reveal(node.span.clone()),
            _ => {}
        }
    }
}
