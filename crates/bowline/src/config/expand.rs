//! Variables in values: `${NAME}` and `${NAME:-default}`; `$${` stands for `${` itself.
//!
//! They are put in after parsing, so a value with a quote or a line end in it cannot become part
//! of the file's structure. What a variable holds never appears in an error: messages name the
//! variable, and the line is shown as it was written.

use std::ops::Range;

use super::Environment;
use super::report::Findings;
use super::tree::{Node, Value, join};

/// Puts the variables into every string below this value; `path` leads to it.
pub(super) fn expand(
    node: &mut Node,
    path: &str,
    text: &str,
    environment: &Environment<'_>,
    findings: &mut Findings,
) {
    match &mut node.value {
        Value::Table(members) => {
            for member in members {
                let path = join(path, &member.name);
                expand(&mut member.node, &path, text, environment, findings);
            }
        }
        Value::Array(items) => {
            for item in items {
                expand(item, path, text, environment, findings);
            }
        }
        Value::Text(written) if written.contains("${") => match expanded(written, environment) {
            Ok(expanded) => *written = expanded,
            Err(problem) => {
                let place = place(text, &node.span, written, &problem.part);
                findings.add(place, problem.message(path), problem.help());
                node.value = Value::Broken;
            }
        },
        _ => {}
    }
}

/// The parts `${NAME}` of a text that is shown, and of `${NAME:-default}` all but the default.
pub(super) fn variables(shown: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for part in parts(shown) {
        let Ok(Part::Variable { at, name, default }) = part else {
            continue;
        };
        let open = at.start..at.start + "${".len() + name.len();
        match default {
            None => found.push(at),
            Some(_) => found.extend([open.start..open.end + ":-".len(), at.end - 1..at.end]),
        }
    }
    found
}

/// A variable that cannot be put in, and where in the value it is.
pub(super) struct Problem {
    what: What,
    part: Range<usize>,
}

enum What {
    Unset(String),
    Unclosed,
    NotAName { editor: bool },
    Nested,
}

enum Part<'t> {
    Plain(&'t str),
    Variable {
        at: Range<usize>,
        name: &'t str,
        default: Option<&'t str>,
    },
}

/// Puts the variables into one value.
pub(super) fn expanded(written: &str, environment: &Environment<'_>) -> Result<String, Problem> {
    let mut expanded = String::new();
    for part in parts(written) {
        match part? {
            Part::Plain(text) => expanded.push_str(text),
            Part::Variable { at, name, default } => {
                // As in a shell, `:-` stands in for an empty value too.
                let value = environment(name).filter(|set| default.is_none() || !set.is_empty());
                match value.as_deref().or(default) {
                    Some(value) => expanded.push_str(value),
                    None => {
                        let what = What::Unset(name.to_owned());
                        return Err(Problem { what, part: at });
                    }
                }
            }
        }
    }
    Ok(expanded)
}

/// Cuts a text at its variables; ends with the first that is not right.
fn parts(text: &str) -> impl Iterator<Item = Result<Part<'_>, Problem>> {
    let mut at = 0;
    let mut failed = false;
    std::iter::from_fn(move || {
        let rest = text.get(at..).filter(|rest| !rest.is_empty() && !failed)?;
        let part = match rest.find("${") {
            Some(0) => variable(text, at),
            // `$${`: the first `$` goes, and what follows means nothing.
            Some(found) if rest[..found].ends_with('$') => {
                let plain = &rest[..found - 1];
                if plain.is_empty() {
                    at += "$${".len();
                    return Some(Ok(Part::Plain("${")));
                }
                Ok(Part::Plain(plain))
            }
            Some(found) => Ok(Part::Plain(&rest[..found])),
            None => Ok(Part::Plain(rest)),
        };
        match &part {
            Ok(Part::Plain(plain)) => at += plain.len(),
            Ok(Part::Variable { at: place, .. }) => at = place.end,
            Err(_) => failed = true,
        }
        Some(part)
    })
}

/// The variable at the `${` that is at this place.
fn variable(text: &str, start: usize) -> Result<Part<'_>, Problem> {
    let inside = &text[start + "${".len()..];
    let problem = |what, end| Problem {
        what,
        part: start..end,
    };
    let close = inside
        .find('}')
        .ok_or_else(|| problem(What::Unclosed, text.len()))?;
    let end = start + "${".len() + close + 1;
    let (name, default) = match inside[..close].split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (&inside[..close], None),
    };
    let starts = |c: char| c.is_ascii_alphabetic() || c == '_';
    let goes_on = |c: char| starts(c) || c.is_ascii_digit();
    if !(name.starts_with(starts) && name.chars().all(goes_on)) {
        let editor = name.starts_with("env:");
        return Err(problem(What::NotAName { editor }, end));
    }
    if default.is_some_and(|default| default.contains("${")) {
        return Err(problem(What::Nested, end));
    }
    let at = start..end;
    Ok(Part::Variable { at, name, default })
}

/// Where a part of a value is in the file: known unless the file writes the value with escapes.
fn place(text: &str, span: &Range<usize>, written: &str, part: &Range<usize>) -> Range<usize> {
    let source = text.get(span.clone()).unwrap_or_default();
    match source.find(written).map(|at| span.start + at) {
        Some(start) => start + part.start..start + part.end,
        None => span.clone(),
    }
}

// === impl Problem ===

impl Problem {
    pub(super) fn message(&self, path: &str) -> String {
        match &self.what {
            What::Unset(name) => format!("the variable `{name}`, used in `{path}`, is not set"),
            What::Unclosed => format!("a `${{` in `{path}` is never closed"),
            What::NotAName { .. } => format!("a `${{` in `{path}` does not name a variable"),
            What::Nested => format!("a default in `{path}` has a variable in it"),
        }
    }

    pub(super) fn help(&self) -> String {
        match &self.what {
            What::Unset(name) => {
                format!("set it where Bowline starts, or give a default: `${{{name}:-default}}`")
            }
            What::Unclosed => "add the `}`, or write `$${` if a plain `${` is meant".to_owned(),
            What::NotAName { editor: true } => "write `${NAME}`, without `env:`".to_owned(),
            What::NotAName { editor: false } => {
                "write `${NAME}` or `${NAME:-default}`, or `$${` if a plain `${` is meant"
                    .to_owned()
            }
            What::Nested => "use one variable with a plain default".to_owned(),
        }
    }
}
