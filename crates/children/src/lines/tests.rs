//! Lines against a reader that keeps everything.

use std::pin::Pin;
use std::task::{Context, Poll};

use proptest::prelude::*;
use tokio::io::ReadBuf;

use super::*;

/// What should be read: everything at once, then split.
fn naive(input: &[u8], limit: usize) -> Vec<Line> {
    let mut parts: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
    let last = parts.pop().unwrap_or_default();
    let mut lines: Vec<Line> = parts
        .into_iter()
        .map(|part| match part.strip_suffix(b"\r").unwrap_or(part) {
            [] => Line::Empty,
            long if long.len() > limit => Line::TooLong(Bytes::copy_from_slice(long)),
            bytes => match std::str::from_utf8(bytes) {
                Ok(text) => Line::Text(Bytes::copy_from_slice(text.as_bytes())),
                Err(_) => Line::NotUtf8(Bytes::copy_from_slice(bytes)),
            },
        })
        .collect();
    match last {
        [] => {}
        long if long.strip_suffix(b"\r").unwrap_or(long).len() > limit => {
            lines.push(Line::TooLong(Bytes::copy_from_slice(long)))
        }
        bytes => lines.push(Line::Unfinished(Bytes::copy_from_slice(bytes))),
    }
    lines
}

/// A reader that gives one piece at a time.
struct Pieces(Vec<Vec<u8>>);

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(piece) = self.0.first_mut() {
            let length = piece.len().min(buffer.remaining());
            buffer.put_slice(&piece.drain(..length).collect::<Vec<u8>>());
            self.0.retain(|piece| !piece.is_empty());
        }
        Poll::Ready(Ok(()))
    }
}

fn read(mut pieces: Vec<Vec<u8>>, limit: usize) -> Vec<Line> {
    pieces.retain(|piece| !piece.is_empty());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut lines = Lines::with_limit(Pieces(pieces), limit);
        let mut read = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            read.push(line);
        }
        assert_eq!(lines.next().await.unwrap(), None);
        read
    })
}

/// How much of a line that is too long was there when it became too long depends on the pieces.
fn without_start(lines: Vec<Line>) -> Vec<Line> {
    let without = |line| match line {
        Line::TooLong(_) => Line::TooLong(Bytes::new()),
        line => line,
    };
    let is_rest = |line: &Line| matches!(line, Line::Rest { .. });
    let lines = lines.into_iter().filter(|line| !is_rest(line));
    lines.map(without).collect()
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => Just(b'a'), 2 => Just(b'\n'), 2 => Just(b'\r'), 1 => Just(0xc3), 1 => Just(0xa4)
    ];
    prop::collection::vec(byte, 0..12)
}

proptest! {
    #[test]
    fn lines_are_those_of_a_reader_that_keeps_everything(
        pieces in prop::collection::vec(piece(), 0..12),
        limit in 0_usize..9,
    ) {
        let all = pieces.concat();
        prop_assert_eq!(without_start(read(pieces, limit)), without_start(naive(&all, limit)));
    }
}

#[test]
fn every_kind_of_line() {
    let lines = read(vec![b"{}\r\n\n\xff\n123456789\nrest".to_vec()], 8);
    let bytes = Bytes::from_static;
    assert_eq!(
        lines,
        [
            Line::Text(bytes(b"{}")),
            Line::Empty,
            Line::NotUtf8(bytes(b"\xff")),
            Line::TooLong(bytes(b"123456789")),
            Line::Rest {
                bytes: Bytes::new(),
                is_last: true
            },
            Line::Unfinished(bytes(b"rest")),
        ]
    );
}

/// Reads 1 GiB without a line break, and looks at the buffer after each read.
#[tokio::test]
async fn a_gibibyte_without_a_line_break_stays_bounded() {
    let endless = tokio::io::repeat(b'x').take(1 << 30);
    let mut lines = Lines::with_limit(endless.chain(&b"\nnext\n"[..]), 1 << 20);
    let mut read = match lines.next().await.unwrap() {
        Some(Line::TooLong(bytes)) => bytes.len(),
        other => panic!("{other:?}"),
    };
    loop {
        match lines.next().await.unwrap() {
            Some(Line::Rest { bytes, is_last }) => {
                read += bytes.len();
                if is_last {
                    break;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(read, 1 << 30);
    assert_eq!(
        lines.next().await.unwrap(),
        Some(Line::Text(Bytes::from_static(b"next")))
    );
    assert!(
        lines.buffer.capacity() <= 2 * LARGE_READ,
        "{}",
        lines.buffer.capacity()
    );
}
