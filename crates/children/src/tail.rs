//! The last lines that a child wrote to stderr, for error messages.

use std::collections::VecDeque;
use std::fmt;

use bowline_system::printable::is_unprintable;

/// How many lines, and how many bytes of them, are kept.
const LINES: usize = 20;
const BYTES: usize = 4 << 10;

/// The last lines, as text that can be printed.
#[derive(Clone, Debug, Default)]
pub struct Tail {
    lines: VecDeque<String>,
    bytes: usize,
}

impl Tail {
    /// Adds a line. What is not UTF-8, and characters that a terminal obeys, are replaced or removed; a line
    /// that is too long is cut.
    pub fn push(&mut self, line: &[u8]) {
        let line = &line[..line.len().min(BYTES)];
        let mut text = String::new();
        for character in String::from_utf8_lossy(line)
            .chars()
            .filter(|one| !is_unprintable(*one))
        {
            if text.len() + character.len_utf8() > BYTES {
                break;
            }
            text.push(character);
        }
        self.bytes += text.len();
        self.lines.push_back(text);
        while self.lines.len() > LINES || self.bytes > BYTES {
            let oldest = self.lines.pop_front().unwrap_or_default();
            self.bytes -= oldest.len();
        }
    }

    /// The lines, the oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// Whether there is no line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

impl fmt::Display for Tail {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, line) in self.lines().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(formatter, "{separator}{line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let mut tail = Tail::default();
        assert!(tail.is_empty());
        (0..100).for_each(|number| tail.push(format!("line {number}").as_bytes()));
        assert_eq!(tail.lines().count(), LINES);
        assert_eq!(tail.lines().last(), Some("line 99"));
        assert!(tail.to_string().starts_with("line 80\nline 81\n"));
    }

    #[test]
    fn bytes_are_bounded_and_printable() {
        let mut tail = Tail::default();
        tail.push(b"\x1b[31mred\xff\x1b[0m\t\xe2\x80\xae\xc2\x9b");
        assert_eq!(tail.to_string(), "[31mred\u{fffd}[0m");
        for _ in 0..3 {
            tail.push(&[0xff; 10_000]);
            assert!(tail.bytes <= BYTES && tail.bytes > BYTES - 3);
        }
        assert_eq!(tail.lines().count(), 1);
    }
}
