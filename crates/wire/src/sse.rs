//! Server-sent events: splitting a byte stream into events, and the text of an event.
//!
//! An event is read once, while its end is looked for, and is passed on as the bytes that came, including line
//! endings, comments and unknown fields. Text is made only of what has changed, where the event leaves. An event's
//! size is limited, because a stream without a blank line could otherwise fill the memory: a larger one is skipped
//! while it arrives.

mod event;
mod skipped;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr2;
use thiserror::Error;

pub use self::event::{Event, named_event};
use self::event::{Fields, Line};
use self::skipped::SkippedEvent;
use crate::skip::{MAX_MESSAGE, Skipped};

/// The largest event of a server's: the largest message, its other fields and the names of its lines.
pub const MAX_EVENT: usize = MAX_MESSAGE + (1 << 20);

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Splits a byte stream into [`Event`]s, independent of chunk boundaries. All bytes of the events together are the
/// stream's, but for a byte order mark at its start, which means nothing and is left out.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    /// Everything before this position was already searched for an event's end.
    searched: usize,
    /// The start of the line that contains `searched`.
    line_start: usize,
    /// The fields of the lines before that one.
    fields: Fields,
    max_event: usize,
    at_stream_start: bool,
    /// Inside of an event that is too large.
    skipping: Option<Box<SkippedEvent>>,
}

/// An event did not end within the allowed size. It is skipped.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("an event of more than {max_event} bytes")]
pub struct EventTooLarge {
    /// The limit.
    pub max_event: usize,
    /// What its data was.
    pub what: Skipped,
}

// === impl Decoder ===

impl Decoder {
    /// A decoder that skips events of more than `max_event` bytes.
    pub fn new(max_event: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            searched: 0,
            line_start: 0,
            fields: Fields::default(),
            max_event,
            at_stream_start: true,
            skipping: None,
        }
    }

    /// Adds the next bytes of the stream.
    pub fn push(&mut self, chunk: Bytes) {
        if self.buffer.is_empty() {
            // Usually the whole buffer: a chunk without other references is taken without a copy.
            self.buffer = BytesMut::from(chunk);
        } else {
            self.buffer.extend_from_slice(&chunk);
        }
    }

    /// The next event, if it is complete. One that is too large is an error once, as soon as it is known what it
    /// is, and then the next one follows.
    pub fn next_event(&mut self) -> Result<Option<Event>, EventTooLarge> {
        if self.at_stream_start {
            self.begin();
        }
        if self.skipping.is_some() {
            self.skip()?;
        }
        let mut end = self.find_end();
        while end.unwrap_or(self.buffer.len()) > self.max_event {
            self.skipping = Some(Box::default());
            self.skip()?;
            end = self.find_end();
        }
        let Some(end) = end else { return Ok(None) };
        let raw = self.buffer.split_to(end).freeze();
        (self.searched, self.line_start) = (0, 0);
        Ok(Some(Event::read(raw, std::mem::take(&mut self.fields))))
    }

    /// Whether the stream could end here without truncating an event.
    pub fn is_between_events(&self) -> bool {
        self.buffer.is_empty() && self.skipping.is_none()
    }

    /// Drops the byte order mark, as soon as it is known whether there is one.
    fn begin(&mut self) {
        if self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.buffer.advance(BYTE_ORDER_MARK.len());
            self.searched = 0;
            self.at_stream_start = false;
        } else {
            self.at_stream_start = BYTE_ORDER_MARK.starts_with(&self.buffer);
        }
    }

    /// Drops what has arrived of an event that is too large.
    fn skip(&mut self) -> Result<(), EventTooLarge> {
        let Some(skipping) = &mut self.skipping else {
            return Ok(());
        };
        let (read, told) = skipping.read(&self.buffer);
        (self.searched, self.line_start) = (0, 0);
        self.fields = Fields::default();
        match read {
            Some(read) => {
                self.buffer.advance(read);
                self.skipping = None;
            }
            // The large block is given back.
            None => self.buffer = BytesMut::new(),
        }
        match told {
            None => Ok(()),
            Some(what) => Err(EventTooLarge {
                max_event: self.max_event,
                what,
            }),
        }
    }

    /// The position after the next blank line. The fields of the lines before it are noted.
    fn find_end(&mut self) -> Option<usize> {
        let bytes = &self.buffer[..];
        while let Some(found) = memchr2(b'\n', b'\r', &bytes[self.searched..]) {
            let at = self.searched + found;
            let blank = at == self.line_start;
            let after = match (bytes[at], bytes.get(at + 1)) {
                (b'\r', Some(b'\n')) => at + 2,
                // A carriage return at the end of the input may be half a line ending. After text the
                // next byte decides. After an empty line the event is complete either way, and a late
                // line feed is an empty block of its own, which has no meaning.
                (b'\r', None) if !blank => {
                    self.searched = at;
                    return None;
                }
                _ => at + 1,
            };
            if blank {
                return Some(after);
            }
            let line = Line::of(&bytes[self.line_start..at]);
            self.fields.add(&line, at);
            self.searched = after;
            self.line_start = after;
        }
        self.searched = bytes.len();
        None
    }
}

#[cfg(test)]
mod tests;
