//! Server-sent events: splitting a byte stream into events, and rewriting lines of an event.
//!
//! The decoder never rebuilds an event: it finds the end and returns exactly those bytes, including line
//! endings, comments and unknown fields. All returned bytes together are the input. An event's size is
//! limited, because a stream without a blank line could otherwise fill the memory.

use std::borrow::Cow;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr2;
use thiserror::Error;

/// Splits a byte stream into [`Event`]s, independent of chunk boundaries.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    /// Everything before this position was already searched for an event's end.
    searched: usize,
    /// The start of the line that contains `searched`.
    line_start: usize,
    max_event: usize,
    at_stream_start: bool,
    /// Inside of an event that was too large.
    is_discarding: bool,
    /// How the last one began that was too large.
    too_large: Bytes,
}

/// One event, or a run of comments: the bytes up to and including a blank line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    raw: Bytes,
    has_byte_order_mark: bool,
}

/// The fields of an event besides its data.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// The value of the last valid `id` field.
    pub id: Option<&'a [u8]>,
    /// Whether every reader takes these fields for nothing else, see [`Event::rewritten`].
    pub is_plain: bool,
}

/// An event did not end within the allowed size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("an event of more than {max_event} bytes")]
pub struct EventTooLarge {
    /// The limit.
    pub max_event: usize,
}

/// How much is kept of an event that was too large.
const TOO_LARGE_SHOWN: usize = 512;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The longest event name that is passed on.
const MAX_NAME: usize = 64;

// === impl Decoder ===

impl Decoder {
    /// A decoder that rejects events of more than `max_event` bytes.
    pub fn new(max_event: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            searched: 0,
            line_start: 0,
            max_event,
            at_stream_start: true,
            is_discarding: false,
            too_large: Bytes::new(),
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

    /// The next event, if it is complete. One that is too large is an error once, and then left out.
    pub fn next_event(&mut self) -> Result<Option<Event>, EventTooLarge> {
        let mut end = self.find_end();
        if self.is_discarding {
            let Some(last) = end else {
                self.discard();
                return Ok(None);
            };
            self.is_discarding = false;
            drop(self.split_to(last));
            end = self.find_end();
        }
        if end.unwrap_or(self.buffer.len()) > self.max_event {
            let head = &self.buffer[..self.buffer.len().min(TOO_LARGE_SHOWN)];
            self.too_large = Bytes::copy_from_slice(head);
            match end {
                Some(end) => drop(self.split_to(end)),
                None => {
                    self.is_discarding = true;
                    self.discard();
                }
            }
            return Err(EventTooLarge {
                max_event: self.max_event,
            });
        }
        let Some(end) = end else { return Ok(None) };
        let raw = self.split_to(end);
        let has_byte_order_mark = self.at_stream_start && raw.starts_with(BYTE_ORDER_MARK);
        self.at_stream_start = false;
        Ok(Some(Event {
            raw,
            has_byte_order_mark,
        }))
    }

    /// How the last event began that was too large.
    pub fn too_large(&self) -> &[u8] {
        &self.too_large
    }

    fn split_to(&mut self, end: usize) -> Bytes {
        self.searched = 0;
        self.line_start = 0;
        self.buffer.split_to(end).freeze()
    }

    /// Gives back what was searched of an event without an end.
    fn discard(&mut self) {
        let in_line = self.searched > self.line_start;
        let rest = self.buffer.split_off(self.searched);
        self.line_start = 0;
        self.searched = usize::from(in_line);
        // Any byte stands for the line's beginning: it is not blank.
        self.buffer = match in_line {
            true => [b":", &rest[..]].concat()[..].into(),
            false => rest,
        };
    }

    /// Whether the stream could end here without truncating an event.
    pub fn is_between_events(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The position after the next blank line.
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
            self.searched = after;
            self.line_start = after;
        }
        self.searched = bytes.len();
        None
    }
}

// === impl Event ===

impl Event {
    /// The unchanged bytes, including the blank line.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The value of the last valid `id` field.
    ///
    /// An id that contains a NUL is ignored, as the standard requires.
    pub fn id(&self) -> Option<&[u8]> {
        self.lines()
            .filter(|line| line.name == b"id" && !line.value.contains(&0))
            .last()
            .map(|line| line.value)
    }

    /// Its type: the value of the last `event` field; `None` is `message`.
    pub fn kind(&self) -> Option<&[u8]> {
        let kind = self.lines().filter(|line| line.name == b"event").last();
        kind.map(|line| line.value)
            .filter(|value| !value.is_empty())
    }

    /// The fields besides the data.
    pub fn head(&self) -> Head<'_> {
        let mut head = Head {
            id: None,
            is_plain: true,
        };
        for line in self.lines() {
            if line.name == b"id" && !line.value.contains(&0) {
                head.id = Some(line.value);
            }
            head.is_plain &= line.is_plain();
        }
        head
    }

    /// The delay before a reconnect, from the last valid `retry` field.
    pub fn retry(&self) -> Option<Duration> {
        let retries = self.lines().filter(|line| line.name == b"retry");
        retries
            .filter_map(|line| milliseconds(line.value))
            .last()
            .map(Duration::from_millis)
    }

    /// The values of all `data` fields, joined by line feeds.
    pub fn data(&self) -> Option<Cow<'_, [u8]>> {
        let mut joined: Option<Cow<'_, [u8]>> = None;
        for line in self.lines().filter(|line| line.name == b"data") {
            match &mut joined {
                None => joined = Some(Cow::Borrowed(line.value)),
                Some(data) => {
                    let data = data.to_mut();
                    data.push(b'\n');
                    data.extend_from_slice(line.value);
                }
            }
        }
        joined
    }

    /// The event with another id and, if given, other data; every other plain line is unchanged.
    ///
    /// Lines that are not plain are left out. Some readers also end lines at other characters, such as a form feed
    /// or U+2028, and what follows would be a field for them: a name could contain a whole message. So only
    /// printable ASCII counts as plain, in a name nothing but a word, and in `retry` nothing but digits.
    ///
    /// The id must not contain a line ending. In data, a line feed starts another line.
    pub fn rewritten(&self, id: Option<&str>, data: Option<&[u8]>) -> Bytes {
        let grown = id.map_or(0, str::len) + data.map_or(0, <[u8]>::len) + 16;
        let mut out = BytesMut::with_capacity(self.raw.len() + grown);
        if self.has_byte_order_mark {
            out.extend_from_slice(BYTE_ORDER_MARK);
        }
        let mut data = data.map(Some);
        for line in self.lines() {
            match (line.name, id, &mut data) {
                (b"id", Some(id), _) if !line.value.contains(&0) => {
                    push_field(&mut out, b"id", id.as_bytes(), line.ending);
                }
                (b"data", _, Some(replacement)) => {
                    for value in replacement.take().into_iter().flat_map(split_lines) {
                        push_field(&mut out, b"data", value, line.ending);
                    }
                }
                _ if !line.is_plain() => {}
                _ => {
                    // Two lines may now become adjacent, and a carriage return followed by a line feed
                    // would be one line ending instead of two.
                    if out.ends_with(b"\r") && line.whole.starts_with(b"\n") {
                        out.extend_from_slice(b"\n");
                    }
                    out.extend_from_slice(line.whole);
                }
            }
        }
        out.freeze()
    }

    /// The event as several, one for each of `parts` of its data.
    ///
    /// All have its type. The last one has everything else, including the id: a client that resumes
    /// after it has received all of them, and a client that resumes before it gets all of them again.
    pub fn split(&self, id: Option<&str>, parts: &[Bytes]) -> Bytes {
        let Some((last, others)) = parts.split_last() else {
            return self.rewritten(id, None);
        };
        let last = self.rewritten(id, Some(last));
        let mark_len = if self.has_byte_order_mark {
            BYTE_ORDER_MARK.len()
        } else {
            0
        };
        let kind = self.lines().filter(|line| line.name == b"event").last();
        let kind = kind.filter(Line::is_plain);
        let mut out = BytesMut::with_capacity(self.raw.len() + last.len());
        out.extend_from_slice(&last[..mark_len]);
        for part in others {
            if let Some(kind) = &kind {
                push_field(&mut out, b"event", kind.value, b"\n");
            }
            push_data(&mut out, part);
        }
        out.extend_from_slice(&last[mark_len..]);
        out.freeze()
    }

    fn lines(&self) -> Lines<'_> {
        let mut rest = &self.raw[..];
        if self.has_byte_order_mark {
            rest.advance(BYTE_ORDER_MARK.len());
        }
        Lines { rest }
    }
}

/// An event with this data and no other fields.
pub fn event_of(data: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(data.len() + 16);
    push_data(&mut out, data);
    out.freeze()
}

/// An event of this name with this data.
pub fn named_event(name: &str, data: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(data.len() + name.len() + 24);
    push_field(&mut out, b"event", name.as_bytes(), b"\n");
    push_data(&mut out, data);
    out.freeze()
}

/// Appends data to the event. Any line ending starts another line, because in JSON they are all just
/// white space.
fn push_data(out: &mut BytesMut, data: &[u8]) {
    for line in data.split(|byte| matches!(byte, b'\n' | b'\r')) {
        push_field(out, b"data", line, b"\n");
    }
    out.extend_from_slice(b"\n");
}

fn split_lines(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    data.split(|byte| *byte == b'\n')
}

fn push_field(out: &mut BytesMut, name: &[u8], value: &[u8], ending: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(ending);
}

/// One line of an event. A comment is a line whose name is empty.
struct Line<'a> {
    whole: &'a [u8],
    name: &'a [u8],
    value: &'a [u8],
    ending: &'a [u8],
}

impl Line<'_> {
    /// Whether every reader takes this for one line. Data is not looked at: whoever passes it on knows what it is.
    fn is_plain(&self) -> bool {
        let is_printable =
            |text: &[u8]| text.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        match self.name {
            b"data" => true,
            b"event" => self.value.len() <= MAX_NAME && self.value.iter().all(u8::is_ascii_graphic),
            b"retry" => milliseconds(self.value).is_some(),
            name => is_printable(name) && is_printable(self.value),
        }
    }
}

/// The value of a `retry` field, if it is valid.
fn milliseconds(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value)
        .ok()
        .filter(|_| is_number)?
        .parse()
        .ok()
}

struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let text_len = memchr2(b'\n', b'\r', self.rest).unwrap_or(self.rest.len());
        let ending_len = match &self.rest[text_len..] {
            [b'\r', b'\n', ..] => 2,
            [] => 0,
            _ => 1,
        };
        let (whole, rest) = self.rest.split_at(text_len + ending_len);
        self.rest = rest;
        let (text, ending) = whole.split_at(text_len);
        let (name, value) = match memchr::memchr(b':', text) {
            Some(colon) => (&text[..colon], &text[colon + 1..]),
            None => (text, &text[text.len()..]),
        };
        Some(Line {
            whole,
            name,
            value: value.strip_prefix(b" ").unwrap_or(value),
            ending,
        })
    }
}

#[cfg(test)]
mod tests;
