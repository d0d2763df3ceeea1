//! How a live thing ended, in words: for the log and for the client.

use std::fmt;

use bowline_children::Tail;

/// How much of stderr an error for a client quotes. The operator's log has more.
const QUOTED: usize = 300;

/// How a live thing ended.
#[derive(Debug)]
pub(crate) struct End {
    /// What it was, such as `process`.
    what: &'static str,
    how: Box<str>,
}

/// The end of what a process wrote to stderr, in one line, for an error.
#[derive(Debug)]
pub(crate) struct LastWords(Box<str>);

// === impl End ===

impl End {
    pub(in crate::upstream) fn new(what: &'static str, how: impl fmt::Display) -> Self {
        Self {
            what,
            how: how.to_string().into(),
        }
    }

    /// How a process ended that wrote this to stderr.
    pub(in crate::upstream) fn of_process(how: impl fmt::Display, stderr: &Tail) -> Self {
        Self::new("process", format_args!("{how}{}", LastWords::of(stderr)))
    }

    /// The gateway that had it is gone, and so is it, whatever it was.
    pub(in crate::upstream) fn of_gateway() -> Self {
        Self::new("session", "its gateway is gone")
    }

    pub(crate) fn what(&self) -> &'static str {
        self.what
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.how)
    }
}

// === impl LastWords ===

impl LastWords {
    pub(in crate::upstream) fn of(stderr: &Tail) -> Self {
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
        assert_eq!(
            End::of_process("exit code 1", &stderr).to_string(),
            "exit code 1"
        );
        stderr.push(b"starting");
        stderr.push(b"");
        stderr.push("no such tëst".as_bytes());
        assert_eq!(
            End::of_process("exit code 1", &stderr).to_string(),
            "exit code 1; its stderr ends with: starting | no such tëst"
        );
        stderr.push("é".repeat(1000).as_bytes());
        let LastWords(shown) = LastWords::of(&stderr);
        assert_eq!(shown.chars().count(), QUOTED + 1);
        assert!(shown.starts_with("…é"));
    }
}
