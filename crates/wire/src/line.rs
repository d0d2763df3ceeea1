//! A message as one line, for transports that separate messages by line breaks.

use bytes::{BufMut as _, Bytes, BytesMut};
use memchr::memchr2;

/// The message with a line break behind it, in one piece, so that it can be written at once. A line break within
/// JSON stands between two tokens, where it means no more than a space.
pub fn framed(message: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(message.len() + 1);
    line.extend_from_slice(message);
    if memchr2(b'\n', b'\r', &line).is_some() {
        for byte in line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
            *byte = b' ';
        }
    }
    line.put_u8(b'\n');
    line.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(
            &framed(b"{\r\n  \"text\": \"a\\nb\"\n}")[..],
            b"{    \"text\": \"a\\nb\" }\n"
        );
    }
}
