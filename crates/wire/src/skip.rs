//! Whose a message is that is too large to be held, told while its bytes are skipped.

use crate::message::RawIdBuf;
use crate::scan::{IdScan, Stop};

/// The largest message of a server's that is passed on where it has to be held whole. The one limit of every
/// transport.
pub const MAX_MESSAGE: usize = 64 << 20;

/// The longest notation of an id that is looked at.
const MAX_ID: usize = 4096;

/// What a skipped message was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skipped {
    /// The answer to the request with this id.
    Answer(RawIdBuf),
    /// It may be an answer, and does not say to which request.
    Unknown,
    /// A request, a notification, or an object that is no message.
    NoAnswer,
}

/// Reads a message in pieces, and keeps nothing of it but its id.
#[derive(Debug, Default)]
pub struct Skipping {
    scan: IdScan,
    /// The id's notation, as far as it has arrived.
    id: Option<Vec<u8>>,
    found: Option<RawIdBuf>,
    is_told: bool,
}

impl Skipping {
    /// Reads the next bytes. What it is, once and as soon as that is known.
    pub fn read(&mut self, mut bytes: &[u8]) -> Option<Skipped> {
        while !self.is_told {
            let (read, stop) = self.scan.read(bytes);
            if let Some(id) = &mut self.id {
                id.extend_from_slice(&bytes[..read]);
                if id.len() > MAX_ID {
                    return self.tell(Skipped::Unknown);
                }
            }
            bytes = &bytes[read..];
            match stop {
                Stop::More => return None,
                Stop::IdBegins => self.id = Some(Vec::new()),
                Stop::IdEnds => {
                    let id = String::from_utf8(self.id.take().unwrap_or_default());
                    let id = id.ok().filter(|id| id != "null");
                    self.found = id.as_deref().map(RawIdBuf::new);
                }
                Stop::AnswerBegins => {}
                Stop::End | Stop::NotAnAnswer => return self.end(),
            }
            if let Some(id) = self.found.clone().filter(|_| self.scan.has_answer()) {
                return self.tell(Skipped::Answer(id));
            }
        }
        None
    }

    /// Nothing follows. What it was, if that was not known before.
    pub fn end(&mut self) -> Option<Skipped> {
        let is_another = self.scan.has_ended() && !self.scan.has_answer();
        self.tell(match self.scan.has_method() || is_another {
            true => Skipped::NoAnswer,
            false => Skipped::Unknown,
        })
    }

    fn tell(&mut self, skipped: Skipped) -> Option<Skipped> {
        (!std::mem::replace(&mut self.is_told, true)).then_some(skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str, piece: usize) -> Vec<Skipped> {
        let mut skipping = Skipping::default();
        let pieces = text.as_bytes().chunks(piece);
        let mut told: Vec<_> = pieces.filter_map(|piece| skipping.read(piece)).collect();
        told.extend(skipping.end());
        told
    }

    #[test]
    fn it_is_told_once_whose_it_is() {
        let answer = |id: &str| Skipped::Answer(RawIdBuf::new(id));
        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"id":8}}"#, answer("7")),
            (r#" {"result":["id",{}],"id" : "a" }"#, answer(r#""a""#)),
            (r#"{"id":7,"error":{"code":1}} "#, answer("7")),
            (r#"{"id":7,"result":"cut"#, answer("7")),
            (r#"{"result":"cut"#, Skipped::Unknown),
            (r#"{"id":null,"error":{}}"#, Skipped::Unknown),
            (r#"{"result":{}}"#, Skipped::Unknown),
            (r#"[{"id":7,"result":{}}]"#, Skipped::Unknown),
            (r#"{"id":7,"method":"ping"}"#, Skipped::NoAnswer),
            (r#"{"method":"n","params":{}}"#, Skipped::NoAnswer),
            (r#"{"level":"info"}"#, Skipped::NoAnswer),
            ("xxxx", Skipped::Unknown),
            ("", Skipped::Unknown),
        ] {
            for piece in [1, 3, 1000] {
                assert_eq!(told(text, piece), std::slice::from_ref(&expected), "{text}");
            }
        }
        let long = format!(r#"{{"id":"{}","result":1}}"#, "x".repeat(2 * MAX_ID));
        assert_eq!(told(&long, 100), [Skipped::Unknown]);
    }
}
