//! Passes a JSON answer on while it arrives, and checks which request it answers.
//!
//! What comes before the id has been passed on before the id is read. So an answer to another
//! request is cut off: the client must not accept it as its own, nor as complete.

use std::collections::VecDeque;

use bowline_wire::message::{RawId, RawIdBuf};
use bowline_wire::scan::{IdScan, Stop};
use bytes::{Bytes, BytesMut};

use super::error::StreamError;

/// The parts of an answer, on their way from the server to the client.
#[derive(Debug)]
pub(crate) struct Passing {
    /// Parts that may be passed on.
    ready: VecDeque<Bytes>,
    /// The check of the id, until the answer has ended.
    looking: Option<Box<Looking>>,
}

#[derive(Debug)]
struct Looking {
    scan: IdScan,
    /// The id that the request was sent under, and the client's own if that is another.
    asked: RawIdBuf,
    own: Option<RawIdBuf>,
    /// The answer's id, as far as it has arrived.
    id: Option<BytesMut>,
    is_found: bool,
    /// The length is unknown: only the end of the JSON shows that the answer is complete.
    ends_with_connection: bool,
}

// === impl Passing ===

impl Passing {
    /// The parts of an answer to the request that was sent under the id `asked`, which the
    /// client knows under its `own`.
    pub(crate) fn new(
        asked: RawId<'_>,
        own: Option<RawId<'_>>,
        ends_with_connection: bool,
    ) -> Self {
        Self {
            ready: VecDeque::new(),
            looking: Some(Box::new(Looking {
                scan: IdScan::default(),
                asked: asked.to_buf(),
                own: own.map(RawId::to_buf),
                id: None,
                is_found: false,
                ends_with_connection,
            })),
        }
    }

    /// Whether it is confirmed that this is the answer to the request.
    pub(crate) fn is_found(&self) -> bool {
        self.looking
            .as_ref()
            .is_none_or(|looking| looking.is_seen())
    }

    /// Adds bytes from the server.
    pub(crate) fn push(&mut self, data: Bytes) -> Result<(), StreamError> {
        let Some(looking) = &mut self.looking else {
            check_rest(&data)?;
            self.ready.push_back(data);
            return Ok(());
        };
        if looking.take(data, &mut self.ready)? {
            self.looking = None;
        }
        Ok(())
    }

    /// The next part for the client.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }

    /// Checks that the answer may end here.
    pub(crate) fn end(&self) -> Result<(), StreamError> {
        match &self.looking {
            Some(looking) if looking.ends_with_connection || !looking.is_seen() => {
                Err(StreamError::Cut)
            }
            _ => Ok(()),
        }
    }
}

// === impl Looking ===

impl Looking {
    /// Scans more of the answer, up to its end, because a method or a second id may follow the
    /// result. `true` if it has ended.
    fn take(&mut self, mut data: Bytes, ready: &mut VecDeque<Bytes>) -> Result<bool, StreamError> {
        let (whole, passed) = (data.clone(), ready.len());
        let (mut is_split, mut is_ended) = (self.id.is_some(), false);
        loop {
            let (read, stop) = self.scan.read(&data);
            let part = data.split_to(read);
            match &mut self.id {
                Some(id) if id.len() + part.len() > max_length(self.asked.as_id()) => {
                    return Err(StreamError::AnotherId);
                }
                Some(id) => id.extend_from_slice(&part),
                None if !part.is_empty() => ready.push_back(part),
                None => {}
            }
            let is_over = match stop {
                Stop::More => break,
                Stop::IdBegins => {
                    self.id = Some(BytesMut::new());
                    false
                }
                Stop::IdEnds => {
                    let id = self.id.take().unwrap_or_default().freeze();
                    is_split |= self.own.is_some();
                    ready.push_back(self.checked(id)?);
                    false
                }
                Stop::AnswerBegins => false,
                Stop::End if !self.is_found && !self.scan.has_error() => {
                    return Err(StreamError::AnotherId);
                }
                Stop::End => true,
                Stop::NotAnAnswer => return Err(StreamError::AnotherId),
            };
            if is_over {
                check_rest(&data)?;
                if !data.is_empty() {
                    ready.push_back(data);
                }
                is_ended = true;
                break;
            }
        }
        if !is_split && self.id.is_none() {
            ready.truncate(passed);
            ready.push_back(whole);
        }
        Ok(is_ended)
    }

    /// Whether it is confirmed that this is the answer to the request.
    fn is_seen(&self) -> bool {
        self.is_found && self.scan.has_answer()
    }

    /// Checks the id, and returns it as the client knows it.
    fn checked(&mut self, id: Bytes) -> Result<Bytes, StreamError> {
        if id == "null" {
            // It may be an error without an id, which only its end shows.
            return Ok(id);
        }
        let text = std::str::from_utf8(&id).map_err(|_| StreamError::AnotherId)?;
        if !RawId::new(text).answers(self.asked.as_id()) {
            return Err(StreamError::AnotherId);
        }
        self.is_found = true;
        Ok(match &self.own {
            Some(own) => Bytes::copy_from_slice(own.as_str().as_bytes()),
            None => id,
        })
    }
}

/// What follows the answer: white space only. A client that reads value after value would take anything else for
/// another message.
fn check_rest(rest: &[u8]) -> Result<(), StreamError> {
    match rest.trim_ascii().is_empty() {
        true => Ok(()),
        false => Err(StreamError::AnotherId),
    }
}

/// The longest possible notation of an id.
fn max_length(id: RawId<'_>) -> usize {
    const ESCAPED: usize = r"\u0000".len();
    const SPACE: usize = 64;
    ESCAPED * id.as_str().len() + SPACE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is passed on of an answer that arrives in pieces of this length.
    fn passed(text: &str, asked: &str, own: Option<&str>, piece: usize) -> (String, bool) {
        let mut passing = Passing::new(RawId::new(asked), own.map(RawId::new), false);
        let mut shown = Vec::new();
        let mut is_good = true;
        for part in text.as_bytes().chunks(piece) {
            if passing.push(Bytes::copy_from_slice(part)).is_err() {
                is_good = false;
                break;
            }
            while let Some(part) = passing.pop() {
                shown.extend_from_slice(&part);
            }
        }
        is_good &= passing.end().is_ok();
        (String::from_utf8(shown).unwrap(), is_good)
    }

    #[test]
    fn nothing_follows_the_answer() {
        let answer = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
        for piece in [1, 5, 1000] {
            assert!(passed(&format!("{answer} \r\n"), "7", None, piece).1);
            for second in [r#"{"jsonrpc":"2.0","id":9,"method":"m"}"#, "]", "x"] {
                for between in ["", "\n"] {
                    let text = format!("{answer}{between}{second}");
                    let (shown, is_good) = passed(&text, "7", None, piece);
                    assert!(!is_good, "{text}");
                    assert!(!shown.contains(second), "{shown}");
                }
            }
        }
    }

    #[test]
    fn the_answer_passes_as_it_came_and_under_the_clients_id() {
        for text in [
            r#"{"jsonrpc":"2.0","id":"x.7","result":{"id":1}}"#,
            r#"{"result":{"text":"\"id\":2"},"jsonrpc":"2.0","id":"x\u002e7"} "#,
        ] {
            for piece in [1, 3, 30, 1000] {
                assert_eq!(
                    passed(text, "\"x.7\"", None, piece),
                    (text.to_owned(), true)
                );
                let (shown, is_good) = passed(text, "\"x.7\"", Some("7"), piece);
                let expected = text.replace(r#""x.7""#, "7").replace(r#""x\u002e7""#, "7");
                assert_eq!((shown, is_good), (expected, true));
            }
        }
    }

    #[test]
    fn an_answer_under_another_id_does_not_pass_whole() {
        for (text, upto) in [
            (r#"{"id":8,"result":{}}"#, r#"{"id":"#),
            (r#"{"result":{},"id":8}"#, r#"{"result":{},"id":"#),
            (r#"{"result":{},"id":{"a":[]}}"#, r#"{"result":{},"id":"#),
            (r#"{"result":{},"id":null}"#, r#"{"result":{},"id":null}"#),
            (r#"{"result":{}}"#, r#"{"result":{}}"#),
            (r#"{"result":{"id":7}"#, r#"{"result":{"id":7}"#),
            (r#"[{"id":7}]"#, "["),
            (r#"{"id":7,"method":"ping"}"#, r#"{"id":7,"method""#),
            (
                r#"{"id":7,"Meth\u006fd":"ping"}"#,
                r#"{"id":7,"Meth\u006fd""#,
            ),
            (r#"{"method":"ping","result":{},"id":7}"#, r#"{"method""#),
            (
                r#"{"id":7,"result":{"method":1},"method":"ping","id":8}"#,
                r#"{"id":7,"result":{"method":1},"method""#,
            ),
            (
                r#"{"result":{},"id":7,"method":"ping"}"#,
                r#"{"result":{},"id":7,"method""#,
            ),
            (
                r#"{"id":7,"result":{},"id":8}"#,
                r#"{"id":7,"result":{},"id":"#,
            ),
        ] {
            for piece in [1, 5, 1000] {
                let (shown, is_good) = passed(text, "7", None, piece);
                assert!(!is_good && upto.starts_with(&shown), "{text}: {shown}");
            }
        }
        let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(1000));
        assert_eq!(
            passed(&long, "7", None, 10),
            (r#"{"id":"#.to_owned(), false)
        );
    }

    #[test]
    fn an_error_of_nobodys_passes() {
        for text in [
            r#"{"id":null,"error":{"code":-32700}}"#,
            r#"{"error":{"code":-32700,"data":{"id":9}}}"#,
        ] {
            assert_eq!(passed(text, "7", None, 4), (text.to_owned(), true));
        }
    }

    #[test]
    fn what_only_its_end_tells_to_be_whole_is_read_to_its_end() {
        for (text, is_whole) in [
            (r#"{"id":7,"result":{"a":1}}"#, true),
            (r#"{"id":7,"result":{"a":1}"#, false),
        ] {
            let mut passing = Passing::new(RawId::new("7"), None, true);
            passing.push(Bytes::from_static(text.as_bytes())).unwrap();
            assert!(passing.is_found());
            assert_eq!(passing.end().is_ok(), is_whole, "{text}");
        }
    }
}
