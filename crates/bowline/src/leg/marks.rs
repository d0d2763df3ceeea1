//! Marks: ids that pass through a client and tell, when they come back, where they came from.
//!
//! An upstream's event ids and the ids of its requests are shown to the client sealed: inside are
//! the leg, its generation and the original. So no gateway has to remember what it handed out, a
//! client cannot make up a mark, and nothing that an upstream puts into its ids (some put the
//! session id there) is shown. Sealing is deterministic, on purpose: a server's
//! `notifications/cancelled` must name its request by the very mark that the request was shown as.
//! AES-GCM-SIV is made for that; equal inputs give equal marks and nothing else is told.

use std::borrow::Cow;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_wire::id::SessionId;
use serde::{Deserialize, Serialize};

use crate::leg::Generation;

/// A session's key for marks.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Seal([u8; 32]);

/// Which stream an event belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Born {
    /// The stream of a GET.
    Standalone,
    /// The answer to the request with this id (JSON text).
    Request(Box<str>),
}

/// What an event id's mark says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EventMark {
    pub(crate) leg: Generation,
    pub(crate) born: Born,
    /// The upstream's own event id.
    pub(crate) id: Box<[u8]>,
}

/// What kind of thing a mark stands for; bound into the seal, so one is never taken for the other.
const EVENT: &[u8] = b"event";
const REQUEST: &[u8] = b"request";

// === impl Seal ===

impl Seal {
    /// A new random key.
    pub(crate) fn generate() -> Result<Self, aws_lc_rs::error::Unspecified> {
        let mut key = [0; 32];
        rand::fill(&mut key)?;
        Ok(Self(key))
    }

    /// A new random key and the id of its session: one visit to the random source for both.
    pub(crate) fn with_id() -> Result<(Self, SessionId), aws_lc_rs::error::Unspecified> {
        let mut random = [[0; 32]; 2];
        rand::fill(random.as_flattened_mut())?;
        let [key, id] = random;
        let mut short = [0; SessionId::BYTES];
        short.copy_from_slice(&id[..SessionId::BYTES]);
        Ok((Self(key), SessionId::from_random(short)))
    }

    /// The mark of an upstream's event id.
    pub(crate) fn event(&self, mark: &EventMark) -> Option<String> {
        let request = match &mark.born {
            Born::Standalone => "",
            Born::Request(id) => id,
        };
        let mut plain = Vec::with_capacity(64);
        plain.extend_from_slice(&mark.leg.to_bytes());
        // JSON-RPC ids are never empty text, so an empty one means "no request".
        plain.extend_from_slice(&u32::try_from(request.len()).ok()?.to_be_bytes());
        plain.extend_from_slice(request.as_bytes());
        plain.extend_from_slice(&mark.id);
        self.seal(EVENT, plain)
    }

    /// What a client's `Last-Event-ID` stands for, if this session handed it out.
    pub(crate) fn open_event(&self, mark: &[u8]) -> Option<EventMark> {
        let plain = self.open(EVENT, mark)?;
        let (leg, rest) = Generation::from_bytes(&plain)?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (request, id) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        let born = match std::str::from_utf8(request).ok()? {
            "" => Born::Standalone,
            id => Born::Request(id.into()),
        };
        Some(EventMark {
            leg,
            born,
            id: id.into(),
        })
    }

    /// The mark of the id (JSON text) of a server's request, as JSON text itself.
    pub(crate) fn request(&self, leg: Generation, id: &str) -> Option<String> {
        let mut plain = Vec::with_capacity(64);
        plain.extend_from_slice(&leg.to_bytes());
        plain.extend_from_slice(id.as_bytes());
        Some(format!("\"{}\"", self.seal(REQUEST, plain)?))
    }

    /// The server's own id that a client's answer stands for: `None` if it answers nothing of ours.
    pub(crate) fn open_request(&self, mark: &str) -> Option<(Generation, Box<str>)> {
        let mark = match mark.contains('\\') {
            // Nothing in it needs to be escaped, and a client may do it all the same.
            true => serde_json::from_str(mark).ok()?,
            false => Cow::Borrowed(mark.strip_prefix('"')?.strip_suffix('"')?),
        };
        let plain = self.open(REQUEST, mark.as_bytes())?;
        let (leg, id) = Generation::from_bytes(&plain)?;
        Some((leg, std::str::from_utf8(id).ok()?.into()))
    }

    fn seal(&self, kind: &[u8], mut plain: Vec<u8>) -> Option<String> {
        self.key()?
            .seal_in_place_append_tag(fixed_nonce(), Aad::from(kind), &mut plain)
            .ok()?;
        Some(URL_SAFE_NO_PAD.encode(plain))
    }

    fn open(&self, kind: &[u8], mark: &[u8]) -> Option<Vec<u8>> {
        let mut sealed = URL_SAFE_NO_PAD.decode(mark).ok()?;
        let plain = self
            .key()?
            .open_in_place(fixed_nonce(), Aad::from(kind), &mut sealed)
            .ok()?
            .len();
        sealed.truncate(plain);
        Some(sealed)
    }

    /// The expanded key is several times the key's size, and most sessions never seal anything.
    fn key(&self) -> Option<LessSafeKey> {
        UnboundKey::new(&AES_256_GCM_SIV, &self.0)
            .ok()
            .map(LessSafeKey::new)
    }
}

fn fixed_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(…)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, proptest};

    use super::*;

    const LEG: Generation = Generation { leg: 3, number: 7 };

    #[test]
    fn a_request_and_its_cancellation_have_the_same_mark() {
        let seal = Seal::generate().unwrap();
        assert_eq!(seal.request(LEG, "1"), seal.request(LEG, "1"));
        assert_ne!(seal.request(LEG, "1"), seal.request(LEG, "\"1\""));
        assert_ne!(
            seal.request(LEG, "1"),
            seal.request(Generation { number: 8, ..LEG }, "1")
        );
    }

    #[test]
    fn marks_of_another_session_or_kind_do_not_open() {
        let (ours, theirs) = (Seal::generate().unwrap(), Seal::generate().unwrap());
        let request = ours.request(LEG, "1").unwrap();
        assert!(ours.open_request(&request).is_some());
        assert!(theirs.open_request(&request).is_none());
        assert!(
            ours.open_event(request.trim_matches('"').as_bytes())
                .is_none()
        );
        assert!(ours.open_request("1").is_none());
        assert!(ours.open_request("\"\"").is_none());
    }

    proptest! {
        #[test]
        fn events_come_back_whole(generation: u32, request in "(\"[a-z]{0,20}\"|[0-9]{1,9})?", id in prop::collection::vec(any::<u8>(), 0..80)) {
            let seal = Seal::generate().unwrap();
            let born = if request.is_empty() { Born::Standalone } else { Born::Request(request.into()) };
            let mark = EventMark { leg: Generation { leg: 0, number: generation }, born, id: id.into() };
            let text = seal.event(&mark).unwrap();
            assert_eq!(seal.open_event(text.as_bytes()), Some(mark));
        }

        #[test]
        fn requests_come_back_whole(id in "(\"[^\"\\\\]{0,40}\"|-?[0-9]{1,9})") {
            let seal = Seal::generate().unwrap();
            let mark = seal.request(LEG, &id).unwrap();
            assert_eq!(seal.open_request(&mark), Some((LEG, id.into())));
        }

        #[test]
        fn made_up_marks_never_open(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let seal = Seal::generate().unwrap();
            assert!(seal.open_event(&bytes).is_none());
            assert!(seal.open_event(URL_SAFE_NO_PAD.encode(&bytes).as_bytes()).is_none());
        }
    }
}
