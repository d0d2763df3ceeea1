//! The records of an answer.

use bytes::{Buf as _, Bytes};
use serde::{Deserialize, Serialize};

use crate::proof::Proof;

/// The most of a message, or of a stream, that one record has. So little is held before it is known to be genuine.
pub(crate) const PART: usize = 64 * 1024;

/// A record of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The receiver has what the forward is about, and begins.
    Accepted,
    /// One message follows, of so many bytes.
    Whole(u64),
    /// A stream of events follows.
    Stream,
    /// Some bytes of what follows.
    Part(Bytes),
    /// A sign of life.
    Beat,
    /// Nothing follows.
    End(Ending),
}

/// How an answer ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    /// That was all.
    Done,
    /// The receiver does not have what the forward is about, and never will: nothing ran.
    NotMine(Box<str>),
    /// The receiver cannot tell now: nothing ran.
    Unsure(Box<str>),
    /// The sender may not do this: nothing ran.
    Refused(Box<str>),
    /// It failed at the receiver, or beyond.
    Failed(Failure),
}

/// What a failure proves, and what it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    #[serde(flatten)]
    pub(crate) proof: Proof,
    /// The client cancelled the request.
    #[serde(default)]
    pub(crate) is_cancelled: bool,
    /// Another call of the session has its id.
    #[serde(default)]
    pub(crate) is_id_taken: bool,
    /// The answer was too large to be passed on.
    #[serde(default)]
    pub(crate) is_too_large: bool,
    /// The server's tools have changed, and the store could not be told.
    #[serde(default)]
    pub(crate) tools_changed: bool,
    /// The caller has to sign in first, for this reason, in JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sign_in: Option<Box<str>>,
    pub(crate) what: Box<str>,
}

impl Record {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Accepted => vec![1],
            Self::Whole(bytes) => [&[2][..], &bytes.to_be_bytes()].concat(),
            Self::Stream => vec![3],
            Self::Part(bytes) => [&[4], &bytes[..]].concat(),
            Self::Beat => vec![5],
            Self::End(ending) => {
                let ending = serde_json::to_vec(ending).unwrap_or_default();
                [&[6], &ending[..]].concat()
            }
        }
    }

    pub(super) fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        let mut bytes = Bytes::from(bytes);
        Some(match bytes.try_get_u8().ok()? {
            1 => Self::Accepted,
            2 => Self::Whole(bytes.try_get_u64().ok()?),
            3 => Self::Stream,
            4 => Self::Part(bytes),
            5 => Self::Beat,
            6 => Self::End(serde_json::from_slice(&bytes).ok()?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::{Ran, SessionState};

    fn failure(ran: Ran, session: SessionState) -> Failure {
        Failure {
            proof: Proof { ran, session },
            is_cancelled: false,
            is_id_taken: false,
            is_too_large: true,
            tools_changed: true,
            sign_in: Some("{}".into()),
            what: "its process has ended".into(),
        }
    }

    /// Gateways of different releases are on one store during an upgrade.
    #[test]
    fn a_proof_is_written_and_read_as_it_always_was() {
        for (ran, ran_as) in [
            (Ran::Yes, "true"),
            (Ran::No, "false"),
            (Ran::Unknown, "null"),
        ] {
            for (session, lost_as) in [
                (SessionState::Lost, "true"),
                (SessionState::Alive, "false"),
                (SessionState::Unproven, "null"),
            ] {
                let failed = Ending::Failed(failure(ran, session));
                let written = serde_json::to_string(&failed).unwrap();
                let begins = format!(r#"{{"failed":{{"ran":{ran_as},"is_lost":{lost_as},"#);
                assert!(written.starts_with(&begins), "{written}");
                assert_eq!(serde_json::from_str::<Ending>(&written).unwrap(), failed);
            }
        }
        let nothing = r#"{"failed":{"what":"?"}}"#;
        let Ok(Ending::Failed(read)) = serde_json::from_str(nothing) else {
            panic!("what is missing is not known");
        };
        let unknown = failure(Ran::Unknown, SessionState::Unproven);
        assert_eq!(read.proof, unknown.proof);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let failure = failure(Ran::Unknown, SessionState::Lost);
        for record in [
            Record::Accepted,
            Record::Whole(7),
            Record::Stream,
            Record::Part(Bytes::from_static(b"data: {}\n\n")),
            Record::Beat,
            Record::End(Ending::Done),
            Record::End(Ending::NotMine("gone".into())),
            Record::End(Ending::Failed(failure)),
        ] {
            assert_eq!(Record::from_bytes(record.to_bytes()), Some(record));
        }
        assert_eq!(Record::from_bytes(vec![]), None);
        assert_eq!(Record::from_bytes(vec![6, b'{']), None);
    }
}
