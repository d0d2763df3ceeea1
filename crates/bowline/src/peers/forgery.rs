//! Forwards that no gateway would send, for tests of those that get them.

use bytes::{Buf as _, Bytes};

use super::label::{Forward, ForwardKind, Label};
use super::record::Record;
use super::secret::PeerSecret;
use crate::caller::KeyPrint;
use crate::config::{Caller, KeyHash};

/// A forward of somebody who knows the secret.
#[derive(Debug, Clone)]
pub struct Forgery {
    /// The gateway that it is for.
    pub to: String,
    /// Whose it says it is.
    pub from: String,
    /// Which of its forwards.
    pub number: u64,
    /// How many gateways have forwarded it.
    pub hops: u8,
    /// The operation, and on what.
    pub head: serde_json::Value,
    /// The message.
    pub body: String,
}

impl Forgery {
    /// As it is sent.
    pub fn sealed(&self, secret: &str) -> Option<Vec<u8>> {
        let mut forward = Forward::new(ForwardKind::Leg, &self.head, &self.body.clone().into());
        forward.hops = self.hops;
        let label = self.label();
        let secret = PeerSecret::derive(secret.as_bytes())?;
        let sealed = secret.seal_forward(&label, &forward.to_bytes())?;
        Some([label, sealed].concat())
    }

    /// The records of its answer, as text.
    pub fn opened(&self, secret: &str, answer: Vec<u8>) -> Option<Vec<String>> {
        let secret = PeerSecret::derive(secret.as_bytes())?;
        let (mut answer, mut records) = (Bytes::from(answer), Vec::new());
        while !answer.is_empty() {
            let length = answer.try_get_u32().ok()? as usize;
            let sealed = answer.split_to(length.min(answer.len()));
            let plain = secret.open_record(&self.label(), records.len() as u64, &sealed)?;
            records.push(format!("{:?}", Record::from_bytes(plain)?));
        }
        Some(records)
    }

    /// How gateways name a caller's key to each other.
    pub fn key(key: &str) -> String {
        let caller = Caller::with_key(KeyHash::of(key.as_bytes()));
        let print = KeyPrint::of_caller(&caller);
        print.map(|print| print.to_string()).unwrap_or_default()
    }

    fn label(&self) -> Vec<u8> {
        let label = Label {
            to: self.to.as_str().into(),
            from: self.from.as_str().into(),
            number: self.number,
        };
        label.to_bytes()
    }
}
