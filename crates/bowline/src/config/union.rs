//! Unions: several servers that clients use as one.
//!
//! Names of tools that a union exposes begin with their server's prefix and the separator, so no two prefixes of one
//! union may leave a doubt about where a name belongs. [`Config::union_problems`] finds those that do, for the file
//! and for flags beside it.

use std::collections::BTreeMap;

use super::{Config, Server, ServerName};

/// The name of the union at `/mcp`.
pub(crate) const COMMON: &str = "union";

/// Servers that clients use as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Union {
    /// Its servers, in the order in which they are listed; in [`Config::union`] none stands for all that are
    /// configured, and [`Config::whole_union`] has them.
    pub servers: Vec<ServerName>,
    /// What its tools and prompts are called.
    pub names: UnionNames,
    /// What stands between a prefix and a name.
    pub separator: String,
}

/// What a union calls its tools and prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnionNames {
    /// The server's prefix, the separator, and the server's own name for it.
    #[default]
    Prefixed,
    /// The server's own name for it, and a prefix only where that is ambiguous.
    Bare,
}

/// Why servers cannot be in one union, or a union cannot have its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}; {}", self.what(), self.help())]
pub enum UnionProblem {
    /// A union has the name of a server.
    NamedLikeServer {
        /// The union, and the server.
        name: ServerName,
    },
    /// A server beside others, or a union, has the name of the union of all.
    NamedLikeAll {
        /// That name.
        name: ServerName,
        /// Whether it is a server's.
        is_server: bool,
    },
    /// A prefix that was written has the separator in it.
    SeparatorInPrefix {
        /// The server with the prefix.
        server: ServerName,
        /// The separator.
        separator: String,
    },
    /// Names of two servers can begin alike.
    Ambiguous {
        /// The server with the shorter prefix.
        server: ServerName,
        /// That prefix.
        prefix: String,
        /// The other server.
        other: ServerName,
        /// The other prefix.
        other_prefix: String,
        /// The separator.
        separator: String,
    },
}

// === impl Union ===

impl Union {
    /// What stands between a prefix and a name by default.
    pub(super) const SEPARATOR: &str = "__";
}

impl Default for Union {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            names: UnionNames::default(),
            separator: Self::SEPARATOR.to_owned(),
        }
    }
}

// === impl UnionNames ===

impl UnionNames {
    /// How they are written in a file.
    pub(in crate::config) const NAMES: [&str; 2] = ["prefixed", "bare"];

    /// The kind of this name.
    pub(in crate::config) fn named(name: &str) -> Option<Self> {
        match name {
            "prefixed" => Some(Self::Prefixed),
            "bare" => Some(Self::Bare),
            _ => None,
        }
    }

    /// How it is written in a file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prefixed => "prefixed",
            Self::Bare => "bare",
        }
    }
}

// === impl Config ===

impl Config {
    /// The union that `/mcp` is where there are several servers, with its servers.
    pub fn whole_union(&self) -> Union {
        let mut union = self.union.clone();
        if union.servers.is_empty() {
            let written = self.order.iter();
            let written = written.filter(|name| self.servers.contains_key(*name));
            let others = self.servers.keys();
            let others = others.filter(|name| !self.order.contains(name));
            union.servers = written.chain(others).cloned().collect();
        }
        union
    }

    /// Every union by name. The one of `/mcp` is called `union`. With one server the path leads to that, but clients
    /// from before a reload may still use the union.
    pub(crate) fn all_unions(&self) -> BTreeMap<ServerName, Union> {
        let mut unions = self.unions.clone();
        let whole = self.whole_union();
        if !self.servers.is_empty()
            && let Ok(name) = COMMON.parse()
        {
            unions.insert(name, whole);
        }
        unions
    }

    /// What is wrong with the unions; each pair of servers is reported once.
    pub fn union_problems(&self) -> Vec<UnionProblem> {
        let mut problems = Vec::new();
        for name in self.unions.keys() {
            if self.servers.contains_key(name) {
                problems.push(UnionProblem::NamedLikeServer { name: name.clone() });
            }
        }
        if let Ok(name) = COMMON.parse::<ServerName>() {
            let is_server = self.servers.len() > 1 && self.servers.contains_key(&name);
            if is_server || self.unions.contains_key(&name) {
                problems.push(UnionProblem::NamedLikeAll { name, is_server });
            }
        }
        let whole = self.whole_union();
        let whole = (whole.servers.len() > 1).then_some(&whole);
        for union in whole.into_iter().chain(self.unions.values()) {
            for problem in self.problems_of(union) {
                if !problems.iter().any(|other| other.is_about(&problem)) {
                    problems.push(problem);
                }
            }
        }
        problems
    }

    fn problems_of(&self, union: &Union) -> Vec<UnionProblem> {
        let separator = &union.separator;
        let known = |name| Some((name, self.servers.get(name)?));
        let members: Vec<(&ServerName, &Server)> = union.servers.iter().filter_map(known).collect();
        let mut problems = Vec::new();
        for (at, (name, server)) in members.iter().enumerate() {
            let written = server.prefix.as_ref();
            if written.is_some_and(|prefix| prefix.contains(separator)) {
                problems.push(UnionProblem::SeparatorInPrefix {
                    server: (*name).clone(),
                    separator: separator.clone(),
                });
            }
            let one = (*name, server.prefix(name));
            for (name, server) in members.iter().skip(at + 1) {
                let other = (*name, server.prefix(name));
                problems.extend(ambiguous(one, other, separator));
            }
        }
        problems
    }
}

/// Whether something can begin with the prefixes of two servers and the separator.
fn ambiguous<'a>(
    mut one: (&'a ServerName, &'a str),
    mut other: (&'a ServerName, &'a str),
    separator: &str,
) -> Option<UnionProblem> {
    if other.1.len() < one.1.len() {
        std::mem::swap(&mut one, &mut other);
    }
    let begins = |prefix: &str| format!("{prefix}{separator}");
    begins(other.1)
        .starts_with(&begins(one.1))
        .then(|| UnionProblem::Ambiguous {
            server: one.0.clone(),
            prefix: one.1.to_owned(),
            other: other.0.clone(),
            other_prefix: other.1.to_owned(),
            separator: separator.to_owned(),
        })
}

// === impl UnionProblem ===

impl UnionProblem {
    /// What is wrong.
    pub fn what(&self) -> String {
        match self {
            Self::NamedLikeServer { name } => {
                format!(
                    "the union `{name}` has the name of a server, and both are at `/mcp/{name}`"
                )
            }
            Self::NamedLikeAll { name, is_server } => {
                let what = match is_server {
                    true => "server",
                    false => "union",
                };
                format!(
                    "the {what} `{name}` has the name of the union of all servers, which is at `/mcp/{name}`"
                )
            }
            Self::SeparatorInPrefix { server, separator } => format!(
                "the prefix of `{server}` has `{separator}` in it, which separates prefixes from names"
            ),
            Self::Ambiguous {
                server,
                prefix,
                other,
                other_prefix,
                ..
            } if prefix == other_prefix => {
                format!("`{server}` and `{other}` have the same prefix, `{prefix}`")
            }
            Self::Ambiguous {
                server,
                other,
                other_prefix,
                separator,
                ..
            } => format!(
                "a name that begins with `{other_prefix}{separator}` can belong to `{server}` or to `{other}`"
            ),
        }
    }

    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            Self::NamedLikeServer { name } => {
                format!("give the union another name, such as `[unions.{name}-union]`")
            }
            Self::NamedLikeAll {
                is_server: true, ..
            } => "give the server another name".to_owned(),
            Self::NamedLikeAll { .. } => {
                "write it as `[union]`, or give it another name".to_owned()
            }
            Self::SeparatorInPrefix { .. } => {
                "write a prefix without it, or set another `separator`".to_owned()
            }
            Self::Ambiguous {
                prefix,
                other,
                other_prefix,
                separator,
                ..
            } => {
                let free = match other_prefix.replace(separator.as_str(), "-") {
                    same if same == *other_prefix => format!("{prefix}-2"),
                    free => free,
                };
                format!("write `prefix = \"{free}\"` for `{other}`, or set another `separator`")
            }
        }
    }

    /// The servers that it is about.
    pub(super) fn servers(&self) -> [&ServerName; 2] {
        match self {
            Self::NamedLikeServer { name } | Self::NamedLikeAll { name, .. } => [name, name],
            Self::SeparatorInPrefix { server, .. } => [server, server],
            Self::Ambiguous { server, other, .. } => [server, other],
        }
    }

    /// The server, or the union, to correct.
    pub(super) fn name(&self) -> &ServerName {
        match self {
            Self::NamedLikeServer { name } | Self::NamedLikeAll { name, .. } => name,
            Self::SeparatorInPrefix { server, .. } => server,
            Self::Ambiguous { other, .. } => other,
        }
    }

    /// Whether both are about the same servers.
    fn is_about(&self, problem: &Self) -> bool {
        let same_kind = std::mem::discriminant(self) == std::mem::discriminant(problem);
        same_kind && self.servers() == problem.servers()
    }
}
