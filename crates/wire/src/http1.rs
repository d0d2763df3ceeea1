//! Answers of HTTP/1.1 servers: a head, and a body whose end is told in one of three ways
//! (RFC 9112, 6.3).
//!
//! What arrived and is not used yet stays in the caller's buffer. Every function takes what it can
//! from there and says when it needs more; how the bytes were cut on their way makes no difference.

use std::mem::MaybeUninit;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use httparse::Status;
use thiserror::Error;

/// The most of a head, and of the trailers.
pub const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 100;

/// The most of a chunk's first line.
const MAX_CHUNK_LINE: usize = 1024;

/// The head of an answer.
#[derive(Debug)]
pub struct Head {
    /// Its status, never an interim one.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// What follows.
    pub body: Framing,
    /// Whether another request may follow on the same connection, once the body has ended.
    pub keeps_alive: bool,
}

/// Where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Nothing of it is to come.
    Ended,
    /// So many bytes are to come.
    Bytes(u64),
    /// It comes in chunks.
    Chunks(Chunk),
    /// It ends with the connection.
    UntilClosed,
}

/// Which part of a chunked body comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunk {
    /// A chunk's first line.
    Size,
    /// So many bytes of a chunk.
    Data(u64),
    /// The line end after a chunk's data.
    DataEnd,
    /// What follows the last chunk.
    Trailers,
}

/// What arrived is not an answer of HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Malformed {
    /// The head cannot be read.
    #[error("its head is malformed: {0}")]
    Head(httparse::Error),
    /// The head is too long.
    #[error("its head has more than {MAX_HEAD} bytes")]
    LongHead,
    /// The server speaks another protocol now, which nobody asked for.
    #[error("it switched protocols")]
    Switched,
    /// The body is transformed in a way that nobody asked for.
    #[error("its Transfer-Encoding is not just `chunked`")]
    Coding,
    /// The length is not a number, or it is two different ones.
    #[error("its Content-Length is malformed")]
    Length,
    /// The body's chunks cannot be told apart.
    #[error("its chunks are malformed")]
    Chunk,
}

/// Takes the head of an answer, if it is all there; interim answers are skipped.
pub fn take_head(input: &mut BytesMut) -> Result<Option<Head>, Malformed> {
    loop {
        let Some((length, status, version, lines)) = parse(input)? else {
            return match input.len() {
                too_long if too_long >= MAX_HEAD => Err(Malformed::LongHead),
                _ => Ok(None),
            };
        };
        match status {
            _ if length > MAX_HEAD => return Err(Malformed::LongHead),
            StatusCode::SWITCHING_PROTOCOLS => return Err(Malformed::Switched),
            status if status.is_informational() => input.advance(length),
            status => {
                let head = input.split_to(length).freeze();
                return Head::new(status, version, &lines, &head).map(Some);
            }
        }
    }
}

/// Where names and values are in a head.
type Lines = Vec<[usize; 4]>;

fn parse(input: &[u8]) -> Result<Option<(usize, StatusCode, u8, Lines)>, Malformed> {
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let length = match config.parse_response_with_uninit_headers(&mut parsed, input, &mut headers) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Ok(None),
        Err(error) => return Err(Malformed::Head(error)),
    };
    let status = StatusCode::from_u16(parsed.code.unwrap_or_default())
        .map_err(|_| Malformed::Head(httparse::Error::Status))?;
    let base = input.as_ptr().addr();
    let span = |part: &[u8]| {
        let start = part.as_ptr().addr() - base;
        [start, start + part.len()]
    };
    let lines = parsed.headers.iter().map(|header| {
        let ([name, name_end], [value, value_end]) =
            (span(header.name.as_bytes()), span(header.value));
        [name, name_end, value, value_end]
    });
    Ok(Some((
        length,
        status,
        parsed.version.unwrap_or_default(),
        lines.collect(),
    )))
}

// === impl Head ===

impl Head {
    fn new(
        status: StatusCode,
        version: u8,
        lines: &Lines,
        head: &Bytes,
    ) -> Result<Self, Malformed> {
        let mut headers = HeaderMap::with_capacity(lines.len());
        for &[name, name_end, value, value_end] in lines {
            let name = HeaderName::from_bytes(&head[name..name_end])
                .map_err(|_| Malformed::Head(httparse::Error::HeaderName))?;
            let value = HeaderValue::from_maybe_shared(head.slice(value..value_end))
                .map_err(|_| Malformed::Head(httparse::Error::HeaderValue))?;
            headers.append(name, value);
        }
        let body = Framing::of(status, &headers)?;
        // Both ways of telling the length are how answers are smuggled (RFC 9112, 6.3).
        let is_doubtful = match body {
            // A length counts only where there is no coding.
            Framing::Bytes(_) => false,
            Framing::Chunks(_) => headers.contains_key(CONTENT_LENGTH),
            Framing::Ended | Framing::UntilClosed => {
                headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH)
            }
        };
        let stays = if version == 0 {
            has_token(&headers, "keep-alive")
        } else {
            !has_token(&headers, "close")
        };
        Ok(Self {
            keeps_alive: stays && !is_doubtful && body != Framing::UntilClosed,
            status,
            headers,
            body,
        })
    }
}

fn has_token(headers: &HeaderMap, token: &str) -> bool {
    headers.get_all(CONNECTION).iter().any(|value| {
        let mut tokens = value.as_bytes().split(|&byte| byte == b',');
        tokens.any(|found| found.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    })
}

// === impl Framing ===

impl Framing {
    fn of(status: StatusCode, headers: &HeaderMap) -> Result<Self, Malformed> {
        if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            return Ok(Self::Ended);
        }
        let mut values = headers.get_all(TRANSFER_ENCODING).iter();
        if let Some(first) = values.next() {
            let values = std::iter::once(first).chain(values);
            let codings = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
            let mut codings = codings
                .map(<[u8]>::trim_ascii)
                .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"));
            return match (codings.next(), codings.next()) {
                (Some(only), None) if only.eq_ignore_ascii_case(b"chunked") => {
                    Ok(Self::Chunks(Chunk::Size))
                }
                (None, _) => Ok(Self::UntilClosed),
                // Nobody asked for it, and what it says could not be read.
                _ => Err(Malformed::Coding),
            };
        }
        let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
        let Some(length) = lengths.next() else {
            return Ok(Self::UntilClosed);
        };
        if lengths.any(|other| other != length) {
            return Err(Malformed::Length);
        }
        // A sign would parse as well.
        let digits = length.to_str().ok();
        let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        match digits.and_then(|text| text.parse().ok()) {
            None => Err(Malformed::Length),
            Some(0) => Ok(Self::Ended),
            Some(length) => Ok(Self::Bytes(length)),
        }
    }

    /// Takes what has arrived of the body, up to the end of a chunk. `None`: nothing has, or the
    /// body has ended; whether it has is known as soon as all of it has arrived.
    pub fn take(&mut self, input: &mut BytesMut) -> Result<Option<Bytes>, Malformed> {
        self.skip(input)?;
        let limit = match *self {
            Self::Ended | Self::Chunks(Chunk::Size | Chunk::DataEnd | Chunk::Trailers) => 0,
            Self::Bytes(left) | Self::Chunks(Chunk::Data(left)) => left,
            Self::UntilClosed => u64::MAX,
        };
        let taken = input
            .len()
            .min(usize::try_from(limit).unwrap_or(usize::MAX));
        if taken == 0 {
            return Ok(None);
        }
        // All of a buffer is taken with its memory: what is left must not hold it.
        let data = match taken == input.len() {
            true => std::mem::take(input),
            false => input.split_to(taken),
        };
        let left = limit - taken as u64;
        match self {
            Self::Bytes(_) if left == 0 => *self = Self::Ended,
            Self::Bytes(to_come) => *to_come = left,
            Self::Chunks(Chunk::Data(_)) if left == 0 => *self = Self::Chunks(Chunk::DataEnd),
            Self::Chunks(Chunk::Data(to_come)) => *to_come = left,
            _ => {}
        }
        self.skip(input)?;
        Ok(Some(data.freeze()))
    }

    /// Skips what stands between chunks, as far as it has arrived.
    fn skip(&mut self, input: &mut BytesMut) -> Result<(), Malformed> {
        while let Self::Chunks(chunk) = self {
            match *chunk {
                Chunk::Data(_) => break,
                // httparse takes an empty line for the last chunk's.
                Chunk::Size if input.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) => {
                    return Err(Malformed::Chunk);
                }
                Chunk::Size => match httparse::parse_chunk_size(input) {
                    Ok(Status::Complete((length, size))) if length <= MAX_CHUNK_LINE => {
                        input.advance(length);
                        *chunk = match size {
                            0 => Chunk::Trailers,
                            size => Chunk::Data(size),
                        };
                    }
                    Ok(Status::Partial) if input.len() < MAX_CHUNK_LINE => break,
                    Ok(_) | Err(_) => return Err(Malformed::Chunk),
                },
                Chunk::DataEnd => {
                    let arrived = &input[..input.len().min(2)];
                    if !b"\r\n".starts_with(arrived) {
                        return Err(Malformed::Chunk);
                    }
                    if arrived.len() < 2 {
                        break;
                    }
                    input.advance(2);
                    *chunk = Chunk::Size;
                }
                Chunk::Trailers => {
                    // They mean nothing here; only where they end does.
                    let mut none = [httparse::EMPTY_HEADER; MAX_HEADERS];
                    match httparse::parse_headers(input, &mut none) {
                        Ok(Status::Complete((length, _))) if length <= MAX_HEAD => {
                            input.advance(length);
                            *self = Self::Ended;
                        }
                        Ok(Status::Partial) if input.len() < MAX_HEAD => break,
                        Ok(_) | Err(_) => return Err(Malformed::Chunk),
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether all of the body has been taken.
    pub fn has_ended(&self) -> bool {
        *self == Self::Ended
    }

    /// How much is to come, where that is known.
    pub fn left(&self) -> Option<u64> {
        match self {
            Self::Ended => Some(0),
            Self::Bytes(left) => Some(*left),
            Self::Chunks(_) | Self::UntilClosed => None,
        }
    }
}

#[cfg(test)]
mod tests;
