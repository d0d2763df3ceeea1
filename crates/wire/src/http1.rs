//! Responses of HTTP/1.1 servers: a head, and a body whose end is marked in one of three ways (RFC 9112,
//! 6.3).
//!
//! Unused input stays in the caller's buffer. Every function takes what it can from there and reports
//! when it needs more. The result does not depend on how the bytes were split in transit.

use std::mem::MaybeUninit;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use httparse::Status;
use thiserror::Error;

/// The maximum size of a head, and of the trailers.
pub const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 100;

/// The maximum length of a chunk's first line.
const MAX_CHUNK_LINE: usize = 1024;

/// The head of a response.
#[derive(Debug)]
pub struct Head {
    /// The final status, never an interim one.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// How the body is framed.
    pub body: Framing,
    /// Whether the connection can be reused after the body.
    pub keeps_alive: bool,
}

/// Where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// The body is complete.
    Ended,
    /// This many bytes remain.
    Bytes(u64),
    /// Chunked encoding.
    Chunks(Chunk),
    /// The body ends with the connection.
    UntilClosed,
}

/// Which part of a chunked body comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunk {
    /// A chunk's first line.
    Size,
    /// This many bytes of a chunk.
    Data(u64),
    /// The line end after a chunk's data.
    DataEnd,
    /// The trailers after the last chunk.
    Trailers,
}

/// The input is not an HTTP/1.1 response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Malformed {
    /// The head cannot be read.
    #[error("its head is malformed: {0}")]
    Head(httparse::Error),
    /// The head is too long.
    #[error("its head has more than {MAX_HEAD} bytes")]
    LongHead,
    /// The server switched to another protocol without a request for it.
    #[error("it switched protocols")]
    Switched,
    /// The body has a transfer coding that was not requested.
    #[error("its Transfer-Encoding is not just `chunked`")]
    Coding,
    /// The length is not a number, or there are two different ones.
    #[error("its Content-Length is malformed")]
    Length,
    /// The chunk framing is invalid.
    #[error("its chunks are malformed")]
    Chunk,
}

/// Takes the head of a response, if it is complete. Interim responses are skipped.
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

/// The positions of names and values in a head.
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
        // A response with both kinds of framing may be an attempt at smuggling (RFC 9112, 6.3).
        let is_doubtful = match body {
            // A length counts only without a transfer coding.
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
                // This coding was not requested, and Bowline could not decode it.
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
        // `parse` would also accept a sign.
        let digits = length.to_str().ok();
        let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        match digits.and_then(|text| text.parse().ok()) {
            None => Err(Malformed::Length),
            Some(0) => Ok(Self::Ended),
            Some(length) => Ok(Self::Bytes(length)),
        }
    }

    /// Takes the part of the body that has arrived, up to the end of a chunk. `None`: nothing has
    /// arrived, or the body has ended; the end is known as soon as the last byte has arrived.
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
        // If all of the buffer is taken, its memory goes along: an empty buffer must not hold it.
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

    /// Skips the framing between chunks, as far as it has arrived.
    fn skip(&mut self, input: &mut BytesMut) -> Result<(), Malformed> {
        while let Self::Chunks(chunk) = self {
            match *chunk {
                Chunk::Data(_) => break,
                // httparse would accept an empty line as the last chunk's.
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
                    // Trailers are ignored; only their end matters.
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

    /// Whether all of the body was taken.
    pub fn has_ended(&self) -> bool {
        *self == Self::Ended
    }

    /// How many bytes remain, if that is known.
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
