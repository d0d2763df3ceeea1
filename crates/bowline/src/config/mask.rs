//! Which parts of a configuration file may be shown in an error.
//!
//! A line of the file can hold a secret even when the problem on that line is another: a token in
//! a header, a password or key in a URL, an old token in a comment. So values start hidden, and
//! the reader reveals those of keys that never hold a secret. Masked text keeps its number of
//! characters, so that columns stay true.

use std::ops::Range;

use super::tree::{Node, Value};
use super::{keys, variables};

/// What is hidden and what is revealed, as byte ranges of the file.
#[derive(Debug, Default)]
pub(super) struct Mask {
    hidden: Vec<Range<usize>>,
    revealed: Vec<Range<usize>>,
}

// === impl Mask ===

impl Mask {
    /// Hides every value of a file that parsed.
    pub(super) fn of_tree(node: &Node, text: &str) -> Self {
        let mut mask = Self::default();
        mask.hide(node, text);
        mask
    }

    /// Hides all but the surely harmless in a file that did not parse, where no value has a known
    /// place: bare section headers, known keys, and one word after a harmless key before any header.
    pub(super) fn of_text(text: &str) -> Self {
        let mut mask = Self::default();
        let mut headers_seen = false;
        let mut offset = 0;
        for line in text.split_inclusive('\n') {
            let (key, assigned) = line.split_once('=').unwrap_or(("", line));
            let key = key.trim();
            let key = keys::known(key);
            let harmless = key.is_some_and(|key| key.open);
            let value = assigned.split('#').next().unwrap_or_default().trim();
            let one_word = !value.contains(|c: char| c.is_whitespace() || c == '=');
            let plain = harmless && one_word && !headers_seen;
            if !plain && !is_section(line) {
                let start = key.map_or(0, |_| line.len() - assigned.len());
                let secret = line
                    .char_indices()
                    .filter(|&(at, c)| at >= start && !is_structure(c))
                    .map(|(at, c)| offset + at..offset + at + c.len_utf8());
                mask.hidden.extend(secret);
            }
            headers_seen |= line.to_ascii_lowercase().contains("header");
            offset += line.len();
        }
        mask
    }

    /// Hides all but the structure and the names of the known keys in JSON that did not parse.
    pub(super) fn of_json_text(text: &str) -> Self {
        let mut mask = Self::default();
        let structure = |c: char| is_structure(c) || c == ':';
        let hidden = text.char_indices().filter(|&(_, c)| !structure(c));
        mask.hidden
            .extend(hidden.map(|(at, c)| at..at + c.len_utf8()));
        for key in [
            "\"mcpServers\"",
            "\"type\"",
            "\"url\"",
            "\"headers\"",
            "\"command\"",
            "\"args\"",
            "\"env\"",
        ] {
            let found = text.match_indices(key);
            mask.revealed
                .extend(found.map(|(at, key)| at..at + key.len()));
        }
        mask
    }

    /// Reveals a value that holds no secret.
    pub(super) fn reveal(&mut self, value: Range<usize>) {
        self.revealed.push(value);
    }

    /// Reveals of a URL only scheme, host and port: each other part can hold a credential.
    pub(super) fn reveal_url(&mut self, text: &str, value: Range<usize>) {
        let raw = text.get(value.clone()).unwrap_or_default();
        let Some(host) = raw.find("://").map(|at| at + 3) else {
            return;
        };
        // An escape could stand for any of the characters looked for below.
        if raw.contains('\\') {
            return;
        }
        let rest = &raw[host..];
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let in_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.:/".contains(c);
        let before_scheme = raw[..host].rfind(|c| !in_scheme(c));
        let scheme = before_scheme.map_or(0, |at| at + 1);
        self.reveal(value.start + scheme..value.start + host);
        let start = match (rest[..end].rfind('@'), rest[end..].contains('@')) {
            (Some(at), _) => at + 1,
            // A password with a `/` in it: what looks like the host is the user's name.
            (None, true) => return,
            (None, false) => 0,
        };
        let end = start + authority(&rest[start..end]);
        self.reveal(value.start + host + start..value.start + host + end);
    }

    /// The part of `text` in `line` as it may be shown, without its comment.
    pub(super) fn show(&self, text: &str, line: Range<usize>) -> String {
        let within = |ranges: &[Range<usize>]| -> Vec<Range<usize>> {
            let touches = |range: &&Range<usize>| range.start < line.end && line.start < range.end;
            let mut within: Vec<_> = ranges.iter().filter(touches).cloned().collect();
            within.sort_by_key(|range| range.start);
            within.dedup_by(|next, last| {
                let joined = next.start <= last.end;
                if joined {
                    last.end = last.end.max(next.end);
                }
                joined
            });
            within
        };
        let (hidden, revealed) = (within(&self.hidden), within(&self.revealed));
        let mut shown = String::new();
        for (at, c) in text.get(line.clone()).unwrap_or_default().char_indices() {
            let at = line.start + at;
            let (hidden, revealed) = (holds(&hidden, at), holds(&revealed, at));
            match c {
                '#' if !hidden && !revealed => break,
                '"' | '\'' => shown.push(c),
                _ if hidden && !revealed => shown.push('*'),
                _ => shown.push(c),
            }
        }
        shown.truncate(shown.trim_end().len());
        shown
    }

    fn hide(&mut self, node: &Node, text: &str) {
        match &node.value {
            Value::Table(members) => {
                for member in members {
                    self.reveal(member.key.clone());
                    self.hide(&member.node, text);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.hide(item, text)),
            _ => {
                self.hidden.push(node.span.clone());
                self.reveal_variables(text, node.span.clone());
            }
        }
    }

    /// Reveals the names of variables, which say more to a reader than stars.
    fn reveal_variables(&mut self, text: &str, value: Range<usize>) {
        let raw = text.get(value.clone()).unwrap_or_default();
        // An escape could make plain text look like a variable.
        if raw.contains('\\') {
            return;
        }
        for part in variables::places(raw) {
            self.reveal(value.start + part.start..value.start + part.end);
        }
    }
}

/// Whether one of the ranges, sorted and disjoint, holds this place.
fn holds(ranges: &[Range<usize>], at: usize) -> bool {
    let after = ranges.partition_point(|range| range.start <= at);
    let nearest = after.checked_sub(1).and_then(|index| ranges.get(index));
    nearest.is_some_and(|range| range.contains(&at))
}

/// How far a text looks like host and port: a slip may have glued something secret to them.
fn authority(text: &str) -> usize {
    let (mut in_brackets, mut in_port) = (false, false);
    for (at, c) in text.char_indices() {
        let fits = match c {
            '[' => at == 0,
            ']' | ':' if in_brackets => true,
            ':' => !in_port,
            _ if in_brackets => c.is_ascii_hexdigit() || c == '.',
            _ if in_port => c.is_ascii_digit(),
            _ => c.is_ascii_alphanumeric() || ".-_".contains(c),
        };
        if !fits {
            // What follows the colon is no port, so it may be anything.
            return if in_port {
                text[..at].rfind(':').unwrap_or(at)
            } else {
                at
            };
        }
        in_port |= c == ':' && !in_brackets;
        in_brackets = (in_brackets || c == '[') && c != ']';
    }
    text.len()
}

/// Whether a line is a section's header and nothing else.
fn is_section(line: &str) -> bool {
    let bare = |c: char| c.is_ascii_alphanumeric() || "[]-_. \t\r\n".contains(c);
    line.starts_with('[') && line.chars().all(bare)
}

fn is_structure(c: char) -> bool {
    c.is_whitespace() || "\"'={}[],".contains(c)
}
