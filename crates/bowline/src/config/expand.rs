//! Puts [`variables`](super::variables) into the values of a file.
//!
//! That is done after parsing, so a value with a quote or a line end in it cannot become part
//! of the file's structure. What a variable holds never appears in an error: messages name the
//! variable, and the line is shown as it was written.

use std::ops::Range;

use super::report::Findings;
use super::tree::{Node, Value, join};
use super::{Environment, variables};

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
        Value::Text(written) if written.contains("${") => {
            match variables::expanded(written, environment) {
                Ok(expanded) => *written = expanded,
                Err(problem) => {
                    let place = place(text, &node.span, written, &problem.part);
                    findings.add(place, problem.message(path), problem.help());
                    node.value = Value::Broken;
                }
            }
        }
        _ => {}
    }
}

/// Where a part of a value is in the file: known unless the file writes the value with escapes.
fn place(text: &str, span: &Range<usize>, written: &str, part: &Range<usize>) -> Range<usize> {
    let source = text.get(span.clone()).unwrap_or_default();
    match source.find(written).map(|at| span.start + at) {
        Some(start) => start + part.start..start + part.end,
        None => span.clone(),
    }
}
