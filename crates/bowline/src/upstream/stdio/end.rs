//! How a process ended, in words: for the log, and a few of them for the client.

use std::fmt;

use bowline_children::Tail;

/// How much of stderr an error for a client quotes. The operator's log has more.
const QUOTED: usize = 300;

/// How a process ended.
#[derive(Debug)]
pub(crate) struct End {
    how: Box<str>,
    /// The end of what it wrote to stderr.
    last_words: Box<str>,
}

impl End {
    pub(super) fn new(how: impl fmt::Display, stderr: &Tail) -> Self {
        Self {
            how: how.to_string().into(),
            last_words: last_words(stderr),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.how)?;
        quote(&self.last_words, f)
    }
}

/// Adds what a process wrote to stderr, if it wrote anything.
pub(super) fn quote(last_words: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match last_words.is_empty() {
        true => Ok(()),
        false => write!(f, "; its stderr ends with: {last_words}"),
    }
}

/// The end of what a process wrote to stderr, in one line.
pub(super) fn last_words(stderr: &Tail) -> Box<str> {
    let lines: Vec<_> = stderr
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let text = lines.join(" | ");
    let too_much = text.chars().count().saturating_sub(QUOTED);
    match text.char_indices().nth(too_much) {
        Some((at, _)) if too_much > 0 => format!("…{}", &text[at..]).into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_quotes_the_end_of_stderr_and_not_all_of_it() {
        let mut stderr = Tail::default();
        assert_eq!(End::new("exit code 1", &stderr).to_string(), "exit code 1");
        stderr.push(b"starting");
        stderr.push(b"");
        stderr.push("no such tëst".as_bytes());
        assert_eq!(
            End::new("exit code 1", &stderr).to_string(),
            "exit code 1; its stderr ends with: starting | no such tëst"
        );
        stderr.push("é".repeat(1000).as_bytes());
        let shown = last_words(&stderr);
        assert_eq!(shown.chars().count(), QUOTED + 1);
        assert!(shown.starts_with("…é"));
    }
}
