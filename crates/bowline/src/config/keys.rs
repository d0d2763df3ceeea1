//! The keys of a configuration file, declared once.
//!
//! The reader ([`read`](super::read)) takes names, examples and suggestions from here and accepts
//! nothing else; [`schema`](mod@super::schema) prints the same declaration as JSON Schema; the mask
//! learns here which values never hold a secret. In debug builds the reader checks that it asks
//! for every key of a table and for no other, so the three cannot drift apart unnoticed.

mod declared;
mod oauth;
mod union;

pub(super) use self::declared::{EDITOR, FILE, SMALLEST_BODY, STATUSES, known};

/// A table: its keys, and of which exactly one must be there.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) keys: &'static [Key],
    /// Exactly one of these keys is needed; none where this is empty.
    pub(super) one_of: &'static [&'static str],
    /// Any of these keys can be there beside that one, and in its place.
    pub(super) or: &'static [&'static str],
    /// Whether examples are written as JSON.
    json: bool,
}

/// A key and what may be written behind it.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// What it is for, in sentences.
    pub(super) about: &'static str,
    /// A value as TOML and JSON write it, or a TOML table.
    pub(super) example: &'static str,
    /// What stands in when it is left out, as TOML and JSON write it.
    pub(super) default: Option<&'static str>,
    /// Whether its value never holds a secret.
    pub(super) open: bool,
}

/// What may be written behind a key.
#[derive(Debug)]
pub(super) enum Kind {
    /// A string.
    Text,
    /// One of these strings.
    Choice(&'static [&'static str]),
    /// One of these strings, or a list of others, at least one.
    ChoiceOrTexts(&'static [&'static str]),
    /// A string, or a list of strings, at least one.
    TextOrTexts,
    /// A URL, of which only scheme, host and port may be shown.
    Url,
    /// URLs, at least one.
    Urls,
    /// Strings.
    Texts,
    /// The words of a command, at least one: the order counts, and a word may come twice.
    Words,
    /// A whole number, at least this.
    Integer(u32),
    /// A whole number from here to there.
    Within(u32, u32),
    /// A whole number, negative ones included.
    Signed,
    /// `true` or `false`.
    Flag,
    /// Names with a secret each.
    Secrets,
    /// A table.
    Table(&'static Shape),
    /// Names with a table each.
    Named(&'static Shape),
    /// Tables without names, one after another.
    List(&'static Shape),
}

// === impl Shape ===

impl Shape {
    const fn new(keys: &'static [Key]) -> Self {
        Self {
            keys,
            one_of: &[],
            or: &[],
            json: false,
        }
    }

    const fn json(keys: &'static [Key]) -> Self {
        Self {
            keys,
            one_of: &[],
            or: &[],
            json: true,
        }
    }

    const fn one_of(mut self, names: &'static [&'static str]) -> Self {
        self.one_of = names;
        self
    }

    const fn or(mut self, names: &'static [&'static str]) -> Self {
        self.or = names;
        self
    }

    /// The key of this name.
    pub(super) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// How a line with this key looks, such as `listen = "127.0.0.1:6270"`.
    pub(super) fn line(&self, key: &Key) -> String {
        let (name, example) = (key.name, key.example);
        match key.kind {
            _ if self.json => format!("\"{name}\": {example}"),
            Kind::Named(_) => format!("[{name}.NAME]"),
            Kind::Table(_) if example.is_empty() => format!("[{name}]"),
            _ => format!("{name} = {example}"),
        }
    }
}

// === impl Key ===

impl Key {
    const fn new(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self {
            name,
            kind,
            about,
            example: "",
            default: None,
            open: false,
        }
    }

    const fn example(mut self, example: &'static str) -> Self {
        self.example = example;
        self
    }

    /// The default is an example as well.
    const fn default(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self.example = default;
        self
    }

    const fn open(mut self) -> Self {
        self.open = true;
        self
    }
}
