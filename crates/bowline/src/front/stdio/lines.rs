//! The lines of a byte stream. A line that is too long is discarded up to its end, and reported with the id of the
//! request that it is.

use std::io;

use bowline_wire::message::RawIdBuf;
use bowline_wire::scan::RequestScan;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// How much is read at once.
const CHUNK: usize = 16 * 1024;

/// Lines up to this length are copied, so that they do not keep the read buffer alive.
const SMALL_LINE: usize = 4 * 1024;

/// A line that is not blank.
#[derive(Debug)]
pub(super) enum Line {
    Text(Bytes),
    TooLong { limit: usize, id: Option<RawIdBuf> },
}

/// Reads lines of at most `limit` bytes.
#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    limit: usize,
    buffer: BytesMut,
    /// The part of the buffer that has no end of a line.
    searched: usize,
    /// What was found in a line that is too long, until its end.
    discarding: Option<Box<RequestScan>>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(input: R, limit: usize) -> Self {
        Self {
            input,
            limit,
            buffer: BytesMut::new(),
            searched: 0,
            discarding: None,
        }
    }

    /// The next line; `None` at the end. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.take() {
                return Ok(Some(line));
            }
            self.buffer.reserve(CHUNK);
            if self.input.read_buf(&mut self.buffer).await? == 0 {
                let rest = std::mem::take(&mut self.buffer);
                self.searched = 0;
                return Ok(self.line(rest));
            }
        }
    }

    /// The next line that has arrived.
    fn take(&mut self) -> Option<Line> {
        loop {
            let Some(found) = self.buffer[self.searched..]
                .iter()
                .position(|byte| *byte == b'\n')
            else {
                self.searched = self.buffer.len();
                if self.buffer.len() > self.limit || self.discarding.is_some() {
                    let scan = self.discarding.get_or_insert_default();
                    scan.read(&std::mem::take(&mut self.buffer));
                    self.searched = 0;
                }
                return None;
            };
            let line = self.buffer.split_to(self.searched + found + 1);
            self.searched = 0;
            if let Some(line) = self.line(line) {
                return Some(line);
            }
        }
    }

    /// A line without what surrounds its text; `None` if it is blank.
    fn line(&mut self, line: BytesMut) -> Option<Line> {
        let line = line.freeze();
        let text = line.trim_ascii();
        let is_too_long = self.discarding.is_some() || text.len() > self.limit;
        if is_too_long {
            let mut scan = self.discarding.take().unwrap_or_default();
            scan.read(&line);
            let (limit, id) = (self.limit, scan.id());
            return Some(Line::TooLong { limit, id });
        }
        match text.len() {
            0 => None,
            1..=SMALL_LINE => Some(Line::Text(Bytes::copy_from_slice(text))),
            _ => Some(Line::Text(line.slice_ref(text))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All lines of an input that arrives in chunks of this size.
    async fn lines(input: &[u8], chunk: usize, limit: usize) -> Vec<String> {
        let (mut client, server) = tokio::io::duplex(chunk);
        let input = input.to_vec();
        let writing = async move {
            tokio::io::AsyncWriteExt::write_all(&mut client, &input)
                .await
                .unwrap();
        };
        let reading = async {
            let mut lines = Lines::new(server, limit);
            let mut all = Vec::new();
            while let Some(line) = lines.next().await.unwrap() {
                all.push(match line {
                    Line::Text(text) => String::from_utf8_lossy(&text).into_owned(),
                    Line::TooLong { limit, id } => match id {
                        Some(id) => format!("{} over {limit}", id.as_id()),
                        None => format!("over {limit}"),
                    },
                });
            }
            all
        };
        tokio::join!(writing, reading).1
    }

    #[tokio::test]
    async fn chunks_do_not_matter() {
        for chunk in [1, 2, 3, 7, 64] {
            let all = lines(b"one\r\n\n  \ntwo\nthree", chunk, 10).await;
            assert_eq!(all, ["one", "two", "three"], "{chunk}");
        }
    }

    #[tokio::test]
    async fn a_long_line_is_whole() {
        let long = "x".repeat(3 * SMALL_LINE);
        let input = format!(" {long}\r\nshort\n{long}");
        let all = lines(input.as_bytes(), 1000, 4 * SMALL_LINE).await;
        assert_eq!(all, [long.as_str(), "short", &long]);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_reported_once_and_left_out() {
        for chunk in [1, 5, 4096] {
            let all = lines(b"12345678901234567890123\nshort\n123456789\n", chunk, 8).await;
            assert_eq!(all, ["over 8", "short", "over 8"], "{chunk}");
        }
    }

    #[tokio::test]
    async fn a_request_that_is_too_long_is_reported_with_its_id() {
        let early = r#"{"id":1,"method":"m","params":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}"#;
        let late = r#"{"method":"m","params":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx","id":"a"}"#;
        let input = format!("{early}\n{late}\n\"short\"\n{early}");
        let expected = ["1 over 32", "\"a\" over 32", "\"short\"", "1 over 32"];
        for chunk in [1, 5, 4096] {
            assert_eq!(
                lines(input.as_bytes(), chunk, 32).await,
                expected,
                "{chunk}"
            );
        }
    }

    #[tokio::test]
    async fn a_long_line_at_the_end_is_reported_too() {
        assert_eq!(lines(b"123456789", 3, 8).await, ["over 8"]);
        assert_eq!(lines(b"12345678", 3, 8).await, ["12345678"]);
    }
}
