//! Unions as meant, lists of servers, and which tools of a server may be used.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use crate::config::file::{self, File};
use crate::config::read::Texts;
use crate::config::report::Findings;
use crate::config::tree::join;
use crate::config::{
    Config, Flags, ServerName, ToolFilter, Union, UnionNames, UnionProblem, suggest,
};

/// The longest separator, in characters.
const LONGEST_SEPARATOR: usize = 8;

/// The longest glob, in bytes: the time to match one is proportional to it.
const LONGEST_GLOB: usize = 256;

/// The names of all servers, those of flags too, whatever else is wrong with them.
pub(super) struct Known(Vec<String>);

/// Where a problem of unions is shown: names of unions, names of servers, and written prefixes.
pub(super) struct Places {
    unions: Vec<(String, Range<usize>)>,
    servers: Vec<(String, Range<usize>)>,
}

// === impl Known ===

impl Known {
    pub(super) fn of(file: &File, flags: &Flags) -> Self {
        let written = file.servers.iter().map(|server| server.name.get_ref());
        let given = flags.servers.iter().map(ToString::to_string);
        Self(written.cloned().chain(given).collect())
    }

    /// The servers of a list; `whose` has it.
    pub(super) fn servers(
        &self,
        whose: &str,
        written: &Texts,
        findings: &mut Findings,
    ) -> Vec<ServerName> {
        if written.get_ref().is_empty() {
            findings.add(
                written.span(),
                format!("`servers` of `{whose}` is empty"),
                "name at least one server, or leave it out for all of them",
            );
        }
        let mut servers = Vec::new();
        for one in written.get_ref() {
            let name = one.get_ref();
            let known = self.0.iter().map(String::as_str).collect::<Vec<_>>();
            if !known.contains(&name.as_str()) {
                let help = match suggest::nearest(name, &known) {
                    Some(name) => format!("did you mean `{name}`?"),
                    None if known.is_empty() => "no server is configured".to_owned(),
                    None => format!("the servers are `{}`", known.join("`, `")),
                };
                let message =
                    format!("`servers` of `{whose}` has a server in it that is not configured");
                findings.add(one.span(), message, help);
                continue;
            }
            // A name that cannot be one was reported where the server is.
            let Ok(name) = name.parse() else { continue };
            if servers.contains(&name) {
                let message = format!("`servers` of `{whose}` has `{name}` twice");
                findings.add(one.span(), message, "keep one of them");
                continue;
            }
            servers.push(name);
        }
        servers
    }
}

// === impl Places ===

impl Places {
    pub(super) fn of(file: &File) -> Self {
        let union = |(name, _): &(Spanned<String>, _)| (name.get_ref().clone(), name.span());
        let server = |server: &file::Server| {
            let prefix = server.prefix.as_ref().map(Spanned::span);
            let place = prefix.unwrap_or_else(|| server.name.span());
            (server.name.get_ref().clone(), place)
        };
        Self {
            unions: file.unions.iter().map(union).collect(),
            servers: file.servers.iter().map(server).collect(),
        }
    }

    /// Reports what is wrong with unions as a whole. The servers of flags are not known here, so they are left to
    /// whoever adds them.
    pub(super) fn check(&self, config: &Config, flags: &Flags, findings: &mut Findings) {
        for problem in config.union_problems() {
            let places = match problem {
                UnionProblem::NamedLikeServer { .. } | UnionProblem::NamedLikeCommon { .. } => {
                    &self.unions
                }
                _ => &self.servers,
            };
            let servers = problem.servers();
            if flags.servers.iter().any(|given| servers.contains(&given)) {
                continue;
            }
            let name: &str = problem.name().as_ref();
            if let Some((_, place)) = places.iter().find(|(one, _)| one == name) {
                findings.add(place.clone(), problem.what(), problem.help());
            }
        }
    }
}

/// The union that `/mcp` is.
pub(super) fn check(written: &file::Union, known: &Known, findings: &mut Findings) -> Union {
    one("union", written, known, findings)
}

/// The unions by name.
pub(super) fn named(
    written: &[(Spanned<String>, file::Union)],
    known: &Known,
    findings: &mut Findings,
) -> BTreeMap<ServerName, Union> {
    let mut unions = BTreeMap::new();
    for (name, union) in written {
        let union = one(&join("unions", name.get_ref()), union, known, findings);
        match name.get_ref().parse::<ServerName>() {
            Ok(name) => {
                unions.insert(name, union);
            }
            Err(problem) => {
                let message = problem.what().replacen("server", "union", 1);
                let help = problem.help().replacen("the server", "the union", 1);
                findings.add(name.span(), message, help.replace("files", "team"));
            }
        }
    }
    unions
}

fn one(whose: &str, written: &file::Union, known: &Known, findings: &mut Findings) -> Union {
    let servers = written.servers.as_ref();
    let names = written.names.as_ref().map(|written| {
        UnionNames::named(written.get_ref()).unwrap_or_else(|| {
            findings.add(
                written.span(),
                "`names` is neither `prefixed` nor `bare`",
                "write `bare` for names without a prefix where they are unambiguous",
            );
            UnionNames::default()
        })
    });
    let separator = written.separator.as_ref();
    Union {
        servers: servers
            .map(|written| known.servers(whose, written, findings))
            .unwrap_or_default(),
        names: names.unwrap_or_default(),
        separator: separator.map_or_else(
            || Union::SEPARATOR.to_owned(),
            |written| {
                check_separator(written, findings);
                written.get_ref().clone()
            },
        ),
    }
}

fn check_separator(written: &Spanned<String>, findings: &mut Findings) {
    let text = written.get_ref();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if text.is_empty() || text.len() > LONGEST_SEPARATOR || !text.bytes().all(allowed) {
        findings.add(
            written.span(),
            format!(
                "`separator` is not 1 to {LONGEST_SEPARATOR} ASCII letters, digits, `-`, `_` or `.`"
            ),
            "leave it out for the default, `__`: clients accept no other characters in names",
        );
    }
}

/// The prefix of a server, if one is written that can be one.
pub(super) fn prefix(written: &Spanned<String>, findings: &mut Findings) -> Option<String> {
    if let Err(problem) = written.get_ref().parse::<ServerName>() {
        let message = problem.what().replacen("server's name", "prefix", 1);
        let help = match problem.help() {
            help if help.starts_with("give") => "leave it out, and it is the server's name",
            help => help,
        };
        findings.add(written.span(), message, help);
        return None;
    }
    Some(written.get_ref().clone())
}

/// Which tools may be used; `None` where all of them.
pub(super) fn tools(written: &file::Tools, findings: &mut Findings) -> Option<ToolFilter> {
    let mut globs = |key: &str, written: &Texts| {
        for one in written.get_ref() {
            if one.get_ref().is_empty() || one.get_ref().len() > LONGEST_GLOB {
                findings.add(
                    one.span(),
                    format!(
                        "`{key}` has something in it that is not 1 to {LONGEST_GLOB} bytes long"
                    ),
                    "write the name of a tool, or a part of it with `*`, such as `get_*`",
                );
            }
        }
        let globs = written.get_ref().iter().map(|one| one.get_ref().clone());
        globs.collect::<Vec<_>>()
    };
    let allow = written.allow.as_ref().map(|list| globs("allow", list));
    let deny = written.deny.as_ref().map(|list| globs("deny", list));
    let deny = deny.unwrap_or_default();
    (allow.is_some() || !deny.is_empty()).then_some(ToolFilter { allow, deny })
}
