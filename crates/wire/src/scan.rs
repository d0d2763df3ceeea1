//! Finds the id of a message that is too large to be held in memory, while its bytes pass.
//!
//! Only the members of the outermost object are distinguished. Their values are skipped, long strings at
//! the speed of a search for quotes. Nothing else is validated: the reader checks the JSON. A request is
//! not a response, even if it has the id, and the other way round.

mod request;

use memchr::memchr2;

pub use self::request::RequestScan;
use crate::names::{plain, reads_as};

/// The longest form of a relevant name: `result` with every character escaped, and the NUL that ends it for
/// some readers.
const MAX_NAME: usize = 7 * r"\u0065".len();

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads one JSON object in pieces.
#[derive(Debug)]
pub struct IdScan {
    state: State,
    /// How many arrays and objects are open within a member's value.
    depth: usize,
    /// The next byte of a string is escaped.
    is_escaped: bool,
    name: Name,
    member: Member,
    has_answer: bool,
    has_error: bool,
    /// Whether a method is looked for, instead of being refused.
    is_of_request: bool,
    has_method: bool,
}

/// Why the scan stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// All bytes were read, and the object is not complete.
    More,
    /// The id's value begins here.
    IdBegins,
    /// The id's value ended here.
    IdEnds,
    /// The result or the error begins here.
    AnswerBegins,
    /// The object ended here.
    End,
    /// This is not a JSON object, or it has a method.
    NotAnAnswer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the object, after so many bytes of a byte order mark.
    Start(usize),
    BeforeName,
    InName,
    AfterName,
    BeforeValue,
    /// The next byte is a value's first.
    AtValue,
    /// A string that is a member's value.
    InText,
    /// An array or object that is a member's value.
    InNested,
    /// A string within that.
    InNestedText,
    /// A number, `true`, `false` or `null`.
    InScalar,
    /// The last byte was a value's last, or the one before was.
    ValueEnded,
    AfterValue,
    Ended,
    Broken,
}

/// A member's name as it is written, as far as it may be a relevant one.
#[derive(Debug)]
struct Name {
    bytes: [u8; MAX_NAME],
    length: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Id,
    Result,
    Error,
    Method,
    Other,
}

// === impl IdScan ===

impl Default for IdScan {
    fn default() -> Self {
        Self {
            state: State::Start(0),
            depth: 0,
            is_escaped: false,
            name: Name {
                bytes: [0; MAX_NAME],
                length: 0,
            },
            member: Member::Other,
            has_answer: false,
            has_error: false,
            is_of_request: false,
            has_method: false,
        }
    }
}

impl IdScan {
    /// Whether a result or an error has begun.
    pub fn has_answer(&self) -> bool {
        self.has_answer
    }

    /// Whether the object has ended.
    pub fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Whether it has a method, so that it is no answer.
    pub fn has_method(&self) -> bool {
        self.member == Member::Method
    }

    /// Whether there was an `error` member that is not null.
    pub fn has_error(&self) -> bool {
        self.has_error
    }

    /// Reads up to the next stop: how many of these bytes were read, and why it stopped. Call it again
    /// with the rest until it returns [`Stop::More`].
    pub fn read(&mut self, bytes: &[u8]) -> (usize, Stop) {
        let mut at = 0;
        loop {
            if self.state == State::ValueEnded {
                self.state = State::AfterValue;
                if self.member == Member::Id {
                    return (at, Stop::IdEnds);
                }
            }
            let rest = &bytes[at..];
            let Some(&byte) = rest.first() else { break };
            at += match self.state {
                State::InName | State::InText => self.text(rest),
                State::InNested | State::InNestedText => self.nested(rest),
                State::InScalar => self.scalar(rest),
                State::Ended | State::Broken => break,
                State::BeforeValue if self.member == Member::Id && !byte.is_ascii_whitespace() => {
                    self.state = State::AtValue;
                    return (at, Stop::IdBegins);
                }
                State::BeforeValue
                    if matches!(self.member, Member::Result | Member::Error)
                        && !self.has_answer =>
                {
                    self.has_answer = true;
                    return (at, Stop::AnswerBegins);
                }
                _ => self.between(byte),
            };
        }
        let stop = match self.state {
            State::Ended => Stop::End,
            State::Broken => Stop::NotAnAnswer,
            _ => Stop::More,
        };
        (at, stop)
    }

    /// One byte outside of names and values, or a value's first.
    fn between(&mut self, byte: u8) -> usize {
        self.state = match (self.state, byte) {
            (State::Start(read), byte) if BYTE_ORDER_MARK.get(read) == Some(&byte) => {
                State::Start(read + 1)
            }
            (State::AtValue, byte) => self.value(byte),
            (same, byte) if byte.is_ascii_whitespace() => same,
            (State::Start(_), b'{') => State::BeforeName,
            (State::BeforeName, b'"') => {
                self.name.length = 0;
                State::InName
            }
            (State::AfterName, b':') => State::BeforeValue,
            (State::BeforeValue, byte) => self.value(byte),
            (State::AfterValue, b',') => State::BeforeName,
            (State::BeforeName | State::AfterValue, b'}') => State::Ended,
            _ => State::Broken,
        };
        1
    }

    /// A value's first byte.
    fn value(&mut self, byte: u8) -> State {
        self.has_error |= self.member == Member::Error && byte != b'n';
        match byte {
            b'"' => State::InText,
            b'{' | b'[' => {
                self.depth = 1;
                State::InNested
            }
            b'}' | b']' | b',' | b':' => State::Broken,
            _ => State::InScalar,
        }
    }

    /// Part of a member's name, or of a string that is its value, up to its end or an escape.
    fn text(&mut self, rest: &[u8]) -> usize {
        let is_name = self.state == State::InName;
        let (length, end) = match std::mem::take(&mut self.is_escaped) {
            true => (1, None),
            false => match find_quote(rest) {
                Some(end) => (end + 1, Some(rest[end])),
                None => (rest.len(), None),
            },
        };
        if is_name {
            self.name.add(&rest[..length]);
        }
        match end {
            Some(b'\\') => self.is_escaped = true,
            Some(_) if is_name => {
                self.member = self.name.member();
                self.has_method |= self.member == Member::Method;
                self.state = match self.has_method && !self.is_of_request {
                    true => State::Broken,
                    false => State::AfterName,
                };
            }
            Some(_) => self.state = State::ValueEnded,
            None => {}
        }
        length
    }

    /// Part of an array or object, up to its end. Most of a large answer is read here.
    fn nested(&mut self, rest: &[u8]) -> usize {
        let (mut at, mut depth) = (0, self.depth);
        let mut is_text = self.state == State::InNestedText;
        if std::mem::take(&mut self.is_escaped) {
            at = 1;
        }
        while at < rest.len() {
            if is_text {
                let Some(end) = find_quote(&rest[at..]) else {
                    at = rest.len();
                    break;
                };
                at += end;
                is_text = rest[at] == b'\\';
                // Including the escaped byte, which may not have arrived yet.
                at += 1 + usize::from(is_text);
                continue;
            }
            match rest[at] {
                b'"' => is_text = true,
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                b',' | b':' => {}
                _ => at += count_plain(&rest[at + 1..]),
            }
            at += 1;
            if depth == 0 {
                break;
            }
        }
        self.is_escaped = at > rest.len();
        self.depth = depth;
        self.state = match (depth, is_text) {
            (0, _) => State::ValueEnded,
            (_, true) => State::InNestedText,
            (_, false) => State::InNested,
        };
        at.min(rest.len())
    }

    fn scalar(&mut self, rest: &[u8]) -> usize {
        let is_end = |byte: &u8| matches!(byte, b',' | b'}') || byte.is_ascii_whitespace();
        match rest.iter().position(is_end) {
            Some(end) => {
                self.state = State::ValueEnded;
                end
            }
            None => rest.len(),
        }
    }
}

/// How many bytes precede the next bracket, brace or quote, in whole words. Used outside of strings,
/// which is mostly numbers.
fn count_plain(rest: &[u8]) -> usize {
    const WORD: usize = 8;
    /// A bracket is a brace without it.
    const FOLD: u64 = u64::from_le_bytes([b'{' ^ b'['; WORD]);
    let mut at = 0;
    while let Some(word) = rest.get(at..).and_then(<[u8]>::first_chunk::<WORD>) {
        let word = u64::from_le_bytes(*word);
        let folded = word | FOLD;
        let found = has(word, b'"') | has(folded, b'{') | has(folded, b'}');
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += WORD;
    }
    at
}

/// The position of the first quote or backslash. Most strings are short, and starting a search costs
/// more than looking at sixteen bytes.
fn find_quote(text: &[u8]) -> Option<usize> {
    const WORD: usize = 8;
    let mut at = 0;
    while at < 2 * WORD {
        let Some(word) = text.get(at..).and_then(<[u8]>::first_chunk::<WORD>) else {
            let rest = text.get(at..)?.iter();
            let found = rest
                .into_iter()
                .position(|byte| matches!(byte, b'"' | b'\\'));
            return found.map(|found| at + found);
        };
        let word = u64::from_le_bytes(*word);
        let found = has(word, b'"') | has(word, b'\\');
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += WORD;
    }
    memchr2(b'"', b'\\', &text[at..]).map(|found| at + found)
}

/// A word whose lowest set bit is in the first byte equal to `byte`; 0 if there is none.
fn has(word: u64, byte: u8) -> u64 {
    const LOW: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_le_bytes([0x80; 8]);
    let same_is_zero = word ^ (LOW * u64::from(byte));
    same_is_zero.wrapping_sub(LOW) & !same_is_zero & HIGH
}

// === impl Name ===

impl Name {
    /// Adds more of the name, including the quote at its end.
    fn add(&mut self, bytes: &[u8]) {
        let left = self.bytes.get_mut(self.length..).unwrap_or_default();
        let taken = left.len().min(bytes.len());
        left[..taken].copy_from_slice(&bytes[..taken]);
        // A name that is too long stays too long.
        self.length = self.length.saturating_add(bytes.len());
    }

    fn member(&self) -> Member {
        let length = self.length.saturating_sub(1);
        let written = &self.bytes[..length.min(MAX_NAME)];
        let is_whole = length <= MAX_NAME;
        match Member::of(written) {
            Some(member) if is_whole => return member,
            _ => {}
        }
        let quoted = [b"\"", written, b"\""].concat();
        let name = serde_json::from_slice::<String>(&quoted);
        if let Some(member) = name.ok().and_then(|name| Member::of(name.as_bytes())) {
            return member;
        }
        let name = plain(&String::from_utf8_lossy(written));
        let is_known = is_whole || name.contains('\0');
        match is_known && reads_as(&name, "method") {
            true => Member::Method,
            false => Member::Other,
        }
    }
}

// === impl Member ===

impl Member {
    fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"id" => Self::Id,
            b"result" => Self::Result,
            b"error" => Self::Error,
            b"method" => Self::Method,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
