//! One JSON-RPC message: its raw bytes, and the positions of the fields that a gateway needs.
//!
//! A single validating pass finds kind, id, method and params as spans of the bytes. Nothing is copied
//! or rebuilt: unknown fields, key order and number formats are forwarded unchanged, and a rewrite
//! replaces the bytes of one value and no others.

mod fields;
mod ids;
mod readings;

pub use ids::{RawId, RawIdBuf, echoes_id, is_answer_to};

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Deserializer as _};
use serde_json::error::Category;
use serde_json::value::RawValue;
use thiserror::Error;

use self::fields::Fields;
use crate::batch::is_batch;

/// An unchanged message with the spans of its envelope. Clones share one allocation, because many
/// functions hand it on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message(Arc<Peeked>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Peeked {
    raw: Bytes,
    kind: Kind,
    id: Option<Span>,
    method: Option<Method>,
    params: Option<Span>,
    result: Option<Span>,
    error: Option<Span>,
}

/// Copies of larger messages keep their originals.
const LARGE: usize = 64 * 1024;

/// A copy that keeps its original.
struct Spliced {
    bytes: BytesMut,
    _of: Bytes,
}

/// The kind of a message, as JSON-RPC defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Has a method and an id: it needs a response.
    Request,
    /// Has a method and no id.
    Notification,
    /// Has a result or an error.
    Response,
}

/// The span of one whole JSON value in a message's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: usize,
    end: usize,
}

/// Why bytes are not one JSON-RPC message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Not JSON at all.
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    /// A JSON array: a batch.
    #[error("the body is a JSON-RPC batch, and single messages are expected")]
    Batch,
    /// JSON, but not a JSON-RPC 2.0 message.
    #[error("the body is not a JSON-RPC 2.0 message: {0}")]
    NotJsonRpc(String),
    /// An answer for one reader, and a request or notification for another.
    #[error(
        "the body is not a JSON-RPC 2.0 message: `method` cannot stand beside `result` or `error`"
    )]
    Ambiguous,
    /// A member of a client's message whose name some reader takes for this one.
    #[error("the body is not a JSON-RPC 2.0 message: another name can be read as `{0}`")]
    OddName(&'static str),
    /// Readers of a client's message would find different values here.
    #[error(
        "the body can be read in two ways: `{what}` is there twice, is spelled in another way, or has a NUL or half a character in it"
    )]
    TwoReadings {
        /// The member.
        what: &'static str,
        /// The id of the request.
        id: Option<RawIdBuf>,
    },
}

/// A method's name: nearly always a common one, otherwise a span of the bytes, decoded only if it contains
/// escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Method {
    Common(&'static str),
    Plain(Span),
    Escaped(Box<str>),
}

/// The server's description of itself in the response to `initialize`.
#[derive(Debug, Deserialize)]
pub struct Initialized<'a> {
    /// The protocol revision that it chose.
    #[serde(borrow, rename = "protocolVersion")]
    pub version: Cow<'a, str>,
    #[serde(borrow)]
    capabilities: Option<&'a RawValue>,
}

// === impl Message ===

impl Message {
    /// Parses the envelope of one message. What two parsers could read differently is an error: a repeated envelope
    /// key, a name that is nearly one, and whatever is ambiguous where a gateway decides by it.
    pub fn parse(raw: Bytes) -> Result<Self, Malformed> {
        let message = Self::read(raw, |fields| {
            fields.forget_null();
            fields.refuse_odd()
        })?;
        message.has_one_reading().map(|()| message)
    }

    /// Parses a message from a server as leniently as any client would: members that are `null` count as
    /// absent, and `jsonrpc` may be missing. Otherwise a client could accept a response or a request
    /// that the gateway did not recognize as one.
    pub fn from_server(raw: Bytes) -> Result<Self, Malformed> {
        Self::read(raw, |fields| {
            fields.forget_all_null();
            Ok(())
        })
    }

    /// The same from a channel that the server's logs share, where only what says `"jsonrpc": "2.0"` is a message.
    pub fn among_logs(raw: Bytes) -> Result<Self, Malformed> {
        Self::read(raw, |fields| {
            fields.forget_nulls();
            Ok(())
        })
    }

    /// The same message, whose bytes are held by this from now on.
    #[must_use]
    pub fn held_by(self, raw: Bytes) -> Self {
        debug_assert_eq!(self.0.raw, raw);
        let peeked = Arc::unwrap_or_clone(self.0);
        Self(Arc::new(Peeked { raw, ..peeked }))
    }

    fn read(
        raw: Bytes,
        judge: fn(&mut Fields<'_>) -> Result<(), Malformed>,
    ) -> Result<Self, Malformed> {
        if is_batch(&raw) {
            return Err(Malformed::Batch);
        }
        let text = std::str::from_utf8(&raw);
        let fields = match text {
            // Validated once, which costs less than once for each member.
            Ok(text) => serde_json::from_str(text),
            // The error, or bytes in a member that nobody reads.
            Err(_) => serde_json::from_slice(&raw),
        };
        let mut fields: Fields<'_> = fields.map_err(|error| malformed(&error))?;
        fields.is_text = text.is_ok();
        judge(&mut fields)?;
        let kind = fields.kind()?;
        let method = fields.method.map(|value| Method::read(&raw, value));
        let span = |value: Option<&RawValue>| value.map(|value| Span::of(&raw, value));
        let (id, params) = (span(fields.id), span(fields.params));
        let (result, error) = (span(fields.result), span(fields.error));
        let method = method.transpose()?;
        Ok(Self(Arc::new(Peeked {
            kind,
            id,
            method,
            params,
            result,
            error,
            raw,
        })))
    }

    /// What the message is.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The unchanged bytes.
    pub fn raw(&self) -> &Bytes {
        &self.0.raw
    }

    /// The id; `None` if there is none or it is `null`.
    pub fn id(&self) -> Option<RawId<'_>> {
        let id = self.0.id.map(|span| self.text(span));
        id.filter(|id| *id != "null").map(RawId::new)
    }

    /// Whether it is the response to the request with this id.
    pub fn answers(&self, id: RawId<'_>) -> bool {
        self.0.kind == Kind::Response && self.id().is_some_and(|own| own.answers(id))
    }

    /// The method's name.
    pub fn method(&self) -> Option<&str> {
        match self.0.method.as_ref()? {
            Method::Common(name) => Some(name),
            Method::Plain(span) => Some(self.text(span.unquoted())),
            Method::Escaped(name) => Some(name),
        }
    }

    /// The result of `initialize`.
    pub fn initialized(&self) -> Option<Initialized<'_>> {
        serde_json::from_str(self.object(self.0.result?)?).ok()
    }

    /// The span of a member of the params. It reads all of them, so it is not for every message.
    pub fn param(&self, name: &str) -> Option<Span> {
        member(&self.0.raw, self.object(self.0.params?)?, name)
    }

    /// The name of the tool that this calls.
    pub fn called_tool(&self) -> Option<String> {
        if self.method()? != "tools/call" {
            return None;
        }
        serde_json::from_str(self.text(self.param("name")?)).ok()
    }

    /// The span of the token under which a request asks for progress.
    pub fn progress_token(&self) -> Option<Span> {
        let meta = self.param("_meta")?;
        member(&self.0.raw, self.object(meta)?, "progressToken")
    }

    /// The span of a member of the result.
    pub fn result_member(&self, name: &str) -> Option<Span> {
        member(&self.0.raw, self.object(self.0.result?)?, name)
    }

    /// The span of the params.
    pub fn params_span(&self) -> Option<Span> {
        self.0.params
    }

    /// The span of the result.
    pub fn result_span(&self) -> Option<Span> {
        self.0.result
    }

    /// The result as JSON text.
    pub fn result(&self) -> Option<&str> {
        self.0.result.map(|span| self.text(span))
    }

    /// The span of the error.
    pub fn error_span(&self) -> Option<Span> {
        self.0.error
    }

    /// The error object as JSON text.
    pub fn error(&self) -> Option<&str> {
        self.0.error.map(|span| self.text(span))
    }

    /// The code of an error response.
    pub fn error_code(&self) -> Option<i64> {
        #[derive(Deserialize)]
        struct ErrorObject {
            code: i64,
        }
        let error: ErrorObject = serde_json::from_str(self.object(self.0.error?)?).ok()?;
        Some(error.code)
    }

    /// The span of the id that `notifications/cancelled` cancels.
    pub fn cancelled_request(&self) -> Option<Span> {
        #[derive(Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow, rename = "requestId")]
            request_id: &'a RawValue,
        }
        if self.method()? != "notifications/cancelled" {
            return None;
        }
        let params: Cancelled<'_> = serde_json::from_str(self.object(self.0.params?)?).ok()?;
        Some(Span::of(&self.0.raw, params.request_id))
    }

    /// The span of the id.
    pub fn id_span(&self) -> Option<Span> {
        self.0.id
    }

    /// The text of an object, because serde would also read fields from an array.
    fn object(&self, span: Span) -> Option<&str> {
        Some(self.text(span)).filter(|text| text.starts_with('{'))
    }

    /// The JSON text of a value of this message.
    pub fn text(&self, span: Span) -> &str {
        // A span is a `RawValue`, which the parser has validated as UTF-8.
        std::str::from_utf8(&self.0.raw[span.start..span.end]).unwrap_or_default()
    }

    /// The same bytes with one value replaced. If they are many they keep the original, because whoever counts what a
    /// message takes counts it by that.
    pub fn splice(&self, span: Span, value: &str) -> Bytes {
        let mut bytes =
            BytesMut::with_capacity(self.0.raw.len() - (span.end - span.start) + value.len());
        bytes.extend_from_slice(&self.0.raw[..span.start]);
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(&self.0.raw[span.end..]);
        match self.0.raw.len() > LARGE {
            true => Bytes::from_owner(Spliced {
                bytes,
                _of: self.0.raw.clone(),
            }),
            false => bytes.freeze(),
        }
    }

    /// The same message with one value replaced by another one, which must be JSON. It is not read again: the spans
    /// move.
    pub fn replaced(&self, span: Span, value: &str) -> Self {
        let moved = |own: &Span| own.moved(span, value.len());
        let Peeked { kind, method, .. } = &*self.0;
        Self(Arc::new(Peeked {
            raw: self.splice(span, value),
            kind: *kind,
            id: self.0.id.as_ref().map(moved),
            method: method.as_ref().map(|method| match method {
                Method::Plain(own) => Method::Plain(moved(own)),
                other => other.clone(),
            }),
            params: self.0.params.as_ref().map(moved),
            result: self.0.result.as_ref().map(moved),
            error: self.0.error.as_ref().map(moved),
        }))
    }
}

// === impl Malformed ===

impl Malformed {
    /// The id of the request, if there is no doubt about that.
    #[must_use]
    pub fn id(&self) -> Option<RawId<'_>> {
        match self {
            Self::TwoReadings { id, .. } => id.as_ref().map(RawIdBuf::as_id),
            Self::NotJson(_)
            | Self::Batch
            | Self::NotJsonRpc(_)
            | Self::Ambiguous
            | Self::OddName(_) => None,
        }
    }
}

// === impl Spliced ===

impl AsRef<[u8]> for Spliced {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

// === impl Initialized ===

impl Initialized<'_> {
    /// Its capabilities as JSON text.
    pub fn capabilities(&self) -> &str {
        self.capabilities.map_or("{}", RawValue::get)
    }
}

fn member(raw: &Bytes, object: &str, name: &str) -> Option<Span> {
    let mut reader = serde_json::Deserializer::from_str(object);
    let found = reader.deserialize_map(fields::Member(name)).ok()?;
    found.map(|value| Span::of(raw, value))
}

fn malformed(error: &serde_json::Error) -> Malformed {
    match error.classify() {
        Category::Data => Malformed::NotJsonRpc(error.to_string()),
        Category::Io | Category::Syntax | Category::Eof => Malformed::NotJson(error.to_string()),
    }
}

// === impl Method ===

impl Method {
    /// Names that are not read again from the bytes whenever they are asked for.
    const COMMON: [&str; 6] = [
        "tools/call",
        "tools/list",
        "ping",
        "resources/read",
        "prompts/get",
        "notifications/progress",
    ];

    fn read(raw: &Bytes, value: &RawValue) -> Result<Self, Malformed> {
        let plain = value.get().strip_prefix('"');
        let plain = plain.and_then(|text| text.strip_suffix('"'));
        let mut common = Self::COMMON.into_iter();
        if let Some(name) = common.find(|name| Some(*name) == plain) {
            return Ok(Self::Common(name));
        }
        let not_text = |_| Malformed::NotJsonRpc("`method` must be a string".to_owned());
        let name: Cow<'_, str> = match serde_json::from_str::<&str>(value.get()) {
            Ok(plain) => Cow::Borrowed(plain),
            Err(_) => Cow::Owned(serde_json::from_str::<String>(value.get()).map_err(not_text)?),
        };
        Ok(match name {
            Cow::Borrowed(_) => Self::Plain(Span::of(raw, value)),
            Cow::Owned(name) => Self::Escaped(name.into_boxed_str()),
        })
    }
}

// === impl Span ===

impl Span {
    /// The span of `inner`, which the parser borrowed from `outer`.
    fn of(outer: &Bytes, inner: &RawValue) -> Self {
        let start = inner.get().as_ptr() as usize - outer.as_ptr() as usize;
        Self {
            start,
            end: start + inner.get().len(),
        }
    }

    /// Where this is when a value of another length stands at `replaced`, which is a part of this, or outside.
    fn moved(self, replaced: Self, length: usize) -> Self {
        let after = |end: usize| end - (replaced.end - replaced.start) + length;
        match () {
            () if self.start >= replaced.end => Self {
                start: after(self.start),
                end: after(self.end),
            },
            () if self.end >= replaced.end => Self {
                start: self.start,
                end: after(self.end),
            },
            () => self,
        }
    }

    fn unquoted(self) -> Self {
        Self {
            start: self.start + 1,
            end: self.end - 1,
        }
    }
}

#[cfg(test)]
mod tests;
