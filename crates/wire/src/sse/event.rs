//! One event: as a server wrote it, or one message that has no text yet.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use memchr::{memchr, memchr2};

/// The longest event name that is passed on.
pub(super) const MAX_NAME: usize = 64;

/// One event, or a run of comments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What a server wrote, up to and including a blank line. Empty if nobody has written the event yet.
    raw: Bytes,
    fields: Fields,
}

/// The fields of an event, as they were read or as they shall be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fields {
    id: Id,
    data: Data,
    /// The last `event` field.
    kind: Option<Span>,
    retry: Option<Duration>,
    /// Whether every reader takes the lines for what they are, see [`Event::encoded`].
    is_plain: bool,
}

/// The last valid `id` field.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Id {
    None,
    Read(Span),
    New(Box<str>),
}

/// The `data` fields.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Data {
    None,
    /// One line.
    Line(Span),
    /// Several lines, which line feeds join.
    Lines,
    New(Bytes),
}

/// The place of a value in an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: usize,
    end: usize,
}

/// One line of an event, without its ending. A comment is a line whose name is empty.
pub(super) struct Line<'a> {
    text: &'a [u8],
    name: &'a [u8],
    value: &'a [u8],
}

// === impl Event ===

impl Event {
    /// One message without other fields. It becomes text where it leaves.
    pub fn of_message(message: impl Into<Bytes>) -> Self {
        Self {
            raw: Bytes::new(),
            fields: Fields {
                data: Data::New(message.into()),
                ..Fields::default()
            },
        }
    }

    pub(super) fn read(raw: Bytes, fields: Fields) -> Self {
        Self { raw, fields }
    }

    /// What a server wrote, including the blank line. Empty if nobody has written the event yet.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// About how much memory it takes.
    pub fn size(&self) -> usize {
        let made = match &self.fields.data {
            Data::New(data) => data.len(),
            Data::None | Data::Line(_) | Data::Lines => 0,
        };
        self.raw.len() + made
    }

    /// The value of the last valid `id` field.
    ///
    /// An id that contains a NUL is ignored, as the standard requires.
    pub fn id(&self) -> Option<&[u8]> {
        match &self.fields.id {
            Id::None => None,
            Id::Read(span) => Some(span.of(&self.raw)),
            Id::New(id) => Some(id.as_bytes()),
        }
    }

    /// Its type: the value of the last `event` field; `None` is `message`.
    pub fn kind(&self) -> Option<&[u8]> {
        let kind = self.fields.kind?.of(&self.raw);
        (!kind.is_empty()).then_some(kind)
    }

    /// The delay before a reconnect, from the last valid `retry` field.
    pub fn retry(&self) -> Option<Duration> {
        self.fields.retry
    }

    /// The values of all `data` fields, joined by line feeds.
    pub fn data(&self) -> Option<Bytes> {
        match &self.fields.data {
            Data::None => None,
            Data::Line(span) => Some(self.raw.slice(span.start..span.end)),
            Data::Lines => {
                let data = lines(&self.raw).filter(|(line, _)| line.name == b"data");
                let values: Vec<_> = data.map(|(line, _)| line.value).collect();
                Some(values.join(&b'\n').into())
            }
            Data::New(data) => Some(data.clone()),
        }
    }

    /// Whether these bytes are its data.
    pub fn has_data(&self, data: &Bytes) -> bool {
        match &self.fields.data {
            Data::None => false,
            // Usually a slice of it.
            Data::Line(span) => same(span.of(&self.raw), data),
            Data::New(own) => same(own, data),
            Data::Lines => self.data().as_ref() == Some(data),
        }
    }

    /// The event with another id, if it has one. The id must not contain a line ending.
    #[must_use]
    pub fn with_id(mut self, id: String) -> Self {
        if self.fields.id != Id::None {
            self.fields.id = Id::New(id.into());
        }
        self
    }

    /// The event with other data, if it has any.
    #[must_use]
    pub fn with_data(mut self, data: Bytes) -> Self {
        if self.fields.data != Data::None {
            self.fields.data = Data::New(data);
        }
        self
    }

    /// The event as several, one for each of `parts` of its data.
    ///
    /// All have its type. The last one has everything else, including the id: a client that resumes
    /// after it has received all of them, and a client that resumes before it gets all of them again.
    pub fn split(self, mut parts: Vec<Bytes>) -> Vec<Self> {
        let Some(last) = parts.pop() else {
            return vec![self];
        };
        let kind = self.kind().filter(|kind| is_name(kind));
        let part = |data: Bytes| match kind {
            None => Self::of_message(data),
            Some(kind) => Self::written(named(kind, &data)),
        };
        let mut events: Vec<_> = parts.into_iter().map(part).collect();
        events.push(self.with_data(last));
        events
    }

    /// Its text in SSE format: what a server wrote, but for an id or data that are new.
    ///
    /// Lines that are not plain are left out. Some readers also end lines at other characters, such as a form feed
    /// or U+2028, and what follows would be a field for them: a name could contain a whole message. So only
    /// printable ASCII counts as plain, in a name nothing but a word, and in `retry` nothing but digits.
    pub fn encoded(&self) -> Bytes {
        match &self.fields {
            Fields {
                data: Data::New(data),
                ..
            } if self.raw.is_empty() => {
                let mut out = BytesMut::with_capacity(data.len() + 16);
                push_data(&mut out, data, b"\n");
                out.extend_from_slice(b"\n");
                out.freeze()
            }
            Fields {
                id: Id::None | Id::Read(_),
                data: Data::None | Data::Line(_) | Data::Lines,
                is_plain: true,
                ..
            } => self.raw.clone(),
            _ => self.rewritten(),
        }
    }

    fn rewritten(&self) -> Bytes {
        let id = match &self.fields.id {
            Id::New(id) => Some(id),
            Id::None | Id::Read(_) => None,
        };
        let data = match &self.fields.data {
            Data::New(data) => Some(data),
            Data::None | Data::Line(_) | Data::Lines => None,
        };
        let grown = id.map_or(0, |id| id.len()) + data.map_or(0, Bytes::len) + 16;
        let mut out = BytesMut::with_capacity(self.raw.len() + grown);
        let mut has_data = false;
        for (line, ending) in lines(&self.raw) {
            match (line.name, id, data) {
                (b"id", Some(id), _) if line.is_id() => {
                    push_field(&mut out, b"id", id.as_bytes(), ending);
                }
                // What is new takes the place of the first line.
                (b"data", _, Some(_)) if has_data => {}
                (b"data", _, Some(data)) => {
                    push_data(&mut out, data, ending);
                    has_data = true;
                }
                _ if !line.is_plain() => {}
                _ => {
                    // Two lines may now become adjacent, and a carriage return followed by a line feed
                    // would be one line ending instead of two.
                    if out.ends_with(b"\r") && line.text.is_empty() && ending.starts_with(b"\n") {
                        out.extend_from_slice(b"\n");
                    }
                    out.extend_from_slice(line.text);
                    out.extend_from_slice(ending);
                }
            }
        }
        out.freeze()
    }

    /// An event of this text, which ends with a blank line.
    fn written(raw: Bytes) -> Self {
        let (mut fields, mut at) = (Fields::default(), 0);
        for (line, ending) in lines(&raw) {
            at += line.text.len();
            fields.add(&line, at);
            at += ending.len();
        }
        Self { raw, fields }
    }
}

/// The text of an event of this name with this data.
pub fn named_event(name: &str, data: &[u8]) -> Bytes {
    named(name.as_bytes(), data)
}

fn named(name: &[u8], data: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(data.len() + name.len() + 24);
    push_field(&mut out, b"event", name, b"\n");
    push_data(&mut out, data, b"\n");
    out.extend_from_slice(b"\n");
    out.freeze()
}

/// Appends data to the event. Any line ending starts another line, because in JSON they are all just
/// white space.
fn push_data(out: &mut BytesMut, data: &[u8], ending: &[u8]) {
    for line in data.split(|byte| matches!(byte, b'\n' | b'\r')) {
        push_field(out, b"data", line, ending);
    }
}

fn push_field(out: &mut BytesMut, name: &[u8], value: &[u8], ending: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(ending);
}

/// Whether two pieces are equal. The same piece is, and is not compared.
fn same(one: &[u8], other: &[u8]) -> bool {
    std::ptr::eq(one, other) || one == other
}

// === impl Fields ===

impl Default for Fields {
    fn default() -> Self {
        Self {
            id: Id::None,
            data: Data::None,
            kind: None,
            retry: None,
            is_plain: true,
        }
    }
}

impl Fields {
    /// Notes a line that ends here, before its line ending.
    pub(super) fn add(&mut self, line: &Line<'_>, end: usize) {
        let start = end - line.value.len();
        let value = Span { start, end };
        match line.name {
            b"data" => {
                self.data = match self.data {
                    Data::None => Data::Line(value),
                    _ => Data::Lines,
                };
                return;
            }
            b"id" if line.is_id() => self.id = Id::Read(value),
            b"event" => self.kind = Some(value),
            b"retry" => {
                let retry = milliseconds(line.value).map(Duration::from_millis);
                self.retry = retry.or(self.retry);
            }
            _ => {}
        }
        self.is_plain &= line.is_plain();
    }
}

// === impl Span ===

impl Span {
    fn of(self, raw: &Bytes) -> &[u8] {
        &raw[self.start..self.end]
    }
}

// === impl Line ===

impl<'a> Line<'a> {
    /// Reads a line without its ending.
    pub(super) fn of(text: &'a [u8]) -> Self {
        let (name, value) = match memchr(b':', text) {
            Some(colon) => (&text[..colon], &text[colon + 1..]),
            None => (text, &text[text.len()..]),
        };
        Self {
            text,
            name,
            value: value.strip_prefix(b" ").unwrap_or(value),
        }
    }
}

impl Line<'_> {
    /// Whether every reader takes this for one line. Data is not looked at: whoever passes it on knows what it is.
    fn is_plain(&self) -> bool {
        let is_printable =
            |text: &[u8]| text.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        match self.name {
            b"data" => true,
            b"event" => is_name(self.value),
            b"retry" => milliseconds(self.value).is_some(),
            name => is_printable(name) && is_printable(self.value),
        }
    }

    /// Whether an `id` field counts.
    fn is_id(&self) -> bool {
        memchr(0, self.value).is_none()
    }
}

fn is_name(value: &[u8]) -> bool {
    value.len() <= MAX_NAME && value.iter().all(u8::is_ascii_graphic)
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

/// The lines of an event, each with its ending.
fn lines(mut rest: &[u8]) -> impl Iterator<Item = (Line<'_>, &[u8])> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let text_len = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        let ending_len = match &rest[text_len..] {
            [b'\r', b'\n', ..] => 2,
            [] => 0,
            _ => 1,
        };
        let (text, after) = rest.split_at(text_len);
        let (ending, after) = after.split_at(ending_len);
        rest = after;
        Some((Line::of(text), ending))
    })
}

/// What a scan of a whole event finds, line by line and for each field anew.
#[cfg(test)]
pub(super) struct Scanned {
    pub(super) id: Option<Vec<u8>>,
    pub(super) data: Option<Bytes>,
    pub(super) kind: Option<Vec<u8>>,
    pub(super) retry: Option<u64>,
    pub(super) is_plain: bool,
}

#[cfg(test)]
pub(super) fn scanned(raw: &[u8]) -> Scanned {
    let all = |name: &'static [u8]| {
        let named = lines(raw).filter(move |(line, _)| line.name == name);
        named.map(|(line, _)| line.value.to_vec())
    };
    let data: Vec<_> = all(b"data").collect();
    Scanned {
        id: all(b"id").filter(|id| !id.contains(&0)).last(),
        data: (!data.is_empty()).then(|| data.join(&b'\n').into()),
        kind: all(b"event").last().filter(|kind| !kind.is_empty()),
        retry: all(b"retry").filter_map(|text| milliseconds(&text)).last(),
        is_plain: lines(raw).all(|(line, _)| line.is_plain()),
    }
}

#[cfg(test)]
impl Event {
    pub(super) fn is_plain(&self) -> bool {
        self.fields.is_plain
    }
}
