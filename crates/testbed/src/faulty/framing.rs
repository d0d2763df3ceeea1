//! Finds the end of a head and of a body.

use bytes::{Bytes, BytesMut};
use http::Method;

/// The head of a request or a response, unchanged.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) raw: Bytes,
    text: String,
}

/// The rest of a body.
#[derive(Debug)]
pub(super) enum Body {
    /// This many bytes.
    Length(usize),
    /// Chunks, in this state.
    Chunked(Chunk),
    /// Everything up to the end of the connection.
    UntilEnd,
}

/// The position of the next byte within the chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunk {
    /// In a size, with its value so far and whether the digits are complete.
    Size(usize, bool),
    /// In the data, with this many bytes remaining.
    Data(usize),
    /// In the line end after the data.
    DataEnd,
    /// In the trailers, with the length of the line so far.
    Trailer(usize),
    /// After the last chunk.
    Over,
}

// === impl Head ===

impl Head {
    /// Takes a head from the input, once it is complete.
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

    /// The length of a request's body; `None` for a chunked one, which no client should send.
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

    /// How the body of a response ends.
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

    /// Whether the connection ends after this response.
    pub(super) fn is_last(&self) -> bool {
        self.header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

// === impl Body ===

impl Body {
    /// Whether all of it was relayed.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunk::Over))
    }

    /// How many of these bytes belong to the body and may pass before `left`, the payload that may still
    /// pass, is used up.
    pub(super) fn advance(&mut self, bytes: &[u8], left: &mut usize) -> usize {
        let mut passed = 0;
        while passed < bytes.len() && *left > 0 && !self.is_over() {
            passed += self.step(&bytes[passed..], left);
        }
        passed
    }

    /// The same for a run of bytes of one kind.
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
    /// The next state after one byte that is not data.
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
