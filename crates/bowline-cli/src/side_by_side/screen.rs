//! What is shown: two columns, a row for each call, and a line for each thing that is done to them.

use std::fmt;
use std::io::{self, Write as _};

/// The width of a column, in characters.
pub(super) const COLUMN: usize = 38;

/// A row of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// What the columns are.
    Heads([&'static str; 2]),
    /// What is done to both.
    Event(&'static str),
    /// What both clients got.
    Cells([Cell; 2]),
    Empty,
}

/// What one client got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) mood: Mood,
}

/// How it is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Good,
    Bad,
}

/// All rows so far. Each is written when it comes.
#[derive(Debug, Default)]
pub(super) struct Screen {
    rows: Vec<Row>,
}

// === impl Screen ===

impl Screen {
    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Begins with nothing; on a terminal, at its top.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.rows.clear();
        write(format_args!("\x1b[2J\x1b[H"))
    }

    pub(super) fn show(&mut self, row: Row) -> io::Result<()> {
        write(format_args!("{row}\n"))?;
        self.rows.push(row);
        Ok(())
    }
}

/// Writes to stdout, without colours if it is no terminal. A reader that has left is no failure.
fn write(text: fmt::Arguments<'_>) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_fmt(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Heads([left, right]) => {
                write!(f, "\x1b[1m  {left:COLUMN$}  {right}\x1b[0m")
            }
            Self::Event(text) => write!(f, "\x1b[1;33m{text}\x1b[0m"),
            Self::Cells([left, right]) => {
                let gap = " ".repeat(COLUMN.saturating_sub(left.text.chars().count()) + 2);
                write!(f, "  {left}{gap}{right}")
            }
            Self::Empty => Ok(()),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colour = match self.mood {
            Mood::Good => 32,
            Mood::Bad => 31,
        };
        write!(f, "\x1b[{colour}m{}\x1b[0m", self.text)
    }
}
