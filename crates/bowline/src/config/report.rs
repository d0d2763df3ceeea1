//! The problems of a configuration file: how they are collected, and how they are shown.
//!
//! Both stages of reading add to [`Findings`]; at the end these become [`ConfigErrors`], which
//! keep only what may be shown: each problem with its place and its line, secrets masked. So
//! neither `Display` nor `Debug` of an error can print a secret.

use std::fmt;
use std::iter;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet, normalize_untrusted_str};

use super::mask::Mask;

/// All problems of one configuration file, in the order of the file; there is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    source_name: String,
    problems: Vec<Problem>,
}

/// One problem of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    message: String,
    help: String,
    line: usize,
    column: usize,
    /// The line, secrets masked and the comment cut.
    shown: String,
    /// The part of `shown` to point at, in bytes.
    caret: Range<usize>,
}

/// Problems found so far, by their place in the text, and what of the text may be shown.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) mask: Mask,
    found: Vec<Finding>,
}

#[derive(Debug)]
struct Finding {
    span: Range<usize>,
    message: String,
    help: String,
}

// === impl Findings ===

impl Findings {
    /// Adds a problem; neither message nor help may have any part of a value in it.
    pub(super) fn add(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.found.push(Finding {
            span,
            message: message.into(),
            help: help.into(),
        });
    }

    /// `Ok` when nothing was found.
    pub(super) fn into_result(mut self, source_name: &str, text: &str) -> Result<(), ConfigErrors> {
        if self.found.is_empty() {
            return Ok(());
        }
        self.found.sort_by_key(|finding| finding.span.start);
        let mask = self.mask;
        let place = |finding| Problem::new(finding, text, &mask);
        Err(ConfigErrors {
            source_name: source_name.to_owned(),
            problems: self.found.into_iter().map(place).collect(),
        })
    }
}

// === impl Problem ===

impl Problem {
    fn new(finding: Finding, text: &str, mask: &Mask) -> Self {
        // Spans come from the parser of this very text; should one be off, the report is too,
        // which is better than a panic.
        let before = text.get(..finding.span.start).unwrap_or(text);
        let from_here = text.get(before.len()..).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line_end = before.len() + from_here.find('\n').unwrap_or(from_here.len());
        let mut shown = mask.show(text, line_start..line_end);

        // The caret stays on one line, and counts characters because masking keeps their number.
        let skipped = before[line_start..].chars().count();
        // A caret behind the end, in a comment that was cut, needs something to stand under.
        let missing = skipped.saturating_sub(shown.chars().count());
        shown.extend(iter::repeat_n(' ', missing));
        let pointed = text
            .get(before.len()..finding.span.end.min(line_end))
            .map_or(0, |pointed| pointed.chars().count());
        let byte = |nth: usize| {
            let at = shown.char_indices().nth(nth);
            at.map_or(shown.len(), |(at, _)| at)
        };
        Self {
            message: finding.message,
            help: finding.help,
            line: before.matches('\n').count() + 1,
            column: skipped + 1,
            caret: byte(skipped)..byte(skipped + pointed),
            shown,
        }
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it.
    pub fn help(&self) -> &str {
        &self.help
    }

    /// The line it is on, counted from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The column it starts at, in characters counted from 1.
    pub fn column(&self) -> usize {
        self.column
    }

    fn render(&self, renderer: &Renderer, source_name: &str) -> String {
        let snippet = Snippet::source(self.shown.as_str())
            .line_start(self.line)
            .path(source_name)
            .annotation(AnnotationKind::Primary.span(self.caret.clone()));
        let group = Level::ERROR
            .primary_title(self.message.as_str())
            .element(snippet)
            .element(Level::HELP.message(normalize_untrusted_str(&self.help)));
        renderer.render(&[group])
    }
}

// === impl ConfigErrors ===

impl ConfigErrors {
    /// All problems as text for a terminal or a log, each with file, line, column and caret.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let source_name = normalize_untrusted_str(&self.source_name);
        let rendered = self.iter().map(|one| one.render(&renderer, &source_name));
        rendered.collect::<Vec<_>>().join("\n\n")
    }

    /// How many problems there are.
    pub fn len(&self) -> usize {
        self.problems.len()
    }

    /// Whether there are none; never true of errors that came out of parsing.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// The problems, in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Problem> {
        self.problems.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for ConfigErrors {}
