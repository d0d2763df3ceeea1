//! What gateways on one store announce to each other, so that they learn of changes before they look.
//!
//! Announcements are sealed like records: write access to the store is not enough to end a session.
//! Nothing depends on an announcement arriving.

use bowline_store::SealedAnnouncement;
use bowline_wire::id::SessionId;
use bytes::Bytes;

use crate::session_store::SessionStore;

/// Something that happened to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Announcement {
    /// It has ended.
    Ended(SessionId),
    /// Its record has changed; there may be a new generation.
    Changed(SessionId),
    /// Its client opened the stream of a GET elsewhere: the one with this number, and the highest is
    /// the newest.
    Listens(SessionId, u64),
    /// Its client cancelled the request with this id (JSON text).
    Cancelled(SessionId, Box<str>),
    /// Its client answered the server's request that it knows by this mark (JSON text).
    Settled(SessionId, Box<str>),
}

/// Bound into the seal, so that nothing else opens as an announcement.
const PLACE: &[u8] = b"announcement";

impl Announcement {
    fn kind(&self) -> u8 {
        match self {
            Self::Ended(_) => 1,
            Self::Changed(_) => 2,
            Self::Listens(..) => 3,
            Self::Cancelled(..) => 4,
            Self::Settled(..) => 5,
        }
    }

    /// As it is announced by this gateway.
    pub(crate) fn sealed(&self, session_store: &SessionStore) -> Option<SealedAnnouncement> {
        let (Self::Ended(id)
        | Self::Changed(id)
        | Self::Listens(id, _)
        | Self::Cancelled(id, _)
        | Self::Settled(id, _)) = self;
        let mut plain = Vec::with_capacity(64);
        plain.push(self.kind());
        plain.push(u8::try_from(session_store.me.len()).ok()?);
        plain.extend_from_slice(session_store.me.as_bytes());
        plain.extend_from_slice(id.as_bytes());
        match self {
            Self::Ended(_) | Self::Changed(_) => {}
            Self::Listens(_, number) => plain.extend_from_slice(&number.to_be_bytes()),
            Self::Cancelled(_, text) | Self::Settled(_, text) => {
                plain.extend_from_slice(text.as_bytes());
            }
        }
        Some(SealedAnnouncement {
            kind: self.kind(),
            body: session_store.keys.seal(PLACE, &plain).ok()?.into(),
        })
    }

    /// What another gateway announced; `None` if it was this one, or is nothing that is known.
    pub(crate) fn heard(session_store: &SessionStore, body: &Bytes) -> Option<Self> {
        let plain = session_store.keys.open(PLACE, body).ok()?;
        let (&[kind, length], rest) = plain.split_first_chunk::<2>()?;
        let (from, rest) = rest.split_at_checked(usize::from(length))?;
        if from == session_store.me.as_bytes() {
            return None;
        }
        let (id, rest) = rest.split_first_chunk::<{ SessionId::BYTES }>()?;
        let id = SessionId::from_random(*id);
        match kind {
            1 => Some(Self::Ended(id)),
            2 => Some(Self::Changed(id)),
            3 => {
                let number = rest.first_chunk().copied()?;
                Some(Self::Listens(id, u64::from_be_bytes(number)))
            }
            4 => Some(Self::Cancelled(id, std::str::from_utf8(rest).ok()?.into())),
            5 => Some(Self::Settled(id, std::str::from_utf8(rest).ok()?.into())),
            _ => None,
        }
    }
}
