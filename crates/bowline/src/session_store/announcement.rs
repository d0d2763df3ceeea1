//! What gateways on one store announce to each other, so that they learn of changes early.
//!
//! Announcements are sealed like records: write access to the store is not enough to end a session.
//! Nothing depends on an announcement arriving.

use bowline_store::SealedAnnouncement;
use bowline_wire::id::SessionId;
use bowline_wire::message::RawIdBuf;
use bytes::Bytes;

use crate::session_store::SessionStore;

/// An event of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Announcement {
    /// The session has ended.
    Ended(SessionId),
    /// The session's record has changed; there may be a new generation.
    Changed(SessionId),
    /// The client opened a GET stream at another gateway. The stream with the highest number is the
    /// newest.
    Listens(SessionId, u64),
    /// The client cancelled the request with this id.
    Cancelled(SessionId, RawIdBuf),
    /// The client answered the server request with this mark.
    Settled(SessionId, RawIdBuf),
}

/// Part of the seal, so that no other sealed data is accepted as an announcement.
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

    /// The sealed form that this gateway sends.
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
            Self::Cancelled(_, request) | Self::Settled(_, request) => {
                plain.extend_from_slice(request.as_str().as_bytes());
            }
        }
        Some(SealedAnnouncement {
            kind: self.kind(),
            body: session_store.keys.seal(PLACE, &plain).ok()?.into(),
        })
    }

    /// Opens an announcement of another gateway; `None` if it is this gateway's own or of an unknown
    /// kind.
    pub(crate) fn heard(session_store: &SessionStore, body: &Bytes) -> Option<Self> {
        let plain = session_store.keys.open(PLACE, body).ok()?;
        let (&[kind, length], rest) = plain.split_first_chunk::<2>()?;
        let (from, rest) = rest.split_at_checked(usize::from(length))?;
        if from == session_store.me.as_bytes() {
            return None;
        }
        let (id, rest) = rest.split_first_chunk::<{ SessionId::BYTES }>()?;
        let id = SessionId::from_random(*id);
        let request = |text| std::str::from_utf8(text).ok().map(RawIdBuf::new);
        match kind {
            1 => Some(Self::Ended(id)),
            2 => Some(Self::Changed(id)),
            3 => {
                let number = rest.first_chunk().copied()?;
                Some(Self::Listens(id, u64::from_be_bytes(number)))
            }
            4 => Some(Self::Cancelled(id, request(rest)?)),
            5 => Some(Self::Settled(id, request(rest)?)),
            _ => None,
        }
    }
}
