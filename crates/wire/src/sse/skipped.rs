//! An event that is too large, while its bytes are skipped.

use memchr::memchr2;

use crate::skip::{Skipped, Skipping};

const DATA: &[u8] = b"data:";

/// Reads an event in pieces, and keeps nothing of it but whose its message is.
#[derive(Debug)]
pub(super) struct SkippedEvent {
    message: Skipping,
    is_blank: bool,
    /// The last line ended with a carriage return, so that a line feed would be part of its ending.
    after_return: bool,
    field: Field,
}

/// Which field the line is.
#[derive(Debug, Clone, Copy)]
enum Field {
    /// Perhaps data: so many bytes of the name have arrived.
    Name(usize),
    Data,
    Other,
}

impl Default for SkippedEvent {
    fn default() -> Self {
        Self {
            message: Skipping::default(),
            is_blank: true,
            after_return: false,
            field: Field::Name(0),
        }
    }
}

impl SkippedEvent {
    /// Reads the next bytes: how many are the event's, if it ends within them, and what it is, once and as soon as
    /// that is known.
    pub(super) fn read(&mut self, bytes: &[u8]) -> (Option<usize>, Option<Skipped>) {
        let (mut at, mut told) = (0, None);
        while at < bytes.len() {
            if std::mem::take(&mut self.after_return) && bytes[at] == b'\n' {
                at += 1;
                continue;
            }
            let end = memchr2(b'\n', b'\r', &bytes[at..]).map(|length| at + length);
            let text = &bytes[at..end.unwrap_or(bytes.len())];
            told = told.or(self.text(text));
            let Some(end) = end else { break };
            at = end + 1;
            if self.is_blank {
                let is_half = bytes[end] == b'\r' && bytes.get(at) == Some(&b'\n');
                return (Some(at + usize::from(is_half)), told.or(self.message.end()));
            }
            if let Field::Data = self.field {
                told = told.or(self.message.read(b"\n"));
            }
            self.after_return = bytes[end] == b'\r';
            self.is_blank = true;
            self.field = Field::Name(0);
        }
        (None, told)
    }

    /// Part of a line.
    fn text(&mut self, mut text: &[u8]) -> Option<Skipped> {
        self.is_blank &= text.is_empty();
        while let (Field::Name(read), Some((byte, rest))) = (self.field, text.split_first()) {
            self.field = match DATA.get(read) == Some(byte) {
                true if read + 1 == DATA.len() => Field::Data,
                true => Field::Name(read + 1),
                false => Field::Other,
            };
            text = rest;
        }
        match self.field {
            Field::Data => self.message.read(text),
            Field::Name(_) | Field::Other => None,
        }
    }
}
