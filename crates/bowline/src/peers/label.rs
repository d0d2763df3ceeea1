//! A forward as it is sent: its label in clear, and the sealed rest.

use bytes::{Buf as _, Bytes};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The format of a forward.
const FORMAT: u8 = 1;
/// The longest name of a gateway.
const LONGEST_NAME: usize = 64;

/// To whom, from whom, and which of the sender's forwards to this receiver. Bound into everything that is sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) to: Box<str>,
    pub(super) from: Box<str>,
    pub(super) number: u64,
}

/// What a forward is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForwardKind {
    /// Whether the peer knows the secret, and is who it should be.
    Greeting,
    /// An operation on a session's leg, which lives in the peer.
    Leg,
    /// A client's message for a stream of its that the peer has.
    Delivery,
    /// The answer to an elicitation, for a session that the peer has in its memory.
    Elicitation,
}

/// An operation that is forwarded.
#[derive(Debug)]
pub(crate) struct Forward {
    pub(crate) kind: ForwardKind,
    /// How many gateways have forwarded it: one, or it is refused.
    pub(crate) hops: u8,
    head: Bytes,
    /// The message, unchanged.
    pub(crate) body: Bytes,
}

// === impl Label ===

impl Label {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        for name in [&self.to, &self.from] {
            bytes.push(u8::try_from(name.len()).unwrap_or(0));
            bytes.extend_from_slice(name.as_bytes());
        }
        bytes.extend_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Reads the label before a sealed forward, and returns its bytes and the rest.
    pub(super) fn take(mut input: Bytes) -> Option<(Self, Bytes, Bytes)> {
        let whole = input.clone();
        if input.try_get_u8().ok()? != FORMAT {
            return None;
        }
        let mut name = || {
            let length = usize::from(input.try_get_u8().ok()?);
            if length > LONGEST_NAME || length > input.len() {
                return None;
            }
            let name = input.split_to(length);
            std::str::from_utf8(&name).ok().map(Box::<str>::from)
        };
        let (to, from) = (name()?, name()?);
        let number = input.try_get_u64().ok()?;
        let label = whole.slice(..whole.len() - input.len());
        Some((Self { to, from, number }, label, input))
    }
}

// === impl ForwardKind ===

impl ForwardKind {
    const ALL: [Self; 4] = [Self::Greeting, Self::Leg, Self::Delivery, Self::Elicitation];

    fn byte(self) -> u8 {
        match self {
            Self::Greeting => 1,
            Self::Leg => 2,
            Self::Delivery => 3,
            Self::Elicitation => 4,
        }
    }
}

// === impl Forward ===

impl Forward {
    pub(super) fn new(kind: ForwardKind, head: &impl Serialize, body: &Bytes) -> Self {
        Self {
            kind,
            hops: 1,
            head: serde_json::to_vec(head).unwrap_or_default().into(),
            body: body.clone(),
        }
    }

    /// What the kind needs to know; `None` if it is not that.
    pub(crate) fn head<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.head).ok()
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(6 + self.head.len() + self.body.len());
        bytes.extend_from_slice(&[self.kind.byte(), self.hops]);
        let length = u32::try_from(self.head.len()).unwrap_or(0);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&self.head);
        bytes.extend_from_slice(&self.body);
        bytes
    }

    pub(super) fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        let mut bytes = Bytes::from(bytes);
        let kind = bytes.try_get_u8().ok()?;
        let kind = ForwardKind::ALL
            .into_iter()
            .find(|one| one.byte() == kind)?;
        let hops = bytes.try_get_u8().ok()?;
        let length = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
        if length > bytes.len() {
            return None;
        }
        let head = bytes.split_to(length);
        Some(Self {
            kind,
            hops,
            head,
            body: bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_read_as_it_was_written() {
        let label = Label {
            to: "owner".into(),
            from: "other".into(),
            number: 7,
        };
        let mut bytes = label.to_bytes();
        let length = bytes.len();
        bytes.extend_from_slice(b"rest");
        let (read, clear, rest) = Label::take(Bytes::from(bytes.clone())).unwrap();
        assert_eq!((read, clear.len()), (label, length));
        assert_eq!(rest, "rest");
        for cut in 0..length {
            assert!(
                Label::take(Bytes::copy_from_slice(&bytes[..cut])).is_none(),
                "{cut}"
            );
        }
    }

    #[test]
    fn a_forward_is_read_as_it_was_written() {
        let body = Bytes::from_static(b"{}");
        let forward = Forward::new(ForwardKind::Leg, &"head", &body);
        let read = Forward::from_bytes(forward.to_bytes()).unwrap();
        assert_eq!(
            (read.kind, read.hops, &read.body),
            (ForwardKind::Leg, 1, &body)
        );
        assert_eq!(read.head::<String>().as_deref(), Some("head"));
        assert!(read.head::<u8>().is_none());
        for cut in 0..6 {
            assert!(Forward::from_bytes(forward.to_bytes()[..cut].to_vec()).is_none());
        }
    }
}
