//! Where a head ends, and where a body does.

use bytes::{Bytes, BytesMut};
use http::Method;

/// The head of a request or an answer, as its bytes stood on the wire.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) raw: Bytes,
    text: String,
}

/// What is left of a body.
#[derive(Debug)]
pub(super) enum Body {
    /// So many bytes.
    Length(usize),
    /// Chunks, in this state.
    Chunked(Chunk),
    /// Everything up to the end of the connection.
    UntilEnd,
}

/// Where in the chunks the next byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunk {
    /// In a size, so large so far; whether the digits are over.
    Size(usize, bool),
    /// In the data, with so many bytes to come.
    Data(usize),
    /// In the line end after the data.
    DataEnd,
    /// In the trailers: how long their line is so far.
    Trailer(usize),
    /// Behind the last.
    Over,
}

// === impl Head ===

impl Head {
    /// Takes a head off the front, once all of it is there.
    pub(super) fn take(buffer: &mut BytesMut) -> Option<Self> {
        let end = buffer.windows(4).position(|four| four == b"\r\n\r\n")?;
        let raw = buffer.split_to(end + 4).freeze();
        let text = String::from_utf8_lossy(&raw).into_owned();
        Some(Self { raw, text })
    }

    /// The request's method.
    pub(super) fn method(&self) -> Method {
        let name = self.text.split(' ').next().unwrap_or_default();
        Method::from_bytes(name.as_bytes()).unwrap_or_default()
    }

    fn status(&self) -> u16 {
        let status = self.text.split(' ').nth(1);
        status
            .and_then(|status| status.parse().ok())
            .unwrap_or_default()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.text.lines().skip(1);
        let mut fields = lines.filter_map(|line| line.split_once(':'));
        let found = fields.find(|(field, _)| field.eq_ignore_ascii_case(name))?;
        Some(found.1.trim())
    }

    /// How long the body of a request is; `None` for one in chunks, which no one should send.
    pub(super) fn request_length(&self) -> Option<usize> {
        match (
            self.header("transfer-encoding"),
            self.header("content-length"),
        ) {
            (Some(_), _) => None,
            (None, Some(length)) => length.parse().ok(),
            (None, None) => Some(0),
        }
    }

    /// How the body of an answer ends.
    pub(super) fn body(&self) -> Body {
        if matches!(self.status(), 100..200 | 204 | 304) {
            return Body::Length(0);
        }
        if self.header("transfer-encoding").is_some() {
            return Body::Chunked(Chunk::Size(0, false));
        }
        let length = self.header("content-length");
        length
            .and_then(|length| length.parse().ok())
            .map_or(Body::UntilEnd, Body::Length)
    }

    /// Whether nothing comes after this answer.
    pub(super) fn is_last(&self) -> bool {
        self.header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

// === impl Body ===

impl Body {
    /// Whether all of it has passed.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunk::Over))
    }

    /// How many of these bytes belong to it and may pass before `left`, its payload that may still
    /// pass, is used up.
    pub(super) fn advance(&mut self, bytes: &[u8], left: &mut usize) -> usize {
        let mut passed = 0;
        while passed < bytes.len() && *left > 0 && !self.is_over() {
            passed += self.step(&bytes[passed..], left);
        }
        passed
    }

    /// The same for a run of bytes of one sort.
    fn step(&mut self, bytes: &[u8], left: &mut usize) -> usize {
        match self {
            Self::UntilEnd => pass(bytes.len(), left),
            Self::Length(length) => {
                let run = pass(bytes.len().min(*length), left);
                *length -= run;
                run
            }
            Self::Chunked(Chunk::Data(length)) if *length > 0 => {
                let run = pass(bytes.len().min(*length), left);
                *length -= run;
                run
            }
            Self::Chunked(chunk) => {
                *chunk = chunk.after(bytes[0]);
                1
            }
        }
    }
}

fn pass(wanted: usize, left: &mut usize) -> usize {
    let run = wanted.min(*left);
    *left -= run;
    run
}

// === impl Chunk ===

impl Chunk {
    /// Where one byte that is not data leads.
    fn after(self, byte: u8) -> Self {
        match self {
            Self::Size(0, _) if byte == b'\n' => Self::Trailer(0),
            Self::Size(size, _) if byte == b'\n' => Self::Data(size),
            Self::Size(size, over) => match char::from(byte).to_digit(16) {
                Some(digit) if !over => Self::Size(size * 16 + digit as usize, false),
                _ => Self::Size(size, true),
            },
            Self::Data(_) | Self::DataEnd if byte == b'\n' => Self::Size(0, false),
            Self::Data(_) | Self::DataEnd => Self::DataEnd,
            Self::Trailer(0) if byte == b'\n' => Self::Over,
            Self::Trailer(_) if byte == b'\n' => Self::Trailer(0),
            Self::Trailer(length) if byte == b'\r' => Self::Trailer(length),
            Self::Trailer(length) => Self::Trailer(length + 1),
            Self::Over => Self::Over,
        }
    }
}
