//! A server that is a process, as meant: its program, its environment, its directory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;

use crate::config::read::Secret;
use crate::config::report::Findings;
use crate::config::{Command, Environment, file};

/// The command; `None` when it cannot be started.
pub(super) fn check(
    written: file::Command,
    environment: &Environment<'_>,
    findings: &mut Findings,
) -> Option<Command> {
    let mut words = written.words.into_iter();
    let Some(program) = words.next().filter(|word| !word.get_ref().is_empty()) else {
        findings.add(
            written.place,
            "`command` names no program",
            "write the program first, then its arguments, such as `[\"npx\", \"-y\", \"some-server\"]`",
        );
        return None;
    };
    let words: Vec<_> = [program].into_iter().chain(words).collect();
    if let Some(odd) = words.iter().find(|word| word.get_ref().contains('\0')) {
        let message = "`command` has a NUL character in it";
        findings.add(
            odd.span(),
            message,
            "no program can be given one: remove it",
        );
        return None;
    }
    let mut words = words.into_iter().map(Spanned::into_inner);
    let cwd = written.cwd.and_then(|cwd| directory(cwd, findings));
    let command = Command::new(words.next()?, words.collect());
    Some(Command {
        env: variables(written.env, findings),
        cwd,
        ..command.inheriting(environment)
    })
}

/// Reports keys that mean nothing for a server of this kind.
pub(super) fn refuse_misplaced(
    misplaced: &[(&'static str, Range<usize>)],
    is_process: bool,
    findings: &mut Findings,
) {
    for (key, place) in misplaced {
        let (message, help) = match is_process {
            true => (
                format!("`{key}` means nothing for a server with a `command`"),
                "remove it; what the process needs is given by its arguments and `env`",
            ),
            false => (
                format!("`{key}` means nothing without a `command`"),
                "remove it; what the server needs is given by `headers`",
            ),
        };
        findings.add(place.clone(), message, help);
    }
}

fn variables(written: Vec<Secret>, findings: &mut Findings) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for one in written {
        let name = one.name.get_ref();
        let shown = name.escape_debug();
        if name.is_empty() || name.contains(['=', '\0']) {
            let message = format!("`{shown}` is not the name of a variable");
            findings.add(
                one.name.span(),
                message,
                "remove `=` and control characters",
            );
        } else if one.value.contains('\0') {
            let message = format!("the value of the variable `{shown}` has a NUL character in it");
            findings.add(one.name.span(), message, "remove it");
        } else {
            variables.insert(name.clone(), one.value);
        }
    }
    variables
}

fn directory(written: Spanned<String>, findings: &mut Findings) -> Option<PathBuf> {
    if written.get_ref().is_empty() || written.get_ref().contains('\0') {
        let help = "write a path, such as `/srv/files`, or leave it out";
        findings.add(written.span(), "`cwd` is not a directory's path", help);
        return None;
    }
    Some(written.into_inner().into())
}
