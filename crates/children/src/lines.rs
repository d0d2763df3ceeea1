//! Lines of a child's output, with a limit: a child cannot make the gateway keep more than one long line.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The longest line, unless somebody says otherwise.
const LINE_LIMIT: usize = 16 << 20;

/// What is read at once, at least and at most. A child that says nothing costs the smaller one.
const SMALL_READ: usize = 8 << 10;
const LARGE_READ: usize = 256 << 10;

/// How much of a line that is too long is returned.
const SHOWN: usize = 256;

/// Reads lines.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    limit: usize,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line break.
    searched: usize,
    /// Inside of a line that was too long.
    discarding: bool,
}

/// A line, without its line break (`\n` or `\r\n`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// UTF-8, and not empty.
    Text(Bytes),
    /// Nothing at all.
    Empty,
    /// Not UTF-8.
    NotUtf8(Bytes),
    /// Longer than the limit. These are its first bytes; the rest is discarded.
    TooLong(Bytes),
    /// The output ended within this line. It may be cut, and need not be UTF-8.
    Unfinished(Bytes),
}

// === impl Lines ===

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Reads lines of up to 16 MiB.
    pub fn new(reader: R) -> Self {
        Self::with_limit(reader, LINE_LIMIT)
    }

    /// Reads lines of up to `limit` bytes, without their line breaks.
    pub fn with_limit(reader: R, limit: usize) -> Self {
        let buffer = BytesMut::new();
        Self {
            reader,
            limit,
            buffer,
            searched: 0,
            discarding: false,
        }
    }

    /// The next line, or none at the end. Can be cancelled without a loss.
    ///
    /// # Errors
    ///
    /// If reading fails.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.buffered() {
                return Ok(Some(line));
            }
            let wanted = self.buffer.len().clamp(SMALL_READ, LARGE_READ);
            self.buffer.reserve(wanted);
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                return Ok(self.last());
            }
        }
    }

    /// The next line of what was read.
    fn buffered(&mut self) -> Option<Line> {
        loop {
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            let Some(found) = memchr::memchr(b'\n', unsearched) else {
                return self.unbroken();
            };
            let mut line = self.buffer.split_to(self.searched + found + 1);
            self.searched = 0;
            if std::mem::take(&mut self.discarding) {
                continue;
            }
            line.truncate(line.len() - 1);
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            return Some(self.classify(line.freeze()));
        }
    }

    /// There is no line break in the buffer.
    fn unbroken(&mut self) -> Option<Line> {
        if self.discarding {
            self.buffer.clear();
            return None;
        }
        self.searched = self.buffer.len();
        // The last byte may be the first one of `\r\n`.
        let carriage_return = usize::from(self.buffer.last() == Some(&b'\r'));
        if self.buffer.len() - carriage_return <= self.limit {
            return None;
        }
        self.discarding = true;
        self.searched = 0;
        // The large block is given back.
        let line = std::mem::take(&mut self.buffer);
        Some(too_long(&line))
    }

    fn last(&mut self) -> Option<Line> {
        let rest = std::mem::take(&mut self.buffer);
        self.searched = 0;
        if rest.is_empty() || std::mem::take(&mut self.discarding) {
            return None;
        }
        Some(Line::Unfinished(rest.freeze()))
    }

    fn classify(&self, line: Bytes) -> Line {
        if line.is_empty() {
            Line::Empty
        } else if line.len() > self.limit {
            too_long(&line)
        } else if std::str::from_utf8(&line).is_err() {
            Line::NotUtf8(line)
        } else {
            Line::Text(line)
        }
    }
}

fn too_long(line: &[u8]) -> Line {
    Line::TooLong(Bytes::copy_from_slice(&line[..line.len().min(SHOWN)]))
}

#[cfg(test)]
mod tests;
