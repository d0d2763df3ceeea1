//! Marks: ids that a client sends back, and that say where they came from.
//!
//! The client sees an upstream's event ids and request ids sealed. Inside are the leg, its
//! generation and the original id. So no gateway has to remember the ids that it sent, a client
//! cannot forge a mark, and nothing that an upstream puts into its ids (some put the session id
//! there) is disclosed. Sealing is deterministic on purpose: a server's `notifications/cancelled`
//! must name its request by the mark that the client has seen. AES-GCM-SIV is safe for this: it
//! discloses only whether two inputs are equal.
//!
//! The other way round, a server knows a repeated request by a mark in place of the client's own id, and of the token
//! of its progress. What a server sends back stands for the client's own only if it opens: it was handed out.

use std::borrow::Cow;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_wire::id::SessionId;
use bowline_wire::message::{RawId, RawIdBuf};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::leg::Generation;

/// A session's key for marks.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Seal([u8; 32]);

/// Which stream an event belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StreamOrigin {
    /// The stream of a GET.
    Standalone,
    /// The answer to the request with this id.
    Request(RawIdBuf),
}

/// The contents of an event id's mark.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EventMark {
    pub(crate) leg: Generation,
    pub(crate) origin: StreamOrigin,
    /// The upstream's own event id.
    pub(crate) id: Box<[u8]>,
}

/// The kind of a mark. It is bound into the seal, so that one kind is never accepted as the other.
const EVENT: &[u8] = b"event";
const REQUEST: &[u8] = b"request";
const REPEAT_ID: &[u8] = b"repeat id";
const REPEAT_TOKEN: &[u8] = b"repeat token";

/// How the mark of a repeat begins, so that nothing else is tried to be opened.
const AGAIN: &str = "bowline-again-";

/// What of a client's request the server knows by a mark of ours.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Repeated {
    Id,
    /// The token of its progress.
    Token,
}

/// How many bytes keep the marks of one id's repeats apart.
const UNIQUE: usize = 8;

// === impl Repeated ===

impl Repeated {
    fn kind(self) -> &'static [u8] {
        match self {
            Self::Id => REPEAT_ID,
            Self::Token => REPEAT_TOKEN,
        }
    }
}

// === impl Seal ===

impl Seal {
    /// A new random key.
    pub(crate) fn generate() -> Result<Self, aws_lc_rs::error::Unspecified> {
        let mut key = [0; 32];
        rand::fill(&mut key)?;
        Ok(Self(key))
    }

    /// A new random key and the id of its session, from one call to the random source.
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
        let request = match &mark.origin {
            StreamOrigin::Standalone => "",
            StreamOrigin::Request(id) => id.as_str(),
        };
        let mut plain = Vec::with_capacity(64);
        plain.extend_from_slice(&mark.leg.to_bytes());
        // JSON-RPC ids are never empty text, so an empty one means "no request".
        plain.extend_from_slice(&u32::try_from(request.len()).ok()?.to_be_bytes());
        plain.extend_from_slice(request.as_bytes());
        plain.extend_from_slice(&mark.id);
        self.seal(EVENT, plain)
    }

    /// What a client's `Last-Event-ID` stands for, if it is a mark of this session.
    pub(crate) fn open_event(&self, mark: &[u8]) -> Option<EventMark> {
        let plain = self.open(EVENT, mark)?;
        let (leg, rest) = Generation::from_bytes(&plain)?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (request, id) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        let origin = match std::str::from_utf8(request).ok()? {
            "" => StreamOrigin::Standalone,
            id => StreamOrigin::Request(RawIdBuf::new(id)),
        };
        Some(EventMark {
            leg,
            origin,
            id: id.into(),
        })
    }

    /// The mark of the id of a server's request, which is an id itself.
    pub(crate) fn request(&self, leg: Generation, id: RawId<'_>) -> Option<RawIdBuf> {
        let mut plain = Vec::with_capacity(64);
        plain.extend_from_slice(&leg.to_bytes());
        plain.extend_from_slice(id.as_str().as_bytes());
        let sealed = self.seal(REQUEST, plain)?;
        Some(RawIdBuf::new(format!("\"{sealed}\"")))
    }

    /// The server's own id that a client's answer refers to. `None` if it is not a mark of this
    /// session.
    pub(crate) fn open_request(&self, mark: RawId<'_>) -> Option<(Generation, RawIdBuf)> {
        let mark = plain_text(mark)?;
        let plain = self.open(REQUEST, mark.as_bytes())?;
        let (leg, id) = Generation::from_bytes(&plain)?;
        Some((leg, RawIdBuf::new(std::str::from_utf8(id).ok()?)))
    }

    /// The mark that stands for a client's own id or token towards the leg with this number. No two are equal.
    pub(crate) fn repeat(&self, what: Repeated, leg: u16, own: RawId<'_>) -> Option<RawIdBuf> {
        let mut unique = [0; UNIQUE];
        rand::fill(&mut unique).ok()?;
        let plain = [&leg.to_be_bytes()[..], &unique, own.as_str().as_bytes()].concat();
        let sealed = self.seal(what.kind(), plain)?;
        Some(RawIdBuf::new(format!("\"{AGAIN}{sealed}\"")))
    }

    /// The client's own id or token that a server's stands for. `None` if it was not handed out as such to this leg.
    pub(crate) fn open_repeat(
        &self,
        what: Repeated,
        leg: u16,
        mark: RawId<'_>,
    ) -> Option<RawIdBuf> {
        let mark = plain_text(mark)?;
        #[cfg(feature = "planted")]
        if crate::planted::has(crate::planted::Bug::ForgeryIsBelieved)
            && let Some((_, encoded)) = mark.strip_prefix(AGAIN)?.split_once('-')
            && let Ok(own) = URL_SAFE_NO_PAD.decode(encoded)
        {
            return String::from_utf8(own).ok().map(RawIdBuf::new);
        }
        let plain = self.open(what.kind(), mark.strip_prefix(AGAIN)?.as_bytes())?;
        let rest = plain.strip_prefix(&leg.to_be_bytes()[..])?;
        let own = std::str::from_utf8(rest.get(UNIQUE..)?).ok()?;
        Some(RawIdBuf::new(own))
    }

    /// The token of Bowline's own under which a request tells its progress to this leg. A member's says of which request.
    pub(crate) fn own_token(
        &self,
        leg: Generation,
        request: RawId<'_>,
        token: RawId<'_>,
    ) -> Option<RawIdBuf> {
        let stands_for = match leg.is_of_member() {
            true => Cow::Owned(format!("[{request},{token}]")),
            false => Cow::Borrowed(token.as_str()),
        };
        self.repeat(Repeated::Token, leg.leg, RawId::new(&stands_for))
    }

    /// The id of a member's request, and the client's own token, that a token of Bowline's own stands for.
    pub(crate) fn open_member_token(
        &self,
        leg: Generation,
        token: RawId<'_>,
    ) -> Option<(RawIdBuf, RawIdBuf)> {
        let stands_for = self.open_repeat(Repeated::Token, leg.leg, token)?;
        let (request, token): (&RawValue, &RawValue) =
            serde_json::from_str(stands_for.as_str()).ok()?;
        Some((RawIdBuf::new(request.get()), RawIdBuf::new(token.get())))
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

    /// Expanded on each use: the expanded key is several times the size of the key, and most
    /// sessions never seal anything.
    fn key(&self) -> Option<LessSafeKey> {
        UnboundKey::new(&AES_256_GCM_SIV, &self.0)
            .ok()
            .map(LessSafeKey::new)
    }
}

/// The text of a mark. It needs no escapes, but an encoder may escape it.
fn plain_text<'a>(mark: RawId<'a>) -> Option<Cow<'a, str>> {
    let mark = mark.as_str();
    match mark.contains('\\') {
        true => serde_json::from_str(mark).ok(),
        false => Some(Cow::Borrowed(mark.strip_prefix('"')?.strip_suffix('"')?)),
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
    const ONE: RawId<'static> = RawId::new("1");

    #[test]
    fn a_request_and_its_cancellation_have_the_same_mark() {
        let seal = Seal::generate().unwrap();
        assert_eq!(seal.request(LEG, ONE), seal.request(LEG, ONE));
        assert_ne!(
            seal.request(LEG, ONE),
            seal.request(LEG, RawId::new("\"1\""))
        );
        assert_ne!(
            seal.request(LEG, ONE),
            seal.request(Generation { number: 8, ..LEG }, ONE)
        );
    }

    #[test]
    fn marks_of_another_session_or_kind_do_not_open() {
        let (ours, theirs) = (Seal::generate().unwrap(), Seal::generate().unwrap());
        let request = ours.request(LEG, ONE).unwrap();
        assert!(ours.open_request(request.as_id()).is_some());
        assert!(theirs.open_request(request.as_id()).is_none());
        assert!(
            ours.open_event(request.as_str().trim_matches('"').as_bytes())
                .is_none()
        );
        assert!(ours.open_request(ONE).is_none());
        assert!(ours.open_request(RawId::new("\"\"")).is_none());
    }

    #[test]
    fn only_what_was_handed_out_is_given_back() {
        let seal = Seal::generate().unwrap();
        for own in ["7", "-1.50", "null", "\"\"", "\"a/b\\\"\\u0041\\\\<é>&+\""] {
            let mark = seal.repeat(Repeated::Id, 3, RawId::new(own)).unwrap();
            let opened = |what, leg, mark| {
                let opened = seal.open_repeat(what, leg, RawId::new(mark))?;
                Some(opened.to_string())
            };
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_\"".contains(&byte);
            assert!(mark.as_str().bytes().all(is_plain), "{mark}");
            assert_ne!(
                Some(&mark),
                seal.repeat(Repeated::Id, 3, RawId::new(own)).as_ref()
            );
            assert_eq!(opened(Repeated::Id, 3, mark.as_str()).as_deref(), Some(own));
            let escaped = mark.as_str().replace('-', "\\u002d");
            assert_eq!(opened(Repeated::Id, 3, &escaped).as_deref(), Some(own));
            assert_eq!(opened(Repeated::Token, 3, mark.as_str()), None);
            assert_eq!(opened(Repeated::Id, 4, mark.as_str()), None);
            assert_eq!(opened(Repeated::Id, 3, own), None);
            let encoded = URL_SAFE_NO_PAD.encode(own);
            let forged = format!("\"{AGAIN}1-{encoded}\"");
            assert_eq!(opened(Repeated::Id, 3, &forged), None);
            let theirs = Seal::generate().unwrap();
            assert!(theirs.open_repeat(Repeated::Id, 3, mark.as_id()).is_none());
        }
    }

    proptest! {
        #[test]
        fn events_come_back_whole(generation: u32, request in "(\"[a-z]{0,20}\"|[0-9]{1,9})?", id in prop::collection::vec(any::<u8>(), 0..80)) {
            let seal = Seal::generate().unwrap();
            let origin = if request.is_empty() { StreamOrigin::Standalone } else { StreamOrigin::Request(RawIdBuf::new(request)) };
            let mark = EventMark { leg: Generation { leg: 0, number: generation }, origin, id: id.into() };
            let text = seal.event(&mark).unwrap();
            assert_eq!(seal.open_event(text.as_bytes()), Some(mark));
        }

        #[test]
        fn requests_come_back_whole(id in "(\"[^\"\\\\]{0,40}\"|-?[0-9]{1,9})") {
            let seal = Seal::generate().unwrap();
            let mark = seal.request(LEG, RawId::new(&id)).unwrap();
            let opened = seal.open_request(mark.as_id());
            assert_eq!(opened.map(|(leg, id)| (leg, id.to_string())), Some((LEG, id)));
        }

        #[test]
        fn made_up_marks_never_open(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let seal = Seal::generate().unwrap();
            assert!(seal.open_event(&bytes).is_none());
            assert!(seal.open_event(URL_SAFE_NO_PAD.encode(&bytes).as_bytes()).is_none());
        }
    }
}
