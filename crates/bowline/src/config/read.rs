//! Typed reading of one TOML table, with every problem collected.
//!
//! serde stops at the first unknown key or wrong type, so tables are read by hand: [`Table`] hands
//! out each value that is asked for, and what nobody asked for is an unknown key. [`file`](super::file)
//! says what to ask for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::report::Findings;
use super::{mask, suggest};

/// A table of the file that is being read.
pub(super) struct Table<'t, 'f> {
    findings: &'f mut Findings,
    /// Where it is in the file, such as `servers.files`; empty at the top.
    path: String,
    entries: BTreeMap<&'t str, Entry<'t>>,
    /// The keys asked for, which are the keys allowed here.
    known: Vec<&'static str>,
}

/// A key that nobody asked for yet, and its value.
pub(super) struct Entry<'t> {
    pub(super) key: Range<usize>,
    pub(super) value: &'t Spanned<DeValue<'t>>,
}

// === impl Table ===

impl<'t, 'f> Table<'t, 'f> {
    pub(super) fn new(table: &'t DeTable<'t>, path: String, findings: &'f mut Findings) -> Self {
        let entry = |(key, value): (&'t Spanned<_>, _)| {
            let name: &'t Cow<'t, str> = key.get_ref();
            let key = key.span();
            (name.as_ref(), Entry { key, value })
        };
        Self {
            findings,
            path,
            entries: table.iter().map(entry).collect(),
            known: Vec::new(),
        }
    }

    /// A string that holds no secret.
    pub(super) fn string(&mut self, key: &'static str, example: &str) -> Option<Spanned<String>> {
        let entry = self.take(key)?;
        self.findings.mask.reveal(entry.value.span());
        entry.string(&format!("`{key}`"), example, self.findings)
    }

    /// A URL, which may hold a secret; `None` also when it is missing, which is a problem here.
    pub(super) fn url(
        &mut self,
        key: &'static str,
        text: &str,
        owner: Range<usize>,
        example: &str,
    ) -> Option<Spanned<String>> {
        let Some(entry) = self.take(key) else {
            let message = format!("`{}` has no `{key}`", self.path);
            self.findings
                .add(owner, message, format!("add a line such as `{example}`"));
            return None;
        };
        self.findings.mask.reveal_url(text, entry.value.span());
        entry.string(&format!("`{key}`"), example, self.findings)
    }

    /// A whole number; one too large for `i128` becomes the nearest that is not.
    pub(super) fn integer(&mut self, key: &'static str, example: &str) -> Option<Spanned<i128>> {
        let entry = self.take(key)?;
        self.findings.mask.reveal(entry.value.span());
        let DeValue::Integer(integer) = entry.value.get_ref() else {
            entry.wrong_type(&format!("`{key}`"), "an integer", example, self.findings);
            return None;
        };
        let digits = integer.as_str();
        let too_far = if digits.starts_with('-') {
            i128::MIN
        } else {
            i128::MAX
        };
        let number = i128::from_str_radix(digits, integer.radix()).unwrap_or(too_far);
        Some(Spanned::new(entry.value.span(), number))
    }

    /// A table with keys of its own.
    pub(super) fn table(&mut self, key: &'static str, example: &str) -> Option<Table<'t, '_>> {
        let entry = self.take(key)?;
        let path = join(&self.path, key);
        entry.table(path, example, self.findings)
    }

    /// Every entry, for a table whose keys are names.
    pub(super) fn names(self) -> (impl Iterator<Item = (&'t str, Entry<'t>)>, &'f mut Findings) {
        (self.entries.into_iter(), self.findings)
    }

    /// Reports the keys that nobody asked for.
    pub(super) fn finish(self) {
        for (name, entry) in self.entries {
            let shown = name.escape_debug();
            let message = match self.path.as_str() {
                "" => format!("unknown key `{shown}`"),
                path => format!("unknown key `{shown}` in `{path}`"),
            };
            let help = match suggest::nearest(name, &self.known) {
                Some(key) => {
                    if mask::HARMLESS.contains(&key) {
                        self.findings.mask.reveal(entry.value.span());
                    }
                    format!("did you mean `{key}`?")
                }
                None => format!("the keys allowed here are `{}`", self.known.join("`, `")),
            };
            self.findings.add(entry.key, message, help);
        }
    }

    fn take(&mut self, key: &'static str) -> Option<Entry<'t>> {
        self.known.push(key);
        self.entries.remove(key)
    }
}

// === impl Entry ===

impl<'t> Entry<'t> {
    /// The value as a string; `what` names it in the problem.
    pub(super) fn string(
        self,
        what: &str,
        example: &str,
        findings: &mut Findings,
    ) -> Option<Spanned<String>> {
        let DeValue::String(text) = self.value.get_ref() else {
            self.wrong_type(what, "a string", example, findings);
            return None;
        };
        Some(Spanned::new(self.value.span(), text.to_string()))
    }

    /// The value as a table at `path`.
    pub(super) fn table<'f>(
        self,
        path: String,
        example: &str,
        findings: &'f mut Findings,
    ) -> Option<Table<'t, 'f>> {
        let DeValue::Table(table) = self.value.get_ref() else {
            self.wrong_type(&format!("`{path}`"), "a table", example, findings);
            return None;
        };
        Some(Table::new(table, path, findings))
    }

    /// Points at the key, because the value may be a secret, or a table that is elsewhere.
    fn wrong_type(&self, what: &str, wanted: &str, example: &str, findings: &mut Findings) {
        let got = match self.value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        findings.add(
            self.key.clone(),
            format!("{what} must be {wanted}, not {got}"),
            format!("write it like `{example}`"),
        );
    }
}

/// A key below a path, quoted where TOML would want it.
pub(super) fn join(path: &str, key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match (path, key.chars().all(bare)) {
        ("", _) => key.to_owned(),
        (_, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}.{key:?}"),
    }
}
