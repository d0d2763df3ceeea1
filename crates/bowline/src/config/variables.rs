//! How values name variables: `${NAME}` and `${NAME:-default}`; `$${` stands for `${` itself.

use std::ops::Range;

use super::Environment;

/// The parts `${NAME}` of a text that is shown, and of `${NAME:-default}` all but the default.
pub(super) fn places(shown: &str) -> Vec<Range<usize>> {
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
    pub(super) part: Range<usize>,
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
