//! How a process ended, in words, with the end of what it wrote to stderr.

use std::fmt;

use bowline_children::Tail;

use crate::upstream::live::End;

/// How much of stderr an error for a client quotes. The operator's log has more.
const QUOTED: usize = 300;

/// How a process ended that wrote this to stderr.
pub(super) fn end(how: impl fmt::Display, stderr: &Tail) -> End {
    End::new("process", format_args!("{how}{}", LastWords::of(stderr)))
}

/// The end of what a process wrote to stderr, in one line, for an error.
#[derive(Debug)]
pub(crate) struct LastWords(Box<str>);

impl LastWords {
    pub(super) fn of(stderr: &Tail) -> Self {
        let lines: Vec<_> = stderr
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let text = lines.join(" | ");
        let too_much = text.chars().count().saturating_sub(QUOTED);
        Self(match text.char_indices().nth(too_much) {
            Some((at, _)) if too_much > 0 => format!("…{}", &text[at..]).into(),
            _ => text.into(),
        })
    }
}

/// What follows an error: nothing, if the process wrote nothing.
impl fmt::Display for LastWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_empty() {
            true => Ok(()),
            false => write!(f, "; its stderr ends with: {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_quotes_the_end_of_stderr_and_not_all_of_it() {
        let mut stderr = Tail::default();
        assert_eq!(end("exit code 1", &stderr).to_string(), "exit code 1");
        stderr.push(b"starting");
        stderr.push(b"");
        stderr.push("no such tëst".as_bytes());
        assert_eq!(
            end("exit code 1", &stderr).to_string(),
            "exit code 1; its stderr ends with: starting | no such tëst"
        );
        stderr.push("é".repeat(1000).as_bytes());
        let LastWords(shown) = LastWords::of(&stderr);
        assert_eq!(shown.chars().count(), QUOTED + 1);
        assert!(shown.starts_with("…é"));
    }
}
