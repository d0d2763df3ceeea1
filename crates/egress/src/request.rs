//! A request ready to be written: its head as bytes, its body separately.

use bowline_wire::header::SESSION_ID;
use bowline_wire::id::UpstreamSessionId;
use bytes::{Bytes, BytesMut};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method};

use crate::body::Sent;

/// Enough for the head of most requests.
const HEAD_CAPACITY: usize = 512;

/// A request to one endpoint.
pub struct Request {
    head: Head,
    body: Bytes,
    /// Set when the first byte was sent.
    pub(super) sent: Sent,
    /// Asked right before the first byte is sent.
    condition: Option<Condition>,
}

/// Whether a request may still be sent.
pub type Condition = Box<dyn Fn() -> bool + Send + Sync>;

/// A request's head, while headers are added to it.
pub struct Head(Vec<u8>);

// === impl Head ===

impl Head {
    /// The head of a request, without headers yet.
    pub fn new(method: &Method, target: &PathAndQuery) -> Self {
        let mut head = Vec::with_capacity(HEAD_CAPACITY);
        head.extend_from_slice(method.as_str().as_bytes());
        head.push(b' ');
        head.extend_from_slice(target.as_str().as_bytes());
        head.extend_from_slice(b" HTTP/1.1\r\n");
        Self(head)
    }

    /// Adds a header. Names and values of these types cannot break out of their line.
    pub fn add(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.line(name, value.as_bytes());
    }

    /// Adds the upstream's session id, which is visible ASCII.
    pub fn add_session(&mut self, id: &UpstreamSessionId) {
        self.line(&SESSION_ID, id.as_str().as_bytes());
    }

    fn line(&mut self, name: &HeaderName, value: &[u8]) {
        self.0.extend_from_slice(name.as_str().as_bytes());
        self.0.extend_from_slice(b": ");
        self.0.extend_from_slice(value);
        self.0.extend_from_slice(b"\r\n");
    }

    /// The request without a body.
    pub fn alone(self) -> Request {
        self.ended(Bytes::new(), Sent::default())
    }

    /// The request with this body.
    pub fn with(mut self, body: Bytes, sent: Sent) -> Request {
        self.0.extend_from_slice(b"content-length: ");
        self.number(body.len());
        self.0.extend_from_slice(b"\r\n");
        self.ended(body, sent)
    }

    /// Writes a number. This is done for every request, and formatting would cost several times as much.
    fn number(&mut self, number: usize) {
        if number >= 10 {
            self.number(number / 10);
        }
        self.0.push(b"0123456789"[number % 10]);
    }

    fn ended(mut self, body: Bytes, sent: Sent) -> Request {
        self.0.extend_from_slice(b"\r\n");
        let head = self;
        Request {
            head,
            body,
            sent,
            condition: None,
        }
    }
}

// The head contains cookies and credentials.
impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Head(…)")
    }
}

// === impl Request ===

impl Request {
    /// The same request, which is not sent unless this is so right before its first byte.
    #[must_use]
    pub fn only_if(self, condition: Condition) -> Self {
        Self {
            condition: Some(condition),
            ..self
        }
    }

    /// Whether it may be sent.
    pub(super) fn may_begin(&self) -> bool {
        self.condition.as_ref().is_none_or(|is_so| is_so())
    }

    pub(super) fn len(&self) -> usize {
        self.head.0.len() + self.body.len()
    }

    /// The bytes that follow the first `written` ones.
    pub(super) fn slices(&self, written: usize) -> [&[u8]; 2] {
        let head = &self.head.0;
        match written.checked_sub(head.len()) {
            None => [&head[written..], &self.body],
            Some(of_body) => [&[], &self.body[of_body..]],
        }
    }

    /// The same as owned bytes.
    pub(super) fn rest(&self, written: usize) -> Bytes {
        let [head, body] = self.slices(written);
        match head.is_empty() {
            true => self.body.slice_ref(body),
            false => {
                let mut rest = BytesMut::from(head);
                rest.extend_from_slice(body);
                rest.freeze()
            }
        }
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Request(…)")
    }
}

#[cfg(test)]
mod tests {
    use http::header::HOST;

    use super::*;

    #[test]
    fn what_is_left_is_never_more_or_less() {
        let mut head = Head::new(&Method::POST, &PathAndQuery::from_static("/mcp?a=b"));
        head.add(&HOST, &HeaderValue::from_static("localhost:1"));
        let request = head.with(Bytes::from_static(b"{}"), Sent::default());
        let whole = "POST /mcp?a=b HTTP/1.1\r\nhost: localhost:1\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(request.len(), whole.len());
        for written in 0..=whole.len() {
            assert_eq!(
                request.slices(written).concat(),
                whole.as_bytes()[written..]
            );
            assert_eq!(request.rest(written), whole.as_bytes()[written..]);
        }
    }

    #[test]
    fn a_request_without_a_body_says_nothing_of_its_length() {
        let head = Head::new(&Method::GET, &PathAndQuery::from_static("/"));
        assert_eq!(head.alone().rest(0), "GET / HTTP/1.1\r\n\r\n");
    }
}
